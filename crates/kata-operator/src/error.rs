//! Errors of calls to the API server: which call failed, why, and when to retry it.
//!
//! This module logs nothing. Only [`chain`] turns an error into text.

use std::error::Error;
use std::time::Duration;

use kata_api::error_text::one_line;
use kata_plan::Kind;
use kube::client::AuthError;

/// When to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Soon, with back-off.
    Backoff,
    /// After the wait that the API server asked for.
    After(Duration),
    /// At once: the objects that the decision used have changed.
    Reread,
    /// After the longest wait: the call fails until its cause is fixed.
    AfterChange,
    /// Never: this process may no longer write.
    Never,
}

/// A call that failed. `call` names its verb and object, such as `get Node worker-0`.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// There was no answer in time. A write may have succeeded anyway.
    #[error("{call}: no answer within {} s", after.as_secs())]
    Timeout {
        call: String,
        /// The time limit.
        after: Duration,
    },
    /// The connection failed. A write may have succeeded anyway.
    #[error("{call}: cannot reach the API server")]
    Unreachable {
        call: String,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The API server refused.
    #[error("{call}: {code} {reason}: {message}")]
    Refused {
        call: String,
        /// The HTTP status.
        code: u16,
        /// The reason of the Status object, such as `Conflict`.
        reason: String,
        /// The message of the Status object.
        message: String,
        /// The wait that the API server asks for.
        retry_after: Option<Duration>,
    },
    /// The API server does not serve the kind that was listed or applied.
    #[error("the API server does not serve {kind}{}", fix_not_served(kind))]
    NotServed { kind: String },
    /// The answer cannot be parsed.
    #[error("{call}: cannot read the answer")]
    Unreadable {
        call: String,
        #[source]
        source: serde_json::Error,
    },
    /// The request cannot be built from the object's name.
    #[error("{call}: cannot build the request")]
    Unbuildable {
        call: String,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The object has changed since the decision to write it.
    #[error("{call}: not sent, because the object has changed since the operator read it")]
    Stale { call: String },
    /// This process does not hold the lease; another operator may be writing.
    #[error("{call}: not sent, because this process does not hold the lease")]
    NotLeader { call: String },
}

impl CallError {
    /// The error of a call through kube: that of the operator's client below it, or kube's own.
    pub fn of_kube(call: String, error: kube::Error) -> Self {
        match error {
            kube::Error::Service(source) => match source.downcast::<Self>() {
                Ok(error) => *error,
                Err(source) => Self::Unreachable { call, source },
            },
            kube::Error::Api(status) => Self::of_status(call, *status),
            kube::Error::SerdeError(source) => Self::Unreadable { call, source },
            error => Self::Unreachable { call, source: Box::new(error) },
        }
    }

    /// The refusal in a Status object.
    pub fn of_status(call: String, status: kube::core::Status) -> Self {
        let kube::core::Status { code, reason, message, .. } = status;
        Self::Refused { call, code, reason, message, retry_after: None }
    }

    /// The category of the error in metrics, logs and traces.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "timeout",
            Self::Unreachable { .. } => "unreachable",
            Self::Refused { code: 404, .. } | Self::NotServed { .. } => "not_found",
            Self::Refused { code: 409, .. } => "conflict",
            Self::Refused { code: 410, .. } => "expired",
            Self::Refused { code: 401 | 403, .. } => "forbidden",
            Self::Refused { code: 429, .. } => "throttled",
            Self::Refused { code: 400 | 422, .. } => "invalid",
            Self::Refused { code: 500.., .. } => "server_error",
            Self::Refused { .. } => "refused",
            Self::Unreadable { .. } => "unreadable",
            Self::Unbuildable { .. } => "unbuildable",
            Self::Stale { .. } => "stale",
            Self::NotLeader { .. } => "not_leader",
        }
    }

    /// When to retry.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Timeout { .. } | Self::Unreachable { .. } | Self::Unreadable { .. } => {
                Retry::Backoff
            }
            Self::Refused { retry_after: Some(wait), .. } => Retry::After(*wait),
            Self::Refused { code: 404 | 409 | 410, .. }
            | Self::NotServed { .. }
            | Self::Stale { .. } => Retry::Reread,
            Self::Refused { code: 422, message, .. } if names_another_uid(message) => Retry::Reread,
            Self::Refused { .. } if self.fix().is_some() => Retry::AfterChange,
            Self::Refused { code: 429 | 500.., .. } => Retry::Backoff,
            Self::Refused { .. } | Self::Unbuildable { .. } => Retry::AfterChange,
            Self::NotLeader { .. } => Retry::Never,
        }
    }

    /// Why a write failed, for a message that already names the object: without the call, and without the
    /// object's name in the API server's message.
    pub fn cause(&self) -> String {
        match self {
            Self::Refused { code, reason, message, .. } => {
                let bare = ["is forbidden: ", "is invalid: ", "could not be patched: "]
                    .iter()
                    .find_map(|part| message.split_once(part))
                    .map_or(message.as_str(), |(_, rest)| rest);
                let fix = self.fix().map(|fix| format!("; {fix}")).unwrap_or_default();
                format!("{code} {reason}: {bare}{fix}")
            }
            Self::Timeout { after, .. } => format!("no answer within {} s", after.as_secs()),
            Self::Unreachable { source, .. } => {
                format!("cannot reach the API server: {}", chain(source.as_ref()))
            }
            Self::NotServed { .. } => self.to_string(),
            Self::Unreadable { source, .. } => format!("cannot read the answer: {source}"),
            Self::Unbuildable { source, .. } => {
                format!("cannot build the request: {}", chain(source.as_ref()))
            }
            Self::Stale { .. } => "it has changed since the operator read it".to_owned(),
            Self::NotLeader { .. } => "this process does not hold the lease".to_owned(),
        }
    }

    /// How to fix the cause, if the message of the error does not contain the fix.
    ///
    /// A server-side apply of a field that the CustomResourceDefinition lacks fails with 500, "field not
    /// declared in schema"; a value that it does not allow fails with 422. The operator's writes are valid by
    /// the definitions of its own version, so those in the cluster are of another version.
    pub fn fix(&self) -> Option<&'static str> {
        let Self::Refused { call, code, message, .. } = self else { return None };
        let is_ours = [" KataNode", " KataConfig/status"].iter().any(|kind| call.contains(kind));
        let is_refused_by_schema = match code {
            422 => !names_another_uid(message),
            500 => message.contains("field not declared in schema"),
            _ => false,
        };
        (is_ours && is_refused_by_schema).then_some(UPDATE_CRDS)
    }

    /// Whether a read with this error may be retried at once.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Unreachable { .. } => true,
            Self::Refused { code, .. } => matches!(code, 429 | 500..),
            Self::Unreadable { .. }
            | Self::NotServed { .. }
            | Self::Unbuildable { .. }
            | Self::Stale { .. }
            | Self::NotLeader { .. } => false,
        }
    }

    /// Whether the API server did not answer at all.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Unreachable { .. })
    }

    /// Whether the API server, or a server behind it, is overloaded or unavailable.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Refused { code: 429 | 503 | 504, .. })
    }

    /// Whether a write with this error may have succeeded anyway. Only a definite refusal, or a request that
    /// was not sent, excludes that.
    pub fn may_have_succeeded(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Unreachable { .. } | Self::Unreadable { .. } => true,
            Self::Refused { code, .. } => matches!(code, 429 | 500..) && self.fix().is_none(),
            Self::NotServed { .. }
            | Self::Unbuildable { .. }
            | Self::Stale { .. }
            | Self::NotLeader { .. } => false,
        }
    }

    /// Whether the object or its kind does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. } | Self::NotServed { .. })
    }

    /// Whether a precondition failed, or the object to create already exists.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }

    /// Whether the history that a watch asks for is gone.
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::Refused { code: 410, .. })
    }
}

/// The fix of a write that the CustomResourceDefinitions do not allow.
const UPDATE_CRDS: &str = "the CustomResourceDefinitions in the cluster are of another version than the \
                           operator; update them: `kata-operator crd | kubectl apply --server-side \
                           --force-conflicts -f -`";

/// Whether the kind is defined by the operator.
pub fn is_own(kind: &str) -> bool {
    [Kind::KataConfig, Kind::KataNode].iter().any(|own| own.as_str() == kind)
}

/// How to bring back a kind that the API server does not serve, if it is one of the operator's.
fn fix_not_served(kind: &str) -> &'static str {
    if is_own(kind) {
        "; `kata-operator crd | kubectl apply --server-side --force-conflicts -f -` restores its \
         CustomResourceDefinition, and the operator goes on"
    } else {
        ""
    }
}

/// Whether a patch was refused because it names the uid of an object's predecessor.
fn names_another_uid(message: &str) -> bool {
    ["metadata.uid", "/metadata/uid", "due to an error in our request"]
        .iter()
        .any(|part| message.contains(part))
}

/// The error and its sources in one line, each text once. It leaves out kube's quotes of a credential
/// plugin, which may contain secrets.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let links = std::iter::successors(Some(error), |link| (**link).source());
    let quoted = links.clone().find_map(|link| Some((link.to_string(), without_secrets(link)?)));
    let mut causes = Vec::new();
    for link in links {
        let mut cause = link.to_string();
        if let Some((quoted, safe)) = &quoted {
            cause = cause.replace(quoted, safe);
        }
        // The text of this error quotes its sources.
        let is_last = quoted.as_ref().is_some_and(|(_, safe)| cause.ends_with(safe));
        causes.push(cause);
        if is_last {
            break;
        }
    }
    one_line(causes)
}

/// The fix for a credential plugin, whose output may contain secrets and is not shown.
const RUN_PLUGIN_BY_HAND: &str =
    "run the command under `exec` in the kubeconfig by hand to see its output";

/// The text for an error that quotes a credential plugin's input or output.
fn without_secrets(link: &(dyn Error + 'static)) -> Option<String> {
    match concrete::<AuthError>(link) {
        Some(AuthError::AuthExecRun { out, .. }) => {
            Some(format!("the credential plugin failed with {}; {RUN_PLUGIN_BY_HAND}", out.status))
        }
        Some(AuthError::AuthExecParse(_)) => Some(format!(
            "the credential plugin did not print an ExecCredential; {RUN_PLUGIN_BY_HAND}"
        )),
        _ => None,
    }
}

/// The error as a `T`, boxed or not.
fn concrete<'a, T: Error + 'static>(link: &'a (dyn Error + 'static)) -> Option<&'a T> {
    link.downcast_ref().or_else(|| link.downcast_ref::<Box<T>>().map(Box::as_ref))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, retry_after: Option<u64>) -> CallError {
        CallError::Refused {
            call: "get Node worker-0".to_owned(),
            code,
            reason: "R".to_owned(),
            message: "m".to_owned(),
            retry_after: retry_after.map(Duration::from_secs),
        }
    }

    #[test]
    fn every_answer_has_a_category_and_a_retry_class() {
        let rows = [
            (refused(404, None), "not_found", Retry::Reread, false),
            (refused(409, None), "conflict", Retry::Reread, false),
            (refused(403, None), "forbidden", Retry::AfterChange, false),
            (refused(422, None), "invalid", Retry::AfterChange, false),
            (refused(429, Some(3)), "throttled", Retry::After(Duration::from_secs(3)), true),
            (refused(429, None), "throttled", Retry::Backoff, true),
            (refused(503, None), "server_error", Retry::Backoff, true),
            (refused(504, None), "server_error", Retry::Backoff, true),
            (CallError::NotLeader { call: String::new() }, "not_leader", Retry::Never, false),
        ];
        for (error, category, retry, transient) in rows {
            assert_eq!(
                (error.category(), error.retry(), error.is_transient()),
                (category, retry, transient),
                "{error}"
            );
        }
    }

    #[test]
    fn a_patch_of_a_recreated_object_is_decided_again() {
        let error = CallError::Refused {
            call: "patch Node worker-0".to_owned(),
            code: 422,
            reason: "Invalid".to_owned(),
            message: "Node \"worker-0\" is invalid: metadata.uid: Invalid value: \"a\": field is \
                      immutable"
                .to_owned(),
            retry_after: None,
        };
        assert_eq!(error.retry(), Retry::Reread);
    }

    #[test]
    fn the_cause_names_neither_the_object_nor_the_call() {
        let error = CallError::Refused {
            call: "apply RuntimeClass kata".to_owned(),
            code: 403,
            reason: "Forbidden".to_owned(),
            message: "runtimeclasses.node.k8s.io \"kata\" is forbidden: User \"a\" cannot patch \
                      resource \"runtimeclasses\" in API group \"node.k8s.io\" at the cluster scope"
                .to_owned(),
            retry_after: None,
        };
        assert_eq!(
            error.cause(),
            "403 Forbidden: User \"a\" cannot patch resource \"runtimeclasses\" in API group \
             \"node.k8s.io\" at the cluster scope"
        );
    }

    #[test]
    fn the_chain_names_each_cause_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer: inner")]
        struct Repeating(#[source] Inner);
        #[derive(Debug, thiserror::Error)]
        #[error("inner")]
        struct Inner(#[source] std::fmt::Error);
        let text = chain(&Repeating(Inner(std::fmt::Error)));
        assert_eq!(text, format!("outer: inner: {}", std::fmt::Error));
    }
}
