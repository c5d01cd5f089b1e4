//! From a plan to requests: one after the other, with no choice but to stop where a step says so.

use std::time::Duration;

use kata_plan::{Action, Kind, ObjectRef, OnFailure, Plan, Request, Step};
use kube::api::Preconditions;
use tokio::sync::watch;

use crate::client::{Client, Endpoint};
use crate::error::{CallError, Retry, chain};
use crate::observe::Caches;

/// A step that failed.
#[derive(Debug)]
pub struct Failure {
    /// What was to be done.
    pub action: String,
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
}

impl Applied {
    /// When to try again: the most patient of the failures' wishes; `None` if nothing failed.
    pub fn retry(&self) -> Option<Retry> {
        self.failures.iter().map(|failure| failure.error.retry()).max_by_key(|retry| match retry {
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
    stop: &watch::Receiver<bool>,
) -> Applied {
    let mut applied = Applied::default();
    for (index, step) in plan.steps.iter().enumerate() {
        let Step { action, on_failure, why } = step;
        if *stop.borrow() {
            applied.skipped = plan.steps.len() - index;
            break;
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
                    action: action.to_string(),
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
