//! Where a script is performed: the cluster, the operator beside it, and the transcript.
//!
//! Times in the transcript are those of the cluster since its start. What the KataConfigs say is shown
//! each time it changes, from the store's log, so that nothing that was said for a moment is missed, and which alerts
//! follow from that.

mod change;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};
use simcluster::api::fault::{Fault, Match, Rule};
use simcluster::api::store::Backup;
use simcluster::cluster::Cluster;
use simcluster::resource::KATACONFIGS;
use simcluster::topology::{self, Layout};
use simcluster::world::NodeFault;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::change::{Failed, change};
use super::alerts::Alerts;
use super::command::{Command, Verb};
use super::error::RunError;
use super::invariants::Invariants;
use super::show;
use crate::compose::{self, OperatorOptions};
use crate::story::span;

/// How often the stage looks while time passes, in cluster time.
const LOOK: Duration = Duration::from_secs(1);
/// Conditions that are shown while they are `True`; Ready is shown always. What is left out repeats it.
const SHOWN_WHILE_TRUE: [&str; 3] = ["Stalled", "Degraded", "DeletionBlocked"];

/// Everything that a script works on.
pub(crate) struct Stage<W> {
    out: W,
    cluster: Cluster,
    operator: JoinHandle<()>,
    start: Instant,
    /// The revision up to which the log was shown.
    shown_to: u64,
    /// What each KataConfig said last, by name and condition.
    said: BTreeMap<(String, String), String>,
    alerts: Alerts,
    invariants: Option<Invariants>,
    /// What `etcd backup` kept.
    backup: Option<Backup>,
    expected: usize,
    failed: usize,
}

/// A mistake in the script that shows only when it runs.
type Performed = Result<(), String>;

impl<W: Write> Stage<W> {
    /// A settled cluster with the operator.
    pub(crate) fn start(layout: &Layout, mut out: W) -> Result<Self, RunError> {
        let shape = compose::Shape { layout: layout.clone(), speed: 1.0 };
        let cluster = compose::cluster(&shape, compose::virtual_clock())
            .map_err(|error| RunError::Cluster(error.to_string()))?;
        writeln!(
            out,
            "A SIMULATED cluster on virtual time: no virtual machine runs, nothing is measured."
        )?;
        let operator = compose::operator(&cluster);
        let shown_to = cluster.with(|sim, _| sim.api.store.revision());
        Ok(Self {
            out,
            cluster,
            operator,
            start: Instant::now(),
            shown_to,
            said: BTreeMap::new(),
            alerts: Alerts::default(),
            invariants: Some(Invariants::default()),
            backup: None,
            expected: 0,
            failed: 0,
        })
    }

    /// The last line; whether everything holds.
    pub(crate) fn end(mut self, name: &str) -> io::Result<bool> {
        self.operator.abort();
        let (expected, failed) = (self.expected, self.failed);
        let result = if failed == 0 {
            format!("all {expected} expectations hold")
        } else {
            format!("{failed} failures: not everything holds that should")
        };
        writeln!(self.out, "\n{name}: {result} (simulated)")?;
        self.out.flush()?;
        Ok(failed == 0)
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        for line in text.lines() {
            writeln!(self.out, "  {line}")?;
        }
        Ok(())
    }

    fn timed(&mut self, text: &str) -> io::Result<()> {
        let at = span(self.start.elapsed());
        writeln!(self.out, "  +{at:<7} {text}")
    }

    fn fail(&mut self, text: &str) -> io::Result<()> {
        self.failed += 1;
        self.timed(&format!("× {text}"))
    }

    /// Does what a line says. The inner error is a mistake in the script.
    pub(crate) async fn perform(&mut self, command: Command) -> io::Result<Performed> {
        let Command { text, verb, refused, .. } = command;
        if matches!(verb, Verb::Comment) {
            writeln!(self.out, "\n{text}")?;
            return Ok(Ok(()));
        }
        writeln!(self.out, "> {text}")?;
        let performed = match verb {
            Verb::Comment | Verb::Cluster(_) | Verb::ApplyFile(_) => Ok(()),
            Verb::Advance(span) => {
                let end = Instant::now() + span;
                while Instant::now() < end {
                    self.look(end).await?;
                }
                Ok(())
            }
            Verb::Wait { claim, within } => {
                self.expected += 1;
                let begin = Instant::now();
                loop {
                    self.report()?;
                    let down = self.operator.is_finished();
                    match self.cluster.with(|sim, _| claim.holds(sim, down)) {
                        Err(mistake) => break Err(mistake),
                        Ok(Ok(())) => {
                            self.timed(&format!("√ after {}", span(begin.elapsed())))?;
                            break Ok(());
                        }
                        Ok(Err(instead)) if begin.elapsed() >= within => {
                            self.fail(&format!("not within {}; {instead}", span(within)))?;
                            break Ok(());
                        }
                        Ok(Err(_not_yet)) => self.look(begin + within).await?,
                    }
                }
            }
            Verb::Expect(claim) => {
                self.report()?;
                self.expected += 1;
                let down = self.operator.is_finished();
                match self.cluster.with(|sim, _| claim.holds(sim, down)) {
                    Err(mistake) => Err(mistake),
                    Ok(Ok(())) => self.timed("√").map(Ok)?,
                    Ok(Err(instead)) => self.fail(&instead).map(Ok)?,
                }
            }
            Verb::Show { kind, name, namespace } => {
                self.report()?;
                let shown = self
                    .cluster
                    .with(|sim, _| show::show(sim, &kind, name.as_deref(), namespace.as_deref()));
                match shown {
                    Ok(shown) => self.line(&shown).map(Ok)?,
                    Err(mistake) => Err(mistake),
                }
            }
            Verb::Invariants(on) => {
                self.invariants = on.then(Invariants::default);
                Ok(())
            }
            Verb::Crash(None) => {
                self.operator.abort();
                Ok(())
            }
            Verb::Crash(Some((calls, when))) => {
                self.crash_after(calls, Fault::Crash { when });
                Ok(())
            }
            Verb::Restart { monitor_image, clock_offset } => {
                self.operator.abort();
                self.operator = compose::operator_with(
                    &self.cluster,
                    OperatorOptions { monitor_image, clock_offset, ..OperatorOptions::default() },
                );
                Ok(())
            }
            Verb::EtcdBackup => {
                self.backup = Some(self.cluster.with(|sim, _| sim.api.store.backup()));
                Ok(())
            }
            Verb::EtcdRestore => {
                self.report()?;
                match &self.backup {
                    Some(backup) => {
                        self.shown_to = self.cluster.with(|sim, _| {
                            sim.restore_etcd(backup);
                            sim.api.store.revision()
                        });
                        if let Some(invariants) = &mut self.invariants {
                            invariants.skip(self.shown_to);
                        }
                        Ok(())
                    }
                    None => Err("there is no backup: write `etcd backup` before".to_owned()),
                }
            }
            verb => {
                self.report()?;
                if let Verb::Fault { node, fault: Some(fault), lasts: Some(lasts) } = &verb {
                    self.end_fault(node.clone(), fault.clone(), *lasts);
                }
                let is_fault = matches!(verb, Verb::Fault { .. });
                let done = self.cluster.with(|sim, _| change(sim, verb));
                // What the script itself changes is not checked; what a fault leads to is.
                if let Some(invariants) = self.invariants.as_mut().filter(|_| !is_fault) {
                    invariants.skip(self.cluster.with(|sim, _| sim.api.store.revision()));
                }
                match (done, refused) {
                    (Err(Failed::Mistake(mistake)), _) => Err(mistake),
                    (Err(Failed::Refused(error)), true) => {
                        self.expected += 1;
                        self.timed(&format!("√ refused: {error}")).map(Ok)?
                    }
                    (Err(Failed::Refused(error)), false) => {
                        self.fail(&format!("the API server refuses: {error}")).map(Ok)?
                    }
                    (Ok(_), true) => {
                        self.expected += 1;
                        self.fail("the API server does not refuse it").map(Ok)?
                    }
                    (Ok(said), false) => self.line(&said).map(Ok)?,
                }
            }
        };
        // The tasks that the command wakes run before the next command.
        tokio::task::yield_now().await;
        self.report()?;
        Ok(performed)
    }

    /// Lets a fault of a node be over after some time.
    fn end_fault(&self, node: String, fault: NodeFault, lasts: Duration) {
        let cluster = self.cluster.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(Instant::now() + lasts).await;
            // The node may be gone by then, and the fault with it.
            let _gone = cluster.with(|sim, _| topology::clear_fault(sim, &node, Some(&fault)));
        });
    }

    /// Lets the operator crash at a call, and stay down.
    fn crash_after(&mut self, calls: u64, fault: Fault) {
        let mut crashes = self.cluster.crashes();
        crashes.mark_unchanged();
        self.cluster.with(|sim, _| {
            let mut rule = Rule::once(Match::default(), fault);
            rule.call = Some(sim.frontend.faults.calls() + calls);
            sim.frontend.faults.add(rule);
        });
        let operator = self.operator.abort_handle();
        tokio::spawn(async move {
            if crashes.changed().await.is_ok() {
                operator.abort();
            }
        });
    }

    /// Lets a little time pass, but not beyond `end`, and shows what happened.
    async fn look(&mut self, end: Instant) -> io::Result<()> {
        tokio::time::sleep_until(end.min(Instant::now() + LOOK)).await;
        self.report()
    }

    /// Shows what KataConfigs say now, and which invariants are broken.
    fn report(&mut self) -> io::Result<()> {
        let from = self.shown_to;
        let up = !self.operator.is_finished();
        let invariants = &mut self.invariants;
        let (shown_to, statuses, broken) = self.cluster.with(|sim, now| {
            let statuses: Vec<(String, Option<Value>)> = sim
                .api
                .store
                .events_after(from)
                .into_iter()
                .flatten()
                .filter(|event| event.resource == KATACONFIGS)
                .map(|event| {
                    let gone = event.kind == simcluster::api::EventKind::Deleted;
                    let conditions = event.current["status"]["conditions"].clone();
                    (event.name.clone(), (!gone).then_some(conditions))
                })
                .collect();
            let broken = invariants.as_mut().map(|check| check.check(sim, now, up));
            (sim.api.store.revision(), statuses, broken.unwrap_or_default())
        });
        self.shown_to = shown_to;
        for (name, conditions) in statuses {
            let Some(conditions) = conditions else {
                self.said.retain(|(of, _), _| *of != name);
                self.timed(&format!("{name} is gone"))?;
                continue;
            };
            let conditions = conditions.as_array().map_or(&[][..], Vec::as_slice);
            for condition in conditions {
                self.report_condition(&name, condition)?;
            }
            for type_ in SHOWN_WHILE_TRUE {
                if !conditions.iter().any(|condition| condition["type"] == type_) {
                    self.report_condition(&name, &json!({"type": type_}))?;
                }
            }
        }
        self.print_alerts(up)?;
        for text in broken {
            self.fail(&format!("INVARIANT BROKEN: {text}"))?;
        }
        Ok(())
    }

    /// Prints the alerts that begin or end. A stopped operator exports no metric.
    fn print_alerts(&mut self, up: bool) -> io::Result<()> {
        let mut conditions = BTreeSet::new();
        for ((name, type_), text) in self.said.iter().filter(|_| up) {
            let status = text.split(['=', ' ']).nth(1).unwrap_or_default();
            conditions.insert((name.as_str(), type_.as_str(), status));
        }
        for text in self.alerts.observe(Instant::now(), &conditions) {
            self.timed(&text)?;
        }
        Ok(())
    }

    fn report_condition(&mut self, name: &str, condition: &Value) -> io::Result<()> {
        let word = |key: &str| condition[key].as_str().unwrap_or_default();
        let type_ = word("type");
        let true_ = word("status") == "True";
        if type_ != "Ready" && !SHOWN_WHILE_TRUE.contains(&type_) {
            return Ok(());
        }
        let key = (name.to_owned(), type_.to_owned());
        let text = if type_ != "Ready" && !true_ {
            String::new()
        } else {
            format!("{type_}={} {}: {}", word("status"), word("reason"), word("message"))
        };
        let before = self.said.insert(key, text.clone()).unwrap_or_default();
        match (text.is_empty(), before == text) {
            (_, true) => Ok(()),
            (true, false) => self.timed(&format!("{name} {type_} is over")),
            (false, false) => self.timed(&format!("{name} {text}")),
        }
    }
}
