//! The two taints of kata-operator. The startup taint keeps pods off a new node until it has Kata: the
//! admin or the autoscaler sets it, and the operator only removes it. The leaving taint keeps new pods off
//! a node while Kata is changed or removed there.
//!
//! Other taints are never changed.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Taint;
use kata_api::names;

use crate::assessment::{Assessment, LabelDecision, NodeAssessment};
use crate::draft::Draft;
use crate::plan::{Action, OnFailure};

/// Sets the leaving taint, and removes both taints from nodes that do not need them any more.
pub(super) fn update_taints(cluster: &Assessment, out: &mut Draft) {
    let labelled_now: BTreeSet<String> = out
        .steps
        .iter()
        .filter(|step| matches!(step.action, Action::LabelNode { .. }))
        .map(|step| step.action.object().name.clone())
        .collect();
    for node in &cluster.nodes {
        // A label that is written in this pass changes the resourceVersion, which is the taints'
        // precondition.
        if labelled_now.contains(&node.facts.name) {
            continue;
        }
        // Without the precondition the request could drop a taint that another client has set since.
        let Some(seen) = node.version() else { continue };
        let leaves = is_closing(cluster, node);
        // A node that gets the label in this pass loses the startup taint in the next one.
        let has_started =
            node.has_runtime_label && node.label == LabelDecision::Set && !cluster.deleting;
        let stays = |taint: &Taint| match taint.key.as_str() {
            names::STARTUP_TAINT => !has_started,
            names::LEAVING_TAINT => leaves,
            _ => true,
        };
        let mut taints: Vec<Taint> =
            node.facts.taints.iter().filter(|taint| stays(taint)).cloned().collect();
        if leaves && !node.facts.has_leaving_taint() {
            taints.push(leaving_taint());
        }
        if taints == node.facts.taints {
            continue;
        }
        let why = if leaves {
            "no new pod may start while Kata is changed or removed"
        } else {
            "it takes pods again"
        };
        out.push(
            Action::ReplaceTaints { node: node.object(), seen, taints },
            OnFailure::Continue,
            why,
        );
    }
}

/// Whether to keep new pods off a node: it is no longer selected and still has the runtime label, or its
/// Kata is changed in place. If the KataConfig is being deleted, its classes are closed instead.
fn is_closing(cluster: &Assessment, node: &NodeAssessment) -> bool {
    !cluster.deleting
        && node.has_runtime_label
        && node.label != LabelDecision::Clear
        && (!node.wanted || node.is_changed_in_place)
}

fn leaving_taint() -> Taint {
    Taint {
        key: names::LEAVING_TAINT.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    }
}
