//! Writes a decision's report to the KataConfigs' status, the metrics and the log. It writes a status or a
//! line only if it is new. This module decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kata_api::kata_node::Phase;
use kata_plan::{Kind, NodeReport, Report, Urgency};
use tokio::time::Instant;

use crate::client::{Client, Endpoint};
use crate::error::CallError;
use crate::metrics::Metrics;
use crate::observe::Caches;
use crate::pacing::{STATUS_FINDINGS, STATUS_PROGRESS};
use crate::watch::AnyCache as _;

/// How many nodes a line of the log names.
const NAMED: usize = 5;

#[derive(Debug)]
pub struct Reporter {
    client: Client,
    metrics: Metrics,
    /// When the status of each KataConfig was written last, by uid.
    statuses: BTreeMap<String, Instant>,
    /// The lines that were logged last.
    logged: BTreeSet<String>,
    /// The phases of nodes as logged last.
    phases: BTreeMap<String, Phase>,
}

impl Reporter {
    /// A reporter that has written nothing yet.
    pub fn new(client: Client, metrics: Metrics) -> Self {
        Self {
            client,
            metrics,
            statuses: BTreeMap::new(),
            logged: BTreeSet::new(),
            phases: BTreeMap::new(),
        }
    }

    /// Writes the statuses that changed. A new condition is written at once, progress every few seconds.
    /// Returns how soon the first postponed status is due. If one write fails, the others are still tried,
    /// unless the API server is unreachable.
    ///
    /// After a write with an unknown outcome, no pass begins before the KataConfigs are listed again: the
    /// next decision keeps the time of a condition only if it sees that condition.
    ///
    /// # Errors
    /// The first write that failed; a KataConfig that is gone is no failure.
    pub async fn write_statuses(
        &mut self,
        caches: &Caches,
        report: &Report,
    ) -> Result<Option<Duration>, CallError> {
        let (mut put_off, mut failed) = (None, None);
        for status in report.status.iter().chain(&report.other_configs) {
            if !status.needs_write {
                continue;
            }
            let (endpoint, name) = (Endpoint::of(Kind::KataConfig), &status.config.name);
            // This pass may have removed its last finalizer.
            if caches.configs.is_gone(name) {
                continue;
            }
            let uid = status.config.uid.as_deref().unwrap_or_default();
            let existing = caches.configs.get(name).and_then(|config| config.status);
            let interval = match status.urgency(existing.as_ref()) {
                Urgency::Conditions => Duration::ZERO,
                Urgency::Findings => STATUS_FINDINGS,
                Urgency::Progress => STATUS_PROGRESS,
            };
            let since = self.statuses.get(uid).map(Instant::elapsed);
            if let Some(left) = since.and_then(|since| interval.checked_sub(since))
                && !left.is_zero()
            {
                put_off = Some(put_off.map_or(left, |other: Duration| other.min(left)));
                continue;
            }
            match self.client.replace_status(&endpoint, name, uid, &status.status).await {
                Ok(answer) => {
                    self.statuses.insert(uid.to_owned(), Instant::now());
                    if let Ok(text) = std::str::from_utf8(&answer) {
                        caches.configs.await_response(text);
                    }
                }
                Err(error) if error.is_not_found() => caches.configs.await_deletion(name),
                Err(error) => {
                    if error.may_have_succeeded() {
                        caches.configs.await_list();
                    }
                    let is_disconnected = error.is_disconnected();
                    failed = failed.or(Some(error));
                    // The next write would time out too.
                    if is_disconnected {
                        break;
                    }
                }
            }
        }
        failed.map_or(Ok(put_off), Err)
    }

    /// Updates the metrics, and logs what is new.
    pub fn log_and_export(&mut self, report: &Report) {
        let Report { findings, waiting_on, nodes, status, other_configs, events: _ } = report;
        if report.nodes_are_complete() {
            self.metrics.set_nodes(nodes);
        }
        self.metrics.set_findings(findings);
        self.metrics.set_conditions(status.iter().chain(other_configs));
        let findings = findings.iter().map(ToString::to_string);
        // For a node, the phase is logged instead.
        let waiting = waiting_on
            .iter()
            .filter(|waiting| waiting.subject.kind != Kind::Node)
            .map(|waiting| format!("waiting for {}: {}", waiting.subject, waiting.message));
        let lines: BTreeSet<String> = findings.chain(waiting).collect();
        for line in lines.difference(&self.logged) {
            tracing::info!(controller = crate::metrics::CONTROLLER, "{line}");
        }
        self.logged = lines;
        self.log_phases(nodes);
    }

    /// Logs the nodes whose phase has changed, a few of them by name.
    fn log_phases(&mut self, nodes: &[NodeReport]) {
        let mut moved: BTreeMap<Phase, Vec<&str>> = BTreeMap::new();
        for node in nodes {
            if self.phases.get(&node.node) != Some(&node.phase) {
                moved.entry(node.phase).or_default().push(&node.node);
                self.phases.insert(node.node.clone(), node.phase);
            }
        }
        if self.phases.len() > nodes.len() {
            let known: BTreeSet<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
            self.phases.retain(|name, _| known.contains(name.as_str()));
        }
        for (phase, names) in moved {
            let more = names.len().saturating_sub(NAMED);
            let names = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let phase = phase.as_str();
            tracing::info!(controller = crate::metrics::CONTROLLER, "{phase}: {names}{more}");
        }
    }
}
