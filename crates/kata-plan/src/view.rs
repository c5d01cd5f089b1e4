//! The snapshot, understood: the active KataConfig's nodes, each with phase, step and what holds it up.
//!
//! Everything that planning and reporting need to agree on is settled here, once.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_config::RuntimeSpec;
use kata_api::kata_node::{NodeStep, Phase};
use kata_api::{Code, KataConfig, KataNode, MachineConfigPool, names};

use crate::mco::{self, Runs};
use crate::object::{Kind, ObjectRef};
use crate::observed::Observed;
use crate::report::Finding;
use crate::selection::{self, Mode, Selected};
use crate::snapshot::{NodeFacts, PodScope, SandboxedPod, Snapshot};
use crate::text;

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
    /// Whether the pool is to get a configuration with our MachineConfig.
    pub(crate) targeted: bool,
    pub(crate) findings: Vec<Finding>,
}

/// A node that has, gets or loses Kata.
#[derive(Debug)]
pub(crate) struct NodeView<'a> {
    pub(crate) facts: &'a NodeFacts,
    pub(crate) previous: Option<&'a KataNode>,
    /// Whether the node shall have Kata.
    pub(crate) wanted: bool,
    /// Whether it carries the pool's role label.
    pub(crate) labelled: bool,
    /// Whether it carries the label of verified nodes.
    pub(crate) verified: bool,
    /// Whether it shall carry the label of verified nodes; `None` leaves the label as it is.
    pub(crate) verdict: Option<bool>,
    pub(crate) runs: Runs,
    pub(crate) phase: Phase,
    pub(crate) step: Option<NodeStep>,
    pub(crate) since: Timestamp,
    pub(crate) finding: Option<Finding>,
}

impl NodeView<'_> {
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
        self.step.is_some_and(|step| step != NodeStep::Verifying) && self.phase != Phase::Failed
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
            (Phase::Waiting | Phase::WaitingToRemove, _) => "waiting",
            (_, Some(NodeStep::Targeted)) => "targeted",
            (_, Some(NodeStep::Draining)) => "draining",
            (_, Some(NodeStep::Applying)) => "applying",
            (_, Some(NodeStep::Rebooting)) => "rebooting",
            (_, Some(NodeStep::Finishing)) => "finishing",
            (_, Some(NodeStep::Verifying)) => "verifying",
            (Phase::NotReady, None) if self.facts.unschedulable => "cordoned",
            (Phase::NotReady, None) if !self.verified => "without label",
            (Phase::NotReady, None) => "not Ready",
            (Phase::Installing | Phase::Updating | Phase::Removing, None) => "being changed",
        };
        let step = match (self.phase, self.step) {
            (
                Phase::Installing | Phase::Updating | Phase::Removing | Phase::NotReady,
                Some(step),
            ) => {
                format!(" ({}/{})", step.number(), NodeStep::COUNT)
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
    let (facts, pools) = read(snapshot, config)?;
    let deleting = config.metadata.deletion_timestamp.is_some();
    let mode = selection::mode(snapshot, &facts, &pools);
    let runtimes = config.spec.effective_runtimes();
    let mut view = View {
        snapshot,
        now: to_the_second(snapshot.now),
        config,
        deleting,
        mode,
        nodes: Vec::new(),
        selected: 0,
        classes: classes(snapshot, config, &runtimes),
        runtimes,
        targeted: pools
            .get(mode.pool())
            .is_some_and(|pool| mco::targets(snapshot, pool, mode.pool())),
        findings: config_findings(config, mode),
        pools,
    };
    let kata_nodes: BTreeMap<&str, &KataNode> = snapshot
        .kata_nodes
        .known()
        .into_iter()
        .flatten()
        .map(|kata_node| (kata_node.spec.node_name.as_str(), kata_node))
        .collect();
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
        }
    }
    Ok(view)
}

type Reads<'a> = (Vec<&'a NodeFacts>, BTreeMap<&'a str, &'a MachineConfigPool>);

/// A time as the API keeps it.
pub(crate) fn to_the_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// The reads without which nothing is said about any node.
fn read<'a>(snapshot: &'a Snapshot, config: &KataConfig) -> Result<Reads<'a>, Unreadable> {
    let mut findings = Vec::new();
    let subject = selection::config_ref(config);
    let mut failed = |what: &str, error: &str| {
        findings.push(Finding::new(
            Code::ReadFailed,
            subject.clone(),
            format!("cannot read {what}: {error}; nothing is changed meanwhile"),
        ));
    };
    for (what, error) in [
        error_of(&snapshot.kata_nodes),
        error_of(&snapshot.runtime_classes),
        error_of(&snapshot.container_runtime_configs),
        snapshot.machine_configs.get(names::MACHINE_CONFIG).and_then(error_of),
    ]
    .into_iter()
    .flatten()
    {
        failed(what, error);
    }
    let nodes = match &snapshot.nodes {
        Observed::Known(nodes) => nodes.iter().collect(),
        Observed::Unknown { what, error } => {
            failed(what, error);
            Vec::new()
        }
    };
    let pools: BTreeMap<&str, &MachineConfigPool> = match &snapshot.pools {
        Observed::Known(pools) => pools.iter().map(|pool| (mco::pool_name(pool), pool)).collect(),
        Observed::Unknown { what, error } => {
            failed(what, error);
            BTreeMap::new()
        }
    };
    if findings.is_empty() && !pools.contains_key(names::WORKER_POOL) {
        findings.push(Finding::new(
            Code::MachineConfigOperatorNotReady,
            ObjectRef::named(Kind::MachineConfigPool, names::WORKER_POOL),
            "the MachineConfigPool worker does not exist; nothing is changed meanwhile".to_owned(),
        ));
    }
    if findings.is_empty() {
        let mut nodes: Vec<&NodeFacts> = nodes;
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((nodes, pools))
    } else {
        findings.sort_by(|a, b| a.message.cmp(&b.message));
        Err(Unreadable { findings })
    }
}

fn error_of<T>(observed: &Observed<T>) -> Option<(&str, &str)> {
    match observed {
        Observed::Known(_) => None,
        Observed::Unknown { what, error } => Some((what, error)),
    }
}

/// Every RuntimeClass whose pods our runtime runs: those that we offer or offered, and those of other
/// people that name one of our handlers.
fn classes(snapshot: &Snapshot, config: &KataConfig, runtimes: &[RuntimeSpec]) -> BTreeSet<String> {
    let handlers: BTreeSet<&str> = runtimes.iter().map(RuntimeSpec::effective_handler).collect();
    let mut classes: BTreeSet<String> =
        runtimes.iter().map(|runtime| runtime.name.clone()).collect();
    classes.extend(config.status.iter().flat_map(|status| status.runtime_classes.iter().cloned()));
    classes.extend(
        snapshot
            .runtime_classes
            .known()
            .into_iter()
            .flatten()
            .filter(|class| {
                handlers.contains(class.handler.as_str()) || crate::bodies::is_our_class(class)
            })
            .filter_map(|class| class.metadata.name.clone()),
    );
    classes
}

fn config_findings(config: &KataConfig, mode: Mode) -> Vec<Finding> {
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
    let selective = spec.check_node_eligibility
        || spec.kata_config_pool_selector.as_ref().is_some_and(|selector| {
            selector.match_labels.as_ref().is_some_and(|labels| !labels.is_empty())
                || selector.match_expressions.as_ref().is_some_and(|list| !list.is_empty())
        });
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

/// A node's place in the roll-out; `None` if it has nothing to do with it.
fn node_view<'a>(
    view: &View<'a>,
    facts: &'a NodeFacts,
    previous: Option<&'a KataNode>,
    selected: bool,
) -> Option<NodeView<'a>> {
    let wanted = selected && !view.deleting;
    let runs = facts.runs(view.snapshot);
    let labelled = facts.labels.contains_key(names::KATA_ROLE_LABEL);
    let verified = facts.labels.contains_key(names::RUNTIME_LABEL);
    let has_traces = labelled
        || facts.refers_to_pool(names::POOL)
        || (verified && previous.is_some())
        || (view.mode == Mode::Compact
            && view.deleting
            && selection::is_control_plane(facts)
            && runs != Runs::No);
    if !wanted && !has_traces {
        return None;
    }
    let mut node = NodeView {
        facts,
        previous,
        wanted,
        labelled,
        verified,
        verdict: None,
        runs,
        phase: Phase::Unknown,
        step: None,
        since: view.now,
        finding: None,
    };
    let missing = missing_handlers(view, facts);
    node.verdict = verdict(view, &node, missing.is_empty());
    classify(view, &mut node, &missing);
    let status = previous.and_then(|kata_node| kata_node.status.as_ref());
    let begun = status
        .filter(|status| status.phase == node.phase && status.step == step_text(node.step))
        .and_then(|status| status.since);
    node.since = begun.unwrap_or(view.now);
    drain_finding(view, &mut node);
    slow_finding(view, &mut node);
    pods_finding(view, &mut node);
    Some(node)
}

/// A step as in the status of a KataNode.
pub(crate) fn step_text(step: Option<NodeStep>) -> String {
    step.map(|step| format!("{}/{} {}", step.number(), NodeStep::COUNT, step.as_str()))
        .unwrap_or_default()
}

/// Our handlers that the node is known not to offer. A kubelet that reports none says nothing.
fn missing_handlers<'a>(view: &'a View<'_>, facts: &NodeFacts) -> Vec<&'a str> {
    let Some(reported) = &facts.runtime_handlers else { return Vec::new() };
    let mut missing: Vec<&str> = view
        .runtimes
        .iter()
        .map(RuntimeSpec::effective_handler)
        .filter(|handler| !reported.contains(*handler))
        .collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}

/// Whether the node shall carry the label of verified nodes.
///
/// It gets the label only when it is usable in every respect. It loses it at once when it is to lose
/// Kata, does not run it, is cordoned (so also during every update that drains it), or does not
/// advertise the handler. A node that is not Ready loses it only after a grace period, since no pod
/// is scheduled to it anyway and the kubelet's silence says nothing about the handler; and what cannot
/// be told changes nothing.
fn verdict(view: &View<'_>, node: &NodeView<'_>, has_handlers: bool) -> Option<bool> {
    if !node.wanted || node.facts.unschedulable || node.facts.deleting {
        return Some(false);
    }
    match node.runs {
        Runs::Yes if has_handlers => {}
        Runs::Unknown => return None,
        Runs::Yes | Runs::No | Runs::Installing | Runs::Removing => return Some(false),
    }
    if node.facts.ready.status == Some(true) {
        return Some(true);
    }
    let silent_for =
        node.facts.ready.since.map_or(SignedDuration::ZERO, |since| view.now.duration_since(since));
    let grace = SignedDuration::try_from(view.snapshot.options.not_ready_grace)
        .unwrap_or(SignedDuration::MAX);
    (silent_for >= grace).then_some(false)
}

/// Phase, step and what holds the node up.
fn classify(view: &View<'_>, node: &mut NodeView<'_>, missing: &[&str]) {
    let facts = node.facts;
    let name = &facts.name;
    let ready = facts.ready.status == Some(true);
    node.step = facts.step();
    let object = node.object();
    let finding = |code: Code, message: String| Some(Finding::new(code, object.clone(), message));
    let other_pools = selection::other_pools(facts, &view.pools);
    let held_up = if node.labelled && !other_pools.is_empty() {
        finding(
            Code::NodeInTwoPools,
            format!(
                "node {name} belongs to the pools {} and {}, so the Machine Config Operator ignores it",
                names::POOL,
                other_pools.join(", ")
            ),
        )
    } else if facts.is_degraded() {
        let reason = facts.degraded_reason();
        let target = view
            .pools
            .get(if node.wanted { view.mode.pool() } else { names::WORKER_POOL })
            .map_or("", |pool| pool.spec.configuration.name.as_str());
        if facts.unschedulable && facts.desired_config() != target {
            finding(
                Code::NodeDegradedAndCordoned,
                format!("node {name} failed and stays cordoned, so it is passed over: {reason}"),
            )
        } else {
            finding(Code::NodeDegraded, format!("node {name} failed: {reason}"))
        }
    } else if node.step.is_some_and(|step| step != NodeStep::Targeted) {
        None
    } else if !ready {
        let reason = match facts.ready.reason.as_str() {
            "" => "the kubelet does not report",
            reason => reason,
        };
        finding(Code::NodeNotReady, format!("node {name} is not Ready: {reason}"))
    } else if facts.unschedulable && !facts.is_cordoned_by_mco() {
        finding(
            Code::NodeCordoned,
            format!(
                "node {name} is cordoned, so it is not changed, and counts as unavailable in its pool"
            ),
        )
    } else {
        None
    };
    let failed = facts.is_degraded();
    node.phase = if node.wanted {
        match node.runs {
            Runs::Unknown => Phase::Unknown,
            Runs::Yes if node.verdict == Some(true) => Phase::Ready,
            Runs::Yes if failed => Phase::Failed,
            Runs::Yes if ready && !facts.unschedulable && !missing.is_empty() => Phase::NotReady,
            Runs::Yes if node.step.is_some() => Phase::Updating,
            Runs::Yes => Phase::NotReady,
            Runs::No | Runs::Installing | Runs::Removing if failed => Phase::Failed,
            Runs::Installing | Runs::Removing => Phase::Installing,
            Runs::No
                if facts.current_config() != facts.desired_config()
                    && targeted_to_x(view, facts) =>
            {
                Phase::Installing
            }
            Runs::No => Phase::Waiting,
        }
    } else if failed {
        Phase::Failed
    } else if facts.current_config() == facts.desired_config()
        || (node.runs != Runs::Removing && targeted_to_x(view, facts))
    {
        Phase::WaitingToRemove
    } else {
        Phase::Removing
    };
    if node.phase == Phase::NotReady && !missing.is_empty() {
        node.step = Some(NodeStep::Verifying);
    }
    if matches!(node.phase, Phase::Ready | Phase::Waiting | Phase::WaitingToRemove | Phase::Unknown)
    {
        node.step = None;
    }
    node.finding = match node.phase {
        Phase::Unknown if held_up.is_none() => finding(
            Code::NodeStateUnknown,
            format!(
                "what node {name} runs cannot be told: MachineConfig {} cannot be read",
                unreadable(view, facts)
            ),
        ),
        Phase::NotReady if held_up.is_none() && !missing.is_empty() => finding(
            Code::HandlerMissing,
            format!("node {name} does not advertise the handler {}", missing.join(", ")),
        ),
        Phase::Updating if held_up.is_none() => finding(
            Code::OtherRollout,
            format!("node {name} is being changed for a reason that is not ours"),
        ),
        _ => held_up,
    };
}

/// Whether the node is told to run a configuration with our extension.
fn targeted_to_x(view: &View<'_>, facts: &NodeFacts) -> bool {
    mco::content(view.snapshot, facts.desired_config()) == mco::Content::Has
}

fn unreadable<'a>(view: &View<'_>, facts: &'a NodeFacts) -> &'a str {
    if mco::content(view.snapshot, facts.current_config()) == mco::Content::Unknown {
        facts.current_config()
    } else {
        facts.desired_config()
    }
}

/// Whether a node's drain takes too long.
pub(crate) fn drain_is_long(view: &View<'_>, node: &NodeView<'_>) -> bool {
    let limit = SignedDuration::try_from(view.snapshot.options.drain_blocked_after)
        .unwrap_or(SignedDuration::MAX);
    node.step == Some(NodeStep::Draining) && view.now.duration_since(node.since) >= limit
}

fn drain_finding(view: &View<'_>, node: &mut NodeView<'_>) {
    if !drain_is_long(view, node) {
        return;
    }
    let name = &node.facts.name;
    let who = match view.snapshot.drain_blockers.get(name) {
        Some(Observed::Known(blockers)) if !blockers.is_empty() => {
            let list: Vec<String> = blockers
                .iter()
                .map(|blocker| match &blocker.budget {
                    Some(budget) => format!(
                        "pod {}/{} (PodDisruptionBudget {budget} allows no disruption)",
                        blocker.namespace, blocker.pod
                    ),
                    None => format!("pod {}/{} (does not end)", blocker.namespace, blocker.pod),
                })
                .collect();
            format!(", held up by {}", text::list(&list, 5))
        }
        Some(Observed::Known(_)) => {
            ", and no pod seems to hold it up: see the log of machine-config-controller".to_owned()
        }
        Some(Observed::Unknown { error, .. }) => format!(", and its pods cannot be read: {error}"),
        None => String::new(),
    };
    let minutes = view.snapshot.options.drain_blocked_after.as_secs() / 60;
    node.finding = Some(Finding::new(
        Code::DrainBlocked,
        node.object(),
        format!("node {name} has been draining for more than {minutes} minutes{who}"),
    ));
}

/// A step that takes so long that it may never end.
fn slow_finding(view: &View<'_>, node: &mut NodeView<'_>) {
    let limit = view.snapshot.options.step_slow_after;
    let slow = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
    let Some(step) = node.step.filter(|step| *step != NodeStep::Draining) else { return };
    let told = node.finding.as_ref().is_some_and(|finding| finding.code != Code::OtherRollout);
    if told || !node.in_flight() || view.now.duration_since(node.since) < slow {
        return;
    }
    let (name, minutes) = (&node.facts.name, limit.as_secs() / 60);
    let (code, what) = if step == NodeStep::Rebooting {
        (Code::NodeNotReady, "its kubelet does not report")
    } else {
        (Code::NodeStateUnknown, "its machine-config daemon does not go on")
    };
    let state = node.state();
    node.finding = Some(Finding::new(
        code,
        node.object(),
        format!("node {name} has been {state} for more than {minutes} minutes, and {what}"),
    ));
}

/// Sandboxed pods that keep a node in the pool which is not selected any more.
fn pods_finding(view: &View<'_>, node: &mut NodeView<'_>) {
    let leaves = !view.deleting && !node.wanted && node.labelled;
    let name = &node.facts.name;
    if leaves
        && let Ok(pods) = view.running(Some(name))
        && !pods.is_empty()
    {
        node.finding = Some(Finding::new(
            Code::PodsOnLeavingNode,
            node.object(),
            format!(
                "node {name} is not selected any more, but {} on it: {}",
                text::running(pods.len()),
                text::pods(&pods)
            ),
        ));
    }
}

impl<'a> View<'a> {
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
                    && self.classes.contains(&pod.runtime_class)
                    && node.is_none_or(|node| pod.node.as_deref() == Some(node))
            })
            .collect();
        running.sort();
        Ok(running)
    }
}
