//! Deletes the Machine Config Operator's objects when the KataConfig is being deleted.
//!
//! It deletes nothing while a sandboxed pod runs, and the pool only once no node's configuration, current, desired or under way,
//! is one of the pool's.

use kata_api::names;

use super::mode::Mode;
use super::objects::{container_runtime_config, pool_objects, remove_role_label};
use super::pools::Pools;
use super::{bodies, installed, monitor, rendered};
use crate::assessment::Assessment;
use crate::draft::Draft;
use crate::object::{Kind, ObjectRef};
use crate::plan::OnFailure;
use crate::report::Waiting;

/// Removes the objects that can be removed now. Returns whether none of the back end's objects is left.
pub(super) fn remove(pools: &Pools<'_>, cluster: &Assessment, out: &mut Draft) -> bool {
    keep_pool(pools, cluster, out);
    let is_monitor_gone = cluster.pods_are_gone() && monitor::remove(pools, cluster, out);
    if !cluster.may_remove_from_nodes() {
        return false;
    }
    for node in cluster.nodes.iter().filter(|node| node.joined) {
        out.push(remove_role_label(node), OnFailure::Continue, "no sandboxed pod is left");
    }
    if pools.mode == Mode::Pool && !cluster.nodes.is_empty() {
        return false;
    }
    remove_objects(pools, cluster, out) && is_monitor_gone
}

/// Restores MachineConfig and pool if they were deleted while nodes are on a configuration of the pool:
/// these nodes could not leave that configuration otherwise.
fn keep_pool(pools: &Pools<'_>, cluster: &Assessment, out: &mut Draft) {
    let stranded = pools.mode == Mode::Pool
        && cluster.nodes.iter().any(|node| node.facts.refers_to_pool(names::POOL))
        && !pools.pools.contains_key(names::POOL);
    if stranded {
        pool_objects(pools, cluster, out);
    }
}

/// Deletes the Machine Config Operator's objects. Returns whether all of them are gone.
fn remove_objects(pools: &Pools<'_>, cluster: &Assessment, out: &mut Draft) -> bool {
    // A node that cannot be parsed may be on the pool's configuration.
    if !cluster.unreadable_nodes.is_empty() {
        return false;
    }
    let pool = pools.pools.get(names::POOL).filter(|pool| bodies::is_our_pool(pool));
    let counted =
        pool.and_then(|pool| pool.status.as_ref()).map_or(0, |status| status.machine_count);
    if let Some(pool) = pool.filter(|_| counted > 0) {
        // The Machine Config Operator has not observed yet that the nodes have left, and may still move one
        // of them to a configuration of the pool. That configuration is deleted together with the pool.
        let object =
            ObjectRef::new(Kind::MachineConfigPool, names::POOL, pool.metadata.uid.as_deref());
        let message =
            format!("the Machine Config Operator to count no node in the pool {}", names::POOL);
        out.wait_for(Waiting::Deletion, object, message);
        return false;
    }
    let mut gone = true;
    let mut remove = |out: &mut Draft, object: ObjectRef, deleting: bool, why: &str| {
        gone = false;
        if !deleting {
            out.delete(object.clone(), OnFailure::Stop, why);
        }
        let message = format!("{object} to be gone");
        out.wait_for(Waiting::Deletion, object, message);
    };
    let why = "no node is on a configuration with it";
    let log_level = container_runtime_config(pools)
        .filter(|config| bodies::is_our_container_runtime_config(config));
    if let Some(config) = log_level {
        remove(
            out,
            ObjectRef::new(
                Kind::ContainerRuntimeConfig,
                names::CONTAINER_RUNTIME_CONFIG,
                config.metadata.uid.as_deref(),
            ),
            config.metadata.deletion_timestamp.is_some(),
            why,
        );
    }
    for (name, config) in installed::machine_configs(pools.snapshot) {
        remove(
            out,
            ObjectRef::new(Kind::MachineConfig, name, config.metadata.uid.as_deref()),
            config.metadata.deletion_timestamp.is_some(),
            if pools.mode == Mode::Compact { "no sandboxed pod is left" } else { why },
        );
    }
    // The controller of the ContainerRuntimeConfig cleans up per pool, so the pool is deleted after it.
    if let Some(pool) = pool.filter(|_| log_level.is_none()) {
        remove(
            out,
            ObjectRef::new(Kind::MachineConfigPool, names::POOL, pool.metadata.uid.as_deref()),
            pool.metadata.deletion_timestamp.is_some(),
            "no node belongs to it or is on a configuration of it",
        );
    }
    if gone && is_master_targeted(pools) {
        let pool = ObjectRef::named(Kind::MachineConfigPool, names::MASTER_POOL);
        let message = format!(
            "the Machine Config Operator to render the pool {} without Kata",
            names::MASTER_POOL
        );
        out.wait_for(Waiting::Render, pool, message);
        return false;
    }
    gone
}

/// Whether the configuration of the control plane's pool may still contain Kata.
fn is_master_targeted(pools: &Pools<'_>) -> bool {
    pools.mode == Mode::Compact
        && pools.pools.get(names::MASTER_POOL).is_none_or(|pool| {
            rendered::merges_own_config(pool)
                || rendered::content(pools.snapshot, &pool.spec.configuration.name)
                    != rendered::Content::Lacks
        })
}
