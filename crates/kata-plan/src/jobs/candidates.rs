//! Which nodes can have Kata on a cluster without the Machine Config Operator, and which of those are
//! selected.
//!
//! Such a cluster may have no worker label: a candidate is a Linux node outside the control plane, or a
//! node of the control plane that the selector names. A node that is excluded gets a finding with the
//! reason.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kata_api::{Code, KataConfig, names};

use super::take_over;
use crate::eligibility;
use crate::object::{Kind, ObjectRef};
use crate::report::Finding;
use crate::selection::{Selected, is_control_plane};
use crate::selector;
use crate::snapshot::{NodeFacts, Platform};

/// The prefix of the labels with a node's role.
const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
/// The prefix of the handlers of other installers of Kata.
const KATA_HANDLER_PREFIX: &str = "kata";
/// The label with the host name, by which a selector can name a single node.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// Whether a node is selected. `is_own`: artifacts of the operator may be on it, so the node stays selected
/// if the selector cannot be evaluated or if the node loses its eligibility. `artifacts`: the record of its
/// Jobs says so, and not only a label, which every client can set. `is_provided`: nothing is installed there.
/// `is_handler`: whether a handler is one of the KataConfig's. `keeps_unmatched`: whether a node keeps what no longer matches.
pub(super) fn select(
    config: &KataConfig,
    node: &NodeFacts,
    keeps_unmatched: bool,
    is_own: bool,
    artifacts: bool,
    is_provided: bool,
    is_handler: impl Fn(&str) -> bool,
) -> Selected {
    if node.deleting {
        return Selected::No;
    }
    let selector = config.spec.kata_config_pool_selector.as_ref();
    let matches =
        selector.is_none_or(|it| selector::selects(it, &node.labels, keeps_unmatched, || is_own));
    let eligible = !config.spec.check_node_eligibility
        || is_own
        || node.labels.get(names::NFD_LABEL).is_some_and(|value| value == "true");
    if !matches || !eligible {
        return Selected::No;
    }
    let refused = |code: Code, why: String| {
        Selected::Excluded(Finding::new(
            code,
            ObjectRef::new(Kind::Node, &node.name, Some(&node.uid)),
            format!("node {} is excluded: {why}", node.name),
        ))
    };
    if is_control_plane(node) && !artifacts && !selector.is_some_and(names_nodes) {
        // No finding: `NoNodesSelected` reports it if there are only such nodes.
        return Selected::No;
    }
    if let Some(why) = eligibility::obstacle(node, Platform::Kubernetes, is_own, is_provided) {
        return refused(Code::UnsupportedNode, why);
    }
    if is_own {
        return Selected::Yes;
    }
    let mut foreign = node.labels.keys().filter(|key| {
        (*key == names::RUNTIME_LABEL && !has_premature_runtime_label(node, &is_handler))
            || key.starts_with(names::KATA_DEPLOY_LABEL_PREFIX)
    });
    let Some(label) = foreign.next() else { return Selected::Yes };
    let why = if config.spec.take_over.is_some() {
        take_over::obstacle(node, label)
    } else {
        Some(format!("it carries the label {label}, which kata-operator did not set"))
    };
    why.map_or(Selected::Yes, |why| refused(Code::OtherInstaller, why))
}

/// Whether a node without a record has the runtime label without Kata, as an autoscaler makes nodes: by the labels of the
/// pool's template it knows that a node of it would take the pod that waits. Another installer sets the label before the
/// kubelet reports its handlers, and does not set the startup taint.
fn has_premature_runtime_label(node: &NodeFacts, is_handler: impl Fn(&str) -> bool) -> bool {
    let offers_kata = |reported: &BTreeSet<String>| {
        reported
            .iter()
            .any(|handler| is_handler(handler) || handler.starts_with(KATA_HANDLER_PREFIX))
    };
    node.has_runtime_label()
        && node.has_startup_taint()
        && !node.runtime_handlers.as_ref().is_some_and(offers_kata)
}

/// Whether a selector names roles, single nodes or labels of the admin, and not only well-known labels that
/// every node has (operating system, architecture, zone, machine type).
fn names_nodes(selector: &LabelSelector) -> bool {
    let labels = selector.match_labels.iter().flatten().map(|(key, _)| key.as_str());
    let expressions = selector
        .match_expressions
        .iter()
        .flatten()
        .filter(|requirement| matches!(requirement.operator.as_str(), "In" | "Exists"))
        .map(|requirement| requirement.key.as_str());
    labels.chain(expressions).any(|key| {
        key.starts_with(ROLE_PREFIX) || key == HOSTNAME_LABEL || !selector::describes_node(key)
    })
}
