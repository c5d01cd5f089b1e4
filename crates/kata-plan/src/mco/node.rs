//! The Kata state, phase, step, label decision and finding of one node. Plans no steps.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use kata_api::kata_node::{NodeStep, Phase};
use kata_api::{Code, KataNode, names};

use super::mode::Mode;
use super::pools::Pools;
use super::{rendered, selection};
use crate::assessment::{Assessment, KataState, LabelDecision, NodeAssessment};
use crate::node;
use crate::observed::Observed;
use crate::report::Finding;
use crate::selection::is_control_plane;
use crate::snapshot::NodeFacts;
use crate::text;

/// Assesses a node; `None` if it has no Kata and gets none.
pub(super) fn assess(
    pools: &Pools<'_>,
    cluster: &Assessment,
    facts: &Arc<NodeFacts>,
    previous: Option<&Arc<KataNode>>,
    selected: bool,
) -> Option<NodeAssessment> {
    let wanted = selected && !cluster.deleting;
    let kata = match facts.kata_state(pools.snapshot) {
        // It was not selected for a moment: its daemon will take Kata away and has not begun.
        KataState::Installed if wanted && is_targeted_without_kata(pools, facts) => {
            KataState::Removing
        }
        kata => kata,
    };
    let joined = facts.labels.contains_key(names::KATA_ROLE_LABEL);
    let has_runtime_label = facts.labels.contains_key(names::RUNTIME_LABEL);
    let has_traces = joined
        || facts.refers_to_pool(names::POOL)
        || (has_runtime_label && previous.is_some())
        || facts.has_leaving_taint()
        || (pools.mode == Mode::Compact
            && cluster.deleting
            && is_control_plane(facts)
            && (kata != KataState::Absent
                || (previous.is_some() && is_left_on_image(pools, facts))));
    if !wanted && !has_traces {
        return None;
    }
    let behind = wanted && kata == KataState::Installed && pools.is_behind(facts.current_config());
    let mut node = NodeAssessment {
        wanted,
        joined,
        has_runtime_label,
        kata,
        behind,
        wants_removal: !wanted && (joined || has_runtime_label),
        classes: if wanted { Arc::clone(&pools.classes) } else { Arc::default() },
        has_earlier_change: facts.step().is_some(),
        failure: facts.degraded_reason().to_owned(),
        is_understood: !cluster.unreadable_kata_nodes.contains(&facts.name),
        ..NodeAssessment::new(facts, previous, cluster.now)
    };
    let missing = cluster.missing_handlers(facts);
    node.label = label_decision(cluster, &node, &missing);
    node.phase = phase(pools, &node, &missing);
    node.step = step(&node, &missing);
    node.finding = finding(pools, cluster, &node, &missing);
    node.is_being_updated = node.phase == Phase::Updating && node.behind;
    node.since = node::since(cluster, &node);
    drain_finding(pools, cluster, &mut node);
    slow_finding(pools, cluster, &mut node);
    if let Some(finding) = node::pods_on_leaving(cluster, &node) {
        node.finding = Some(finding);
    }
    node.due = node::not_ready_too_long_at(cluster, &node);
    node.is_overdue = node.due.is_some_and(|at| at <= cluster.now);
    node.due = node.due.filter(|at| *at > cluster.now);
    Some(node)
}

/// Whether a node of the control plane may still run the image with Kata, although no MachineConfig names
/// that image any more: its pool is changing to another image.
fn is_left_on_image(pools: &Pools<'_>, facts: &NodeFacts) -> bool {
    pools.pools.get(names::MASTER_POOL).is_none_or(|pool| {
        let target = rendered::image(pools.snapshot, &pool.spec.configuration.name);
        rendered::merges_own_config(pool)
            || [facts.current_config(), facts.desired_config()]
                .iter()
                .any(|config| rendered::image(pools.snapshot, config) != target)
    })
}

/// Decides about the node's runtime label.
///
/// A node gets the label if it is Ready and schedulable, its configuration contains Kata, and its kubelet reports
/// one of the handlers or reports no handlers at all. It loses the label if its configuration lacks Kata, if a
/// Ready kubelet reports none of the handlers, or if it leaves and no sandboxed pod is left. Cordons,
/// drains, reboots and a kubelet that is not Ready do not change the label.
fn label_decision(
    cluster: &Assessment,
    node: &NodeAssessment,
    missing: &[String],
) -> LabelDecision {
    if !node.wanted {
        return node::label_of_leaving(cluster, node, node.kata == KataState::Installed);
    }
    match node.kata {
        KataState::Unknown | KataState::Removing => LabelDecision::Keep,
        KataState::Absent | KataState::Installing => LabelDecision::Clear,
        KataState::Installed if node.facts.ready.status != Some(true) => LabelDecision::Keep,
        KataState::Installed if cluster.are_all_handlers(missing) => LabelDecision::Clear,
        KataState::Installed if node.facts.unschedulable => LabelDecision::Keep,
        KataState::Installed => LabelDecision::Set,
    }
}

fn phase(pools: &Pools<'_>, node: &NodeAssessment, missing: &[String]) -> Phase {
    let facts = &node.facts;
    let failed = facts.is_degraded();
    if !node.wanted {
        let waits = facts.current_config() == facts.desired_config()
            || (node.kata != KataState::Removing && is_targeted_to_kata(pools, facts));
        return match (failed, waits) {
            (true, _) => Phase::Failed,
            (false, true) => Phase::WaitingToRemove,
            (false, false) => Phase::Removing,
        };
    }
    let takes_pods = node::unavailable(facts).is_none();
    match node.kata {
        KataState::Unknown => Phase::Unknown,
        KataState::Installed if takes_pods && missing.is_empty() => Phase::Ready,
        KataState::Installed if failed => Phase::Failed,
        KataState::Installed if takes_pods => Phase::NotReady,
        KataState::Installed if facts.step().is_some() => Phase::Updating,
        KataState::Installed => Phase::NotReady,
        KataState::Absent | KataState::Installing | KataState::Removing if failed => Phase::Failed,
        KataState::Installing | KataState::Removing => Phase::Installing,
        KataState::Absent
            if facts.current_config() != facts.desired_config()
                && is_targeted_to_kata(pools, facts) =>
        {
            Phase::Installing
        }
        KataState::Absent => Phase::Waiting,
    }
}

fn step(node: &NodeAssessment, missing: &[String]) -> Option<NodeStep> {
    match node.phase {
        Phase::Ready | Phase::Waiting | Phase::WaitingToRemove | Phase::Unknown => None,
        Phase::NotReady if !missing.is_empty() => Some(NodeStep::Verifying),
        Phase::NotReady | Phase::Installing | Phase::Updating | Phase::Removing | Phase::Failed => {
            node.facts.step()
        }
    }
}

/// Why the node makes no progress, except a step that takes too long.
fn finding(
    pools: &Pools<'_>,
    cluster: &Assessment,
    node: &NodeAssessment,
    missing: &[String],
) -> Option<Finding> {
    let facts = &node.facts;
    let name = &facts.name;
    let make = |code: Code, message: String| Some(Finding::new(code, node.object(), message));
    let held_up = held_up(pools, cluster, node);
    match node.phase {
        _ if held_up.is_some() => held_up,
        Phase::Unknown => make(
            Code::NodeStateUnknown,
            format!(
                "cannot determine whether node {name} has Kata: MachineConfig {} cannot be read",
                unreadable(pools, facts)
            ),
        ),
        Phase::NotReady if !missing.is_empty() => make(
            Code::HandlerMissing,
            format!("node {name} does not advertise the handler {}", missing.join(", ")),
        ),
        // The change updates Kata: only the current configuration differs from the desired content.
        Phase::Updating if node.behind && !pools.is_behind(facts.desired_config()) => None,
        Phase::Updating => make(
            Code::OtherRollout,
            format!("node {name} is being changed for a reason unrelated to Kata"),
        ),
        Phase::NotReady
        | Phase::Waiting
        | Phase::Installing
        | Phase::Ready
        | Phase::WaitingToRemove
        | Phase::Removing
        | Phase::Failed => None,
    }
}

/// Why the Machine Config Operator cannot change the node, or why the node takes no pods.
fn held_up(pools: &Pools<'_>, cluster: &Assessment, node: &NodeAssessment) -> Option<Finding> {
    let facts = &node.facts;
    let name = &facts.name;
    let make = |code: Code, message: String| Some(Finding::new(code, node.object(), message));
    let other_pools = selection::other_pools(facts, &pools.pools);
    if node.joined && !other_pools.is_empty() {
        return make(
            Code::NodeInTwoPools,
            format!(
                "node {name} belongs to the pools {} and {}, so the Machine Config Operator ignores it",
                names::POOL,
                other_pools.join(", ")
            ),
        );
    }
    if facts.is_degraded() {
        return Some(degraded(pools, node));
    }
    if facts.step().is_some_and(|step| step != NodeStep::Targeted) {
        return None;
    }
    if facts.ready.status != Some(true) {
        let message = node::not_ready_message(facts);
        return Some(node::not_ready(node, message, is_paced(pools, cluster, node)));
    }
    if facts.unschedulable && !facts.is_cordoned_by_mco() {
        return make(
            Code::NodeCordoned,
            format!(
                "node {name} is cordoned, so it is not changed and counts as unavailable in its pool"
            ),
        );
    }
    None
}

/// The finding that the machine-config daemon of a node failed.
fn degraded(pools: &Pools<'_>, node: &NodeAssessment) -> Finding {
    let facts = &node.facts;
    let (name, reason) = (&facts.name, facts.degraded_reason());
    let pool = if node.wanted || pools.mode == Mode::Compact {
        pools.mode.pool()
    } else {
        names::WORKER_POOL
    };
    let target = pools.pools.get(pool).map_or("", |pool| pool.spec.configuration.name.as_str());
    if facts.unschedulable && facts.desired_config() != target {
        let message = format!(
            "node {name} failed and stays cordoned, so the Machine Config Operator skips it: {reason}"
        );
        Finding::new(Code::NodeDegradedAndCordoned, node.object(), message)
    } else {
        let message = format!("node {name} failed: {reason}");
        Finding::new(Code::NodeDegraded, node.object(), message)
    }
}

/// Whether the node's desired configuration contains Kata.
fn is_targeted_to_kata(pools: &Pools<'_>, facts: &NodeFacts) -> bool {
    rendered::content(pools.snapshot, facts.desired_config()) == rendered::Content::Has
}

/// Whether the node's desired configuration is another one than it runs, and does not contain Kata.
fn is_targeted_without_kata(pools: &Pools<'_>, facts: &NodeFacts) -> bool {
    facts.current_config() != facts.desired_config()
        && rendered::content(pools.snapshot, facts.desired_config()) == rendered::Content::Lacks
}

/// The name of the rendered MachineConfig that cannot be read.
fn unreadable<'a>(pools: &Pools<'_>, facts: &'a NodeFacts) -> &'a str {
    if rendered::content(pools.snapshot, facts.current_config()) == rendered::Content::Unknown {
        facts.current_config()
    } else {
        facts.desired_config()
    }
}

/// Whether a node's drain takes too long.
pub(super) fn drain_is_long(cluster: &Assessment, node: &NodeAssessment) -> bool {
    node.step == Some(NodeStep::Draining)
        && lasts(cluster, node, cluster.options.drain_blocked_after)
}

/// Whether a node has been at its step for at least this long.
fn lasts(cluster: &Assessment, node: &NodeAssessment, limit: Duration) -> bool {
    let limit = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
    cluster.now.duration_since(node.since) >= limit
}

fn drain_finding(pools: &Pools<'_>, cluster: &Assessment, node: &mut NodeAssessment) {
    if !drain_is_long(cluster, node) {
        return;
    }
    let name = &node.facts.name;
    let cause = match pools.snapshot.drain_blockers.get(name) {
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
            format!(", blocked by {}", text::list(&list, 5))
        }
        Some(Observed::Known(_)) => {
            ", and no pod seems to block it: see the log of machine-config-controller".to_owned()
        }
        Some(Observed::Unknown { error, .. }) => format!(", and its pods cannot be read: {error}"),
        None => String::new(),
    };
    let limit = text::span(cluster.options.drain_blocked_after);
    node.finding = Some(Finding::new(
        Code::DrainBlocked,
        node.object(),
        format!("node {name} has been draining for more than {limit}{cause}"),
    ));
}

/// Adds a finding if a step takes so long that it may never end.
fn slow_finding(pools: &Pools<'_>, cluster: &Assessment, node: &mut NodeAssessment) {
    let limit = cluster.options.step_slow_after;
    let Some(step) = node.step.filter(|step| *step != NodeStep::Draining) else { return };
    let has_cause = node.finding.as_ref().is_some_and(|finding| finding.code != Code::OtherRollout);
    if has_cause || !node.in_flight() || !lasts(cluster, node, limit) {
        return;
    }
    let (name, limit) = (&node.facts.name, text::span(limit));
    let state = node.state();
    let message =
        |what: &str| format!("node {name} has been {state} for more than {limit}, and {what}");
    node.has_failed = true;
    node.finding = Some(if step == NodeStep::Rebooting {
        let message = message("its kubelet does not report");
        node::not_ready(node, message, is_paced(pools, cluster, node))
    } else {
        let message = message("its machine-config daemon makes no progress");
        Finding::new(Code::NodeStateUnknown, node.object(), message)
    });
}

/// Whether a node counts against `spec.rollout.maxUnavailable`, which applies only to the operator's pool.
fn is_paced(pools: &Pools<'_>, cluster: &Assessment, node: &NodeAssessment) -> bool {
    pools.mode == Mode::Pool && node.joined && !cluster.deleting
}
