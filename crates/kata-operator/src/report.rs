//! From a decision's report to the world: Events, the KataConfigs' status, metrics and the log. Each is
//! written only when it says something new.

use std::collections::{BTreeSet, VecDeque};

use k8s_openapi::api::events::v1::Event;
use kata_api::names;
use kata_plan::{EventToSend, Kind, ObjectRef, Report};
use serde_json::{Value, json};

use crate::client::{Client, Endpoint};
use crate::clock::Clock;
use crate::error::{CallError, chain};
use crate::metrics::Metrics;
use crate::observe::Caches;

/// The namespace of Events about objects of cluster scope.
const EVENT_NAMESPACE: &str = "default";
/// How many Events are remembered as sent.
const REMEMBERED_EVENTS: usize = 2_000;

/// Writes reports.
#[derive(Debug)]
pub struct Reporter {
    client: Client,
    clock: Clock,
    instance: String,
    metrics: Metrics,
    /// Names of Events that the API server has, so that they are not sent again and again while the
    /// status that records their transition cannot be written.
    sent: BTreeSet<String>,
    order: VecDeque<String>,
    /// What was logged last.
    logged: String,
}

impl Reporter {
    /// A reporter that has said nothing yet.
    pub fn new(client: Client, clock: Clock, instance: String, metrics: Metrics) -> Self {
        Self {
            client,
            clock,
            instance,
            metrics,
            sent: BTreeSet::new(),
            order: VecDeque::new(),
            logged: String::new(),
        }
    }

    /// Creates Events. One that cannot be created is logged and given up: an Event is a courtesy.
    pub async fn events(&mut self, events: &[EventToSend]) {
        let endpoint = Endpoint::namespaced::<Event>(EVENT_NAMESPACE);
        for event in events {
            if self.sent.contains(&event.name) {
                continue;
            }
            let body = event_body(event, &self.instance, self.clock);
            match self.client.create(&endpoint, &event.name, &body).await {
                Ok(()) => self.remember(&event.name),
                Err(error) if error.is_conflict() => self.remember(&event.name),
                Err(error) => {
                    tracing::warn!(
                        reason = event.reason,
                        error = chain(&error),
                        "cannot create an Event"
                    );
                    if matches!(error, CallError::Timeout { .. } | CallError::Unreachable { .. }) {
                        return;
                    }
                }
            }
        }
    }

    fn remember(&mut self, name: &str) {
        self.sent.insert(name.to_owned());
        self.order.push_back(name.to_owned());
        if self.order.len() > REMEMBERED_EVENTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.sent.remove(&oldest);
        }
    }

    /// Writes the statuses that changed, each whether or not the others can be written.
    ///
    /// # Errors
    /// The first write that failed; a KataConfig that is gone is no failure.
    pub async fn statuses(&self, caches: &Caches, report: &Report) -> Result<usize, CallError> {
        let (mut written, mut failed) = (0, None);
        for status in report.status.iter().chain(&report.other_configs) {
            if status.patch.is_none() {
                continue;
            }
            let (endpoint, name) = (Endpoint::of(Kind::KataConfig), &status.config.name);
            let uid = status.config.uid.as_deref().unwrap_or_default();
            match self.client.replace_status(&endpoint, name, uid, &status.status).await {
                Ok(answer) => {
                    written += 1;
                    if let Ok(text) = std::str::from_utf8(&answer) {
                        caches.absorb(Kind::KataConfig, name, text);
                    }
                }
                // Its last finalizer went in this pass.
                Err(error) if error.is_not_found() => caches.configs.forget(name),
                // The next one would only wait for its time limit too.
                Err(error @ (CallError::Timeout { .. } | CallError::Unreachable { .. })) => {
                    return Err(failed.unwrap_or(error));
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(written), Err)
    }

    /// Updates the metrics, and logs what is new.
    pub fn tell(&mut self, report: &Report) {
        let Report { findings, waiting_on, nodes, status, other_configs, events: _ } = report;
        if report.knows_nodes() {
            self.metrics.nodes(nodes);
        }
        self.metrics.findings(findings);
        self.metrics.conditions(status.iter().chain(other_configs));
        let mut text = String::new();
        for finding in findings {
            text.push_str(&format!("{finding}\n"));
        }
        for waiting in waiting_on {
            text.push_str(&format!("waiting for {}: {}\n", waiting.subject, waiting.message));
        }
        for node in nodes {
            let phase = node.phase.as_str();
            let step = node.step.map(|step| format!(", {}", step.as_str())).unwrap_or_default();
            text.push_str(&format!("Node {} is {phase}{step}\n", node.node));
        }
        if text == self.logged {
            return;
        }
        for line in text.lines().filter(|line| !self.logged.lines().any(|known| known == *line)) {
            tracing::info!(controller = crate::metrics::CONTROLLER, "{line}");
        }
        self.logged = text;
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

fn event_body(event: &EventToSend, instance: &str, clock: Clock) -> Value {
    let EventToSend { name, regarding, related, warning, reason, action, note } = event;
    let mut body = json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": EVENT_NAMESPACE},
        "eventTime": clock.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
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
