//! Errors of calls to the API server: which call failed, why, and what it means for the next attempt.
//!
//! Nothing is logged here; [`chain`] is the one way in which an error becomes text.

use std::error::Error;
use std::time::Duration;

use kube::client::AuthError;
use kube::config::KubeconfigError;

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Soon, with growing waits.
    Backoff,
    /// Not before the API server's wish.
    After(Duration),
    /// At once, since what was decided on has changed.
    Reread,
    /// The same call fails again until somebody changes something; with the longest wait.
    AfterChange,
    /// Never: the process is no longer entitled to write.
    Never,
}

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No answer in time; a write may have been carried out all the same.
    #[error("{call}: no answer within {} s", after.as_secs())]
    Timeout {
        /// What was called.
        call: String,
        /// How long we waited.
        after: Duration,
    },
    /// The connection failed; a write may have been carried out all the same.
    #[error("{call}: cannot reach the API server")]
    Unreachable {
        /// What was called.
        call: String,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The API server refused.
    #[error("{call}: {code} {reason}: {message}")]
    Refused {
        /// What was called.
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
    /// The answer is not what it must be.
    #[error("{call}: cannot read the answer")]
    Unreadable {
        /// What was called.
        call: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The request cannot be built from the object's name.
    #[error("{call}: cannot build the request")]
    Unbuildable {
        /// What was to be called.
        call: String,
        /// Why.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The object is not what it was when it was decided to write it.
    #[error("{call}: not sent, because the object has changed since it was seen")]
    Stale {
        /// What was to be called.
        call: String,
    },
    /// It is not known whether an earlier write took effect.
    #[error("{call}: not sent, because it is not known what became of the last one")]
    Doubtful {
        /// What was to be called.
        call: String,
    },
    /// The lease is lost, or nearly; another operator may be writing.
    #[error("{call}: not sent, because this process does not hold the lease")]
    NotLeader {
        /// What was to be called.
        call: String,
    },
}

impl CallError {
    /// A word for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "timeout",
            Self::Unreachable { .. } => "unreachable",
            Self::Refused { code: 404, .. } => "not_found",
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
            Self::Doubtful { .. } => "doubtful",
            Self::NotLeader { .. } => "not_leader",
        }
    }

    /// When to try again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Timeout { .. }
            | Self::Unreachable { .. }
            | Self::Unreadable { .. }
            | Self::Doubtful { .. } => Retry::Backoff,
            Self::Refused { retry_after: Some(wait), .. } => Retry::After(*wait),
            Self::Refused { code: 404 | 409 | 410, .. } | Self::Stale { .. } => Retry::Reread,
            // How a patch with the uid of an object's predecessor is refused.
            Self::Refused { code: 422, message, .. }
                if message.contains("metadata.uid")
                    || message.contains("/metadata/uid")
                    || message.contains("due to an error in our request") =>
            {
                Retry::Reread
            }
            Self::Refused { code: 429 | 500.., .. } => Retry::Backoff,
            Self::Refused { .. } | Self::Unbuildable { .. } => Retry::AfterChange,
            Self::NotLeader { .. } => Retry::Never,
        }
    }

    /// Why a write of an object failed, for a sentence that names the object already: without the call, and
    /// without the API server's own naming of the object.
    pub fn cause(&self) -> String {
        match self {
            Self::Refused { code, reason, message, .. } => {
                let bare = ["is forbidden: ", "is invalid: ", "could not be patched: "]
                    .iter()
                    .find_map(|part| message.split_once(part))
                    .map_or(message.as_str(), |(_, rest)| rest);
                format!("{code} {reason}: {bare}")
            }
            Self::Timeout { after, .. } => format!("no answer within {} s", after.as_secs()),
            Self::Unreachable { source, .. } => {
                format!("cannot reach the API server: {}", chain(source.as_ref()))
            }
            Self::Unreadable { source, .. } => format!("cannot read the answer: {source}"),
            Self::Unbuildable { source, .. } => {
                format!("cannot build the request: {}", chain(source.as_ref()))
            }
            Self::Stale { .. } => "it has changed since it was seen".to_owned(),
            Self::Doubtful { .. } => "it is not known what became of the last write".to_owned(),
            Self::NotLeader { .. } => "this process does not hold the lease".to_owned(),
        }
    }

    /// Whether a read that failed so may be sent again at once.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Unreachable { .. } => true,
            Self::Refused { code, .. } => matches!(code, 429 | 500..),
            Self::Unreadable { .. }
            | Self::Unbuildable { .. }
            | Self::Stale { .. }
            | Self::Doubtful { .. }
            | Self::NotLeader { .. } => false,
        }
    }

    /// Whether the API server has too much to do, or something that it needs is away.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Refused { code: 429 | 503 | 504, .. })
    }

    /// Whether a write that failed so may have been carried out all the same: only an answer of the API server
    /// that refuses it excludes that.
    pub fn may_be_done(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Unreachable { .. } | Self::Unreadable { .. } => true,
            Self::Refused { code, .. } => matches!(code, 429 | 500..),
            Self::Unbuildable { .. }
            | Self::Stale { .. }
            | Self::Doubtful { .. }
            | Self::NotLeader { .. } => false,
        }
    }

    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }

    /// Whether a precondition failed, or an apply met another owner.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: 409, .. })
    }

    /// Whether the history that a watch asks for is gone.
    pub fn is_expired(&self) -> bool {
        matches!(self, Self::Refused { code: 410, .. })
    }
}

/// The error and its sources in one line; a source whose text is already there is left out, and so is what
/// kube quotes of a kubeconfig or of a credential plugin: both are full of secrets.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let links = std::iter::successors(Some(error), |link| (**link).source());
    let quoted = links.clone().find_map(|link| Some((link.to_string(), without_secrets(link)?)));
    let mut text = String::new();
    for link in links {
        let mut more = link.to_string();
        if let Some((quoted, safe)) = &quoted {
            more = more.replace(quoted, safe);
        }
        if text.is_empty() {
            text = more;
        } else if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        // What comes after it is quoted in it.
        if quoted.as_ref().is_some_and(|(_, safe)| text.ends_with(safe)) {
            break;
        }
    }
    without_numbers(&text)
}

/// A text without the numbers that Rust puts behind what the system says: `… (os error 28)`.
pub fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let number = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        match part.get(number..).and_then(|rest| rest.strip_prefix(')')) {
            Some(rest) if number > 0 => plain.push_str(rest),
            Some(_) | None => plain.push_str(&format!(" (os error {part}")),
        }
    }
    plain
}

/// What to do about a credential plugin, whose words cannot be repeated.
const BY_HAND: &str = "run the command below `exec` in the kubeconfig by hand to see what it says";

/// What to say instead of an error whose text quotes a kubeconfig, or what a credential plugin was given and
/// printed.
fn without_secrets(link: &(dyn Error + 'static)) -> Option<String> {
    match concrete::<AuthError>(link) {
        Some(AuthError::AuthExecRun { out, .. }) => {
            return Some(format!("the credential plugin failed with {}; {BY_HAND}", out.status));
        }
        Some(AuthError::AuthExecParse(_)) => {
            return Some(format!(
                "what the credential plugin prints is no ExecCredential; {BY_HAND}"
            ));
        }
        _ => {}
    }
    match concrete::<KubeconfigError>(link) {
        Some(KubeconfigError::Parse(error)) => {
            let place = error
                .location()
                .map(|place| format!(", as line {}, column {} shows", place.line(), place.column()))
                .unwrap_or_default();
            Some(format!("it is no kubeconfig{place}"))
        }
        _ => None,
    }
}

/// The error as what it is, be it boxed or not.
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
    fn a_patch_of_an_object_that_was_made_anew_is_decided_again() {
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
