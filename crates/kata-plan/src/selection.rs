//! The conditions for the selection of a node that both back ends share, and their descriptions.

use kata_api::kata_config::KataConfigSpec;
use kata_api::names;

use crate::report::Finding;
use crate::selector;
use crate::snapshot::NodeFacts;

/// Whether a node is selected and, if it is excluded, why.
#[derive(Debug)]
pub(crate) enum Selected {
    Yes,
    No,
    /// It matches the selector but cannot have Kata.
    Excluded(Finding),
}

/// Whether a node belongs to the control plane.
pub(crate) fn is_control_plane(node: &NodeFacts) -> bool {
    node.labels.contains_key(names::MASTER_ROLE_LABEL)
        || node.labels.contains_key(names::CONTROL_PLANE_ROLE_LABEL)
}

/// The selector's condition on a node, in words; `None` if it selects every node.
pub(crate) fn selector_text(spec: &KataConfigSpec) -> Option<String> {
    let text = spec.kata_config_pool_selector.as_ref().map(selector::text)?;
    // An empty selector selects every node, like no selector.
    (!text.is_empty()).then(|| format!("matches spec.kataConfigPoolSelector ({text})"))
}

/// The condition of `spec.checkNodeEligibility` on a node, in words; `None` if it is off.
pub(crate) fn eligible_text(spec: &KataConfigSpec) -> Option<String> {
    spec.check_node_eligibility.then(|| format!("carries {}=true", names::NFD_LABEL))
}
