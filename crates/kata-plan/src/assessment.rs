//! The value that both back ends return: the active KataConfig's nodes, each with its actual and its
//! desired state, its waits and its failures.
//!
//! Plan, report, Events, status and KataNodes read only this value. It does not depend on the back end, and
//! no later stage reads a [`Snapshot`] again.

mod node;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::kata_config::RuntimeSpec;
use kata_api::{Code, KataConfig, KataNode, Natural, names};
pub(crate) use node::{KataState, LabelDecision, LeaveReason, NodeAssessment, OfferedHandlers};

use crate::classes::{self, is_our_class};
use crate::configs::config_ref;
use crate::log_level::LOG_LEVELS;
use crate::object::{Kind, ObjectRef};
use crate::pods::{NotRead, SandboxedPods};
use crate::reading::{FIX_FIELD, to_the_second};
use crate::report::Finding;
use crate::selector;
use crate::snapshot::{NodeFacts, Options, SandboxedPod, Snapshot, UnreadableObject};
use crate::text;

/// From how much on a difference of clocks is reported.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(30);

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
    /// Every node that has, gets or loses Kata, by name in natural order.
    pub(crate) nodes: Vec<NodeAssessment>,
    /// How many nodes are selected, whether or not the KataConfig is being deleted.
    pub(crate) selected: usize,
    /// KataNodes of nodes that are not in `nodes`, by name.
    pub(crate) departed: Vec<Departed>,
    /// The nodes that kata-deploy finished and that are not selected: they need its RuntimeClasses as they are.
    pub(crate) left_to_kata_deploy: BTreeSet<String>,
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
    /// The KataNodes that cannot be parsed.
    pub(crate) unreadable_kata_nodes: BTreeSet<String>,
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
            left_to_kata_deploy: BTreeSet::new(),
            has_kata_nodes: snapshot.kata_nodes.known().is_none_or(|list| !list.is_empty())
                || !snapshot.unreadable(Kind::KataNode).is_empty(),
            unreadable_nodes: Vec::new(),
            findings: config_findings(config)
                .into_iter()
                .chain(clock_skew(snapshot, config))
                .collect(),
            candidates: Candidates::default(),
            own_node_label: ("", ""),
            unreadable_kata_nodes: BTreeSet::new(),
            is_clean: false,
            removal_is_committed: false,
        };
        assessment.classes.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        assessment.report_unreadable(snapshot);
        assessment
    }

    /// Adds a node. The caller adds nodes in natural order.
    pub(crate) fn push(&mut self, mut node: NodeAssessment) {
        let leaves = node.leaves_at.filter(|at| *at > self.now);
        node.due = node.due.into_iter().chain(leaves).min();
        if !node.provided {
            self.pods.include_node(&node.facts.name);
        }
        self.nodes.push(node);
    }

    fn report_unreadable(&mut self, snapshot: &Snapshot) {
        let nodes = snapshot.unreadable(Kind::Node);
        self.unreadable_nodes = nodes.iter().map(|found| found.object.clone()).collect();
        let kata_nodes = snapshot.unreadable(Kind::KataNode);
        self.unreadable_kata_nodes =
            kata_nodes.into_iter().map(|found| found.object.name.clone()).collect();
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
        let kata_nodes = || snapshot.kata_nodes.known().into_iter().flatten();
        // In most passes every KataNode is that of an assessed node.
        let of_nodes = self.nodes.iter().filter(|node| node.previous.is_some()).count();
        if kata_nodes().count() == of_nodes {
            return;
        }
        let assessed: BTreeSet<&str> =
            self.nodes.iter().map(|node| node.facts.name.as_str()).collect();
        let others: BTreeMap<&str, &NodeFacts> = snapshot
            .nodes
            .known()
            .into_iter()
            .flatten()
            .map(|node| (node.name.as_str(), node.as_ref()))
            .filter(|(name, _)| !assessed.contains(name))
            .collect();
        let mut departed: Vec<Departed> = kata_nodes()
            .filter(|kata_node| {
                let name = kata_node.spec.node_name.as_str();
                !assessed.contains(name) && !snapshot.is_unreadable(Kind::Node, name)
            })
            .map(|kata_node| Departed {
                node: others
                    .get(kata_node.spec.node_name.as_str())
                    .map(|node| ObjectRef::new(Kind::Node, &node.name, Some(&node.uid))),
                was_removed: was_removed(kata_node),
                kata_node: Arc::clone(kata_node),
            })
            .collect();
        departed.sort_by(|a, b| a.kata_node.metadata.name.cmp(&b.kata_node.metadata.name));
        self.departed = departed;
    }

    /// Whether a finding is about one of [`Self::nodes`], which are in natural order.
    pub(crate) fn is_about_node(&self, finding: &Finding) -> bool {
        let ObjectRef { kind, name, uid, .. } = &finding.subject;
        if *kind != Kind::Node {
            return false;
        }
        let by_name = |node: &NodeAssessment| Natural(&node.facts.name).cmp(&Natural(name));
        let found = self.nodes.binary_search_by(by_name).ok().and_then(|at| self.nodes.get(at));
        found.is_some_and(|node| uid.as_ref() == Some(&node.facts.uid))
    }

    /// The RuntimeClasses of kata-operator, sorted by name.
    pub(crate) fn our_classes(&self) -> impl Iterator<Item = &RuntimeClass> {
        self.classes.iter().filter(|class| is_our_class(class))
    }

    /// The RuntimeClasses of kata-operator through which pods may start, or that a deletion deletes: those that it gives back
    /// to kata-deploy are closed until the nodes are given back.
    pub(crate) fn classes_to_delete(&self) -> impl Iterator<Item = &RuntimeClass> {
        self.our_classes().filter(|class| !(classes::is_closed(class) && self.gives_back(class)))
    }

    /// Whether a deletion gives a RuntimeClass back to kata-deploy.
    pub(crate) fn gives_back(&self, class: &RuntimeClass) -> bool {
        self.config.spec.take_over.is_some() && classes::given_back(class).is_some()
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
    /// system or cloud provides it, or it is that of kata-deploy as long as it has nodes that are not selected.
    pub(crate) fn accepts(&self, runtime: &RuntimeSpec) -> bool {
        let foreign = self.class(&runtime.name).filter(|class| !is_our_class(class));
        let serves = foreign.is_some_and(|class| class.handler == runtime.effective_handler());
        if serves
            && !self.left_to_kata_deploy.is_empty()
            && foreign.is_some_and(|class| self.takes_over(class))
        {
            return true;
        }
        let mut with_it =
            self.nodes.iter().filter(|node| node.wanted && node.classes.contains(&runtime.name));
        let has_provided = self.config.spec.provided_nodes.is_some();
        serves && has_provided && with_it.all(|node| node.provided)
    }

    /// Whether a RuntimeClass is one of kata-deploy that the KataConfig takes over.
    pub(crate) fn takes_over(&self, class: &RuntimeClass) -> bool {
        self.config.spec.take_over.is_some() && classes::is_of_kata_deploy(class)
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
        let (is_free, is_done, reason) = if self.deleting {
            let reason = "the RuntimeClasses and the nodes' labels are removed first";
            (self.pods.cluster_is_free(), may_remove, reason)
        } else {
            let pods = self.pods.on_node(&node.facts.name);
            (pods.map(|pods| pods.is_empty()), is_released, "its labels are removed first")
        };
        let has_finding = match is_free {
            Ok(is_free) => !is_free,
            Err(NotRead::Failed(_)) => true,
            Err(NotRead::NotAsked) => false,
        };
        (!node.wanted && !has_finding && !is_done).then_some(reason)
    }

    /// Whether no pod holds up the deletion: none is left in the cluster, or they need not be listed again.
    pub(crate) fn pods_are_gone(&self) -> bool {
        !self.may_have_pods() || self.pods.cluster_is_free().unwrap_or_default()
    }

    /// Whether there may be sandboxed pods that hold up the deletion. Otherwise the pods need not be listed again.
    pub(crate) fn may_have_pods(&self) -> bool {
        self.classes_to_delete().next().is_some()
            || self.nodes.iter().any(|node| node.has_runtime_label)
            || !self.removal_is_committed && self.nodes.iter().any(NodeAssessment::may_run_pods)
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

/// The finding that the operator's own clock is wrong. The operator does not depend on it; other programs may.
fn clock_skew(snapshot: &Snapshot, config: &KataConfig) -> Option<Finding> {
    let ahead = snapshot.server_ahead;
    let direction = if ahead.is_negative() { "ahead of" } else { "behind" };
    // To ten seconds, so that it does not change with each answer of the API server.
    let tens = ahead.unsigned_abs().as_secs().saturating_add(5) / 10;
    let span = SignedDuration::from_secs(i64::try_from(tens.saturating_mul(10)).ok()?);
    (ahead.abs() >= CLOCK_SKEW).then(|| {
        let message =
            format!("the clock of the operator's node is {span:#} {direction} the API server's");
        Finding::new(Code::ClockSkew, config_ref(config), message)
    })
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
