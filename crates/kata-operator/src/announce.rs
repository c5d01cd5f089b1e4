//! Events: each transition is one, and the same is said of the same objects once a minute. It does not
//! decide what is worth an Event.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kata_api::names;
use kata_plan::{EventToSend, ObjectRef};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::{Client, Endpoint};
use crate::clock::Clock;
use crate::error::{CallError, chain};

/// The namespace of Events about objects of cluster scope.
const NAMESPACE: &str = "default";
/// How many Events are remembered as sent.
const REMEMBERED: usize = 2_000;
/// For how long no Event is sent after one that a busy API server refused.
const REST: Duration = Duration::from_secs(10);
/// How soon the same may be said of the same objects again.
const PACE: Duration = Duration::from_mins(1);

/// What an Event is about, and its reason.
type About = (ObjectRef, Option<ObjectRef>, String);

/// An Event, and when it was so, which may be a minute before it is told.
#[derive(Debug)]
struct Dated {
    event: EventToSend,
    at: Timestamp,
}

/// Creates Events.
#[derive(Debug)]
pub struct Announcer {
    client: Client,
    clock: Clock,
    instance: String,
    /// Names of Events that the API server has, so that they are not sent again and again while the
    /// status that records their transition cannot be written.
    sent: BTreeSet<String>,
    order: VecDeque<String>,
    /// When something was last said.
    said: BTreeMap<About, Instant>,
    /// What is said when its minute is over: what goes to and fro is not told each time, and how it ended is.
    held: BTreeMap<About, Dated>,
    /// Until when no Event is sent, because the API server has more important things to do.
    rest: Option<Instant>,
}

impl Announcer {
    /// One that has said nothing yet, in the name of this instance of the operator.
    pub fn new(client: Client, clock: Clock, instance: String) -> Self {
        Self {
            client,
            clock,
            instance,
            sent: BTreeSet::new(),
            order: VecDeque::new(),
            said: BTreeMap::new(),
            held: BTreeMap::new(),
            rest: None,
        }
    }

    /// Creates these Events, and those held back whose time has come. One that cannot be created is logged
    /// and given up: an Event is a courtesy.
    pub async fn announce(&mut self, events: &[EventToSend]) {
        if self.rest.is_some_and(|end| Instant::now() < end) {
            return;
        }
        self.said.retain(|_, at| at.elapsed() < PACE);
        let due: Vec<About> =
            self.held.keys().filter(|about| !self.said.contains_key(*about)).cloned().collect();
        let due: Vec<Dated> = due.iter().filter_map(|about| self.held.remove(about)).collect();
        let now = self.clock.now();
        let new = events.iter().map(|event| Dated { event: event.clone(), at: now });
        for held in due.into_iter().chain(new) {
            if self.sent.contains(&held.event.name) {
                continue;
            }
            let Dated { event, .. } = &held;
            let about = (event.regarding.clone(), event.related.clone(), event.reason.clone());
            if self.said.contains_key(&about) {
                self.held.insert(about, held);
            } else if !self.create(&held, about).await {
                return;
            }
        }
    }

    /// In how long something that is held back can be said: not while the API server is too busy.
    pub fn next(&self) -> Option<Duration> {
        let left = |about| PACE.saturating_sub(self.said.get(about).map_or(PACE, Instant::elapsed));
        let rest = self.rest.map(|end| end.saturating_duration_since(Instant::now()));
        self.held.keys().map(left).min().map(|left| left.max(rest.unwrap_or_default()))
    }

    /// Creates an Event; `false` if others had better not be tried now.
    async fn create(&mut self, held: &Dated, about: About) -> bool {
        let endpoint = Endpoint::namespaced::<Event>(NAMESPACE);
        let Dated { event, at } = held;
        let body = body(event, &self.instance, *at);
        match self.client.create(&endpoint, &event.name, &body).await {
            Ok(()) => {
                self.remember(&event.name);
                self.said.insert(about, Instant::now());
            }
            Err(error) if error.is_conflict() => self.remember(&event.name),
            Err(error) => {
                tracing::warn!(
                    reason = event.reason,
                    error = chain(&error),
                    "cannot create an Event"
                );
                let away =
                    matches!(error, CallError::Timeout { .. } | CallError::Unreachable { .. });
                if error.is_busy() {
                    self.rest = Some(Instant::now() + REST);
                }
                return !away && !error.is_busy();
            }
        }
        true
    }

    fn remember(&mut self, name: &str) {
        self.sent.insert(name.to_owned());
        self.order.push_back(name.to_owned());
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.sent.remove(&oldest);
        }
    }
}

fn reference(object: &ObjectRef) -> Value {
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

fn body(event: &EventToSend, instance: &str, at: Timestamp) -> Value {
    let EventToSend { name, regarding, related, warning, reason, action, note } = event;
    let mut body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "eventTime": at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        "reportingController": format!("{}/kata-operator", names::DOMAIN),
        "reportingInstance": instance.chars().take(128).collect::<String>(),
        "type": if *warning { "Warning" } else { "Normal" },
        "reason": reason,
        "action": action,
        "note": note,
        "regarding": reference(regarding),
    });
    if let Some(related) = related {
        body["related"] = reference(related);
    }
    body
}
