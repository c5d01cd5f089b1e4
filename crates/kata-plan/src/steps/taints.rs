//! The startup taint: whoever makes nodes may put it on them, so that nothing runs there before Kata does.
//! It goes last, and it is the only taint that is ever touched.

use k8s_openapi::api::core::v1::Taint;
use kata_api::names;

use super::Steps;
use crate::plan::{Action, OnFailure};
use crate::view::View;

/// Takes the startup taint off the nodes that are seen to carry the label of verified nodes, and that are
/// to keep it. A node that gets the label in this pass loses the taint in the next one.
pub(super) fn lift(view: &View<'_>, out: &mut Steps) {
    for node in &view.nodes {
        let done = node.verified && node.verdict == Some(true) && !view.deleting;
        let tainted = node.facts.taints.iter().any(is_ours);
        // Without a version the list of taints could not be guarded, and those of others would be at stake.
        let Some(seen) = node.version().filter(|_| done && tainted) else { continue };
        let left = node.facts.taints.iter().filter(|taint| !is_ours(taint)).cloned().collect();
        out.push(
            Action::LiftTaint { node: node.object(), seen, left },
            OnFailure::Continue,
            "it can run sandboxed pods",
        );
    }
}

fn is_ours(taint: &Taint) -> bool {
    taint.key == names::STARTUP_TAINT
}
