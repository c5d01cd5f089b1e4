//! One node: how far it is, whether it shall carry the label of verified nodes, and what holds it up.
//!
//! Plans nothing.

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_config::RuntimeSpec;
use kata_api::kata_node::{NodeStep, Phase};
use kata_api::{Code, KataNode, names};

use super::{NodeView, View};
use crate::mco::{self, Runs};
use crate::observed::Observed;
use crate::report::Finding;
use crate::selection::{self, Mode};
use crate::snapshot::NodeFacts;
use crate::text;

/// The taint of a cordoned node; the node controller notes when it put it there.
const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// A node's place in the roll-out; `None` if it has nothing to do with it.
pub(super) fn node_view<'a>(
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
            && (runs != Runs::No || (previous.is_some() && is_left_on_image(view, facts))));
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
        behind: wanted && runs == Runs::Yes && view.is_behind(facts.current_config()),
        phase: Phase::Unknown,
        step: None,
        since: view.now,
        finding: None,
        host: None,
    };
    let missing = missing_handlers(view, facts);
    node.verdict = verdict(view, &node, missing.is_empty());
    classify(view, &mut node, &missing);
    node.since = since(view, &node);
    drain_finding(view, &mut node);
    slow_finding(view, &mut node);
    if let Some(finding) = pods_on_leaving(view, &node) {
        node.finding = Some(finding);
    }
    Some(node)
}

/// Since when the node is in its phase and at its step.
pub(crate) fn since(view: &View<'_>, node: &NodeView<'_>) -> Timestamp {
    let status = node.previous.and_then(|kata_node| kata_node.status.as_ref());
    let begun = status
        .filter(|status| status.phase == node.phase && status.step == step_text(node.step))
        .and_then(|status| status.since);
    begun.or_else(|| cordoned_since(node)).unwrap_or(view.now)
}

/// Since when a node that is being drained is cordoned, as the API server knows it: nobody may have written
/// down that its drain began. A cordon that is older than what was written down last is somebody else's.
fn cordoned_since(node: &NodeView<'_>) -> Option<Timestamp> {
    let taint = node.facts.taints.iter().find(|taint| taint.key == UNSCHEDULABLE_TAINT);
    let cordoned = taint.and_then(|taint| taint.time_added.as_ref()).map(|time| time.0)?;
    let told = node.previous.and_then(|previous| previous.status.as_ref()?.since);
    (node.step == Some(NodeStep::Draining) && told.is_none_or(|told| told <= cordoned))
        .then_some(cordoned)
}

/// Whether a node of the control plane may still run the image that brought Kata, although nothing says any
/// more which image that was: the pool goes back to another one.
fn is_left_on_image(view: &View<'_>, facts: &NodeFacts) -> bool {
    view.pools.get(names::MASTER_POOL).is_none_or(|pool| {
        let target = mco::image(view.snapshot, &pool.spec.configuration.name);
        mco::merges_ours(pool)
            || [facts.current_config(), facts.desired_config()]
                .iter()
                .any(|config| mco::image(view.snapshot, config) != target)
    })
}

/// A step as in the status of a KataNode.
pub(crate) fn step_text(step: Option<NodeStep>) -> String {
    step.map(|step| format!("{}/{} {}", step.number(), step.count(), step.as_str()))
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
    label_of_ready(view, node.facts)
}

/// Whether a node that has Kata shall carry the label of verified nodes, as far as its kubelet matters.
pub(crate) fn label_of_ready(view: &View<'_>, facts: &NodeFacts) -> Option<bool> {
    if facts.ready.status == Some(true) {
        return Some(true);
    }
    let silent_for =
        facts.ready.since.map_or(SignedDuration::ZERO, |since| view.now.duration_since(since));
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
            .get(if node.wanted || view.mode == Mode::Compact {
                view.mode.pool()
            } else {
                names::WORKER_POOL
            })
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
        let message = format!("node {name} is not Ready: {reason}");
        Some(not_ready(node, message, is_paced(view, node)))
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
        // From a configuration that is not as it shall be to one that is: our own work.
        Phase::Updating
            if held_up.is_none() && node.behind && !view.is_behind(facts.desired_config()) =>
        {
            None
        }
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
    let state = node.state();
    let message = |what: &str| {
        format!("node {name} has been {state} for more than {minutes} minutes, and {what}")
    };
    node.finding = Some(if step == NodeStep::Rebooting {
        not_ready(node, message("its kubelet does not report"), is_paced(view, node))
    } else {
        let message = message("its machine-config daemon does not go on");
        Finding::new(Code::NodeStateUnknown, node.object(), message)
    });
}

/// That a node is not Ready. Where `spec.rollout` sets the pace, the others can go on without it.
pub(crate) fn not_ready(node: &NodeView<'_>, message: String, is_paced: bool) -> Finding {
    let mut finding = Finding::new(Code::NodeNotReady, node.object(), message);
    if is_paced {
        let fix = finding.fix.trim_end_matches('.');
        finding.fix = format!(
            "{fix}; to go on with the others meanwhile, raise spec.rollout.maxUnavailable."
        );
    }
    finding
}

/// Whether a node counts against `spec.rollout.maxUnavailable`, which is carried to our pool alone.
fn is_paced(view: &View<'_>, node: &NodeView<'_>) -> bool {
    view.mode == Mode::Pool && node.labelled && !view.deleting
}

/// Sandboxed pods that keep a node from losing Kata which is not selected any more.
pub(crate) fn pods_on_leaving(view: &View<'_>, node: &NodeView<'_>) -> Option<Finding> {
    let leaves = !view.deleting && !node.wanted && node.labelled;
    let name = &node.facts.name;
    let pods = view.running(Some(name)).ok().filter(|pods| leaves && !pods.is_empty())?;
    Some(Finding::new(
        Code::PodsOnLeavingNode,
        node.object(),
        format!(
            "node {name} is not selected any more, but {} on it: {}",
            text::running(pods.len()),
            text::pods(&pods)
        ),
    ))
}
