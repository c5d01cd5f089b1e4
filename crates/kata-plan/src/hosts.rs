//! The nodes of a cluster where nobody but us changes nodes: each with what is known of it, what is to
//! come next, and whether it may come now.
//!
//! All that is remembered is in the KataNodes and in the Jobs that are not spent; see
//! [`memory`]. Nothing here knows of the Machine Config Operator.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_node::{JobOutcome, NodeStep};
use kata_api::node_task::NodeAction;
use kata_api::{KataConfig, KataNode, names};

use crate::mco::Runs;
use crate::selection::Selected;
use crate::snapshot::{NodeFacts, NodeJob, Snapshot};
use crate::text;
use crate::view::{self, NodeView, Unreadable, View};

mod candidates;
mod classify;
mod desired;
mod memory;
mod rollout;

pub(crate) use classify::keeps_label;
pub(crate) use desired::Desired;
use memory::JobsOfNode;
pub(crate) use memory::Known;
pub use rollout::most_unavailable;
pub(crate) use rollout::{CHECKS, Held, Rollout};

/// How long the kubelet may take to report the handlers of a container runtime that was restarted.
const HANDLERS_GRACE: SignedDuration = SignedDuration::from_mins(2);
/// How often a node is looked at whose kubelet does not report the handlers.
const HANDLERS_AGAIN: SignedDuration = SignedDuration::from_mins(15);

/// What a view of such a cluster has besides.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    pub(crate) desired: Desired,
    pub(crate) rollout: Rollout,
    /// Jobs of nodes that are in no list: name and uid.
    pub(crate) strays: Vec<(String, String)>,
}

/// What a node of such a cluster has besides.
#[derive(Clone, Debug)]
pub(crate) struct HostNode<'a> {
    pub(crate) known: Known<'a>,
    /// The digest of the facts that matter.
    pub(crate) facts: String,
    pub(crate) next: Next,
    /// Whether [`HostNode::next`] may come now.
    pub(crate) permitted: bool,
    /// Whether the change that is due was undone before, and is not tried again as it is.
    pub(crate) given_up: bool,
    /// Whether the change that is due has failed, given up or not.
    pub(crate) failed: bool,
    /// Handlers that are installed and that the kubelet does not report.
    pub(crate) missing: Vec<String>,
    /// Whether it should have reported them by now.
    pub(crate) overdue: bool,
    /// Whether everything that was known of it is lost, while it carries the label and offers the handlers.
    pub(crate) forgotten: bool,
    /// When something is due although nothing is seen to change.
    pub(crate) due: Option<Timestamp>,
}

/// What is to come next on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing, until something changes.
    Nothing,
    /// A Job that changes nothing.
    Check(NodeAction),
    /// A Job that changes the node.
    Change(NodeAction),
    /// Another try, not before this time.
    Later(Timestamp),
    /// The kubelet's word.
    Confirm,
}

impl HostNode<'_> {
    /// Whether a Job with this action runs.
    pub(crate) fn runs(&self, action: NodeAction) -> bool {
        self.known.running.is_some_and(|(job, _)| job.action == action)
    }

    /// Whether the check of the node brings the payload onto it: while it has another one, which serves until
    /// the change itself begins, and is not lost to an image that cannot be pulled.
    pub(crate) fn stages_ahead(&self) -> bool {
        self.known.status.installed.is_some()
    }

    /// Whether a Job changes the node, or may still do so.
    pub(crate) fn is_changing(&self) -> bool {
        self.runs(NodeAction::Install)
            || self.runs(NodeAction::Remove)
            || self.known.lingering.is_some_and(|pod| pod.changes)
    }

    /// The number of the next Job.
    pub(crate) fn next_number(&self) -> i64 {
        let recorded = self.known.status.job.as_ref().map_or(0, |job| job.number);
        recorded.saturating_add(1)
    }

    /// The step of a Job that changes the node; nothing is staged for a removal.
    fn job_step(&self) -> NodeStep {
        if self.runs(NodeAction::Remove) {
            return NodeStep::Changing;
        }
        let started = self.known.running.and_then(|(_, pod)| pod).is_some_and(|pod| pod.started);
        if started { NodeStep::Changing } else { NodeStep::Staging }
    }

    /// Whether the node has a handler, as far as is known.
    pub(crate) fn offers(&self, handler: &str) -> bool {
        let status = &self.known.status;
        status.installed.is_some()
            && (status.handlers.is_empty() || status.handlers.iter().any(|name| name == handler))
    }
}

/// Understands a snapshot of such a cluster for its active KataConfig.
pub(crate) fn view<'a>(
    snapshot: &'a Snapshot,
    config: &'a KataConfig,
) -> Result<View<'a>, Unreadable> {
    let mut read = view::Reading::new(snapshot, config);
    read.require(&snapshot.kata_nodes);
    read.require(&snapshot.runtime_classes);
    read.require(&snapshot.jobs.jobs);
    read.require(&snapshot.jobs.pods);
    read.require(&snapshot.nodes);
    read.finish()?;
    let mut view = View::without_pools(snapshot, config);
    let desired = Desired::of(snapshot, config, &view.runtimes);
    let jobs = jobs_by_node(snapshot);
    let kata_nodes = view::kata_nodes_by_node(snapshot);
    let mut marked_by_others = Vec::new();
    let mut nodes: Vec<&NodeFacts> =
        snapshot.nodes.known().into_iter().flatten().map(AsRef::as_ref).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    for facts in nodes {
        let previous = kata_nodes.get(facts.name.as_str()).copied();
        let known =
            memory::recall(snapshot, facts, previous, jobs.get(facts.name.as_str()), view.now);
        let ours = known.status.touched || classify::is_claimed(&facts.labels);
        let selected = match candidates::select(config, facts, ours, known.status.touched) {
            Selected::Yes => true,
            Selected::No => false,
            Selected::Excluded(finding) => {
                if !view.deleting {
                    view.findings.push(finding);
                }
                false
            }
        };
        view.selected += usize::from(selected);
        if let Some(node) = node_view(&view, &desired, facts, previous, known, selected) {
            view.nodes.push(node);
        } else if facts.labels.get(names::RUNTIME_LABEL).map(String::as_str)
            == Some(names::RUNTIME_LABEL_VERIFIED)
        {
            marked_by_others.push(facts.name.as_str());
        }
    }
    view.note_marked_by_others(&marked_by_others);
    let strays = strays(&view);
    let rollout = rollout::rollout(&view, &desired.state);
    let mut nodes = std::mem::take(&mut view.nodes);
    for node in &mut nodes {
        let Some(mut host) = node.host.take() else { continue };
        host.permitted = rollout.permitted.contains(&node.facts.name);
        classify::classify(&view, &rollout, node, &host);
        node.since = view::since(&view, node);
        node.host = Some(host);
    }
    view.nodes = nodes;
    view.hosts = Some(Hosts { desired, rollout, strays });
    Ok(view)
}

fn jobs_by_node(snapshot: &Snapshot) -> BTreeMap<&str, JobsOfNode<'_>> {
    let mut by_node: BTreeMap<&str, JobsOfNode<'_>> = BTreeMap::new();
    for job in snapshot.jobs.jobs.known().into_iter().flatten() {
        by_node.entry(&job.node).or_default().jobs.push(job);
    }
    for pod in snapshot.jobs.pods.known().into_iter().flatten() {
        by_node.entry(&pod.node).or_default().pods.push(pod);
    }
    by_node
}

/// The Jobs of nodes that are in no list, by name. The last one of a node says what became of it, and goes
/// after the others: without it, an installation would be taken for news.
fn strays(view: &View<'_>) -> Vec<(String, String)> {
    let jobs = view.snapshot.jobs.jobs.known().into_iter().flatten();
    let mut of_node: BTreeMap<&str, BTreeSet<(i64, &str)>> = BTreeMap::new();
    for node in view.snapshot.nodes.known().into_iter().flatten() {
        of_node.insert(&node.name, BTreeSet::new());
    }
    for job in jobs.clone() {
        if let Some(all) = of_node.get_mut(job.node.as_str()) {
            all.insert((job.number, &job.name));
        }
    }
    let is_last_of_several = |job: &NodeJob| {
        let all = of_node.get(job.node.as_str());
        all.is_some_and(|all| all.len() > 1 && all.last() == Some(&(job.number, &job.name)))
    };
    let known: BTreeSet<&str> = view.nodes.iter().map(|node| node.facts.name.as_str()).collect();
    let mut strays: Vec<(String, String)> = jobs
        .filter(|job| {
            !job.deleting
                && !view.snapshot.is_unreadable_node(&job.node)
                && !known.contains(job.node.as_str())
                && !is_last_of_several(job)
        })
        .map(|job| (job.name.clone(), job.uid.clone()))
        .collect();
    strays.sort();
    strays
}

fn node_view<'a>(
    view: &View<'a>,
    desired: &Desired,
    facts: &'a NodeFacts,
    previous: Option<&'a KataNode>,
    mut known: Known<'a>,
    selected: bool,
) -> Option<NodeView<'a>> {
    let wanted = selected && !view.deleting;
    let state = wanted.then_some(desired.state.as_str());
    known.give_up(state, view.snapshot.freshness, view.now);
    let label = facts.labels.get(names::RUNTIME_LABEL).map(String::as_str);
    let claimed = classify::is_claimed(&facts.labels);
    let touched = known.status.touched
        || known.running.is_some_and(|(job, _)| job.action == NodeAction::Install);
    // Somebody took the claim away, or a Job that would be taken for news is still there.
    let unfinished = label == Some(names::RUNTIME_LABEL_CLAIMED) || !known.spent.is_empty();
    let released = !previous.is_some_and(|it| memory::owner_is(it, &facts.uid)) || !unfinished;
    if !wanted && !touched && !claimed && released {
        return None;
    }
    let digest = desired::facts(facts, memory::retry(previous));
    let action = if wanted { NodeAction::Install } else { NodeAction::Remove };
    let installed = known.status.installed.is_some();
    let offered: BTreeSet<&str> = if known.status.handlers.is_empty() {
        desired.handlers().collect()
    } else {
        known.status.handlers.iter().map(String::as_str).collect()
    };
    let missing = if installed { desired.missing(facts, &offered) } else { Vec::new() };
    let since = known.status.job.as_ref().map(|job| job.at);
    let overdue = !missing.is_empty()
        && since.is_some_and(|since| view.now.duration_since(since) >= HANDLERS_GRACE);
    let mut host = HostNode {
        given_up: (installed_state(&known) != Some(&desired.state) || !wanted)
            && known.status.bad.as_deref()
                == Some(memory::bad(action, &desired.state, &digest).as_str()),
        missing: missing.into_iter().map(str::to_owned).collect(),
        facts: digest,
        next: Next::Nothing,
        permitted: false,
        failed: false,
        overdue,
        forgotten: wanted
            && claimed
            && label == Some(names::RUNTIME_LABEL_VERIFIED)
            && is_forgotten(desired, facts, &known),
        due: None,
        known,
    };
    host.failed = classify::has_failed(&host, &desired.state, wanted);
    host.next = if wanted {
        next_of_wanted(view, desired, facts, &host)
    } else {
        next_of_leaving(view, facts, &host)
    };
    host.due = due(view, desired, facts, &host);
    Some(NodeView {
        facts,
        previous,
        wanted,
        labelled: claimed,
        verified: label == Some(names::RUNTIME_LABEL_VERIFIED),
        verdict: None,
        runs: if installed { Runs::Yes } else { Runs::No },
        behind: wanted && installed && installed_state(&host.known) != Some(&desired.state),
        phase: kata_api::kata_node::Phase::Unknown,
        step: None,
        since: view.now,
        finding: None,
        host: Some(host),
    })
}

fn installed_state<'a>(known: &'a Known<'_>) -> Option<&'a String> {
    known.status.installed.as_ref()
}

/// Whether nothing is known of a node, or no more than what a check found since, and its kubelet reports all
/// handlers that it shall have.
fn is_forgotten(desired: &Desired, facts: &NodeFacts, known: &Known<'_>) -> bool {
    let status = &known.status;
    let offered: BTreeSet<&str> = desired.handlers().collect();
    // A check that did not come to its end says nothing; one that refused, or found the node to differ, does.
    let unharmed = status.job.as_ref().is_none_or(|last| {
        matches!(last.action, NodeAction::Preflight | NodeAction::Inspect)
            && !matches!(last.outcome, Some(JobOutcome::Refused | JobOutcome::Drifted))
    });
    status.installed.is_none()
        && !status.touched
        && unharmed
        && facts.runtime_handlers.is_some()
        && desired.missing(facts, &offered).is_empty()
}

/// Whether a node's kubelet reports and nobody keeps pods off it.
fn is_open(facts: &NodeFacts) -> bool {
    facts.ready.status == Some(true) && !facts.unschedulable && !facts.deleting
}

fn next_of_wanted(
    view: &View<'_>,
    desired: &Desired,
    facts: &NodeFacts,
    host: &HostNode<'_>,
) -> Next {
    let status = &host.known.status;
    if host.known.unsure {
        return Next::Nothing;
    }
    if status.installed.as_ref() == Some(&desired.state) {
        let pause = memory::pause(status, &[NodeAction::Inspect], &host.facts)
            .filter(|until| *until > view.now);
        if !is_open(facts) {
            return Next::Nothing;
        }
        return match (inspection(view, facts, host), pause) {
            (Some(at), None) if at <= view.now => Next::Check(NodeAction::Inspect),
            _ if !host.missing.is_empty() && !host.overdue => Next::Confirm,
            (_, Some(until)) => Next::Later(until),
            _ => Next::Nothing,
        };
    }
    if host.given_up {
        return Next::Nothing;
    }
    let actions = [NodeAction::Preflight, NodeAction::Install, NodeAction::Remove];
    if let Some(until) =
        memory::pause(status, &actions, &host.facts).filter(|until| *until > view.now)
        && status.job.as_ref().is_some_and(|last| last.state == desired.state)
    {
        return Next::Later(until);
    }
    if !is_open(facts) {
        return Next::Nothing;
    }
    let fit = memory::fit(&desired.state, &host.facts);
    // A change of which nothing is known is gone on with: it looks at the node itself before it does anything.
    let goes_on = status
        .job
        .as_ref()
        .is_some_and(|job| job.action == NodeAction::Install && memory::is_lost(job));
    if !goes_on && status.fit_for.as_ref() != Some(&fit) {
        Next::Check(NodeAction::Preflight)
    } else {
        Next::Change(NodeAction::Install)
    }
}

fn next_of_leaving(view: &View<'_>, facts: &NodeFacts, host: &HostNode<'_>) -> Next {
    let status = &host.known.status;
    let last = status.job.as_ref();
    let removed = last.is_some_and(|last| {
        last.action == NodeAction::Remove
            && last.outcome == Some(kata_api::kata_node::JobOutcome::Done)
    });
    if host.known.unsure || host.given_up || (removed && !status.touched) {
        return Next::Nothing;
    }
    if let Some(until) =
        memory::pause(status, &[NodeAction::Remove], &host.facts).filter(|until| *until > view.now)
    {
        return Next::Later(until);
    }
    // A cordoned node loses Kata all the same: nothing new comes to it anyway.
    if facts.ready.status == Some(true) { Next::Change(NodeAction::Remove) } else { Next::Nothing }
}

/// When an installed node is inspected next: at its own time of the period, so that not all are at once.
fn inspection(view: &View<'_>, facts: &NodeFacts, host: &HostNode<'_>) -> Option<Timestamp> {
    let last = host.known.status.inspected?;
    if host.overdue {
        return last.checked_add(HANDLERS_AGAIN).ok();
    }
    let period = i64::try_from(view.snapshot.options.inspect_every.as_secs()).ok()?.max(1);
    let offset = u64::from_str_radix(&text::digest(&facts.name), 16).unwrap_or(0);
    let offset = i64::try_from(offset % u64::try_from(period).unwrap_or(1)).unwrap_or(0);
    let since = last.as_second().saturating_sub(offset);
    let next = since.div_euclid(period).saturating_add(1).saturating_mul(period);
    Timestamp::from_second(next.saturating_add(offset)).ok()
}

/// When something is due although nothing is seen to change.
fn due(
    view: &View<'_>,
    desired: &Desired,
    facts: &NodeFacts,
    host: &HostNode<'_>,
) -> Option<Timestamp> {
    let installed = host.known.status.installed.as_ref() == Some(&desired.state);
    let confirmed = host
        .known
        .status
        .job
        .as_ref()
        .filter(|_| !host.missing.is_empty() && !host.overdue)
        .and_then(|job| job.at.checked_add(HANDLERS_GRACE).ok());
    let since = host.known.running.and_then(|(job, pod)| match &job.end {
        Some(end) => end.at,
        None if pod.is_none() => job.created,
        None => None,
    });
    let overdue = since.and_then(|since| since.checked_add(classify::POD_GRACE).ok());
    let starts = host.known.running.and_then(|(_, pod)| classify::starts_by(pod?));
    let inspection = installed.then(|| inspection(view, facts, host)).flatten();
    let later = match host.next {
        Next::Later(until) => Some(until),
        _ => None,
    };
    let times = [confirmed, overdue, starts, inspection, later];
    times.into_iter().flatten().filter(|at| *at > view.now).min()
}

/// Whether nothing keeps a node that leaves from losing Kata: no new pod can come, and none is left.
pub(crate) fn is_clear(view: &View<'_>, node: &NodeView<'_>) -> bool {
    !node.verified
        && if view.deleting {
            let classes = view.snapshot.runtime_classes.known().into_iter().flatten();
            view.running(None).is_ok_and(|pods| pods.is_empty())
                && !classes.into_iter().any(crate::bodies::is_our_class)
        } else {
            view.running(Some(&node.facts.name)).is_ok_and(|pods| pods.is_empty())
        }
}

/// In how long something is due on a node although nothing is seen to change.
pub(crate) fn timers(view: &View<'_>) -> impl Iterator<Item = Duration> {
    view.nodes
        .iter()
        .filter_map(|node| node.host.as_ref()?.due)
        .filter_map(|at| Duration::try_from(at.duration_since(view.now)).ok())
}
