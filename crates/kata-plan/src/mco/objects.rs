//! Writes the objects of the Machine Config Operator: MachineConfig, pool and ContainerRuntimeConfig.

use std::collections::{BTreeMap, BTreeSet};

use kata_api::{Code, ContainerRuntimeConfig, MachineConfig, names};

use super::mode::Mode;
use super::pools::Pools;
use super::{bodies, installed};
use crate::assessment::{Assessment, NodeAssessment};
use crate::configs::config_ref;
use crate::draft::Draft;
use crate::log_level::{DEFAULT_LOG_LEVEL, LOG_LEVELS};
use crate::object::{Kind, ObjectRef};
use crate::observed::Observed;
use crate::plan::{Action, OnFailure};
use crate::report::Waiting;
use crate::snapshot::Snapshot;

/// The MachineConfig of a name, if it exists.
pub(super) fn machine_config<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a MachineConfig> {
    match snapshot.machine_configs.get(name) {
        Some(Observed::Known(Some(config))) => Some(config),
        _ => None,
    }
}

pub(super) fn container_runtime_config<'a>(
    pools: &Pools<'a>,
) -> Option<&'a ContainerRuntimeConfig> {
    pools
        .snapshot
        .container_runtime_configs
        .known()?
        .iter()
        .find(|config| config.metadata.name.as_deref() == Some(names::CONTAINER_RUNTIME_CONFIG))
}

/// Writes ContainerRuntimeConfig, MachineConfig and pool. Returns whether nodes may join and leave the pool.
pub(super) fn pool_objects(pools: &Pools<'_>, cluster: &Assessment, out: &mut Draft) -> bool {
    let config = &cluster.config;
    let level = config.spec.log_level.as_str();
    let existing = container_runtime_config(pools);
    let is_own = existing.is_none_or(bodies::is_our_container_runtime_config);
    let object =
        |uid| ObjectRef::new(Kind::ContainerRuntimeConfig, names::CONTAINER_RUNTIME_CONFIG, uid);
    let exists_with = |level: &str| {
        existing.is_some_and(|existing| {
            existing.spec.container_runtime_config.log_level.as_deref() == Some(level)
        })
    };
    if !is_own {
        if level != DEFAULT_LOG_LEVEL {
            report_foreign_object(out, object(None));
        }
    } else if level == DEFAULT_LOG_LEVEL && !cluster.deleting {
        // An existing one with the default level, which the OpenShift operator leaves behind, is harmless,
        // and its deletion would reboot the nodes.
        if let Some(existing) = existing
            && !exists_with(level)
            && existing.metadata.deletion_timestamp.is_none()
            && !held_back(pools, cluster, out, &object(None))
        {
            out.delete(
                object(existing.metadata.uid.as_deref()),
                OnFailure::Continue,
                "the log level is the default again",
            );
        }
    } else if LOG_LEVELS.contains(&level)
        && !cluster.deleting
        && existing.is_none_or(|existing| existing.metadata.deletion_timestamp.is_none())
        && let Some(body) = bodies::container_runtime_config(config, pools.mode, existing)
        && !held_back(pools, cluster, out, &object(None))
    {
        let object = object(None);
        // It must exist before the pool's first rendering, or the nodes would reboot twice.
        out.push(
            Action::Apply { object, body },
            OnFailure::Continue,
            reason_of_apply(existing.is_some()),
        );
    }
    machine_configs(pools, cluster, out)
        && (pools.mode == Mode::Compact || pool(pools, cluster, out))
}

/// Whether the operator skips a change of an object that would reboot the control plane, because the
/// rollout is paused: the operator does not pause the pool master. Also reports it.
fn held_back(pools: &Pools<'_>, cluster: &Assessment, out: &mut Draft, object: &ObjectRef) -> bool {
    let paused = cluster.config.spec.rollout.as_ref().is_some_and(|rollout| rollout.paused);
    if pools.mode == Mode::Pool || !paused || cluster.deleting {
        return false;
    }
    let message = format!("spec.rollout.paused is true, so {object} is not changed");
    out.add_finding(Code::PoolPaused, config_ref(&cluster.config), message);
    if let Some(finding) = out.findings.last_mut() {
        "Set spec.rollout.paused of the KataConfig to false.".clone_into(&mut finding.fix);
    }
    true
}

/// Writes the MachineConfig that installs Kata, and deletes the other one after a switch of the payload.
/// Returns whether the MachineConfig exists, or is written by this plan.
fn machine_configs(pools: &Pools<'_>, cluster: &Assessment, out: &mut Draft) -> bool {
    let Some(payload) = &pools.desired.payload else { return false };
    let name = payload.machine_config();
    let existing = machine_config(pools.snapshot, name);
    let object = ObjectRef::named(Kind::MachineConfig, name);
    if existing.is_some_and(|existing| !installed::is_our_machine_config(existing)) {
        report_foreign_object(out, object);
        return false;
    }
    if existing.is_some_and(|existing| existing.metadata.deletion_timestamp.is_some()) {
        out.wait_for(Waiting::Deletion, object, format!("the old MachineConfig {name} to be gone"));
        return false;
    }
    let images = installed::images_in_use(pools.snapshot, payload);
    let body = bodies::machine_config(&cluster.config, pools.mode, payload, &images, existing);
    if body.is_some() && held_back(pools, cluster, out, &object) {
        return false;
    }
    if let Some(body) = body {
        out.push(
            Action::Apply { object, body },
            OnFailure::Stop,
            reason_of_apply(existing.is_some()),
        );
    }
    // In the same pass, so that the pool is never rendered without a MachineConfig, and rarely with both.
    for (other, config) in installed::machine_configs(pools.snapshot) {
        if other != name && config.metadata.deletion_timestamp.is_none() {
            let uid = config.metadata.uid.as_deref();
            out.delete(
                ObjectRef::new(Kind::MachineConfig, other, uid),
                OnFailure::Continue,
                &format!("MachineConfig {name} replaces it"),
            );
        }
    }
    true
}

fn pool(pools: &Pools<'_>, cluster: &Assessment, out: &mut Draft) -> bool {
    let existing = pools.pools.get(names::POOL).copied();
    let object = ObjectRef::named(Kind::MachineConfigPool, names::POOL);
    if existing.is_some_and(|existing| !bodies::is_our_pool(existing)) {
        report_foreign_object(out, object);
        return false;
    }
    if existing.is_some_and(|existing| existing.metadata.deletion_timestamp.is_some()) {
        out.wait_for(Waiting::Deletion, object, "the old pool to be gone");
        return false;
    }
    if let Some(body) = bodies::pool(&cluster.config, existing) {
        out.push(
            Action::Apply { object, body },
            OnFailure::Stop,
            reason_of_apply(existing.is_some()),
        );
    }
    true
}

pub(super) fn reason_of_apply(exists: bool) -> &'static str {
    if exists { "it differs from its desired state" } else { "it does not exist" }
}

pub(super) fn report_foreign_object(out: &mut Draft, object: ObjectRef) {
    let message =
        format!("{object} exists, does not belong to kata-operator, and is left unchanged");
    out.add_finding(Code::ForeignObject, object, message);
}

/// Removes a node from the operator's pool.
pub(super) fn remove_role_label(node: &NodeAssessment) -> Action {
    Action::LabelNode {
        node: node.object(),
        seen: node.version(),
        set: BTreeMap::new(),
        remove: BTreeSet::from([names::KATA_ROLE_LABEL.to_owned()]),
        needs_fresh_classes: false,
    }
}
