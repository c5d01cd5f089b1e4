//! Which nodes can have Kata where nobody but us changes nodes, and which of those are selected.
//!
//! There is no worker label to rely on: a candidate is a Linux node that is not of the control plane,
//! unless the selector names it. Who is refused is told why.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kata_api::{Code, KataConfig, names};

use crate::object::{Kind, ObjectRef};
use crate::report::Finding;
use crate::selection::{Selected, is_control_plane, is_windows};
use crate::selector;
use crate::snapshot::NodeFacts;

/// Label of the role of a node, whatever follows.
const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
/// Label with the host name, by which a selector can name a single node.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Whether a node is selected. `ours` says whether something of ours may be on it: such a node stays
/// selected when the selector cannot be evaluated or its eligibility goes. `touched` says whether that is
/// known from what was done on it, and not from a label alone, which anybody can set.
pub(super) fn select(config: &KataConfig, node: &NodeFacts, ours: bool, touched: bool) -> Selected {
    if node.deleting {
        return Selected::No;
    }
    let selector = config.spec.kata_config_pool_selector.as_ref();
    let matches =
        selector.is_none_or(|selector| selector::matches(selector, &node.labels).unwrap_or(ours));
    let eligible = !config.spec.check_node_eligibility
        || ours
        || node.labels.get(names::NFD_LABEL).is_some_and(|value| value == "true");
    if !matches || !eligible {
        return Selected::No;
    }
    let refused = |code: Code, why: String| {
        Selected::Excluded(Finding::new(
            code,
            ObjectRef::new(Kind::Node, &node.name, Some(&node.uid)),
            format!("node {} is left alone: {why}", node.name),
        ))
    };
    if is_windows(node) || !matches!(node.operating_system.as_str(), "" | "linux") {
        let system = if is_windows(node) { "Windows" } else { &node.operating_system };
        return refused(Code::UnsupportedNode, format!("it runs {system}"));
    }
    if is_control_plane(node) && !touched && !selector.is_some_and(names_nodes) {
        // Nobody expects it there; that it is the only kind of node is told with `NoNodesSelected`.
        return Selected::No;
    }
    if node.is_managed() {
        return refused(
            Code::UnsupportedNode,
            "the Machine Config Operator manages it, and would undo what a Job does".to_owned(),
        );
    }
    let runtime = node.container_runtime_version.split(':').next().unwrap_or_default();
    if !matches!(runtime, "" | "containerd" | "cri-o") {
        return refused(
            Code::UnsupportedNode,
            format!("its container runtime {runtime} is neither containerd nor CRI-O"),
        );
    }
    if ours {
        return Selected::Yes;
    }
    let foreign = node.labels.keys().find(|key| {
        *key == names::RUNTIME_LABEL || key.starts_with(names::KATA_DEPLOY_LABEL_PREFIX)
    });
    match foreign {
        Some(label) => refused(
            Code::OtherInstaller,
            format!("it carries the label {label}, which something else put there"),
        ),
        None => Selected::Yes,
    }
}

/// Whether a selector speaks of roles, of single nodes or of labels that somebody gave on purpose, and
/// not only of what every node has (operating system, architecture, zone, machine type).
fn names_nodes(selector: &LabelSelector) -> bool {
    let labels = selector.match_labels.iter().flatten().map(|(key, _)| key.as_str());
    let expressions = selector
        .match_expressions
        .iter()
        .flatten()
        .filter(|requirement| matches!(requirement.operator.as_str(), "In" | "Exists"))
        .map(|requirement| requirement.key.as_str());
    labels.chain(expressions).any(|key| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let well_known = ["kubernetes.io", "k8s.io"].iter().any(|known| {
            domain.strip_suffix(known).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        });
        key.starts_with(ROLE_PREFIX) || key == HOSTNAME_LABEL || !well_known
    })
}
