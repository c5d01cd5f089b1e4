//! The value that both back ends return: the active KataConfig's nodes, each with its actual and its
//! desired state, its waits and its failures, and the next steps of the back end.
//!
//! Plan, report, Events, status and KataNodes read only this value. It does not depend on the back end, and
//! no later stage reads a [`Snapshot`] again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::kata_config::RuntimeSpec;
use kata_api::kata_node::{HostStatus, NodeStep, Phase};
use kata_api::{Code, KataConfig, KataNode, names};

use crate::classes::is_our_class;
use crate::configs::config_ref;
use crate::draft::Draft;
use crate::log_level::LOG_LEVELS;
use crate::object::{Kind, ObjectRef};
use crate::pods::{NotRead, SandboxedPods};
use crate::reading::{FIX_FIELD, to_the_second};
use crate::report::Finding;
use crate::selector;
use crate::snapshot::{NodeFacts, Options, SandboxedPod, Snapshot, UnreadableObject};
use crate::text;

/// The cluster as a back end assesses it.
#[derive(Clone, Debug)]
pub(crate) struct Assessment {
    /// The time of the decision, to the second, as the API stores it.
    pub(crate) now: Timestamp,
    pub(crate) options: Options,
    pub(crate) config: KataConfig,
    /// Whether the KataConfig has a deletion timestamp.
    pub(crate) deleting: bool,
    pub(crate) runtimes: Vec<RuntimeSpec>,
    /// All RuntimeClasses, including foreign ones.
    pub(crate) classes: Vec<RuntimeClass>,
    pub(crate) pods: SandboxedPods,
    /// Every node that has, gets or loses Kata, by name.
    pub(crate) nodes: Vec<NodeAssessment>,
    /// How many nodes are selected, whether or not the KataConfig is being deleted.
    pub(crate) selected: usize,
    /// KataNodes of nodes that are not in `nodes`, by name.
    pub(crate) departed: Vec<Departed>,
    /// Whether a KataNode exists or may exist.
    pub(crate) has_kata_nodes: bool,
    /// Nodes that cannot be parsed. They may have Kata.
    pub(crate) unreadable_nodes: Vec<ObjectRef>,
    pub(crate) findings: Vec<Finding>,
    /// Which nodes can be selected, for the finding that none is.
    pub(crate) candidates: Candidates,
    /// The label that a RuntimeClass selects in addition to the runtime label, which other installers use,
    /// too.
    pub(crate) own_node_label: (&'static str, &'static str),
    /// The steps of the back end, and what it waits for.
    pub(crate) changes: Draft,
    /// Whether no object of the back end is left, so that the finalizer may be removed.
    pub(crate) is_clean: bool,
    /// Whether a deletion need not read the pods of the whole cluster any more: the Machine Config Operator goes on by
    /// itself, or each Job waits for the pods on its own node only.
    pub(crate) removal_is_committed: bool,
}

/// Which nodes can be selected, in words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidates {
    /// The conditions that a node must meet; joined with `and`.
    pub(crate) conditions: Vec<String>,
    /// An exception to the conditions; empty if there is none.
    pub(crate) exception: &'static str,
    /// Whether the KataConfig has a selector that excludes nodes.
    pub(crate) has_selector: bool,
    /// Whether every runtime has a selector of its own.
    pub(crate) by_runtime: bool,
    /// The fix if it has no selector.
    pub(crate) fix: &'static str,
}

/// A node that has, gets or loses Kata.
#[derive(Clone, Debug)]
pub(crate) struct NodeAssessment {
    pub(crate) facts: Arc<NodeFacts>,
    /// The node's KataNode as it was last written.
    pub(crate) previous: Option<Arc<KataNode>>,
    /// Whether the node should have Kata.
    pub(crate) wanted: bool,
    /// Whether the node's system or cloud provides Kata, so that the operator only labels the node.
    pub(crate) provided: bool,
    /// Whether the node is in the operator's pool, or is claimed.
    pub(crate) joined: bool,
    pub(crate) has_runtime_label: bool,
    pub(crate) label: LabelDecision,
    pub(crate) kata: KataState,
    /// Whether the node has Kata, but not with the desired settings and version. It runs
    /// sandboxed pods meanwhile.
    pub(crate) behind: bool,
    /// Whether the change in progress updates Kata on the node, and is not made for another reason.
    pub(crate) is_being_updated: bool,
    /// Whether the back end removes Kata from the node once no sandboxed pod is left.
    pub(crate) wants_removal: bool,
    /// Why the node is no longer wanted.
    pub(crate) leave_reason: LeaveReason,
    /// The RuntimeClasses whose pods the node should run.
    pub(crate) classes: BTreeSet<String>,
    /// RuntimeClasses whose pods the node should not run any more, and whose handlers it keeps until none is left.
    pub(crate) leaving_classes: BTreeSet<String>,
    /// Whether the node has to complete another change first.
    pub(crate) has_earlier_change: bool,
    pub(crate) phase: Phase,
    pub(crate) step: Option<NodeStep>,
    /// Since when the node is in its phase and at its step.
    pub(crate) since: Timestamp,
    /// Why the node makes no progress, or takes no pods.
    pub(crate) finding: Option<Finding>,
    /// Why the node is in the phase `Failed`.
    pub(crate) failure: String,
    /// Whether the node's change failed so often, or has been stuck for so long, that it is not expected to
    /// succeed without an admin.
    pub(crate) has_failed: bool,
    /// Whether the finding has lasted longer than it should.
    pub(crate) is_overdue: bool,
    /// Whether the finding comes from a change that failed before and is retried.
    pub(crate) is_tried_again: bool,
    /// The handlers that the node offers; `None` if they are not known.
    pub(crate) handlers: Option<BTreeSet<String>>,
    /// The handlers for the status of its KataNode.
    pub(crate) reported_handlers: BTreeSet<String>,
    /// Whether this version of the operator understands the node's KataNode, and may update it.
    pub(crate) is_understood: bool,
    /// The results of Jobs on the node, for the status of its KataNode.
    pub(crate) record: Option<HostStatus>,
    /// When something is due on the node even if no watch event arrives.
    pub(crate) due: Option<Timestamp>,
}

/// Why a node is no longer wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LeaveReason {
    /// The KataConfig no longer selects it.
    #[default]
    Deselected,
    /// `spec.providedNodes` no longer selects it.
    NoLongerProvided,
    /// `spec.providedNodes` selects it now, so that what the operator installed goes.
    NowProvided,
}

/// Whether a node has Kata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KataState {
    /// It has Kata, even if it is being changed.
    Installed,
    /// It does not have Kata.
    Absent,
    /// It is getting Kata.
    Installing,
    /// It is losing Kata.
    Removing,
    /// It is not known whether it has Kata.
    Unknown,
}

/// What the operator does with the runtime label of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LabelDecision {
    Set,
    Clear,
    Keep,
}

/// A KataNode whose node has no Kata and gets none, or does not exist any more.
#[derive(Clone, Debug)]
pub(crate) struct Departed {
    pub(crate) kata_node: Arc<KataNode>,
    /// The node, if it still exists.
    pub(crate) node: Option<ObjectRef>,
    /// Whether Kata was removed from the node; `false` if it was never installed.
    pub(crate) was_removed: bool,
}

impl Assessment {
    /// The part that does not depend on the back end.
    pub(crate) fn new(snapshot: &Snapshot, config: &KataConfig) -> Self {
        let mut assessment = Self {
            now: to_the_second(snapshot.now),
            options: snapshot.options.clone(),
            config: config.clone(),
            deleting: config.metadata.deletion_timestamp.is_some(),
            runtimes: config.spec.effective_runtimes(),
            classes: snapshot.runtime_classes.known().cloned().unwrap_or_default(),
            pods: SandboxedPods::of(snapshot, config),
            nodes: Vec::new(),
            selected: 0,
            departed: Vec::new(),
            has_kata_nodes: snapshot.kata_nodes.known().is_none_or(|list| !list.is_empty())
                || !snapshot.unreadable(Kind::KataNode).is_empty(),
            unreadable_nodes: Vec::new(),
            findings: config_findings(config),
            candidates: Candidates::default(),
            own_node_label: ("", ""),
            changes: Draft::default(),
            is_clean: false,
            removal_is_committed: false,
        };
        assessment.classes.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        assessment.report_unreadable(snapshot);
        assessment
    }

    /// Adds a node. The caller adds nodes in natural order.
    pub(crate) fn push(&mut self, node: NodeAssessment) {
        if !node.provided {
            self.pods.include_node(&node.facts.name);
        }
        self.nodes.push(node);
    }

    fn report_unreadable(&mut self, snapshot: &Snapshot) {
        let nodes = snapshot.unreadable(Kind::Node);
        self.unreadable_nodes = nodes.iter().map(|found| found.object.clone()).collect();
        let others = [
            Kind::KataConfig,
            Kind::KataNode,
            Kind::RuntimeClass,
            Kind::MachineConfigPool,
            Kind::ContainerRuntimeConfig,
        ]
        .map(|kind| snapshot.unreadable(kind));
        for found in nodes.into_iter().chain(others.into_iter().flatten()) {
            self.findings.push(unreadable_object(found));
        }
    }

    /// Reports nodes that carry the runtime label and do not belong to kata-operator.
    pub(crate) fn report_foreign_labels(&mut self, nodes: &[&str]) {
        if nodes.is_empty() {
            return;
        }
        let (carry, do_, are) =
            if nodes.len() == 1 { ("carries", "does", "is") } else { ("carry", "do", "are") };
        self.findings.push(Finding::new(
            Code::ForeignRuntimeLabel,
            config_ref(&self.config),
            format!(
                "{} {carry} {}=true but {do_} not belong to kata-operator, and {are} left unchanged: {}",
                text::count(nodes.len(), "node"),
                names::RUNTIME_LABEL,
                text::list(nodes, text::NAMES)
            ),
        ));
    }

    /// Finds the KataNodes whose nodes are not in the assessment. Call it after the last [`Self::push`].
    /// `was_removed` decides for a KataNode whether Kata was removed from its node.
    pub(crate) fn find_departed(
        &mut self,
        snapshot: &Snapshot,
        was_removed: impl Fn(&KataNode) -> bool,
    ) {
        let assessed: BTreeSet<&str> =
            self.nodes.iter().map(|node| node.facts.name.as_str()).collect();
        let existing: BTreeMap<&str, &NodeFacts> = snapshot
            .nodes
            .known()
            .into_iter()
            .flatten()
            .map(|node| (node.name.as_str(), node.as_ref()))
            .collect();
        let mut departed: Vec<Departed> = snapshot
            .kata_nodes
            .known()
            .into_iter()
            .flatten()
            .filter(|kata_node| {
                let name = kata_node.spec.node_name.as_str();
                !assessed.contains(name) && !snapshot.is_unreadable(Kind::Node, name)
            })
            .map(|kata_node| Departed {
                node: existing
                    .get(kata_node.spec.node_name.as_str())
                    .map(|node| ObjectRef::new(Kind::Node, &node.name, Some(&node.uid))),
                was_removed: was_removed(kata_node),
                kata_node: Arc::clone(kata_node),
            })
            .collect();
        departed.sort_by(|a, b| a.kata_node.metadata.name.cmp(&b.kata_node.metadata.name));
        self.departed = departed;
    }

    /// The RuntimeClasses of kata-operator, sorted by name.
    pub(crate) fn our_classes(&self) -> impl Iterator<Item = &RuntimeClass> {
        self.classes.iter().filter(|class| is_our_class(class))
    }

    /// The runtimes that at least one node should have; all of them if no node should have Kata.
    pub(crate) fn runtimes_with_nodes(&self) -> impl Iterator<Item = &RuntimeSpec> {
        self.runtimes.iter().filter(|runtime| !self.is_without_nodes(runtime))
    }

    /// Whether nodes should have Kata, but none should have this runtime.
    pub(crate) fn is_without_nodes(&self, runtime: &RuntimeSpec) -> bool {
        let wanted = || self.nodes.iter().filter(|node| node.wanted);
        wanted().next().is_some() && !wanted().any(|node| node.classes.contains(&runtime.name))
    }

    /// Whether a RuntimeClass of another owner serves a runtime: it leads to the same handler, and only to nodes whose
    /// system or cloud provides it.
    pub(crate) fn accepts(&self, runtime: &RuntimeSpec) -> bool {
        let foreign = self.class(&runtime.name).filter(|class| !is_our_class(class));
        let serves = foreign.is_some_and(|class| class.handler == runtime.effective_handler());
        let mut with_it =
            self.nodes.iter().filter(|node| node.wanted && node.classes.contains(&runtime.name));
        let has_provided = self.config.spec.provided_nodes.is_some();
        serves && has_provided && with_it.all(|node| node.provided)
    }

    /// The names of the RuntimeClasses that kata-operator has or should have.
    pub(crate) fn own_class_names(&self) -> BTreeSet<String> {
        let existing = self.our_classes().filter_map(|class| class.metadata.name.clone());
        existing.chain(self.runtimes.iter().map(|runtime| runtime.name.clone())).collect()
    }

    pub(crate) fn class(&self, name: &str) -> Option<&RuntimeClass> {
        self.classes.iter().find(|class| class.metadata.name.as_deref() == Some(name))
    }

    /// The handler of a RuntimeClass, one that exists or one of the KataConfig; `None` if there is no such class.
    pub(crate) fn handler(&self, class: &str) -> Option<&str> {
        let existing = self.class(class).map(|class| class.handler.as_str());
        let named = || self.runtimes.iter().find(|runtime| runtime.name == class);
        existing.or_else(|| named().map(RuntimeSpec::effective_handler))
    }

    /// The handler of a RuntimeClass of kata-operator, or that the KataConfig gives it if there is none, or only one of
    /// another owner.
    pub(crate) fn own_handler(&self, class: &str) -> Option<&str> {
        let own = self.class(class).filter(|class| is_our_class(class));
        let named = || self.runtimes.iter().find(|runtime| runtime.name == class);
        own.map(|class| class.handler.as_str())
            .or_else(|| named().map(RuntimeSpec::effective_handler))
    }

    /// The sandboxed pods that keep a node from losing Kata, or a handler of it.
    pub(crate) fn pods_in_the_way(
        &self,
        node: &NodeAssessment,
    ) -> Result<Vec<&SandboxedPod>, NotRead<'_>> {
        let mut pods = self.pods.on_node(&node.facts.name)?;
        if node.wanted {
            let handlers: BTreeSet<Option<&str>> =
                node.leaving_classes.iter().map(|class| self.handler(class)).collect();
            pods.retain(|pod| {
                node.leaving_classes.contains(&pod.runtime_class)
                    || (!node.classes.contains(&pod.runtime_class)
                        && handlers.contains(&self.handler(&pod.runtime_class)))
            });
        }
        Ok(pods)
    }

    /// The handlers of the KataConfig that a node's kubelet does not report. Empty if the kubelet reports no
    /// handlers at all.
    pub(crate) fn missing_handlers(&self, facts: &NodeFacts) -> Vec<String> {
        let Some(reported) = &facts.runtime_handlers else { return Vec::new() };
        let handlers: BTreeSet<&str> =
            self.runtimes.iter().map(RuntimeSpec::effective_handler).collect();
        let missing = handlers.into_iter().filter(|handler| !reported.contains(*handler));
        missing.map(str::to_owned).collect()
    }

    /// Whether these are all the handlers of the KataConfig.
    pub(crate) fn are_all_handlers(&self, missing: &[String]) -> bool {
        self.runtimes
            .iter()
            .all(|runtime| missing.iter().any(|handler| handler == runtime.effective_handler()))
    }

    /// Whether the KataConfig is being deleted, no pod of the operator's RuntimeClasses can start any more, and no pod
    /// holds up the deletion.
    pub(crate) fn may_remove_from_nodes(&self) -> bool {
        self.deleting
            && !self.nodes.iter().any(|node| node.has_runtime_label)
            && self.our_classes().next().is_none()
            && self.pods_are_gone()
    }

    /// The earlier steps that the removal of Kata from a node waits for; `None` if they are done, or if a finding names the
    /// pods that it waits for, or says that they cannot be read. `may_remove`: the deletion may remove Kata from nodes. `is_released`: the node has lost its
    /// labels, or loses them in this pass.
    pub(crate) fn earlier_steps(
        &self,
        node: &NodeAssessment,
        may_remove: bool,
        is_released: bool,
    ) -> Option<&'static str> {
        let (pods, is_done, reason) = if self.deleting {
            let reason = "the RuntimeClasses and the nodes' labels are removed first";
            (self.pods.in_cluster(), may_remove, reason)
        } else {
            let pods = self.pods.on_node(&node.facts.name);
            (pods, is_released, "its labels are removed first")
        };
        let has_finding = match pods {
            Ok(pods) => !pods.is_empty(),
            Err(NotRead::Failed(_)) => true,
            Err(NotRead::NotAsked) => false,
        };
        (!node.wanted && !has_finding && !is_done).then_some(reason)
    }

    /// Whether no pod holds up the deletion: none is left in the cluster, or they need not be listed again.
    pub(crate) fn pods_are_gone(&self) -> bool {
        !self.may_have_pods() || self.pods.in_cluster().is_ok_and(|pods| pods.is_empty())
    }

    /// Whether there may be sandboxed pods that hold up the deletion. Otherwise the pods need not be listed again.
    pub(crate) fn may_have_pods(&self) -> bool {
        self.our_classes().next().is_some()
            || self.nodes.iter().any(|node| node.has_runtime_label)
            || !self.removal_is_committed && self.nodes.iter().any(NodeAssessment::may_run_pods)
    }
}

impl NodeAssessment {
    /// A node of which only the Node object and its record are known. The back end sets the rest.
    pub(crate) fn new(
        facts: &Arc<NodeFacts>,
        previous: Option<&Arc<KataNode>>,
        now: Timestamp,
    ) -> Self {
        Self {
            facts: Arc::clone(facts),
            previous: previous.cloned(),
            wanted: false,
            provided: false,
            joined: false,
            has_runtime_label: facts.has_runtime_label(),
            label: LabelDecision::Keep,
            kata: KataState::Absent,
            behind: false,
            is_being_updated: false,
            wants_removal: false,
            leave_reason: LeaveReason::Deselected,
            classes: BTreeSet::new(),
            leaving_classes: BTreeSet::new(),
            has_earlier_change: false,
            phase: Phase::Unknown,
            step: None,
            since: now,
            finding: None,
            failure: String::new(),
            has_failed: false,
            is_overdue: false,
            is_tried_again: false,
            handlers: None,
            reported_handlers: BTreeSet::new(),
            is_understood: true,
            record: None,
            due: None,
        }
    }

    /// The resourceVersion of the node when its facts were read; `None` if it is not known.
    pub(crate) fn version(&self) -> Option<String> {
        Some(self.facts.resource_version.clone()).filter(|version| !version.is_empty())
    }

    pub(crate) fn object(&self) -> ObjectRef {
        ObjectRef::new(Kind::Node, &self.facts.name, Some(&self.facts.uid))
    }

    /// Whether Kata was not installed yet, according to the node's KataNode.
    pub(crate) fn was_installing(&self) -> bool {
        let before = self.previous.as_ref().and_then(|previous| previous.status.as_ref());
        before.is_none_or(|before| matches!(before.phase, Phase::Waiting | Phase::Installing))
    }

    /// Whether a change of the node is in progress.
    pub(crate) fn in_flight(&self) -> bool {
        self.step.is_some_and(|step| !matches!(step, NodeStep::Verifying | NodeStep::Confirming))
            && self.phase != Phase::Failed
    }

    /// Whether the next step of the node depends on its sandboxed pods.
    pub(crate) fn needs_pod_list(&self) -> bool {
        self.wants_removal || !self.leaving_classes.is_empty()
    }

    /// Whether sandboxed pods may run on the node.
    fn may_run_pods(&self) -> bool {
        self.joined || self.has_runtime_label || self.kata != KataState::Absent && !self.wanted
    }

    /// Whether the node offers a handler, or its handlers are not known.
    pub(crate) fn offers(&self, handler: &str) -> bool {
        self.handlers.as_ref().is_none_or(|handlers| handlers.contains(handler))
    }

    /// The version of Kata on the node, if a Job reported it.
    pub(crate) fn kata_version(&self) -> Option<&str> {
        self.record.as_ref()?.kata_version.as_deref()
    }

    /// The node and its state in a few words, such as `worker-1 draining (2/6)`.
    pub(crate) fn brief(&self) -> String {
        format!("{} {}", self.facts.name, self.state())
    }

    /// The state in a few words, such as `draining (2/6)`.
    pub(crate) fn state(&self) -> String {
        let code = self.finding.as_ref().map(|finding| finding.code);
        let state = match (self.phase, self.step) {
            (Phase::Unknown, _) => "in an unknown state",
            (Phase::Failed, _) => "failed",
            (Phase::Ready, Some(NodeStep::Staging)) if self.has_runtime_label => {
                return "ready while its next payload is staged".to_owned();
            }
            (Phase::Ready, _) if self.has_runtime_label && self.behind => "ready and to be updated",
            (Phase::Ready, _) if self.has_runtime_label => "ready",
            (Phase::Ready, _) => "being labelled",
            (Phase::NotReady, _) if code == Some(Code::HandlerMissing) => {
                return "without handler".to_owned();
            }
            (Phase::NotReady, _) if code == Some(Code::HandlersNotReported) => {
                return "without a report of its handlers".to_owned();
            }
            (_, None) if code == Some(Code::NodeCordoned) => "cordoned",
            (_, None) if code == Some(Code::NodeNotReady) => "not Ready",
            (Phase::WaitingToRemove, _) if code == Some(Code::PodsOnLeavingNode) => {
                "blocked by sandboxed pods"
            }
            (Phase::WaitingToRemove, _) if self.has_earlier_change => {
                "waiting for an earlier change"
            }
            (Phase::Waiting, Some(NodeStep::Preflight)) => "being checked",
            (Phase::Waiting | Phase::WaitingToRemove, _) => "waiting",
            (_, Some(NodeStep::Targeted)) => "targeted",
            (_, Some(NodeStep::Draining)) => "draining",
            (_, Some(NodeStep::Applying)) => "applying",
            (_, Some(NodeStep::Rebooting)) => "rebooting",
            (_, Some(NodeStep::Finishing)) => "finishing",
            (_, Some(NodeStep::Verifying)) => "verifying",
            (_, Some(NodeStep::Preflight)) => "being checked",
            (_, Some(NodeStep::Staging)) => "staging",
            (_, Some(NodeStep::Changing)) => "changing",
            (_, Some(NodeStep::Confirming)) => "confirming",
            (Phase::NotReady, None) if self.facts.unschedulable => "cordoned",
            (Phase::NotReady, None) if !self.has_runtime_label => "without label",
            (Phase::NotReady, None) => "not Ready",
            (Phase::Installing | Phase::Updating | Phase::Removing, None) => "being changed",
        };
        let step = match (self.phase, self.step) {
            (
                Phase::Installing | Phase::Updating | Phase::Removing | Phase::NotReady,
                Some(step),
            )
            | (Phase::Waiting, Some(step @ NodeStep::Preflight)) => {
                format!(" ({}/{})", step.number(), step.count())
            }
            _ => String::new(),
        };
        format!("{state}{step}")
    }
}

/// The findings about a KataConfig's spec that apply to both back ends.
fn config_findings(config: &KataConfig) -> Vec<Finding> {
    let subject = config_ref(config);
    let spec = &config.spec;
    let mut findings = Vec::new();
    if let Some(Err(error)) = spec.kata_config_pool_selector.as_ref().map(selector::check) {
        findings.push(Finding::new(
            Code::InvalidSelector,
            subject.clone(),
            format!("spec.kataConfigPoolSelector: {error}; no node joins or leaves meanwhile"),
        ));
    }
    if !LOG_LEVELS.contains(&spec.log_level.as_str()) {
        findings.push(Finding::new(
            Code::InvalidLogLevel,
            subject.clone(),
            format!(
                "spec.logLevel {:?} is not a log level of CRI-O and is ignored",
                spec.log_level
            ),
        ));
    }
    if spec.enable_peer_pods {
        findings.push(Finding::new(
            Code::PeerPodsUnsupported,
            subject.clone(),
            "spec.enablePeerPods is true, but peer pods are not supported".to_owned(),
        ));
    }
    findings
}

/// The finding that an object cannot be parsed.
fn unreadable_object(found: &UnreadableObject) -> Finding {
    let message =
        format!("cannot read {}: {}; it is left unchanged meanwhile", found.object, found.error);
    let mut finding = Finding::new(Code::ReadFailed, found.object.clone(), message);
    finding.fix = match found.object.kind {
        Kind::KataNode => format!(
            "Fix the field that the message names, or delete the record with `kubectl delete katanode {}`: the \
             operator writes a new one.",
            found.object.name
        ),
        _ => FIX_FIELD.to_owned(),
    };
    finding
}
