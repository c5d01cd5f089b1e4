//! The steps of this back end: its objects, and the nodes that join the operator's pool or leave it.
//!
//! [`super::objects`] writes the objects, and [`super::removal`] deletes the pool and the last MachineConfig.

use std::collections::{BTreeMap, BTreeSet};

use kata_api::names;

use super::mode::Mode;
use super::objects::{machine_config, pool_objects, remove_role_label};
use super::pools::Pools;
use super::{monitor, node, removal, waiting};
use crate::assessment::Assessment;
use crate::draft::Draft;
use crate::plan::{Action, OnFailure};
use crate::snapshot::Need;

/// The steps of the back end, and whether none of its objects is left in the cluster.
pub(super) fn changes(pools: &Pools<'_>, cluster: &Assessment) -> (Draft, bool) {
    let mut out = Draft::default();
    let mut is_clean = false;
    if cluster.deleting {
        is_clean = removal::remove(pools, cluster, &mut out);
    } else {
        install(pools, cluster, &mut out);
    }
    for node in &cluster.nodes {
        if node::drain_is_long(cluster, node) {
            out.needs.insert(Need::DrainBlockers { node: node.facts.name.clone() });
        }
    }
    waiting::pool_findings(pools, cluster, &mut out);
    waiting::wait_for_nodes(pools, cluster, &mut out);
    (out, is_clean)
}

fn install(pools: &Pools<'_>, cluster: &Assessment, out: &mut Draft) {
    let has_begun = names::MACHINE_CONFIGS
        .into_iter()
        .any(|name| machine_config(pools.snapshot, name).is_some());
    let is_needed = has_begun || !cluster.nodes.is_empty();
    if is_needed && pool_objects(pools, cluster, out) {
        pool_labels(pools, cluster, out);
    }
    monitor::install(pools, cluster, out);
}

/// Adds nodes to the pool, and removes nodes from it.
fn pool_labels(pools: &Pools<'_>, cluster: &Assessment, out: &mut Draft) {
    let pool = pools.pools.get(names::POOL);
    // A node that joins before the pool's configuration contains the MachineConfig is changed twice. A pool
    // that has never been rendered will contain it, because the MachineConfig is created first.
    let is_rendered =
        pools.targeted || pool.is_none_or(|pool| pool.spec.configuration.name.is_empty());
    if pools.mode == Mode::Pool && is_rendered {
        for node in cluster.nodes.iter().filter(|node| node.wanted && !node.joined) {
            out.push(
                Action::LabelNode {
                    node: node.object(),
                    seen: node.version(),
                    set: BTreeMap::from([(names::KATA_ROLE_LABEL.to_owned(), String::new())]),
                    remove: BTreeSet::new(),
                    needs_fresh_classes: false,
                },
                OnFailure::Continue,
                "it is selected",
            );
        }
    }
    for node in cluster.nodes.iter().filter(|node| !node.wanted && node.joined) {
        let pods = cluster.pods.on_node(&node.facts.name);
        if !node.has_runtime_label && pods.is_ok_and(|pods| pods.is_empty()) {
            out.push(
                remove_role_label(node),
                OnFailure::Continue,
                "it is no longer selected, and no sandboxed pod runs on it",
            );
        }
    }
}
