//! From a plan to requests: one after the other, with no choice but to stop where a step says so.

use std::time::Duration;

use kata_plan::{Action, Kind, ObjectRef, OnFailure, Plan, Request, Step, StepFailure};
use kube::api::Preconditions;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::{Client, Endpoint};
use crate::error::{CallError, Retry, chain};
use crate::observe::Caches;

/// A step that failed.
#[derive(Debug)]
pub struct Failure {
    /// What was to be done.
    pub action: Action,
    /// The object that was to be written.
    pub object: ObjectRef,
    /// Why it failed.
    pub error: CallError,
}

/// What became of a plan.
#[derive(Debug, Default)]
pub struct Applied {
    /// How many steps were done.
    pub done: usize,
    /// How many steps were left out after a failure.
    pub skipped: usize,
    /// What failed.
    pub failures: Vec<Failure>,
    /// What was not sent again, since it was refused for good a short time ago.
    pub held: Vec<StepFailure>,
}

/// Writes that were refused for good: the same write is not sent again for a while, and holds up nothing
/// that does not depend on it.
#[derive(Debug, Default)]
pub struct Refused {
    writes: Vec<RefusedWrite>,
}

#[derive(Debug)]
struct RefusedWrite {
    action: Action,
    cause: String,
    until: Instant,
}

impl Refused {
    /// Forgets what may be sent again.
    pub fn expire(&mut self, now: Instant) {
        self.writes.retain(|write| now < write.until);
    }

    /// When the first of them may be sent again.
    pub fn next(&self) -> Option<Instant> {
        self.writes.iter().map(|write| write.until).min()
    }

    /// Remembers a write until it may be sent again.
    pub fn remember(&mut self, action: &Action, cause: String, until: Instant) {
        self.writes.push(RefusedWrite { action: action.clone(), cause, until });
    }

    /// Whether a write is not sent again yet.
    pub fn holds(&self, action: &Action) -> bool {
        self.cause(action).is_some()
    }

    fn cause(&self, action: &Action) -> Option<&str> {
        let write = self.writes.iter().find(|write| write.action == *action)?;
        Some(&write.cause)
    }
}

impl Applied {
    /// When to try again: the most patient of the failures' wishes; `None` if nothing failed besides what is
    /// refused for good, which [`Refused`] paces.
    pub fn retry(&self) -> Option<Retry> {
        let retries = self.failures.iter().map(|failure| failure.error.retry());
        let soon = retries.filter(|retry| *retry != Retry::AfterChange);
        soon.max_by_key(|retry| match retry {
            Retry::Reread => (0, Duration::ZERO),
            Retry::Backoff => (1, Duration::ZERO),
            Retry::After(wait) => (2, *wait),
            Retry::AfterChange => (3, Duration::ZERO),
            Retry::Never => (4, Duration::ZERO),
        })
    }
}

/// Does the steps of a plan. What the API server answers goes into the caches. Stops early when `stop`
/// becomes true: whatever is left is found again by the next process.
pub async fn apply(
    client: &Client,
    caches: &Caches,
    plan: &Plan,
    refused: &Refused,
    stop: &watch::Receiver<bool>,
) -> Applied {
    let mut applied = Applied::default();
    for (index, step) in plan.steps.iter().enumerate() {
        let Step { action, on_failure, why } = step;
        if *stop.borrow() {
            applied.skipped = plan.steps.len() - index;
            break;
        }
        if let Some(cause) = refused.cause(action) {
            let object = action.object().clone();
            applied.held.push(StepFailure { object, error: cause.to_owned() });
            if *on_failure == OnFailure::Stop {
                applied.skipped = plan.steps.len() - index - 1;
                break;
            }
            continue;
        }
        match send(client, caches, &action.request()).await {
            Ok(()) => {
                applied.done += 1;
                if action.is_disruptive() {
                    tracing::info!(plan.step = %action, reason = why, "done");
                } else {
                    tracing::debug!(plan.step = %action, reason = why, "done");
                }
            }
            // A node that is gone needs no label and no KataNode.
            Err(error) if error.is_not_found() && concerns_node(action) => {
                let object = action.object();
                caches.forget(object.kind, &object.name);
                applied.done += 1;
            }
            Err(error) => {
                tracing::warn!(
                    plan.step = %action,
                    error.category = error.category(),
                    error = chain(&error),
                    "a step failed"
                );
                // Without a connection, or without the lease, the other steps fail too, each after
                // its time limit.
                let hopeless = matches!(
                    error,
                    CallError::Timeout { .. }
                        | CallError::Unreachable { .. }
                        | CallError::NotLeader { .. }
                );
                applied.failures.push(Failure {
                    action: action.clone(),
                    object: action.object().clone(),
                    error,
                });
                if hopeless || *on_failure == OnFailure::Stop {
                    applied.skipped = plan.steps.len() - index - 1;
                    break;
                }
            }
        }
    }
    applied
}

fn concerns_node(action: &Action) -> bool {
    match action {
        Action::LabelNode { .. } => true,
        Action::ApplyStatus { object, .. } => object.kind == Kind::KataNode,
        Action::AddFinalizer { .. }
        | Action::RemoveFinalizers { .. }
        | Action::Apply { .. }
        | Action::Delete { .. } => false,
    }
}

async fn send(client: &Client, caches: &Caches, request: &Request) -> Result<(), CallError> {
    let subresource = |status: bool| status.then_some("status");
    let (object, answer) = match request {
        Request::Apply { object, status, body } => {
            let endpoint = Endpoint::for_object(object);
            let part = subresource(*status);
            (object, client.apply(&endpoint, &object.name, part, body).await?)
        }
        Request::Merge { object, status, body } => {
            let endpoint = Endpoint::for_object(object);
            let part = subresource(*status);
            (object, client.merge(&endpoint, &object.name, part, body).await?)
        }
        Request::Delete { object, uid, resource_version } => {
            let preconditions =
                Preconditions { uid: uid.clone(), resource_version: resource_version.clone() };
            let endpoint = Endpoint::for_object(object);
            return client.delete(&endpoint, &object.name, preconditions).await;
        }
    };
    if let Ok(text) = std::str::from_utf8(&answer) {
        caches.absorb(object.kind, &object.name, text);
    }
    Ok(())
}
