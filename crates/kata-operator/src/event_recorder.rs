//! Creates Events: one for each transition, and at most one a minute with the same reason about the same
//! objects. This module does not decide which transitions get an Event.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kata_api::names;
use kata_plan::{EventToSend, ObjectRef};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{Client, Endpoint};
use crate::error::chain;
use crate::pacing::{EVENT_INTERVAL, EVENTS_REFUSED};

/// The namespace of Events about objects of cluster scope.
const NAMESPACE: &str = "default";
/// How many Events are remembered as sent.
const MAX_REMEMBERED: usize = 2_000;

/// The objects that an Event is about, and its reason.
type Series = (ObjectRef, Option<ObjectRef>, String);

/// An Event, and when it happened, which may be a minute before it is sent.
#[derive(Debug)]
struct DatedEvent {
    event: EventToSend,
    time: Timestamp,
}

#[derive(Debug)]
pub struct EventRecorder {
    client: Client,
    instance: String,
    /// Names of Events that the API server has, so that they are not sent again and again while the
    /// status that records their transition cannot be written.
    sent: BTreeSet<String>,
    order: VecDeque<String>,
    /// When the last Event of a series was sent.
    last_sent: BTreeMap<Series, Instant>,
    /// The latest Event of a series within its minute, to be sent when the minute is over. The changes in
    /// between are not reported.
    pending: BTreeMap<Series, DatedEvent>,
    /// Until when no Event is sent, because the API server is too busy.
    paused_until: Option<Instant>,
}

impl EventRecorder {
    /// A recorder that has sent nothing yet. `instance` identifies this process in Events.
    pub fn new(client: Client, instance: String) -> Self {
        Self {
            client,
            instance,
            sent: BTreeSet::new(),
            order: VecDeque::new(),
            last_sent: BTreeMap::new(),
            pending: BTreeMap::new(),
            paused_until: None,
        }
    }

    /// Creates these Events, and the pending ones that are due. A failure is logged and the Event is dropped:
    /// nothing relies on an Event.
    pub async fn publish(&mut self, events: &[EventToSend]) {
        if self.paused_until.is_some_and(|end| Instant::now() < end) {
            return;
        }
        self.last_sent.retain(|_, sent| sent.elapsed() < EVENT_INTERVAL);
        let due: Vec<Series> = self
            .pending
            .keys()
            .filter(|series| !self.last_sent.contains_key(*series))
            .cloned()
            .collect();
        let due: Vec<DatedEvent> =
            due.iter().filter_map(|series| self.pending.remove(series)).collect();
        let time = self.client.clock().now();
        let new = events.iter().map(|event| DatedEvent { event: event.clone(), time });
        for dated in due.into_iter().chain(new) {
            if self.sent.contains(&dated.event.name) {
                continue;
            }
            let DatedEvent { event, .. } = &dated;
            let series = (event.regarding.clone(), event.related.clone(), event.reason.clone());
            if self.last_sent.contains_key(&series) {
                self.pending.insert(series, dated);
            } else if !self.create(&dated, series).await {
                return;
            }
        }
    }

    /// How long until a pending Event can be sent.
    pub fn next_due(&self) -> Option<Duration> {
        let left = |series| {
            let sent = self.last_sent.get(series).map_or(EVENT_INTERVAL, Instant::elapsed);
            EVENT_INTERVAL.saturating_sub(sent)
        };
        let pause = self.paused_until.map(|end| end.saturating_duration_since(Instant::now()));
        self.pending.keys().map(left).min().map(|left| left.max(pause.unwrap_or_default()))
    }

    /// Creates an Event. Returns `false` if no other Event should be sent now.
    async fn create(&mut self, dated: &DatedEvent, series: Series) -> bool {
        let endpoint = Endpoint::namespaced::<Event>(NAMESPACE);
        let DatedEvent { event, time } = dated;
        let body = event_body(event, &self.instance, *time);
        match self.client.create(&endpoint, &event.name, &body).await {
            Ok(()) => {
                self.record_sent(&event.name);
                self.last_sent.insert(series, Instant::now());
            }
            Err(error) if error.is_conflict() => self.record_sent(&event.name),
            Err(error) => {
                tracing::warn!(
                    reason = event.reason,
                    error = chain(&error),
                    "cannot create an Event"
                );
                if error.is_busy() {
                    self.paused_until = Some(Instant::now() + EVENTS_REFUSED);
                }
                return !error.is_disconnected() && !error.is_busy();
            }
        }
        true
    }

    fn record_sent(&mut self, name: &str) {
        self.sent.insert(name.to_owned());
        self.order.push_back(name.to_owned());
        if self.order.len() > MAX_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.sent.remove(&oldest);
        }
    }
}

fn object_reference(object: &ObjectRef) -> Value {
    let ObjectRef { kind, namespace, name, uid } = object;
    let mut reference =
        json!({"apiVersion": kind.api_version(), "kind": kind.as_str(), "name": name});
    if let Some(namespace) = namespace {
        reference["namespace"] = json!(namespace);
    }
    if let Some(uid) = uid {
        reference["uid"] = json!(uid);
    }
    reference
}

fn event_body(event: &EventToSend, instance: &str, time: Timestamp) -> Value {
    let EventToSend { name, regarding, related, warning, reason, action, note } = event;
    let mut body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "eventTime": time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        "reportingController": format!("{}/kata-operator", names::DOMAIN),
        "reportingInstance": instance.chars().take(128).collect::<String>(),
        "type": if *warning { "Warning" } else { "Normal" },
        "reason": reason,
        "action": action,
        "note": note,
        "regarding": object_reference(regarding),
    });
    if let Some(related) = related {
        body["related"] = object_reference(related);
    }
    body
}
