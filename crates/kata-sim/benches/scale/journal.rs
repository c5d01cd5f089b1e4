//! What happens in the simulated cluster, noted as it happens: a controller that only looks.
//!
//! It costs the operator nothing, since it sits in the cluster's own process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kata_api::names;
use serde_json::Value;
use simcluster::api::{Event, EventKind};
use simcluster::resource::{KATACONFIGS, NODES, RUNTIMECLASSES};
use simcluster::{Context, Controller};
use tokio::sync::Notify;

/// The notes; clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    notes: Arc<Mutex<Notes>>,
    changed: Arc<Notify>,
}

/// What was seen since [`Journal::restart`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// When the first and the last node got or lost the role of the pool.
    pub(crate) first_intent: Option<Instant>,
    /// See `first_intent`.
    pub(crate) last_intent: Option<Instant>,
    /// How many nodes did.
    pub(crate) intents: u64,
    /// When a node's daemon said last that it is done.
    pub(crate) last_done: Option<Instant>,
    /// When a KataConfig became Ready.
    pub(crate) ready: Option<Instant>,
    /// When a KataConfig was gone.
    pub(crate) gone: Option<Instant>,
    /// How many versions of KataConfigs there were after their creation.
    pub(crate) versions: u64,
    /// How many of them changed nothing but an order or a time.
    pub(crate) idle_versions: u64,
    /// How many of them changed the status.
    pub(crate) status_writes: u64,
    /// The largest status as JSON, in bytes.
    pub(crate) largest_status: usize,
    /// The largest KataConfig as JSON, in bytes.
    pub(crate) largest_config: usize,
    /// How many RuntimeClasses were created.
    pub(crate) classes: u64,
    /// How many of them came before any node could serve them.
    pub(crate) early_classes: u64,
}

impl Journal {
    /// Forgets everything so far.
    pub(crate) fn restart(&self) {
        *self.lock() = Notes::default();
    }

    /// What was seen so far.
    pub(crate) fn notes(&self) -> Notes {
        self.lock().clone()
    }

    /// Waits until `done` holds of what was seen.
    pub(crate) async fn until(&self, done: impl Fn(&Notes) -> bool) {
        loop {
            let changed = self.changed.notified();
            if done(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The controller that writes it.
    pub(crate) fn writer(&self) -> Box<dyn Controller> {
        Box::new(Writer { journal: self.clone() })
    }
}

struct Writer {
    journal: Journal,
}

impl Controller for Writer {
    fn name(&self) -> &'static str {
        "journal"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        let now = Instant::now();
        let mut notes = self.journal.lock();
        if event.resource == NODES {
            see_node(&mut notes, event, now);
        } else if event.resource == KATACONFIGS {
            see_config(&mut notes, event, now);
            drop(notes);
            self.journal.changed.notify_waiters();
        } else if event.resource == RUNTIMECLASSES && event.kind == EventKind::Added {
            let handler = &event.current["handler"];
            let served = cx.api.list(&NODES).iter().any(|node| serves(node, handler));
            notes.classes += 1;
            notes.early_classes += u64::from(!served);
        }
    }

    fn act(&mut self, _key: &str, _cx: &mut Context<'_>) {}
}

fn see_node(notes: &mut Notes, event: &Event, now: Instant) {
    let Some(before) = &event.previous else { return };
    let after = &event.current;
    let member = |node: &Value| node["metadata"]["labels"].get(names::KATA_ROLE_LABEL).is_some();
    if member(before) != member(after) {
        notes.first_intent.get_or_insert(now);
        notes.last_intent = Some(now);
        notes.intents += 1;
    }
    let done = |node: &Value| {
        let annotation = |key: &str| node["metadata"]["annotations"][key].clone();
        annotation(names::mco::STATE) == "Done"
            && annotation(names::mco::CURRENT_CONFIG) == annotation(names::mco::DESIRED_CONFIG)
    };
    if done(after) && !done(before) {
        notes.last_done = Some(now);
    }
}

fn see_config(notes: &mut Notes, event: &Event, now: Instant) {
    let config = &event.current;
    match (event.kind, &event.previous) {
        (EventKind::Deleted, _) => {
            notes.gone = Some(now);
            return;
        }
        (EventKind::Modified, Some(before)) => {
            notes.versions += 1;
            notes.idle_versions += u64::from(substance(before) == substance(config));
            notes.status_writes += u64::from(before["status"] != config["status"]);
        }
        _ => {}
    }
    let bytes = |value: &Value| value.to_string().len();
    notes.largest_status = notes.largest_status.max(bytes(&config["status"]));
    notes.largest_config = notes.largest_config.max(bytes(config));
    if is_ready(config) {
        notes.ready.get_or_insert(now);
    }
}

/// Whether a KataConfig says that it is Ready, of its present generation.
pub(crate) fn is_ready(config: &Value) -> bool {
    config["status"]["observedGeneration"] == config["metadata"]["generation"]
        && config["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Whether sandboxed pods of that handler can run on the node.
fn serves(node: &Value, handler: &Value) -> bool {
    let labelled =
        node["metadata"]["labels"][names::RUNTIME_LABEL] == names::RUNTIME_LABEL_VERIFIED;
    let handlers = node["status"]["runtimeHandlers"].as_array();
    labelled && handlers.into_iter().flatten().any(|known| known["name"] == *handler)
}

/// An object without what a mere rewrite changes: the order of lists, times, the revision and the
/// book-keeping of field managers.
fn substance(object: &Value) -> Value {
    match object {
        Value::Object(members) => members
            .iter()
            .filter(|(key, _)| {
                !matches!(
                    key.as_str(),
                    "resourceVersion" | "managedFields" | "generation" | "lastTransitionTime"
                )
            })
            .map(|(key, value)| (key.clone(), substance(value)))
            .collect(),
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(substance).collect();
            items.sort_by_key(ToString::to_string);
            Value::Array(items)
        }
        other => other.clone(),
    }
}
