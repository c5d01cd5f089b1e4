//! The startup taint keeps pods off a new node until it has Kata: the admin or the autoscaler sets it, and the
//! operator only removes it, as it does a taint that an earlier release set.
//!
//! Other taints are never changed, and none is set.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Taint;
use kata_api::names;

use crate::assessment::{Assessment, LabelDecision};
use crate::draft::Draft;
use crate::plan::{Action, OnFailure};

/// Removes the taints from nodes that do not need them any more.
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
        // A node that gets the label in this pass loses the startup taint in the next one.
        let has_started =
            node.has_runtime_label && node.label == LabelDecision::Set && !cluster.deleting;
        let stays = |taint: &Taint| match taint.key.as_str() {
            names::STARTUP_TAINT | names::AUTOSCALER_STARTUP_TAINT => !has_started,
            names::LEAVING_TAINT => false,
            _ => true,
        };
        let taints: Vec<Taint> =
            node.facts.taints.iter().filter(|taint| stays(taint)).cloned().collect();
        if taints == node.facts.taints {
            continue;
        }
        out.push(
            Action::ReplaceTaints { node: node.object(), seen, taints },
            OnFailure::Continue,
            "it takes pods again",
        );
    }
}
