//! Where a script is performed: the cluster, the operator beside it, and the transcript.
//!
//! Times in the transcript are those of the cluster since its start. What the KataConfigs say is told
//! whenever it changes, from the store's log, so that nothing that was said for a moment is missed.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};
use simcluster::Simulation;
use simcluster::api::ApiError;
use simcluster::api::fault::{Fault, Match, Rule};
use simcluster::api::registry::ResourceDef;
use simcluster::api::server::{PatchType, WriteOptions, WriteRequest, WriteVerb, Writer};
use simcluster::cluster::Cluster;
use simcluster::resource::KATACONFIGS;
use simcluster::topology::{self, Layout};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::RunError;
use super::invariants::Invariants;
use super::parse::{Command, Target, Verb};
use super::show;
use crate::compose::{self, Told};
use crate::story::span;

/// How often the stage looks while time passes, in cluster time.
const LOOK: Duration = Duration::from_secs(1);
/// Conditions that are told while they are `True`; Ready is told always. What is left out repeats it.
const TOLD: [&str; 3] = ["Stalled", "Degraded", "DeletionBlocked"];

/// The definition of a kind that a script names as kubectl would.
pub(crate) fn resource<'a>(sim: &'a Simulation, kind: &str) -> Result<&'a ResourceDef, String> {
    let kind = kind.to_ascii_lowercase();
    sim.api
        .registry
        .iter()
        .find(|def| {
            def.resource.plural == *kind
                || def.singular == *kind
                || def.kind.eq_ignore_ascii_case(&kind)
                || def.short_names.iter().any(|short| *short == *kind)
        })
        .map(AsRef::as_ref)
        .ok_or_else(|| format!("the cluster serves no kind {kind:?}"))
}

impl Target {
    /// The namespace to ask in.
    pub(crate) fn namespace(&self, namespaced: bool) -> &str {
        if namespaced { self.namespace.as_deref().unwrap_or("default") } else { "" }
    }
}

/// Everything that a script works on.
pub(crate) struct Stage<W> {
    out: W,
    cluster: Cluster,
    operator: JoinHandle<()>,
    start: Instant,
    /// The revision up to which the log was told.
    told: u64,
    /// What each KataConfig said last, by name and condition.
    said: BTreeMap<(String, String), String>,
    invariants: Option<Invariants>,
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
        let told = cluster.with(|sim, _| sim.api.store.revision());
        Ok(Self {
            out,
            cluster,
            operator,
            start: Instant::now(),
            told,
            said: BTreeMap::new(),
            invariants: Some(Invariants::default()),
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
                    self.tell()?;
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
                self.tell()?;
                self.expected += 1;
                let down = self.operator.is_finished();
                match self.cluster.with(|sim, _| claim.holds(sim, down)) {
                    Err(mistake) => Err(mistake),
                    Ok(Ok(())) => self.timed("√").map(Ok)?,
                    Ok(Err(instead)) => self.fail(&instead).map(Ok)?,
                }
            }
            Verb::Show { kind, name, namespace } => {
                self.tell()?;
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
            Verb::Restart { monitor_image } => {
                self.operator.abort();
                self.operator = compose::operator_with(
                    &self.cluster,
                    Told { monitor_image, ..Told::default() },
                );
                Ok(())
            }
            verb => {
                self.tell()?;
                let done = self.cluster.with(|sim, _| change(sim, verb));
                // Invariants are about what the operator does, not about what scripts do.
                if let Some(invariants) = &mut self.invariants {
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
        // Whoever is woken by the command runs before the next one.
        tokio::task::yield_now().await;
        self.tell()?;
        Ok(performed)
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

    /// Lets a little time pass, but not beyond `end`, and tells what happened.
    async fn look(&mut self, end: Instant) -> io::Result<()> {
        tokio::time::sleep_until(end.min(Instant::now() + LOOK)).await;
        self.tell()
    }

    /// Tells what KataConfigs say now, and which invariants are broken.
    fn tell(&mut self) -> io::Result<()> {
        let from = self.told;
        let up = !self.operator.is_finished();
        let invariants = &mut self.invariants;
        let (told, statuses, broken) = self.cluster.with(|sim, now| {
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
        self.told = told;
        for (name, conditions) in statuses {
            let Some(conditions) = conditions else {
                self.said.retain(|(of, _), _| *of != name);
                self.timed(&format!("{name} is gone"))?;
                continue;
            };
            for condition in conditions.as_array().into_iter().flatten() {
                self.tell_condition(&name, condition)?;
            }
        }
        for text in broken {
            self.fail(&format!("INVARIANT BROKEN: {text}"))?;
        }
        Ok(())
    }

    fn tell_condition(&mut self, name: &str, condition: &Value) -> io::Result<()> {
        let word = |key: &str| condition[key].as_str().unwrap_or_default();
        let type_ = word("type");
        let true_ = word("status") == "True";
        if type_ != "Ready" && !TOLD.contains(&type_) {
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

/// Why a command did nothing.
enum Failed {
    /// The API server says no.
    Refused(String),
    /// The script is wrong.
    Mistake(String),
}

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        Self::Refused(error.message)
    }
}

/// Changes the cluster as a command says; returns what to show.
fn change(sim: &mut Simulation, verb: Verb) -> Result<String, Failed> {
    match verb {
        Verb::Apply(objects) => {
            let mut lines = String::new();
            for object in objects {
                lines.push_str(&apply(sim, object)?);
                lines.push('\n');
            }
            return Ok(lines);
        }
        Verb::Delete(target) => {
            let (def, namespace) = find(sim, &target)?;
            let writer = Writer { manager: "kubectl", now: sim.now() };
            sim.api.delete(writer, &def, &namespace, &target.name, &Default::default())?;
        }
        Verb::Label { target, set } => {
            merge(sim, &target, "kubectl", &json!({"metadata": {"labels": set}}))?;
        }
        Verb::Merge { target, patch, manager } => merge(sim, &target, manager, &patch)?,
        Verb::Fault { node, fault: Some(fault) } => topology::set_fault(sim, &node, fault)?,
        Verb::Fault { node, fault: None } => topology::clear_fault(sim, &node, None)?,
        Verb::NodeAdd(name) => topology::add_node(sim, &name, topology::Role::Worker)?,
        Verb::NodeRemove(name) => topology::remove_node(sim, &name)?,
        Verb::OsImage(image) => simcluster::mco::set_os_image(sim, &image)?,
        Verb::ApiFault(Some(rule)) => sim.frontend.faults.add(rule),
        Verb::ApiFault(None) => sim.frontend.faults.clear(),
        Verb::Comment
        | Verb::Cluster(_)
        | Verb::ApplyFile(_)
        | Verb::Show { .. }
        | Verb::Wait { .. }
        | Verb::Expect(_)
        | Verb::Advance(_)
        | Verb::Crash(_)
        | Verb::Restart { .. }
        | Verb::Invariants(_) => {}
    }
    Ok(String::new())
}

fn find(sim: &Simulation, target: &Target) -> Result<(simcluster::Resource, String), Failed> {
    let def = resource(sim, &target.kind).map_err(Failed::Mistake)?;
    Ok((def.resource.clone(), target.namespace(def.namespaced).to_owned()))
}

fn merge(
    sim: &mut Simulation,
    target: &Target,
    manager: &str,
    patch: &Value,
) -> Result<(), Failed> {
    let (resource, namespace) = find(sim, target)?;
    let writer = Writer { manager, now: sim.now() };
    sim.api.merge(writer, &resource, &namespace, &target.name, patch)?;
    Ok(())
}

/// Gives owner references without a uid that of the object which they name: no script can know it.
fn complete_owners(sim: &Simulation, object: &mut Value) -> Result<(), Failed> {
    for owner in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
        if owner.get("uid").is_some() {
            continue;
        }
        let word = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        let target = Target { kind: word("kind"), name: word("name"), namespace: None };
        let (resource, namespace) = find(sim, &target)?;
        let found = sim.api.get(&resource, &namespace, &target.name).ok_or_else(|| {
            Failed::Mistake(format!("the owner {} {} does not exist", target.kind, target.name))
        })?;
        owner["uid"] = found["metadata"]["uid"].clone();
    }
    Ok(())
}

/// Server-side apply, as kubectl does it.
fn apply(sim: &mut Simulation, mut object: Value) -> Result<String, Failed> {
    complete_owners(sim, &mut object)?;
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (word(&object["apiVersion"]), word(&object["kind"]));
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let def = sim.api.registry.by_kind(group, &kind).cloned().ok_or_else(|| {
        Failed::Mistake(format!("the cluster serves no kind {kind:?} of {api_version:?}"))
    })?;
    let name = word(&object["metadata"]["name"]);
    let namespace = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => namespace.to_owned(),
        None if def.namespaced => "default".to_owned(),
        None => String::new(),
    };
    let request = WriteRequest {
        verb: WriteVerb::Patch(PatchType::Apply),
        resource: def.resource.clone(),
        namespace,
        name: name.clone(),
        subresource: String::new(),
        body: object,
        options: WriteOptions {
            field_manager: "kubectl".to_owned(),
            field_validation: simcluster::api::server::FieldValidation::Strict,
            force: true,
            ..WriteOptions::default()
        },
    };
    let now = sim.now();
    let answer = sim.api.write(now, &request)?;
    let what = if answer.code == 201 { "created" } else { "configured" };
    let warnings: String =
        answer.warnings.iter().map(|warning| format!("\nWarning: {warning}")).collect();
    Ok(format!("{}/{name} {what}{warnings}", def.singular))
}
