//! Carries out a plan, one request for each step. The only choice made here is to stop where a step requires
//! it. Steps that each concern one node, and do not rely on each other, run concurrently.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use kata_api::{Code, names};
use kata_plan::{Action, Kind, ObjectRef, OnFailure, Plan, Request, Step, StepFailure};
use kube::api::Preconditions;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::client::{Client, Endpoint};
use crate::error::{CallError, Retry, chain};
use crate::observe::Caches;

/// How many requests run at the same time.
const MAX_CONCURRENT: usize = 16;
/// How many steps or failures of a plan are logged individually.
const MAX_LOGGED: usize = 5;

/// A step that failed.
#[derive(Debug)]
pub struct Failure {
    pub action: Action,
    pub object: ObjectRef,
    pub error: CallError,
}

impl Failure {
    /// The failure for the report.
    pub fn step_failure(&self) -> StepFailure {
        let error = self.cause();
        let code = if error.contains(names::OTHER_IMAGE) {
            Code::PolicyOfOtherVersion
        } else {
            Code::WriteFailed
        };
        StepFailure { object: self.object.clone(), code, error }
    }

    /// The cause and its fix, for a message that already names the object.
    pub fn cause(&self) -> String {
        let cause = self.error.cause();
        let is_forbidden = matches!(self.error, CallError::Refused { code: 403, .. });
        match &self.action {
            // For example, the default manifests do not permit to delete the objects of kata-monitor.
            Action::Delete { object, .. } if is_forbidden => {
                let ObjectRef { kind, namespace, name, uid: _ } = object;
                let namespace = namespace.iter().map(|name| format!(" -n {name}"));
                let namespace: String = namespace.collect();
                let resource = kind.plural();
                format!(
                    "{cause}; grant the permission or run `kubectl delete {resource} {name}{namespace}`"
                )
            }
            _ => cause,
        }
    }
}

/// The outcome of a plan.
#[derive(Debug, Default)]
pub struct Applied {
    /// How many steps were done.
    pub done: usize,
    /// How many steps were skipped, after a failure or because the operator stops.
    pub skipped: usize,
    /// The steps that failed.
    pub failures: Vec<Failure>,
    /// The steps that were not sent, because the same write was refused for good a short time ago.
    pub postponed: Vec<StepFailure>,
}

/// Writes that the API server refused for good. Each is postponed for a while, and only the steps that depend
/// on it are skipped.
#[derive(Debug, Default)]
pub struct RefusedWrites {
    /// By object: each has few such writes, but there may be thousands of objects.
    writes: BTreeMap<(Kind, String), Vec<RefusedWrite>>,
}

#[derive(Debug)]
struct RefusedWrite {
    action: Action,
    failure: StepFailure,
    until: Instant,
}

impl RefusedWrites {
    /// Drops the writes that may be sent again.
    pub fn expire(&mut self, now: Instant) {
        self.writes.retain(|_, writes| {
            writes.retain(|write| now < write.until);
            !writes.is_empty()
        });
    }

    /// When the first of them may be sent again.
    pub fn next_due(&self) -> Option<Instant> {
        self.writes.values().flatten().map(|write| write.until).min()
    }

    /// Postpones a write that was refused.
    pub fn insert(&mut self, refused: &Failure, until: Instant) {
        let (action, failure) = (refused.action.clone(), refused.step_failure());
        let object = action.object();
        let writes = self.writes.entry((object.kind, object.name.clone())).or_default();
        writes.push(RefusedWrite { action, failure, until });
    }

    /// Whether a write is postponed.
    pub fn contains(&self, action: &Action) -> bool {
        self.failure(action).is_some()
    }

    fn failure(&self, action: &Action) -> Option<&StepFailure> {
        let object = action.object();
        let writes = self.writes.get(&(object.kind, object.name.clone()))?;
        let write = writes.iter().find(|write| same_write(&write.action, action))?;
        Some(&write.failure)
    }
}

/// Whether two actions write the same. The version in which a node was seen is not written.
fn same_write(a: &Action, b: &Action) -> bool {
    match (a, b) {
        (
            Action::LabelNode { node, seen: _, set, remove, needs_fresh_classes: _ },
            Action::LabelNode {
                node: other,
                seen: _,
                set: other_set,
                remove: other_remove,
                needs_fresh_classes: _,
            },
        ) => (node, set, remove) == (other, other_set, other_remove),
        (
            Action::ReplaceTaints { node, seen: _, taints },
            Action::ReplaceTaints { node: other, seen: _, taints: other_taints },
        ) => (node, taints) == (other, other_taints),
        _ => a == b,
    }
}

impl Applied {
    /// When to retry: the longest wait that a failure requires. `None` if nothing failed except writes that
    /// were refused for good, which [`RefusedWrites`] postpones.
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

/// Carries out the steps of a plan. The next pass waits until the watches show these writes. If `stop`
/// becomes true, the remaining steps are skipped; the next process plans them again.
pub async fn apply(
    client: &Client,
    caches: &Caches,
    plan: &Plan,
    refused: &RefusedWrites,
    stop: &watch::Receiver<bool>,
) -> Applied {
    let worker = Worker { client, caches, refused, stop, has_stopped: AtomicBool::new(false) };
    let mut applied = Applied::default();
    let mut rest = plan.steps.as_slice();
    while !rest.is_empty() {
        let (now, later) = rest.split_at(count_concurrent(rest));
        rest = later;
        log_disruptive(now, refused);
        let before = applied.failures.len() + applied.postponed.len();
        let groups = group_by_object(now);
        // The first group runs alone: if the API server is busy or unreachable, the others are not sent.
        let first = Box::pin(worker.run_steps(groups.first().map_or(&[], Vec::as_slice))).await;
        let first = futures::stream::iter([first]);
        let others = futures::stream::iter(1..groups.len())
            .map(|place| Box::pin(worker.run_steps(groups.get(place).map_or(&[], Vec::as_slice))))
            .buffered(MAX_CONCURRENT);
        let mut runs = first.chain(others);
        while let Some(Applied { done, skipped, failures, postponed }) = runs.next().await {
            applied.done += done;
            applied.skipped += skipped;
            applied.failures.extend(failures);
            applied.postponed.extend(postponed);
        }
        let failed = applied.failures.len() + applied.postponed.len() > before;
        let must_stop = failed && now.iter().any(|step| step.on_failure == OnFailure::Stop);
        if must_stop || worker.must_stop() {
            applied.skipped += rest.len();
            break;
        }
    }
    log_failures(&applied.failures);
    applied
}

/// How many of the first steps may run concurrently; at least one.
fn count_concurrent(steps: &[Step]) -> usize {
    let is_independent =
        |step: &&Step| step.on_failure == OnFailure::Continue && concerns_node(&step.action);
    steps.iter().take_while(is_independent).count().max(1)
}

/// The steps of each object, in the order of the first step of each object.
fn group_by_object(steps: &[Step]) -> Vec<Vec<&Step>> {
    let mut places: BTreeMap<(Kind, &str), usize> = BTreeMap::new();
    let mut groups: Vec<Vec<&Step>> = Vec::new();
    for step in steps {
        let object = step.action.object();
        let place = *places.entry((object.kind, &object.name)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(step),
            None => groups.push(vec![step]),
        }
    }
    groups
}

/// Whether a step concerns one node and nothing else.
fn concerns_node(action: &Action) -> bool {
    match action {
        Action::LabelNode { .. } | Action::ReplaceTaints { .. } => true,
        Action::Apply { object, .. }
        | Action::ApplyStatus { object, .. }
        | Action::Delete { object, .. } => object.kind == Kind::KataNode,
        Action::AddFinalizer { .. } | Action::RemoveFinalizers { .. } => false,
    }
}

fn log_disruptive(steps: &[Step], refused: &RefusedWrites) {
    let is_sent = |step: &&Step| step.action.is_disruptive() && !refused.contains(&step.action);
    let disruptive = steps.iter().filter(is_sent);
    for Step { action, why, on_failure: _ } in disruptive.clone().take(MAX_LOGGED) {
        tracing::info!(plan.step = %action, reason = why, "carrying out a disruptive step");
    }
    let more = disruptive.count().saturating_sub(MAX_LOGGED);
    if more > 0 {
        tracing::info!(plan.steps = more, "carrying out more disruptive steps");
    }
}

fn log_failures(failures: &[Failure]) {
    for Failure { action, object: _, error } in failures.iter().take(MAX_LOGGED) {
        // Another client changed the object meanwhile, which is normal for optimistic writes.
        if error.retry() == Retry::Reread {
            tracing::info!(
                plan.step = %action,
                error.category = error.category(),
                error = chain(error),
                "the object has changed or is gone; the next pass decides this step again"
            );
            continue;
        }
        tracing::warn!(
            plan.step = %action,
            error.category = error.category(),
            error = chain(error),
            fix = error.fix(),
            "a step failed"
        );
    }
    let more = failures.len().saturating_sub(MAX_LOGGED);
    if more > 0 {
        tracing::warn!(plan.steps = more, "more steps failed");
    }
}

struct Worker<'a> {
    client: &'a Client,
    caches: &'a Caches,
    refused: &'a RefusedWrites,
    stop: &'a watch::Receiver<bool>,
    /// Whether the API server is unreachable or busy, or the lease is lost: the other steps would fail too.
    has_stopped: AtomicBool,
}

impl Worker<'_> {
    fn must_stop(&self) -> bool {
        *self.stop.borrow() || self.has_stopped.load(Ordering::Relaxed)
    }

    /// Carries out the steps of one object in order, until one fails.
    async fn run_steps(&self, steps: &[&Step]) -> Applied {
        let mut applied = Applied::default();
        for (index, step) in steps.iter().enumerate() {
            if self.must_stop() {
                applied.skipped = steps.len() - index;
                break;
            }
            let action = &step.action;
            if let Some(failure) = self.refused.failure(action) {
                applied.postponed.push(failure.clone());
                applied.skipped = steps.len() - index - 1;
                break;
            }
            let moot = |error: &CallError| error.is_not_found() && is_moot_without_node(action);
            match self.send(action).await {
                Ok(()) => {
                    applied.done += 1;
                    tracing::debug!(plan.step = %action, reason = step.why, "done");
                }
                // A node that is gone needs no label and no KataNode.
                Err(error) if moot(&error) => {
                    let object = action.object();
                    self.caches.await_deletion(object.kind, &object.name);
                    applied.done += 1;
                }
                Err(error) => {
                    let stops_others = error.is_disconnected()
                        || error.is_busy()
                        || matches!(error, CallError::NotLeader { .. });
                    self.has_stopped.fetch_or(stops_others, Ordering::Relaxed);
                    applied.failures.push(Failure {
                        action: action.clone(),
                        object: action.object().clone(),
                        error,
                    });
                    applied.skipped = steps.len() - index - 1;
                    break;
                }
            }
        }
        applied
    }

    async fn send(&self, action: &Action) -> Result<(), CallError> {
        let subresource = |status: bool| status.then_some("status");
        let (object, answer) = match action.request() {
            Request::Apply { object, status, body } => {
                let endpoint = Endpoint::for_object(&object);
                let part = subresource(status);
                let answer = self.client.apply(&endpoint, &object.name, part, &body).await?;
                (object, answer)
            }
            Request::Merge { object, status, mut body } => {
                if let Action::LabelNode { seen: Some(seen), .. }
                | Action::ReplaceTaints { seen, .. } = action
                {
                    let call = || format!("patch {object}");
                    let latest = self.caches.version_of_node(&object.name, seen);
                    let latest = latest.ok_or_else(|| CallError::Stale { call: call() })?;
                    body["metadata"]["resourceVersion"] = serde_json::Value::String(latest);
                }
                let endpoint = Endpoint::for_object(&object);
                let part = subresource(status);
                let answer = self.client.merge(&endpoint, &object.name, part, &body).await?;
                (object, answer)
            }
            Request::Delete { object, uid, resource_version } => {
                let preconditions = Preconditions { uid, resource_version };
                let endpoint = Endpoint::for_object(&object);
                self.client.delete(&endpoint, &object.name, preconditions).await?;
                // Otherwise each pass would delete the object again while the watch is behind.
                self.caches.await_deletion(object.kind, &object.name);
                return Ok(());
            }
        };
        if matches!(action, Action::RemoveFinalizers { .. }) && is_deleted(&answer) {
            self.caches.await_deletion(object.kind, &object.name);
        } else if let Ok(text) = std::str::from_utf8(&answer) {
            self.caches.await_response(object.kind, &object.name, text);
        }
        Ok(())
    }
}

/// Whether a write left an object without the last finalizer that its deletion waited for.
fn is_deleted(answer: &[u8]) -> bool {
    let object: serde_json::Value = serde_json::from_slice(answer).unwrap_or_default();
    let metadata = &object["metadata"];
    !metadata["deletionTimestamp"].is_null()
        && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
}

fn is_moot_without_node(action: &Action) -> bool {
    match action {
        Action::LabelNode { .. } | Action::ReplaceTaints { .. } => true,
        Action::ApplyStatus { object, .. } => object.kind == Kind::KataNode,
        Action::AddFinalizer { .. }
        | Action::RemoveFinalizers { .. }
        | Action::Apply { .. }
        | Action::Delete { .. } => false,
    }
}
