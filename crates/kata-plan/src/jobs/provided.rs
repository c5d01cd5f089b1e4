//! Nodes whose operating system or cloud provides Kata: `spec.providedNodes`.
//!
//! They are no [`Host`](super::cluster::Host)s, so that no Job is ever due on them and no roll-out counts them. Their
//! handlers are those that the kubelet reports. What the operator itself installed on such a node is removed first,
//! which [`super::assess`] decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kata_api::kata_node::{HostJob, HostStatus, NodeStep, Phase};
use kata_api::node_task::NodeAction;
use kata_api::{Code, KataConfig, KataNode, names};

use super::cluster::Cluster;
use super::desired::NodeState;
use super::due::HANDLERS_GRACE;
use super::node::is_claimed;
use super::record::NodeRecord;
use crate::assessment::{
    Assessment, KataState, LabelDecision, LeaveReason, NodeAssessment, OfferedHandlers,
};
use crate::draft::Draft;
use crate::node::{
    cordoned, label_of_leaving, not_ready, not_ready_message, pods_on_leaving, unavailable,
};
use crate::ownership::is_owned_by;
use crate::plan::{Action, OnFailure};
use crate::report::{Finding, Waiting};
use crate::selector;
use crate::snapshot::NodeFacts;
use crate::text;

/// How Kata comes to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// By Jobs of the operator.
    Jobs,
    /// With the operating system or the cloud.
    Provided,
    /// It was provided, and `spec.providedNodes` no longer selects the node, which still has labels of the operator.
    WasProvided,
}

/// How Kata comes to a node, or is to come. `has_artifacts`: the operator has changed the node. `keeps_unmatched`: a node whose
/// labels no longer match stays as it is.
pub(super) fn source(
    config: &KataConfig,
    node: &NodeFacts,
    keeps_unmatched: bool,
    previous: Option<&KataNode>,
    has_artifacts: bool,
) -> Source {
    let selects = match &config.spec.provided_nodes {
        None => Ok(false),
        Some(selector) => selector::matches(selector, &node.labels),
    };
    let recorded = is_recorded(node, previous);
    match selects {
        Ok(true) => Source::Provided,
        Ok(false) if keeps_unmatched && recorded && config.spec.provided_nodes.is_some() => {
            Source::Provided
        }
        Ok(false) if recorded && has_operator_labels(node) => Source::WasProvided,
        Ok(false) => Source::Jobs,
        // If it cannot be evaluated, nodes keep what they have, and no Job installs anything.
        Err(_) if !has_artifacts && (recorded || is_claimed(&node.labels)) => Source::Provided,
        Err(_) => Source::Jobs,
    }
}

/// Whether a node has labels that the operator sets.
pub(crate) fn has_operator_labels(node: &NodeFacts) -> bool {
    is_claimed(&node.labels)
        || node.labels.contains_key(names::RUNTIME_LABEL)
        || node.labels.keys().any(|key| key.starts_with(names::CLASS_LABEL_PREFIX))
}

/// Whether the KataNode of a node says that Kata is provided.
pub(super) fn is_recorded(node: &NodeFacts, previous: Option<&KataNode>) -> bool {
    let previous = previous.filter(|it| is_owned_by(it, &node.uid));
    previous.and_then(|it| it.status.as_ref()).is_some_and(|status| status.provided)
}

/// Whether something of the operator is on a node, or may be: a provided node loses that first.
pub(super) fn has_artifacts_of_operator(record: &NodeRecord<'_>) -> bool {
    let changes = |action| matches!(action, NodeAction::Install | NodeAction::Remove);
    record.status.may_have_artifacts
        || record.running.is_some_and(|(job, _)| changes(job.action))
        || record.has_orphaned_change()
        // The result of a removal is recorded before its Job is deleted.
        || ((record.has_new_result || !record.deletable_jobs.is_empty())
            && last_removal(&record.status).is_some())
        || !record.is_understood
}

/// The assessment of a provided node; `None` if it should have no class and has no label of the operator. `desired` is
/// its state if it should have Kata.
pub(super) fn node(
    cluster: &Cluster<'_>,
    facts: &Arc<NodeFacts>,
    previous: Option<&Arc<KataNode>>,
    record: &Arc<HostStatus>,
    desired: Option<Arc<NodeState>>,
    is_still_provided: bool,
) -> Option<NodeAssessment> {
    let base = &cluster.base;
    let joined = is_claimed(&facts.labels);
    let recorded = is_recorded(facts, previous.map(AsRef::as_ref));
    if desired.is_none() && !joined && !(recorded && has_operator_labels(facts)) {
        return None;
    }
    let wanted = desired.is_some();
    let desired = desired.unwrap_or_default();
    let (wanted_classes, leaving_classes) = (&desired.classes, &desired.leaving);
    let offers =
        |class: &String| base.own_handler(class).is_some_and(|handler| facts.reports(handler));
    let removed = recent_removal(cluster, record);
    let is_report_current = removed.is_none();
    let classes: BTreeSet<String> =
        wanted_classes.iter().filter(|class| is_report_current && offers(class)).cloned().collect();
    let has_kata = !classes.is_empty() || leaving_classes.iter().any(offers);
    let unassessed = NodeAssessment::new(facts, previous, base.now);
    let mut node = NodeAssessment {
        wanted,
        provided: true,
        joined,
        kata: if has_kata { KataState::Installed } else { KataState::Absent },
        // Its pods are read before its last label goes.
        wants_removal: !wanted || (unassessed.has_runtime_label && !has_kata),
        leave_reason: if is_still_provided {
            LeaveReason::Deselected
        } else {
            LeaveReason::NoLongerProvided
        },
        classes: Arc::new(classes),
        leaving_classes: leaving_classes.clone(),
        phase: match (wanted, has_kata && unavailable(facts).is_none()) {
            (true, true) => Phase::Ready,
            (true, false) => Phase::NotReady,
            (false, _) => Phase::WaitingToRemove,
        },
        step: (wanted && !is_report_current).then_some(NodeStep::Confirming),
        offered: OfferedHandlers::OnlyReported,
        record: removed.as_ref().map(|(record, _)| Arc::clone(record)),
        ..unassessed
    };
    node.label = label_decision(base, &node, recorded && is_report_current);
    node.finding = finding(cluster, &node, wanted_classes).filter(|_| is_report_current || !wanted);
    node.since = crate::node::since(base, &node);
    let too_long_at = crate::node::not_ready_too_long_at(base, &node);
    node.is_overdue = too_long_at.is_some_and(|at| at <= base.now);
    let due = [removed.map(|(_, until)| until), too_long_at.filter(|at| *at > base.now)];
    node.due = due.into_iter().flatten().min();
    Some(node)
}

/// Decides about the runtime label. `is_known`: the node is recorded as provided, and its kubelet's report is current.
fn label_decision(base: &Assessment, node: &NodeAssessment, is_known: bool) -> LabelDecision {
    let facts = &node.facts;
    if !node.wanted {
        let offers_kata = base.our_classes().any(|class| facts.reports(&class.handler));
        return label_of_leaving(base, node, offers_kata);
    }
    if !node.joined || !is_known || facts.runtime_handlers.is_none() {
        return LabelDecision::Keep;
    }
    if node.kata == KataState::Installed {
        let takes_pods = unavailable(facts).is_none();
        return if takes_pods { LabelDecision::Set } else { LabelDecision::Keep };
    }
    // Another runtime of the KataConfig that the node offers may have pods there.
    let offers_other = base.runtimes.iter().any(|it| facts.reports(it.effective_handler()));
    let is_free = || base.pods.on_node(&facts.name).is_ok_and(|pods| pods.is_empty());
    let is_ready = facts.ready.status == Some(true);
    if is_ready && (!offers_other || is_free()) {
        LabelDecision::Clear
    } else {
        LabelDecision::Keep
    }
}

/// The record of a removal that has just ended, and until when the kubelet may still report the handlers that went.
fn recent_removal(
    cluster: &Cluster<'_>,
    record: &Arc<HostStatus>,
) -> Option<(Arc<HostStatus>, Timestamp)> {
    let until = last_removal(record)?.time.checked_add(HANDLERS_GRACE).ok()?;
    (until > cluster.now()).then(|| (Arc::clone(record), until))
}

/// The last Job of a node, if that removed Kata.
fn last_removal(record: &HostStatus) -> Option<&HostJob> {
    record.job.as_ref().filter(|job| job.action == NodeAction::Remove)
}

/// Why no pods start on a node, or which pods keep it from leaving.
fn finding(
    cluster: &Cluster<'_>,
    node: &NodeAssessment,
    wanted_classes: &BTreeSet<String>,
) -> Option<Finding> {
    let (facts, name) = (&node.facts, &node.facts.name);
    if !node.wanted {
        return pods_on_leaving(&cluster.base, node);
    }
    if facts.ready.status != Some(true) {
        return Some(not_ready(node, not_ready_message(facts), false));
    }
    if facts.unschedulable {
        let message = format!("node {name} is cordoned, so no pod starts there");
        return Some(cordoned(node, message));
    }
    let Some(reported) = &facts.runtime_handlers else {
        let message = format!(
            "node {name} is selected by spec.providedNodes, and its kubelet does not report the handlers of the \
             container runtime {}",
            facts.container_runtime_version
        );
        return Some(Finding::new(Code::HandlersNotReported, node.object(), message));
    };
    if node.kata == KataState::Absent {
        let handlers: BTreeSet<&str> =
            wanted_classes.iter().filter_map(|class| cluster.base.own_handler(class)).collect();
        let handlers: Vec<&str> = handlers.into_iter().collect();
        let message = format!(
            "node {name} is selected by spec.providedNodes, and its container runtime offers none of the handlers \
             {}; it offers {}",
            text::list(&handlers, text::NAMES),
            describe_handlers(reported)
        );
        let mut finding = Finding::new(Code::HandlerMissing, node.object(), message);
        "Name a handler that the node offers in spec.runtimes[].handler, or correct spec.providedNodes."
            .clone_into(&mut finding.fix);
        return Some(finding);
    }
    pods_on_leaving(&cluster.base, node)
}

/// The handlers that a kubelet reports. The default one has no name.
fn describe_handlers(reported: &BTreeSet<String>) -> String {
    let named: Vec<&String> = reported.iter().filter(|name| !name.is_empty()).collect();
    if named.is_empty() { "no named handler".to_owned() } else { text::list(&named, text::NAMES) }
}

/// Claims the provided nodes, whose RuntimeClasses select the claim, takes it from those that leave, after their other
/// labels, and reports which are waited for.
pub(super) fn changes(cluster: &Cluster<'_>, out: &mut Draft) {
    for node in &cluster.provided {
        if node.step.is_some() {
            out.wait_for(Waiting::Node, node.object(), node.brief());
        }
        let claim = names::CLAIM_LABEL.to_owned();
        let (set, remove, why) = if node.wanted {
            // Without the record, the node would count as one that Jobs change.
            if node.joined || !is_recorded(&node.facts, node.previous.as_deref()) {
                continue;
            }
            let set = BTreeMap::from([(claim, names::CLAIMED.to_owned())]);
            (set, BTreeSet::new(), "its system or cloud provides Kata")
        } else {
            // In a deletion its other labels went only when no pod of the operator's classes was left.
            let (is_free, why) = if cluster.base.deleting {
                (cluster.may_remove, "its RuntimeClasses and its other labels are gone")
            } else {
                let pods = cluster.base.pods.on_node(&node.facts.name);
                (pods.is_ok_and(|pods| pods.is_empty()), "no sandboxed pod is left on it")
            };
            if !node.joined || node.has_runtime_label || !is_free {
                continue;
            }
            (BTreeMap::new(), BTreeSet::from([claim]), why)
        };
        let (node, seen) = (node.object(), node.version());
        let action = Action::LabelNode { node, seen, set, remove, needs_fresh_classes: false };
        out.push(action, OnFailure::Continue, why);
    }
}
