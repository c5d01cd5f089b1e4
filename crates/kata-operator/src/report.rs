//! From a decision's report to the world: the KataConfigs' status, metrics and the log. Each is
//! written only when it says something new.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kata_api::kata_node::Phase;
use kata_plan::{Kind, NodeReport, Report, Urgency};
use tokio::time::Instant;

use crate::client::{Client, Endpoint};
use crate::error::{CallError, chain};
use crate::metrics::Metrics;
use crate::observe::Caches;

/// How long after a status was written it may be out of date in its lists of nodes.
const LISTS_WAIT: Duration = Duration::from_secs(2);
/// How long after a status was written it may be out of date in its words.
const WORDS_WAIT: Duration = Duration::from_secs(10);
/// How many nodes a line of the log names.
const NAMED: usize = 5;

/// Writes reports.
#[derive(Debug)]
pub struct Reporter {
    client: Client,
    metrics: Metrics,
    /// When the status of each KataConfig was written last, by uid.
    statuses: BTreeMap<String, Instant>,
    /// Whether a status was written of which nobody knows whether it took effect.
    in_doubt: bool,
    /// What was logged last.
    logged: BTreeSet<String>,
    /// The phases of nodes as logged last.
    phases: BTreeMap<String, Phase>,
}

impl Reporter {
    /// A reporter that has said nothing yet.
    pub fn new(client: Client, metrics: Metrics) -> Self {
        Self {
            client,
            metrics,
            statuses: BTreeMap::new(),
            in_doubt: false,
            logged: BTreeSet::new(),
            phases: BTreeMap::new(),
        }
    }

    /// Reads the KataConfigs again after a write of a status whose outcome is not known: a condition that it
    /// changed keeps its time only if the next decision knows of it. While this fails, no status is written.
    pub async fn settle(&mut self, caches: &Caches) {
        if !self.in_doubt {
            return;
        }
        match caches.configs.refresh(&self.client).await {
            Ok(_version) => self.in_doubt = false,
            Err(error) => tracing::warn!(
                error = chain(&error),
                "cannot find out whether the last status was written"
            ),
        }
    }

    /// Writes the statuses that changed, each whether or not the others can be written. A new condition
    /// is written at once; progress is written every few seconds, and the answer is how soon it has to
    /// be, if it was put off.
    ///
    /// # Errors
    /// The first write that failed; a KataConfig that is gone is no failure. Also if it is not known what became
    /// of an earlier write, see [`Reporter::settle`].
    pub async fn statuses(
        &mut self,
        caches: &Caches,
        report: &Report,
    ) -> Result<Option<Duration>, CallError> {
        if self.in_doubt {
            let call = "replace the status of KataConfigs".to_owned();
            return Err(CallError::Doubtful { call });
        }
        let (mut put_off, mut failed) = (None, None);
        for status in report.status.iter().chain(&report.other_configs) {
            if status.patch.is_none() {
                continue;
            }
            let (endpoint, name) = (Endpoint::of(Kind::KataConfig), &status.config.name);
            let uid = status.config.uid.as_deref().unwrap_or_default();
            let existing = caches.configs.get(name).and_then(|config| config.status);
            let rests = match status.urgency(existing.as_ref()) {
                Urgency::Conditions => Duration::ZERO,
                Urgency::Lists => LISTS_WAIT,
                Urgency::Words => WORDS_WAIT,
            };
            let since = self.statuses.get(uid).map(Instant::elapsed);
            if let Some(left) = since.and_then(|since| rests.checked_sub(since))
                && !left.is_zero()
            {
                put_off = Some(put_off.map_or(left, |other: Duration| other.min(left)));
                continue;
            }
            match self.client.replace_status(&endpoint, name, uid, &status.status).await {
                Ok(answer) => {
                    self.statuses.insert(uid.to_owned(), Instant::now());
                    if let Ok(text) = std::str::from_utf8(&answer) {
                        caches.absorb(Kind::KataConfig, name, text);
                    }
                }
                // Its last finalizer went in this pass.
                Err(error) if error.is_not_found() => caches.configs.forget(name),
                Err(error) => {
                    self.in_doubt |= error.may_be_done();
                    let away =
                        matches!(error, CallError::Timeout { .. } | CallError::Unreachable { .. });
                    failed = failed.or(Some(error));
                    // The next one would only wait for its time limit too.
                    if away {
                        break;
                    }
                }
            }
        }
        failed.map_or(Ok(put_off), Err)
    }

    /// Updates the metrics, and logs what is new.
    pub fn tell(&mut self, report: &Report) {
        let Report { findings, waiting_on, nodes, status, other_configs, events: _ } = report;
        if report.knows_nodes() {
            self.metrics.nodes(nodes);
        }
        self.metrics.findings(findings);
        self.metrics.conditions(status.iter().chain(other_configs));
        let findings = findings.iter().map(ToString::to_string);
        // What happens on a node is told by its phase.
        let waiting = waiting_on
            .iter()
            .filter(|waiting| waiting.subject.kind != Kind::Node)
            .map(|waiting| format!("waiting for {}: {}", waiting.subject, waiting.message));
        let lines: BTreeSet<String> = findings.chain(waiting).collect();
        for line in lines.difference(&self.logged) {
            tracing::info!(controller = crate::metrics::CONTROLLER, "{line}");
        }
        self.logged = lines;
        self.tell_phases(nodes);
    }

    /// Logs which nodes came into another phase, a few of them by name.
    fn tell_phases(&mut self, nodes: &[NodeReport]) {
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
