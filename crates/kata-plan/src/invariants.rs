//! The promises that no step may break, as preconditions of each step: [`vetoes`] finds the steps of a plan
//! that would break one, and [`remove_vetoed_steps`] removes them and the steps that depend on them. All
//! other steps are applied.
//!
//! A precondition reads the snapshot and the earlier steps. It shares with the decision the predicates that
//! say which objects belong to the operator, which KataConfig is active and what a configuration contains.
//! It must not use the assessment or the report, so that a wrong conclusion there cannot excuse a step. No
//! precondition reads the text of a status.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kata_api::node_task::EarlierRelease;
use kata_api::{Code, KataConfig, KataNode, conditions};

use crate::claim;
use crate::configs;
use crate::decide::Decision;
use crate::jobs::{JobsOfNode, jobs_by_node};
use crate::object::ObjectRef;
use crate::observed::Observed;
use crate::plan::{Action, OnFailure, Plan, Step};
use crate::pods::{given_back, own_classes};
use crate::report::{Report, StepFailure};
use crate::snapshot::{NodeFacts, NodeJob, Platform, PodScope, SandboxedPod, Snapshot};
use crate::text;

mod jobs;
mod nodes;
mod objects;
mod task;

/// A promise. Its name is a label of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    /// A node on which a sandboxed pod runs loses neither its runtime nor its label.
    RunningPods,
    /// Kata is removed from a node only if no new sandboxed pod can start there.
    ClosedToNewPods,
    /// Only a node that has Kata carries the runtime label.
    VerifiedNodes,
    /// A pool or MachineConfig is deleted only if no node uses it.
    UnusedConfiguration,
    /// Only objects, labels and taints of the operator are written and deleted, and only on the object that
    /// was read.
    Ownership,
    /// The finalizer is set before the first change, together with the namespace of the installation, and removed only
    /// when nothing of the operator is left.
    Finalizer,
    /// No disruptive step relies on facts that are unknown or may have changed.
    KnownState,
    /// No node has more than one Job, and no Job that may change a node is deleted while it runs.
    OneJobPerNode,
    /// No more nodes are changed at once than `spec.rollout` allows.
    RolloutLimits,
    /// The report of a KataConfig that is not Ready has a finding or a wait.
    ReasonGiven,
}

impl Property {
    pub const ALL: [Self; 10] = [
        Self::RunningPods,
        Self::ClosedToNewPods,
        Self::VerifiedNodes,
        Self::UnusedConfiguration,
        Self::Ownership,
        Self::Finalizer,
        Self::KnownState,
        Self::OneJobPerNode,
        Self::RolloutLimits,
        Self::ReasonGiven,
    ];
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub property: Property,
    /// How it is broken, with the names of the objects.
    pub note: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.note)
    }
}

/// A step that would break a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Veto {
    /// The step's index in the plan.
    pub step: usize,
    /// The promise, and how the step would break it.
    pub violation: Violation,
}

/// The steps of a plan that would break a promise. The steps after a vetoed step with [`OnFailure::Stop`]
/// are not checked, because they are not applied either.
pub fn vetoes(snapshot: &Snapshot, plan: &Plan) -> Vec<Veto> {
    let mut vetoes = Vec::new();
    if plan.steps.is_empty() {
        return vetoes;
    }
    let mut facts = Facts::new(snapshot, plan);
    for (index, step) in plan.steps.iter().enumerate() {
        match facts.precondition(&step.action) {
            Ok(()) => facts.earlier.add(step),
            Err(violation) => {
                vetoes.push(Veto { step: index, violation });
                if step.on_failure == OnFailure::Stop {
                    break;
                }
            }
        }
    }
    vetoes
}

/// Returns the plan without the vetoed steps and without those that depend on them, and the vetoed steps
/// for the report. A later step depends on a vetoed one if it is about the same object, or if the vetoed
/// one has [`OnFailure::Stop`].
pub fn remove_vetoed_steps(plan: &Plan, vetoes: &[Veto]) -> (Plan, Vec<StepFailure>) {
    let mut vetoes = vetoes.iter().peekable();
    let (mut steps, mut failures) = (Vec::new(), Vec::new());
    let mut objects: BTreeSet<&ObjectRef> = BTreeSet::new();
    for (index, step) in plan.steps.iter().enumerate() {
        let object = step.action.object();
        if let Some(veto) = vetoes.next_if(|veto| veto.step == index) {
            let error = format!("skipped \"{}\": {}", step.action, veto.violation.note);
            failures.push(StepFailure {
                object: object.clone(),
                code: Code::UnsafeStepSkipped,
                error,
            });
            if step.on_failure == OnFailure::Stop {
                break;
            }
            objects.insert(object);
        } else if !objects.contains(object) {
            steps.push(step.clone());
        }
    }
    (Plan { steps }, failures)
}

/// The violation that a KataConfig is not Ready and the report gives no reason.
pub fn missing_reason(report: &Report) -> Option<Violation> {
    let mut written = report.status.as_ref()?.status.conditions.iter();
    let ready = written.any(|it| it.type_ == conditions::READY && it.status == "True");
    let findings = report.findings.iter().map(|finding| &finding.message);
    let mut reasons = findings.chain(report.waiting_on.iter().map(|waiting| &waiting.message));
    let explained = (ready || reasons.clone().next().is_some()) && reasons.all(|it| !it.is_empty());
    let note = "the KataConfig is not Ready and no reason is given, or a reason has no text";
    (!explained).then(|| Violation { property: Property::ReasonGiven, note: note.to_owned() })
}

/// Every promise that a decision breaks: for tests, which expect none.
pub fn check(snapshot: &Snapshot, decision: &Decision) -> Vec<Violation> {
    let vetoes = vetoes(snapshot, &decision.plan).into_iter().map(|veto| veto.violation);
    vetoes.chain(missing_reason(&decision.report)).collect()
}

/// An error if a promise is broken.
type Kept = Result<(), Violation>;

fn ensure(holds: bool, property: Property, note: impl FnOnce() -> String) -> Kept {
    if holds { Ok(()) } else { Err(Violation { property, note: note() }) }
}

/// The facts that preconditions read.
struct Facts<'a> {
    snapshot: &'a Snapshot,
    plan: &'a Plan,
    active: Option<&'a KataConfig>,
    nodes: BTreeMap<&'a str, &'a NodeFacts>,
    kata_nodes: BTreeMap<&'a str, &'a KataNode>,
    jobs: BTreeMap<&'a str, JobsOfNode<'a>>,
    jobs_by_uid: BTreeMap<&'a str, &'a NodeJob>,
    rollout: OnceCell<Rollout>,
    /// The unfinished sandboxed pods of the cluster by node, if they were read.
    pods_by_node: Option<BTreeMap<&'a str, Vec<&'a SandboxedPod>>>,
    earlier: Earlier<'a>,
}

/// The effects of the earlier steps.
#[derive(Default)]
struct Earlier<'a> {
    /// Whether the active KataConfig has the finalizer and belongs to this installation.
    has_finalizer: bool,
    /// Objects that were applied and on which later steps rely.
    applied: BTreeSet<&'a ObjectRef>,
    /// Nodes that got a Job, and whether it changes the node.
    nodes_with_job: BTreeMap<&'a str, bool>,
}

impl<'a> Earlier<'a> {
    fn add(&mut self, step: &'a Step) {
        let relied_on = step.on_failure == OnFailure::Stop;
        match &step.action {
            Action::AddFinalizer { .. } => self.has_finalizer |= relied_on,
            Action::Apply { object, body } => {
                if let Some((node, changes)) = task::node_of(object, body) {
                    self.nodes_with_job.insert(node, changes);
                }
                if relied_on {
                    self.applied.insert(object);
                }
            }
            _ => {}
        }
    }
}

/// How many nodes may be unavailable at once, and how many are.
#[derive(Clone, Copy)]
struct Rollout {
    limit: usize,
    unavailable: usize,
}

impl<'a> Facts<'a> {
    fn new(snapshot: &'a Snapshot, plan: &'a Plan) -> Self {
        let active = configs::configs_by_age(&snapshot.configs).into_iter().next();
        let kata_nodes = snapshot.kata_nodes.known().into_iter().flatten();
        let nodes = snapshot.nodes.known().into_iter().flatten();
        let jobs = snapshot.jobs.jobs.known().into_iter().flatten();
        let cluster = snapshot.pods.get(&PodScope::Cluster).and_then(Observed::known);
        Self {
            snapshot,
            plan,
            active,
            nodes: nodes.map(|node| (node.name.as_str(), node.as_ref())).collect(),
            kata_nodes: kata_nodes
                .map(|kata_node| (kata_node.spec.node_name.as_str(), kata_node.as_ref()))
                .collect(),
            jobs: jobs_by_node(snapshot),
            jobs_by_uid: jobs.map(|job| (job.uid.as_str(), job)).collect(),
            rollout: OnceCell::new(),
            pods_by_node: cluster.map(|pods| by_node(pods)),
            earlier: Earlier {
                has_finalizer: active.is_some_and(|config| {
                    let is_deleting = config.metadata.deletion_timestamp.is_some();
                    let namespace = &snapshot.options.namespace;
                    configs::has_finalizer(config)
                        && (is_deleting || claim::is_ours(config, namespace))
                }),
                ..Earlier::default()
            },
        }
    }

    fn precondition(&self, action: &Action) -> Kept {
        let other = self.active.and_then(|it| claim::other_installation(it, self.snapshot));
        ensure(other.is_none(), Property::Ownership, || {
            format!("{action} although the KataConfig belongs to another installation")
        })?;
        match action {
            Action::AddFinalizer { .. } => return Ok(()),
            Action::RemoveFinalizers { config, .. } => {
                return self.may_remove_finalizers(action, config);
            }
            _ => {}
        }
        ensure(self.earlier.has_finalizer, Property::Finalizer, || {
            format!(
                "{action} before the KataConfig has the finalizer and belongs to this installation"
            )
        })?;
        self.ensure_lists_are_known(action)?;
        match action {
            Action::LabelNode { node, seen, set, remove, needs_fresh_classes: _ } => {
                self.may_label(node, seen.as_deref(), set, remove)
            }
            Action::ReplaceTaints { node, seen, taints } => {
                self.may_replace_taints(node, seen, taints)
            }
            Action::Apply { object, body } => self.may_apply(object, Some(body)),
            Action::ApplyStatus { object, .. } => self.may_apply(object, None),
            Action::Delete { object, .. } => self.may_delete(object),
            Action::AddFinalizer { .. } | Action::RemoveFinalizers { .. } => Ok(()),
        }
    }

    /// While a list that the other preconditions need is unknown, only KataConfigs are written.
    fn ensure_lists_are_known(&self, action: &Action) -> Kept {
        let Snapshot { nodes, kata_nodes, runtime_classes, jobs, options, .. } = self.snapshot;
        let of_cluster = nodes.is_known() && kata_nodes.is_known() && runtime_classes.is_known();
        let of_jobs = options.platform == Platform::OpenShift
            || (jobs.jobs.is_known() && jobs.pods.is_known());
        ensure(of_cluster && of_jobs, Property::KnownState, || {
            format!("{action} although not every list could be read")
        })
    }

    /// The sandboxed pods on a node were read, and all of them have finished.
    fn ensure_no_pods_on_node(&self, node: &str, action: &str) -> Kept {
        self.ensure_no_pods(self.pods_on_node(node).as_deref(), action)
    }

    /// The sandboxed pods on a node were read, and all of this RuntimeClass have finished.
    fn ensure_no_pods_of_class_on_node(&self, class: &str, node: &str, action: &str) -> Kept {
        let pods = self.pods_on_node(node).map(|mut pods| {
            pods.retain(|pod| pod.runtime_class == class);
            pods
        });
        self.ensure_no_pods(pods.as_deref(), action)
    }

    /// The unfinished sandboxed pods on a node, if they were read. A read of the whole cluster is the later one.
    fn pods_on_node(&self, node: &str) -> Option<Vec<&SandboxedPod>> {
        let mut pods = match &self.pods_by_node {
            Some(pods) => pods.get(node).cloned().unwrap_or_default(),
            None => {
                let read = self.snapshot.pods.get(&PodScope::Node(node.to_owned()))?;
                by_node(read.known()?).remove(node).unwrap_or_default()
            }
        };
        if let Some(config) = self.active {
            let given_back = given_back(self.snapshot, config);
            pods.retain(|pod| !given_back.contains(EarlierRelease::listed(&pod.uid)));
        }
        if self.is_provided(node) {
            // Pods of foreign classes keep their handler, which is not the operator's.
            let existing = self.snapshot.runtime_classes.known().map_or(&[][..], Vec::as_slice);
            let own = self.active.map(|config| own_classes(config, existing));
            pods.retain(|pod| own.as_ref().is_none_or(|own| own.contains(&pod.runtime_class)));
        }
        Some(pods)
    }

    /// The pods that block a step were read, and there are none.
    fn ensure_no_pods(&self, pods: Option<&[&SandboxedPod]>, action: &str) -> Kept {
        ensure(pods.is_some_and(<[_]>::is_empty), Property::RunningPods, || match pods {
            Some(pods) => format!("{action} while sandboxed pods are left: {}", text::pods(pods)),
            None => format!("{action} although the sandboxed pods there were not read"),
        })
    }
}

/// The unfinished pods by their node.
fn by_node(pods: &[SandboxedPod]) -> BTreeMap<&str, Vec<&SandboxedPod>> {
    let mut by_node: BTreeMap<&str, Vec<&SandboxedPod>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.finished) {
        if let Some(node) = &pod.node {
            by_node.entry(node).or_default().push(pod);
        }
    }
    by_node
}
