//! Facts about a node that both back ends derive in the same way: since when it is at its step, why it
//! takes no pods, and which pods keep Kata on it.

use jiff::{SignedDuration, Timestamp};
use kata_api::Code;
use kata_api::kata_node::NodeStep;

use crate::assessment::{Assessment, LabelDecision, LeaveReason, NodeAssessment};
use crate::classes::is_closed;
use crate::report::Finding;
use crate::snapshot::NodeFacts;
use crate::text;

/// The taint of a cordoned node; the node controller sets its `timeAdded`.
pub(crate) const UNSCHEDULABLE_TAINT: &str = "node.kubernetes.io/unschedulable";

/// Since when the node is in its phase and at its step.
pub(crate) fn since(cluster: &Assessment, node: &NodeAssessment) -> Timestamp {
    let status = node.previous.as_ref().and_then(|kata_node| kata_node.status.as_ref());
    let begun = status
        .filter(|status| status.phase == node.phase && status.step == step_text(node.step))
        .and_then(|status| status.since);
    begun.or_else(|| step_since(node)).unwrap_or(cluster.now)
}

/// Since when a node is at its step, by the Node object: the KataNode may not show the step yet. What is older than the
/// KataNode's last change has another cause.
fn step_since(node: &NodeAssessment) -> Option<Timestamp> {
    let facts = &node.facts;
    let written = node.previous.as_ref().and_then(|previous| previous.status.as_ref()?.since);
    match node.step? {
        NodeStep::Draining => {
            let taint = facts.taints.iter().find(|taint| taint.key == UNSCHEDULABLE_TAINT)?;
            let begun = taint.time_added.as_ref()?.0;
            written.is_none_or(|written| written <= begun).then_some(begun)
        }
        NodeStep::Finishing => {
            facts.ready.since.filter(|begun| written.is_some_and(|written| written <= *begun))
        }
        _ => None,
    }
}

/// A step as in the status of a KataNode.
pub(crate) fn step_text(step: Option<NodeStep>) -> String {
    step.map(|step| format!("{}/{} {}", step.number(), step.count(), step.as_str()))
        .unwrap_or_default()
}

/// Decides about the runtime label of a node that loses Kata. The operator removes the label when no sandboxed
/// pod is left on the node, in a deletion when the classes are closed and none is left in the cluster, and not
/// earlier: a kubelet that restarts fails the running pods whose node selector no longer matches (kubernetes
/// #99708, #123980). A pod that the scheduler bound to the node at the same moment gets the label back.
pub(crate) fn label_of_leaving(
    cluster: &Assessment,
    node: &NodeAssessment,
    offers_kata: bool,
) -> LabelDecision {
    let pods = cluster.pods.on_node(&node.facts.name);
    if !node.has_runtime_label {
        let slipped_in = pods.is_ok_and(|pods| !pods.is_empty());
        return if slipped_in && offers_kata && unavailable(&node.facts).is_none() {
            LabelDecision::Set
        } else {
            LabelDecision::Clear
        };
    }
    let is_free = if cluster.deleting {
        // A pod that waits for a node may have been created before the classes were closed.
        cluster.our_classes().all(is_closed) && cluster.pods.cluster_is_free().unwrap_or_default()
    } else {
        pods.is_ok_and(|pods| pods.is_empty())
    };
    if is_free { LabelDecision::Clear } else { LabelDecision::Keep }
}

/// Why a node takes no pods now, in a few words; `None` if it takes pods.
pub(crate) fn unavailable(facts: &NodeFacts) -> Option<&'static str> {
    if facts.ready.status != Some(true) {
        Some("not Ready")
    } else if facts.unschedulable {
        Some("cordoned")
    } else if facts.deleting {
        Some("being deleted")
    } else {
        None
    }
}

/// The finding that a node is not Ready. If the node counts against `spec.rollout.maxUnavailable`
/// (`is_paced`), the fix suggests a higher limit.
pub(crate) fn not_ready(node: &NodeAssessment, message: String, is_paced: bool) -> Finding {
    let mut finding = Finding::new(Code::NodeNotReady, node.object(), message);
    if is_paced {
        let fix = finding.fix.trim_end_matches('.');
        finding.fix = format!(
            "{fix}; to continue with the other nodes meanwhile, raise spec.rollout.maxUnavailable."
        );
    }
    finding
}

/// The finding that a node is cordoned.
pub(crate) fn cordoned(node: &NodeAssessment, message: String) -> Finding {
    let mut finding = Finding::new(Code::NodeCordoned, node.object(), message);
    "Uncordon the node.".clone_into(&mut finding.fix);
    finding
}

/// When a node will have been not Ready for too long, if that is its finding.
pub(crate) fn not_ready_too_long_at(
    cluster: &Assessment,
    node: &NodeAssessment,
) -> Option<Timestamp> {
    let is_not_ready = node.finding.as_ref().is_some_and(|it| it.code == Code::NodeNotReady);
    let limit = SignedDuration::try_from(cluster.options.step_slow_after).ok()?;
    let since = node.facts.ready.since.unwrap_or(node.since);
    since.checked_add(limit).ok().filter(|_| is_not_ready)
}

/// The message that a node is not Ready.
pub(crate) fn not_ready_message(facts: &NodeFacts) -> String {
    let reason = match facts.ready.reason.as_str() {
        "" => "the kubelet does not report",
        reason => reason,
    };
    format!("node {} is not Ready: {reason}", facts.name)
}

/// The finding that sandboxed pods still run on a node that is no longer selected, or not for their classes.
pub(crate) fn pods_on_leaving(cluster: &Assessment, node: &NodeAssessment) -> Option<Finding> {
    let leaves = !node.wanted || !node.leaving_classes.is_empty();
    if !leaves || cluster.deleting || !node.joined {
        return None;
    }
    let name = &node.facts.name;
    let pods = cluster.pods_in_the_way(node).ok().filter(|pods| !pods.is_empty())?;
    let selected = if node.wanted {
        let classes: Vec<&String> = node.leaving_classes.iter().collect();
        format!("is no longer selected for the runtime of {}", text::list(&classes, text::NAMES))
    } else {
        let selected = match node.leave_reason {
            LeaveReason::Deselected => "is no longer selected",
            LeaveReason::NoLongerProvided => "is no longer selected by spec.providedNodes",
            LeaveReason::NowProvided => "is now selected by spec.providedNodes",
        };
        selected.to_owned()
    };
    Some(Finding::new(
        Code::PodsOnLeavingNode,
        node.object(),
        format!(
            "node {name} {selected}, but {} on it: {}",
            text::pods_running(pods.len()),
            text::pods(&pods)
        ),
    ))
}
