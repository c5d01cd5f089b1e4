//! The KataNode of each node: body and status.
//!
//! A status is written when the phase, the finding or the record of Jobs changes. The steps of a change
//! follow each other within seconds on a fast node, so a step is written only if it lasts.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kata_api::kata_node::{HostStatus, JobOutcome, NodeStep, Phase, Transition};
use kata_api::{KataNodeStatus, conditions, names};
use serde_json::json;

use crate::assessment::{Assessment, KataState, NodeAssessment};
use crate::draft::Draft;
use crate::node::step_text;
use crate::object::{Kind, ObjectRef};
use crate::ownership::is_owned_by;
use crate::plan::{Action, OnFailure};
use crate::report::Waiting;
use crate::text;

/// Most bytes of a message in a KataNode.
const MESSAGE: usize = 1_024;

/// How long after the last write a reboot is written. Since when a node reboots is stored nowhere else, and a node that
/// does not come back is named by it.
const REBOOT_PUBLISHED_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// Writes one KataNode for each node of the assessment, and deletes all others.
pub(super) fn update_kata_nodes(cluster: &Assessment, out: &mut Draft) {
    let labelled_now: BTreeSet<String> = out
        .steps
        .iter()
        .filter_map(|step| match &step.action {
            Action::LabelNode { node, set, .. } if set.contains_key(names::RUNTIME_LABEL) => {
                Some(node.name.clone())
            }
            _ => None,
        })
        .collect();
    for node in &cluster.nodes {
        // A node that is labelled in this pass is written once its label has been observed.
        if !labelled_now.contains(&node.facts.name) {
            update_kata_node(cluster, node, out);
        }
    }
    for departed in &cluster.departed {
        let metadata = &departed.kata_node.metadata;
        let name = metadata.name.clone().unwrap_or_default();
        let object = ObjectRef::new(Kind::KataNode, &name, metadata.uid.as_deref());
        if metadata.deletion_timestamp.is_none() {
            out.delete(object.clone(), OnFailure::Continue, "its node has no Kata and gets none");
        }
        if cluster.deleting {
            out.wait_for(Waiting::Deletion, object, format!("KataNode {name} to be gone"));
        }
    }
}

/// Updates a node's KataNode.
fn update_kata_node(cluster: &Assessment, node: &NodeAssessment, out: &mut Draft) {
    if !node.is_understood {
        return;
    }
    let name = &node.facts.name;
    let config = cluster.config.metadata.name.as_deref().unwrap_or_default();
    let uid = node.previous.as_ref().and_then(|previous| previous.metadata.uid.as_deref());
    let object = || ObjectRef::new(Kind::KataNode, name, uid);
    let head =
        || json!({"apiVersion": Kind::KataNode.api_version(), "kind": Kind::KataNode.as_str()});
    let current = node.previous.as_ref().is_some_and(|previous| {
        previous.metadata.name.as_deref() == Some(name)
            && previous.spec.kata_config == config
            && is_owned_by(previous, &node.facts.uid)
    });
    if !current {
        let mut body = head();
        body["metadata"] = json!({
            "name": name,
            "labels": {
                names::MANAGED_BY: names::PRODUCT,
                names::PART_OF: names::PRODUCT,
            },
            "ownerReferences": [{
                "apiVersion": Kind::Node.api_version(),
                "kind": Kind::Node.as_str(),
                "name": name,
                "uid": node.facts.uid,
            }],
        });
        body["spec"] = json!({"nodeName": name, "kataConfig": config});
        let action = Action::Apply { object: object(), body };
        out.push(action, OnFailure::Continue, "it reports the state of the node");
    }
    let status = status(cluster, node);
    if needs_write(cluster, node, &status) {
        let mut body = head();
        body["metadata"] = json!({"name": name});
        body["status"] = json!(status);
        let why = format!("{} {}", status.phase.as_str(), status.step);
        out.push(
            Action::ApplyStatus { object: object(), body },
            OnFailure::Continue,
            why.trim_end(),
        );
    }
}

/// Whether a status has to be written.
fn needs_write(cluster: &Assessment, node: &NodeAssessment, status: &KataNodeStatus) -> bool {
    fn summary(status: &KataNodeStatus) -> impl PartialEq {
        let KataNodeStatus { phase, provided, ready, code, message, leaves_at, .. } = status;
        (*phase, *provided, ready, code, message, *leaves_at)
    }
    let Some(written) = node.previous.as_ref().and_then(|previous| previous.status.as_ref()) else {
        // A KataNode without a status means that the node waits.
        return node.phase != Phase::Waiting
            || node.finding.is_some()
            || status.host.is_some()
            || status.leaves_at.is_some();
    };
    // The results of Jobs are stored nowhere else.
    if summary(written) != summary(status) || written.host != status.host {
        return true;
    }
    if node.phase == Phase::Waiting || written == status {
        return false;
    }
    steps_due(cluster, node).is_none_or(|due| cluster.now >= due)
}

/// When the step of a node that is being changed has to be written at the latest; `None` if it has to be
/// written at once.
pub(crate) fn steps_due(cluster: &Assessment, node: &NodeAssessment) -> Option<Timestamp> {
    if !node.in_flight() {
        return None;
    }
    let written = node.previous.as_ref()?.status.as_ref()?.since?;
    let wait = SignedDuration::try_from(cluster.options.steps_published_after)
        .unwrap_or(SignedDuration::MAX);
    let is_rebooting = node.step == Some(NodeStep::Rebooting);
    let wait = if is_rebooting { wait.min(REBOOT_PUBLISHED_AFTER) } else { wait };
    written.checked_add(wait).ok()
}

/// Whether the node's step differs from the one in its KataNode.
pub(crate) fn step_not_published(node: &NodeAssessment) -> bool {
    node.previous
        .as_ref()
        .and_then(|previous| previous.status.as_ref())
        .is_some_and(|written| written.step != step_text(node.step))
}

/// The status of a node's KataNode.
fn status(cluster: &Assessment, node: &NodeAssessment) -> KataNodeStatus {
    let facts = &node.facts;
    let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let is_ours = |handler: &str| {
        cluster.runtimes.iter().any(|runtime| runtime.effective_handler() == handler)
    };
    let reported = facts.runtime_handlers.as_ref().unwrap_or(&node.recorded_handlers);
    let job = node.record.as_ref().and_then(|record| record.job.as_ref());
    let version = node.record.as_ref().and_then(|record| record.kata_version.clone());
    let phase_and_step = Transition {
        phase: node.phase,
        step: step_text(node.step),
        time: node.since,
        kata_version: version.filter(|_| node.phase == Phase::Ready),
        rolled_back: node.phase == Phase::Ready
            && job.is_some_and(|job| job.outcome == Some(JobOutcome::RolledBack)),
    };
    let written = node.previous.as_ref().and_then(|previous| previous.status.as_ref());
    let ready = match (node.phase, node.kata) {
        (Phase::Ready, _) => "True",
        (Phase::Unknown, KataState::Unknown) => "Unknown",
        _ => "False",
    };
    let message = node.finding.as_ref().map(|finding| text::cut(&finding.message, MESSAGE));
    let message = message.unwrap_or_default();
    KataNodeStatus {
        history: match written {
            Some(written) => written.history_with(&phase_and_step),
            None => vec![phase_and_step],
        },
        ready: ready.to_owned(),
        phase: node.phase,
        step: step_text(node.step),
        since: Some(node.since),
        code: node.finding.as_ref().map(|finding| finding.code.to_string()),
        conditions: vec![ready_condition(node, ready, message.clone())],
        message,
        handlers: reported.iter().filter(|it| is_ours(it)).cloned().collect(),
        current_config: known(facts.current_config()),
        desired_config: known(facts.desired_config()),
        container_runtime_version: known(&facts.container_runtime_version),
        kernel_version: known(&facts.kernel_version),
        boot_id: known(&facts.boot_id),
        provided: node.provided,
        leaves_at: node.leaves_at,
        host: node.record.clone().filter(|record| **record != HostStatus::default()),
    }
}

/// The condition Ready, by which `kubectl wait` waits for a node.
fn ready_condition(node: &NodeAssessment, status: &str, message: String) -> Condition {
    let written = node.previous.as_ref().and_then(|previous| previous.status.as_ref());
    let before = written
        .into_iter()
        .flat_map(|written| &written.conditions)
        .find(|condition| condition.type_ == conditions::READY && condition.status == status);
    let reason = node.finding.as_ref().map(|finding| finding.code.entry().reason);
    Condition {
        type_: conditions::READY.to_owned(),
        status: status.to_owned(),
        reason: reason.unwrap_or(node.phase.as_str()).to_owned(),
        message,
        last_transition_time: before
            .map_or(Time(node.since), |before| before.last_transition_time.clone()),
        observed_generation: None,
    }
}
