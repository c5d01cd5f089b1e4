//! From a plan to requests, with no choice but to stop where a step says so. Steps that concern one node
//! each, and of which none relies on another, are done side by side.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use kata_plan::{Action, Kind, ObjectRef, OnFailure, Plan, Request, Step, StepFailure};
use kube::api::Preconditions;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::client::{Client, Endpoint};
use crate::error::{CallError, Retry, chain};
use crate::observe::Caches;
use crate::traces;

/// How many requests are under way at a time.
const SIDE_BY_SIDE: usize = 16;
/// How many steps, or failures, of a run are logged one by one.
const LOGGED: usize = 5;

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
    /// By what they write; there are few for each object, and there may be thousands of objects.
    writes: BTreeMap<(Kind, String), Vec<RefusedWrite>>,
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
        self.writes.retain(|_, writes| {
            writes.retain(|write| now < write.until);
            !writes.is_empty()
        });
    }

    /// When the first of them may be sent again.
    pub fn next(&self) -> Option<Instant> {
        self.writes.values().flatten().map(|write| write.until).min()
    }

    /// Remembers a write until it may be sent again.
    pub fn remember(&mut self, action: &Action, cause: String, until: Instant) {
        let object = action.object();
        let writes = self.writes.entry((object.kind, object.name.clone())).or_default();
        writes.push(RefusedWrite { action: action.clone(), cause, until });
    }

    /// Whether a write is not sent again yet.
    pub fn holds(&self, action: &Action) -> bool {
        self.cause(action).is_some()
    }

    fn cause(&self, action: &Action) -> Option<&str> {
        let object = action.object();
        let writes = self.writes.get(&(object.kind, object.name.clone()))?;
        let write = writes.iter().find(|write| same_write(&write.action, action))?;
        Some(&write.cause)
    }
}

/// Whether two actions write the same. The version in which a node was seen is nothing that is written.
fn same_write(a: &Action, b: &Action) -> bool {
    match (a, b) {
        (
            Action::LabelNode { node, seen: _, set, remove },
            Action::LabelNode { node: other, seen: _, set: other_set, remove: other_remove },
        ) => (node, set, remove) == (other, other_set, other_remove),
        (
            Action::LiftTaint { node, seen: _, left },
            Action::LiftTaint { node: other, seen: _, left: other_left },
        ) => (node, left) == (other, other_left),
        _ => a == b,
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
    let worker = Worker { client, caches, refused, stop, hopeless: AtomicBool::new(false) };
    let mut applied = Applied::default();
    let mut rest = plan.steps.as_slice();
    while !rest.is_empty() {
        let (now, later) = rest.split_at(independent(rest));
        rest = later;
        log_begin(now, refused);
        let before = applied.failures.len() + applied.held.len();
        let groups = by_object(now);
        // The first goes alone: if the API server is busy or away, the others need not all find out.
        let first = Box::pin(worker.run(groups.first().map_or(&[], Vec::as_slice))).await;
        let first = futures::stream::iter([first]);
        let others = futures::stream::iter(1..groups.len())
            .map(|place| Box::pin(worker.run(groups.get(place).map_or(&[], Vec::as_slice))))
            .buffered(SIDE_BY_SIDE);
        let mut runs = first.chain(others);
        while let Some(Applied { done, skipped, failures, held }) = runs.next().await {
            applied.done += done;
            applied.skipped += skipped;
            applied.failures.extend(failures);
            applied.held.extend(held);
        }
        let failed = applied.failures.len() + applied.held.len() > before;
        let must_stop = failed && now.iter().any(|step| step.on_failure == OnFailure::Stop);
        if must_stop || worker.gives_up() {
            applied.skipped += rest.len();
            break;
        }
    }
    log_failures(&applied.failures);
    applied
}

/// How many of the first steps may be done side by side; at least one.
fn independent(steps: &[Step]) -> usize {
    let alone =
        |step: &&Step| step.on_failure == OnFailure::Continue && concerns_node(&step.action);
    steps.iter().take_while(alone).count().max(1)
}

/// The steps of each object, in the order in which the objects come first.
fn by_object(steps: &[Step]) -> Vec<Vec<&Step>> {
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
        Action::LabelNode { .. } | Action::LiftTaint { .. } => true,
        Action::Apply { object, .. }
        | Action::ApplyStatus { object, .. }
        | Action::Delete { object, .. } => object.kind == Kind::KataNode,
        Action::AddFinalizer { .. } | Action::RemoveFinalizers { .. } => false,
    }
}

fn log_begin(steps: &[Step], refused: &Refused) {
    let goes_out = |step: &&Step| step.action.is_disruptive() && !refused.holds(&step.action);
    let disruptive = steps.iter().filter(goes_out);
    for Step { action, why, on_failure: _ } in disruptive.clone().take(LOGGED) {
        tracing::info!(plan.step = %action, reason = why, "doing");
    }
    let more = disruptive.count().saturating_sub(LOGGED);
    if more > 0 {
        tracing::info!(plan.steps = more, "doing so to more objects");
    }
}

fn log_failures(failures: &[Failure]) {
    for Failure { action, object: _, error } in failures.iter().take(LOGGED) {
        // That somebody else wrote meanwhile is how optimistic writes go; the next pass decides anew.
        if error.retry() == Retry::Reread {
            tracing::info!(
                plan.step = %action,
                error.category = error.category(),
                error = chain(error),
                "a step is decided again"
            );
            continue;
        }
        tracing::warn!(
            plan.step = %action,
            error.category = error.category(),
            error = chain(error),
            "a step failed"
        );
    }
    let more = failures.len().saturating_sub(LOGGED);
    if more > 0 {
        tracing::warn!(plan.steps = more, "more steps failed");
    }
}

/// What every step needs.
struct Worker<'a> {
    client: &'a Client,
    caches: &'a Caches,
    refused: &'a Refused,
    stop: &'a watch::Receiver<bool>,
    /// Without a connection, or without the lease, all other steps fail too, each after its time
    /// limit; and a busy API server is left in peace.
    hopeless: AtomicBool,
}

impl Worker<'_> {
    fn gives_up(&self) -> bool {
        *self.stop.borrow() || self.hopeless.load(Ordering::Relaxed)
    }

    /// Does the steps of one object, one after the other, as far as they succeed.
    async fn run(&self, steps: &[&Step]) -> Applied {
        let mut applied = Applied::default();
        for (index, step) in steps.iter().enumerate() {
            if self.gives_up() {
                applied.skipped = steps.len() - index;
                break;
            }
            let action = &step.action;
            if let Some(cause) = self.refused.cause(action) {
                let object = action.object().clone();
                applied.held.push(StepFailure { object, error: cause.to_owned(), undone: false });
                applied.skipped = steps.len() - index - 1;
                break;
            }
            let span = traces::step(action);
            let sent = self.send(action).instrument(span.clone()).await;
            let moot = |error: &CallError| error.is_not_found() && is_moot_without_node(action);
            let failed = sent.as_ref().err().filter(|error| !moot(error));
            traces::ended(&span, failed.map(CallError::category));
            match sent {
                Ok(()) => {
                    applied.done += 1;
                    tracing::debug!(plan.step = %action, reason = step.why, "done");
                }
                // A node that is gone needs no label and no KataNode.
                Err(error) if moot(&error) => {
                    let object = action.object();
                    self.caches.forget(object.kind, &object.name);
                    applied.done += 1;
                }
                Err(error) => {
                    let hopeless = matches!(
                        error,
                        CallError::Timeout { .. }
                            | CallError::Unreachable { .. }
                            | CallError::NotLeader { .. }
                    ) || error.is_busy();
                    self.hopeless.fetch_or(hopeless, Ordering::Relaxed);
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
                if let Action::LabelNode { seen: Some(seen), .. } | Action::LiftTaint { seen, .. } =
                    action
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
                if !self.client.delete(&endpoint, &object.name, preconditions).await? {
                    // A watch that is behind would have it deleted again and again.
                    self.caches.forget(object.kind, &object.name);
                }
                return Ok(());
            }
        };
        if let Ok(text) = std::str::from_utf8(&answer) {
            self.caches.absorb(object.kind, &object.name, text);
        }
        Ok(())
    }
}

fn is_moot_without_node(action: &Action) -> bool {
    match action {
        Action::LabelNode { .. } | Action::LiftTaint { .. } => true,
        Action::ApplyStatus { object, .. } => object.kind == Kind::KataNode,
        Action::AddFinalizer { .. }
        | Action::RemoveFinalizers { .. }
        | Action::Apply { .. }
        | Action::Delete { .. } => false,
    }
}
