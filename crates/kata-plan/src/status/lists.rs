//! The lists and counts of nodes in the status of a KataConfig. Every node is in exactly one list.

use kata_api::kata_config::{KataNodes, LIST_CAP, RuntimeStatus};
use kata_api::kata_node::{NodeStep, Phase};
use kata_api::{Code, names};

use crate::assessment::{Assessment, KataState, NodeAssessment};

/// How many nodes a message names.
pub(super) const NAMES: usize = 5;

/// Whether a node has Kata of any version. A node that is cordoned, down or being updated has it.
pub(super) fn has_kata(node: &NodeAssessment) -> bool {
    let awaits_handlers = matches!(node.step, Some(NodeStep::Verifying | NodeStep::Confirming))
        || node.finding.as_ref().is_some_and(|finding| finding.code == Code::HandlerMissing);
    let is_installed = match node.phase {
        Phase::Ready => true,
        Phase::NotReady | Phase::Updating => node.kata == KataState::Installed && !awaits_handlers,
        Phase::Unknown
        | Phase::Waiting
        | Phase::Installing
        | Phase::WaitingToRemove
        | Phase::Removing
        | Phase::Failed => false,
    };
    is_installed && node.has_runtime_label
}

/// Whether artifacts of Kata are on a node, or may be.
pub(super) fn may_have_kata(node: &NodeAssessment) -> bool {
    let has_artifacts = node.record.as_ref().is_some_and(|record| record.may_have_artifacts);
    has_artifacts || !matches!(node.kata, KataState::Absent | KataState::Installing)
}

pub(super) fn kata_nodes(cluster: &Assessment) -> KataNodes {
    let mut lists = KataNodes::default();
    for node in &cluster.nodes {
        let list = match (node.wanted, node.phase) {
            (true, _) if has_kata(node) && !node.is_being_updated => {
                lists.ready_node_count += 1;
                &mut lists.installed
            }
            (true, Phase::Failed) => &mut lists.failed_to_install,
            (true, Phase::Waiting | Phase::Unknown) => &mut lists.waiting_to_install,
            (true, _) if node.provided => &mut lists.waiting_to_install,
            (true, _) => &mut lists.installing,
            (false, Phase::Failed) => &mut lists.failed_to_uninstall,
            (false, Phase::Removing) => &mut lists.uninstalling,
            (false, _) => &mut lists.waiting_to_uninstall,
        };
        if list.len() < LIST_CAP {
            list.push(node.facts.name.clone());
        } else {
            lists.truncated = true;
        }
    }
    lists.node_count = i64::try_from(cluster.selected).unwrap_or(i64::MAX);
    lists
}

/// The runtimes of the KataConfig, with their nodes.
pub(super) fn runtimes(cluster: &Assessment) -> Vec<RuntimeStatus> {
    let count = |keep: &dyn Fn(&NodeAssessment) -> bool| {
        let count = cluster.nodes.iter().filter(|node| keep(node)).count();
        i64::try_from(count).unwrap_or(i64::MAX)
    };
    let runtimes = cluster.runtimes.iter().map(|runtime| {
        let name = &runtime.name;
        let label = names::class_label(name);
        RuntimeStatus {
            name: name.clone(),
            node_count: count(&|node| node.classes.contains(name)),
            ready_node_count: count(&|node| {
                node.classes.contains(name)
                    && node.phase == Phase::Ready
                    && node.has_runtime_label
                    && node.facts.labels.contains_key(&label)
            }),
        }
    });
    runtimes.collect()
}

/// The operator's RuntimeClasses that exist and are not being deleted.
pub(super) fn existing_classes(cluster: &Assessment) -> Vec<String> {
    let classes = cluster.our_classes().filter(|class| class.metadata.deletion_timestamp.is_none());
    classes.filter_map(|class| class.metadata.name.clone()).collect()
}

/// The runtimes with nodes whose RuntimeClass does not exist: neither one of the operator nor one that it accepts.
pub(super) fn runtimes_without_class(cluster: &Assessment) -> Vec<String> {
    let existing = existing_classes(cluster);
    cluster
        .runtimes_with_nodes()
        .filter(|runtime| !existing.contains(&runtime.name) && !cluster.accepts(runtime))
        .map(|runtime| runtime.name.clone())
        .collect()
}
