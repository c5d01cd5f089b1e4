//! The snapshot, understood: the active KataConfig's nodes, each with phase, step and what holds it up.
//!
//! Everything that planning and reporting need to agree on is settled here, once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::kata_config::RuntimeSpec;
use kata_api::kata_node::{NodeStep, Phase};
use kata_api::{Code, KataConfig, KataNode, MachineConfigPool, names};

use crate::hosts::{self, HostNode, Hosts};
use crate::mco::{self, Runs};
use crate::object::{Kind, ObjectRef};
use crate::observed::Observed;
use crate::payload::{self, Wanted};
use crate::report::Finding;
use crate::selection::{self, Mode, Selected};
use crate::snapshot::{NodeFacts, Platform, PodScope, SandboxedPod, Snapshot};
use crate::text;

mod classify;

use classify::node_view;
pub(crate) use classify::{
    drain_is_long, label_of_ready, not_ready, pods_on_leaving, since, step_text,
};

/// The snapshot, understood.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) snapshot: &'a Snapshot,
    /// The time of the decision, to the second, as the API keeps it.
    pub(crate) now: Timestamp,
    pub(crate) config: &'a KataConfig,
    pub(crate) deleting: bool,
    pub(crate) mode: Mode,
    pub(crate) pools: BTreeMap<&'a str, &'a MachineConfigPool>,
    /// Every node that has, gets or loses Kata, by name.
    pub(crate) nodes: Vec<NodeView<'a>>,
    /// How many nodes are selected, whether or not the KataConfig is being deleted.
    pub(crate) selected: usize,
    pub(crate) runtimes: Vec<RuntimeSpec>,
    /// The RuntimeClasses whose pods our runtime runs, ours or not.
    pub(crate) classes: BTreeSet<String>,
    /// Those of them that are ours. Pods of the others matter only on our nodes.
    own_classes: BTreeSet<String>,
    /// What the nodes' configuration shall contain.
    pub(crate) wanted: Wanted,
    /// The rendered MachineConfigs that bring Kata and are not as they shall be.
    behind: BTreeSet<&'a str>,
    /// Whether the pool is to get a configuration with our MachineConfig.
    pub(crate) targeted: bool,
    pub(crate) findings: Vec<Finding>,
    /// What there is besides where Jobs change the nodes; `None` where the Machine Config Operator does.
    pub(crate) hosts: Option<Hosts>,
}

/// A node that has, gets or loses Kata.
#[derive(Debug)]
pub(crate) struct NodeView<'a> {
    pub(crate) facts: &'a NodeFacts,
    pub(crate) previous: Option<&'a KataNode>,
    /// Whether the node shall have Kata.
    pub(crate) wanted: bool,
    /// Whether it carries the pool's role label, or the label that claims it for Jobs.
    pub(crate) labelled: bool,
    /// Whether it carries the label of verified nodes.
    pub(crate) verified: bool,
    /// Whether it shall carry the label of verified nodes; `None` leaves the label as it is.
    pub(crate) verdict: Option<bool>,
    pub(crate) runs: Runs,
    /// Whether it has Kata and its configuration is not as it shall be: with another log level, or with
    /// Kata from elsewhere. It can run sandboxed pods meanwhile.
    pub(crate) behind: bool,
    pub(crate) phase: Phase,
    pub(crate) step: Option<NodeStep>,
    pub(crate) since: Timestamp,
    pub(crate) finding: Option<Finding>,
    /// What there is besides where Jobs change the nodes.
    pub(crate) host: Option<HostNode<'a>>,
}

impl NodeView<'_> {
    /// The version of the node in which its facts were seen.
    pub(crate) fn version(&self) -> Option<String> {
        Some(self.facts.resource_version.clone()).filter(|version| !version.is_empty())
    }

    /// The node.
    pub(crate) fn object(&self) -> ObjectRef {
        ObjectRef::new(Kind::Node, &self.facts.name, Some(&self.facts.uid))
    }

    /// Whether the node comes from an installation, and not back from something else.
    pub(crate) fn joins(&self) -> bool {
        let before = self.previous.and_then(|previous| previous.status.as_ref());
        before.is_none_or(|before| matches!(before.phase, Phase::Waiting | Phase::Installing))
    }

    /// Whether somebody is changing the node right now.
    pub(crate) fn in_flight(&self) -> bool {
        self.step.is_some_and(|step| !matches!(step, NodeStep::Verifying | NodeStep::Confirming))
            && self.phase != Phase::Failed
    }

    /// Whether a node that has Kata is being changed by us, and not by somebody else for another reason.
    pub(crate) fn is_being_updated(&self) -> bool {
        self.phase == Phase::Updating && (self.behind || self.host.is_some())
    }

    /// The version of Kata on the node, as far as a Job told it.
    pub(crate) fn kata_version(&self) -> Option<&str> {
        self.host.as_ref()?.known.status.kata_version.as_deref()
    }

    /// Why the node is in the phase `Failed`.
    pub(crate) fn failure(&self) -> &str {
        match (&self.host, &self.finding) {
            (Some(_), Some(finding)) => &finding.message,
            (Some(_), None) => "",
            (None, _) => self.facts.degraded_reason(),
        }
    }

    /// The node and its state in a few words, such as `worker-1 draining (2/6)`.
    pub(crate) fn brief(&self) -> String {
        format!("{} {}", self.facts.name, self.state())
    }

    /// The state in a few words, such as `draining (2/6)`.
    pub(crate) fn state(&self) -> String {
        let held_by = self.finding.as_ref().map(|finding| finding.code);
        let state = match (self.phase, self.step) {
            (Phase::Unknown, _) => "in an unknown state",
            (Phase::Failed, _) => "failed",
            (Phase::Ready, Some(NodeStep::Staging)) if self.verified => {
                return "ready while its next payload is staged".to_owned();
            }
            (Phase::Ready, _) if self.verified && self.behind => "ready and to be updated",
            (Phase::Ready, _) if self.verified => "ready",
            (Phase::Ready, _) => "being labelled",
            (Phase::NotReady, _) if held_by == Some(Code::HandlerMissing) => {
                return "without handler".to_owned();
            }
            (_, None) if held_by == Some(Code::NodeCordoned) => "cordoned",
            (_, None) if held_by == Some(Code::NodeNotReady) => "not Ready",
            (Phase::WaitingToRemove, _) if held_by == Some(Code::PodsOnLeavingNode) => {
                "held by sandboxed pods"
            }
            (Phase::WaitingToRemove, _) if self.facts.step().is_some() => {
                "waiting for an earlier change to end"
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
            (Phase::NotReady, None) if !self.verified => "without label",
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

/// The snapshot cannot be understood, because of reads that failed.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub(crate) findings: Vec<Finding>,
}

/// Understands a snapshot for its active KataConfig.
pub(crate) fn view<'a>(
    snapshot: &'a Snapshot,
    config: &'a KataConfig,
) -> Result<View<'a>, Unreadable> {
    if snapshot.options.platform == Platform::Kubernetes {
        return hosts::view(snapshot, config);
    }
    let (facts, pools) = read(snapshot, config)?;
    let deleting = config.metadata.deletion_timestamp.is_some();
    let mode = selection::mode(snapshot, &facts, &pools);
    let runtimes = config.spec.effective_runtimes();
    let mut findings = config_findings(config, mode);
    let mut ignored = Vec::new();
    let wanted = payload::wanted(
        snapshot,
        config,
        mode,
        // While it is removed it does not matter how it would get there.
        if deleting { &mut ignored } else { &mut findings },
    );
    let behind = behind(snapshot, &wanted);
    let mut view = View {
        snapshot,
        now: to_the_second(snapshot.now),
        config,
        deleting,
        mode,
        nodes: Vec::new(),
        selected: 0,
        classes: classes(snapshot, config),
        own_classes: own_classes(snapshot, config, &runtimes),
        runtimes,
        targeted: pools
            .get(mode.pool())
            .is_some_and(|pool| mco::targets(snapshot, pool, mode.pool())),
        wanted,
        behind,
        findings,
        pools,
        hosts: None,
    };
    let kata_nodes = kata_nodes_by_node(snapshot);
    view.note_unreadable();
    let mut marked_by_others = Vec::new();
    for facts in facts {
        let selected = match selection::select(config, mode, facts, &view.pools) {
            Selected::Yes => true,
            Selected::No => false,
            Selected::Excluded(finding) => {
                if !deleting {
                    view.findings.push(finding);
                }
                false
            }
        };
        view.selected += usize::from(selected);
        let previous = kata_nodes.get(facts.name.as_str()).copied();
        if let Some(node) = node_view(&view, facts, previous, selected) {
            view.nodes.push(node);
        } else if facts.labels.get(names::RUNTIME_LABEL).map(String::as_str)
            == Some(names::RUNTIME_LABEL_VERIFIED)
        {
            marked_by_others.push(facts.name.as_str());
        }
    }
    view.note_marked_by_others(&marked_by_others);
    Ok(view)
}

type Reads<'a> = (Vec<&'a NodeFacts>, BTreeMap<&'a str, &'a MachineConfigPool>);

/// A time as the API keeps it.
pub(crate) fn to_the_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// The KataNodes by the node that they are about.
pub(crate) fn kata_nodes_by_node(snapshot: &Snapshot) -> BTreeMap<&str, &KataNode> {
    let kata_nodes = snapshot.kata_nodes.known().into_iter().flatten();
    kata_nodes.map(|kata_node| (kata_node.spec.node_name.as_str(), kata_node.as_ref())).collect()
}

/// Collects the reads that failed, without which nothing is said about any node.
#[derive(Debug)]
pub(crate) struct Reading {
    subject: ObjectRef,
    findings: Vec<Finding>,
}

impl Reading {
    /// Nothing failed yet, unless a KataConfig that cannot be read may be the active one.
    pub(crate) fn new(snapshot: &Snapshot, config: &KataConfig) -> Self {
        let mut reading = Self { subject: selection::config_ref(config), findings: Vec::new() };
        let created = config.metadata.creation_timestamp.as_ref().map(|time| time.0);
        for found in snapshot.unreadable(Kind::KataConfig) {
            if found.created.is_none_or(|older| created.is_none_or(|created| older <= created)) {
                reading
                    .fail(&format!("{}, which may be the older one", found.object), &found.error);
            }
        }
        reading
    }

    /// A read that has to be known.
    pub(crate) fn require<T>(&mut self, observed: &Observed<T>) {
        if let Observed::Unknown { what, error } = observed {
            self.fail(what, error);
        }
    }

    fn fail(&mut self, what: &str, error: &str) {
        self.findings.push(Finding::new(
            Code::ReadFailed,
            self.subject.clone(),
            format!("cannot read {what}: {error}; nothing is changed meanwhile"),
        ));
    }

    /// What failed, if anything did.
    pub(crate) fn finish(mut self) -> Result<(), Unreadable> {
        if self.findings.is_empty() {
            return Ok(());
        }
        self.findings.sort_by(|a, b| a.message.cmp(&b.message));
        Err(Unreadable { findings: self.findings })
    }
}

/// The reads without which nothing is said about any node.
fn read<'a>(snapshot: &'a Snapshot, config: &KataConfig) -> Result<Reads<'a>, Unreadable> {
    let mut reading = Reading::new(snapshot, config);
    reading.require(&snapshot.kata_nodes);
    reading.require(&snapshot.runtime_classes);
    reading.require(&snapshot.container_runtime_configs);
    for name in names::MACHINE_CONFIGS {
        if let Some(observed) = snapshot.machine_configs.get(name) {
            reading.require(observed);
        }
    }
    reading.require(&snapshot.nodes);
    reading.require(&snapshot.pools);
    reading.finish()?;
    let pools = snapshot.pools.known().into_iter().flatten();
    let pools: BTreeMap<&str, &MachineConfigPool> =
        pools.map(|pool| (mco::pool_name(pool), pool)).collect();
    if !pools.contains_key(names::WORKER_POOL) {
        let finding = Finding::new(
            Code::MachineConfigOperatorNotReady,
            ObjectRef::named(Kind::MachineConfigPool, names::WORKER_POOL),
            "the MachineConfigPool worker does not exist; nothing is changed meanwhile".to_owned(),
        );
        return Err(Unreadable { findings: vec![finding] });
    }
    let mut nodes: Vec<&NodeFacts> =
        snapshot.nodes.known().into_iter().flatten().map(AsRef::as_ref).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((nodes, pools))
}

/// The rendered MachineConfigs that bring Kata and are not as they shall be.
fn behind<'a>(snapshot: &'a Snapshot, wanted: &Wanted) -> BTreeSet<&'a str> {
    snapshot
        .machine_configs
        .iter()
        .filter(|(name, config)| {
            name.starts_with(names::mco::RENDERED_PREFIX)
                && mco::content(snapshot, name) == mco::Content::Has
                && matches!(config, Observed::Known(Some(config))
                    if wanted.is_behind(snapshot, config))
        })
        .map(|(name, _)| name.as_str())
        .collect()
}

fn classes(snapshot: &Snapshot, config: &KataConfig) -> BTreeSet<String> {
    let existing = snapshot.runtime_classes.known().map_or(&[][..], Vec::as_slice);
    sandbox_classes(config, existing)
}

/// Every RuntimeClass whose pods our runtime runs: those that we offer or offered, and those of other
/// people that name one of our handlers.
pub fn sandbox_classes(config: &KataConfig, existing: &[RuntimeClass]) -> BTreeSet<String> {
    let runtimes = config.spec.effective_runtimes();
    let handlers: BTreeSet<&str> = runtimes.iter().map(RuntimeSpec::effective_handler).collect();
    let mut classes: BTreeSet<String> =
        runtimes.iter().map(|runtime| runtime.name.clone()).collect();
    classes.extend(config.status.iter().flat_map(|status| status.runtime_classes.iter().cloned()));
    classes.extend(
        existing
            .iter()
            .filter(|class| {
                handlers.contains(class.handler.as_str()) || crate::bodies::is_our_class(class)
            })
            .filter_map(|class| class.metadata.name.clone()),
    );
    classes
}

/// The RuntimeClasses that we offer or offered. One of somebody else under a name of ours is none of them.
fn own_classes(
    snapshot: &Snapshot,
    config: &KataConfig,
    runtimes: &[RuntimeSpec],
) -> BTreeSet<String> {
    let mut own: BTreeSet<String> = runtimes.iter().map(|runtime| runtime.name.clone()).collect();
    own.extend(config.status.iter().flat_map(|status| status.runtime_classes.iter().cloned()));
    for class in snapshot.runtime_classes.known().into_iter().flatten() {
        let name = class.metadata.name.clone().unwrap_or_default();
        if crate::bodies::is_our_class(class) {
            own.insert(name);
        } else {
            own.remove(&name);
        }
    }
    own
}

/// What is wrong with a KataConfig on any cluster.
fn shared_config_findings(config: &KataConfig) -> Vec<Finding> {
    let subject = selection::config_ref(config);
    let spec = &config.spec;
    let mut findings = Vec::new();
    if let Some(Err(error)) = spec.kata_config_pool_selector.as_ref().map(crate::selector::check) {
        findings.push(Finding::new(
            Code::InvalidSelector,
            subject.clone(),
            format!("spec.kataConfigPoolSelector: {error}; no node joins or leaves meanwhile"),
        ));
    }
    if !crate::bodies::LOG_LEVELS.contains(&spec.log_level.as_str()) {
        findings.push(Finding::new(
            Code::InvalidLogLevel,
            subject.clone(),
            format!("spec.logLevel {:?} is no log level of CRI-O, and is ignored", spec.log_level),
        ));
    }
    if spec.enable_peer_pods {
        findings.push(Finding::new(
            Code::PeerPodsUnsupported,
            subject.clone(),
            "spec.enablePeerPods is true, and is ignored".to_owned(),
        ));
    }
    findings
}

fn config_findings(config: &KataConfig, mode: Mode) -> Vec<Finding> {
    let subject = selection::config_ref(config);
    let spec = &config.spec;
    let mut findings = shared_config_findings(config);
    let selective = spec.check_node_eligibility
        || spec.kata_config_pool_selector.as_ref().is_some_and(|selector| {
            selector.match_labels.as_ref().is_some_and(|labels| !labels.is_empty())
                || selector.match_expressions.as_ref().is_some_and(|list| !list.is_empty())
        });
    let rollout = spec.rollout.as_ref().filter(|_| mode == Mode::Compact);
    if let Some(rollout) = rollout
        && (rollout.paused || rollout.max_unavailable.is_some())
    {
        findings.push(Finding::new(
            Code::RolloutNotHonoured,
            subject.clone(),
            "spec.rollout is not carried to the pool master; paused holds back only what has not begun"
                .to_owned(),
        ));
    }
    if mode == Mode::Compact && selective {
        findings.push(Finding::new(
            Code::SelectorIgnored,
            subject,
            "the selection of nodes is ignored: the control plane's nodes are the only workers, and the pool \
             master gets Kata as a whole"
                .to_owned(),
        ));
    }
    findings
}

impl<'a> View<'a> {
    /// A view without nodes of a cluster without the Machine Config Operator.
    pub(crate) fn without_pools(snapshot: &'a Snapshot, config: &'a KataConfig) -> Self {
        let runtimes = config.spec.effective_runtimes();
        let mut view = Self {
            snapshot,
            now: to_the_second(snapshot.now),
            config,
            deleting: config.metadata.deletion_timestamp.is_some(),
            mode: Mode::Pool,
            pools: BTreeMap::new(),
            nodes: Vec::new(),
            selected: 0,
            classes: classes(snapshot, config),
            own_classes: own_classes(snapshot, config, &runtimes),
            runtimes,
            wanted: Wanted::default(),
            behind: BTreeSet::new(),
            targeted: false,
            findings: shared_config_findings(config),
            hosts: None,
        };
        view.note_unreadable();
        view
    }

    /// The label that a RuntimeClass selects besides that of verified nodes, which other installers give their
    /// nodes too: that of our pool's nodes, or of those on which something of ours may be.
    pub(crate) fn own_node_label(&self) -> (&'static str, &'static str) {
        match self.hosts {
            None => (self.mode.node_label(), ""),
            Some(_) => (names::CLAIM_LABEL, names::CLAIMED),
        }
    }

    /// Tells of objects that cannot be understood.
    fn note_unreadable(&mut self) {
        let nodes = self.snapshot.unreadable(Kind::Node).into_iter();
        for found in nodes.chain(self.snapshot.unreadable(Kind::KataConfig)) {
            let message = format!(
                "cannot read {}: {}; it is left alone meanwhile",
                found.object, found.error
            );
            let mut finding = Finding::new(Code::ReadFailed, found.object.clone(), message);
            "Correct what the message says is wrong with the object.".clone_into(&mut finding.fix);
            self.findings.push(finding);
        }
    }

    /// Tells of nodes with the label of verified nodes that have nothing to do with us.
    pub(crate) fn note_marked_by_others(&mut self, nodes: &[&str]) {
        if nodes.is_empty() {
            return;
        }
        let (carry, are) = if nodes.len() == 1 { ("carries", "is") } else { ("carry", "are") };
        self.findings.push(Finding::new(
            Code::ForeignRuntimeLabel,
            selection::config_ref(self.config),
            format!(
                "{} {carry} {}=true without being ours, and {are} left alone: {}",
                text::count(nodes.len(), "node"),
                names::RUNTIME_LABEL,
                text::list(nodes, text::NAMES)
            ),
        ));
    }

    /// Whether a node has, gets or loses Kata through us.
    fn has_node(&self, name: &str) -> bool {
        self.nodes.binary_search_by(|node| node.facts.name.as_str().cmp(name)).is_ok()
            // While the view is being made.
            || self.snapshot.kata_nodes.known().is_some_and(|kata_nodes| {
                kata_nodes.iter().any(|kata_node| kata_node.spec.node_name == name)
            })
    }

    /// Whether a rendered MachineConfig brings Kata and is not as it shall be.
    pub(crate) fn is_behind(&self, rendered: &str) -> bool {
        self.behind.contains(rendered)
    }

    /// The unfinished pods of our classes on a node, or in the whole cluster; `Err` if that has not
    /// been read, with why if it was tried.
    pub(crate) fn running(
        &self,
        node: Option<&str>,
    ) -> Result<Vec<&'a SandboxedPod>, Option<&'a str>> {
        let cluster = self.snapshot.pods.get(&PodScope::Cluster);
        let scoped = node.and_then(|node| self.snapshot.pods.get(&PodScope::Node(node.to_owned())));
        let pods = match scoped.or(cluster) {
            Some(Observed::Known(pods)) => pods,
            Some(Observed::Unknown { error, .. }) => return Err(Some(error)),
            None => return Err(None),
        };
        let mut running: Vec<&SandboxedPod> = pods
            .iter()
            .filter(|pod| {
                !pod.finished
                    && (self.own_classes.contains(&pod.runtime_class)
                        || self.classes.contains(&pod.runtime_class)
                            && pod.node.as_deref().is_some_and(|node| self.has_node(node)))
                    && node.is_none_or(|node| pod.node.as_deref() == Some(node))
            })
            .collect();
        running.sort();
        Ok(running)
    }
}
