//! Which nodes are selected, and which pool installs Kata on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kata_api::{Code, KataConfig, MachineConfigPool, names};

use super::mode::Mode;
use super::{installed, rendered};
use crate::eligibility;
use crate::object::{Kind, ObjectRef};
use crate::ownership::is_managed;
use crate::reading::FIX_FIELD;
use crate::report::Finding;
use crate::selection::{Selected, is_control_plane};
use crate::selector;
use crate::snapshot::{NodeFacts, Platform, Snapshot, UnreadableObject};

fn is_worker(node: &NodeFacts) -> bool {
    node.labels.contains_key(names::WORKER_ROLE_LABEL)
}

/// The mode of the cluster. A change that began in one mode is completed in it: a cluster that loses its
/// last worker for an hour must not reboot its control plane.
pub(crate) fn mode(
    snapshot: &Snapshot,
    nodes: &[&Arc<NodeFacts>],
    pools: &BTreeMap<&str, &MachineConfigPool>,
) -> Mode {
    for (_, config) in installed::machine_configs(snapshot) {
        let role = config
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(names::MACHINE_CONFIG_ROLE_LABEL));
        match role.map(String::as_str) {
            Some(names::MASTER_POOL) => return Mode::Compact,
            Some(names::POOL) => return Mode::Pool,
            _ => {}
        }
    }
    let begun_on_control_plane = snapshot.kata_nodes.known().is_some_and(|kata_nodes| {
        nodes.iter().any(|node| {
            is_control_plane(node)
                && kata_nodes.iter().any(|kata_node| kata_node.spec.node_name == node.name)
        })
    });
    if begun_on_control_plane && !pools.contains_key(names::POOL) {
        return Mode::Compact;
    }
    let counted = pools
        .get(names::WORKER_POOL)
        .and_then(|pool| pool.status.as_ref())
        .map_or(0, |status| status.machine_count);
    // A node that cannot be parsed may be a worker.
    let unknown = !snapshot.unreadable(Kind::Node).is_empty();
    let has_workers = nodes.iter().any(|node| is_worker(node) && !is_control_plane(node));
    let schedulable_masters = nodes.iter().any(|node| is_worker(node) && is_control_plane(node));
    // A pool that another operator created does not decide the mode.
    let begun_on_workers = pools.get(names::POOL).is_some_and(|pool| is_managed(&pool.metadata));
    if begun_on_workers || unknown || has_workers || counted > 0 || !schedulable_masters {
        Mode::Pool
    } else {
        Mode::Compact
    }
}

/// Whether a node is selected. If the selector cannot be evaluated, the pool's nodes stay selected.
/// Eligibility is checked only before a node joins: if Node Feature Discovery removes its label later, the
/// node stays. `keeps_unmatched`: whether a node keeps what no longer matches.
pub(crate) fn select(
    config: &KataConfig,
    mode: Mode,
    node: &NodeFacts,
    keeps_unmatched: bool,
    pools: &BTreeMap<&str, &MachineConfigPool>,
    unreadable_pools: &[&UnreadableObject],
) -> Selected {
    let labelled = node.labels.contains_key(names::KATA_ROLE_LABEL);
    let subject = || ObjectRef::new(Kind::Node, &node.name, Some(&node.uid));
    if mode == Mode::Compact {
        return match (is_control_plane(node), is_worker(node)) {
            (true, _) => Selected::Yes,
            (false, true) => Selected::Excluded(Finding::new(
                Code::WorkersNotCovered,
                subject(),
                format!(
                    "node {} joined after Kata was installed on the control plane, so it does not get Kata",
                    node.name
                ),
            )),
            (false, false) => Selected::No,
        };
    }
    let unsupported = |why: &str| {
        Selected::Excluded(Finding::new(
            Code::UnsupportedNode,
            subject(),
            format!("node {} is excluded: {why}", node.name),
        ))
    };
    if node.deleting {
        return Selected::No;
    }
    if !is_worker(node) {
        let selector = config.spec.kata_config_pool_selector.as_ref();
        let is_named = selector.is_some_and(|selector| {
            !selector::text(selector).is_empty()
                && selector::matches(selector, &node.labels).unwrap_or(false)
        });
        return if is_named && !is_control_plane(node) {
            unsupported("it has no role worker, and the pool kata-oc takes workers only")
        } else {
            Selected::No
        };
    }
    let matches = match &config.spec.kata_config_pool_selector {
        None => true,
        Some(selector) => selector::selects(selector, &node.labels, keeps_unmatched, || labelled),
    };
    let eligible = !config.spec.check_node_eligibility
        || labelled
        || node.labels.get(names::NFD_LABEL).is_some_and(|value| value == "true");
    if !matches || !eligible {
        return Selected::No;
    }
    if let Some(why) = eligibility::obstacle(node, Platform::OpenShift, labelled, false) {
        return unsupported(&why);
    }
    if is_control_plane(node) {
        return unsupported(
            "it belongs to the control plane, whose pool master is not changed while there are workers",
        );
    }
    if !node.is_managed() {
        return unsupported("the Machine Config Operator does not manage it (yet)");
    }
    if let Some(found) = unreadable_pools.first().filter(|_| !labelled) {
        let message = format!(
            "node {} is excluded meanwhile: {} may select it and cannot be read: {}",
            node.name, found.object, found.error
        );
        let mut finding = Finding::new(Code::ReadFailed, subject(), message);
        finding.fix = FIX_FIELD.to_owned();
        return Selected::Excluded(finding);
    }
    let others = other_pools(node, pools);
    match (others.is_empty(), labelled) {
        (true, _) => Selected::Yes,
        // The node is in both pools: removing its role label would uninstall Kata, so an admin has to decide.
        (false, true) => Selected::Yes,
        (false, false) => Selected::Excluded(Finding::new(
            Code::NodeInOtherPool,
            subject(),
            format!("node {} is excluded: it belongs to the pool {}", node.name, others.join(", ")),
        )),
    }
}

/// The custom pools that select a node, except the operator's.
pub(crate) fn other_pools<'a>(
    node: &NodeFacts,
    pools: &BTreeMap<&'a str, &MachineConfigPool>,
) -> Vec<&'a str> {
    pools
        .iter()
        .filter(|(name, pool)| {
            !matches!(**name, names::POOL | names::WORKER_POOL | names::MASTER_POOL)
                && rendered::selects(pool, node)
        })
        .map(|(name, _)| *name)
        .collect()
}
