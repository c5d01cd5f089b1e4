//! Carrying out deeds: what users, rivals and bad luck do to the simulated cluster.

use std::sync::Arc;

use kata_api::names;
use serde_json::{Value, json};
use simcluster::api::ApiError;
use simcluster::api::server::{DeleteOptions, Writer};
use simcluster::resource::{JOBS, KATACONFIGS, LEASES, NODES, PODS};
use simcluster::world::NodeFault;
use simcluster::{Cluster, Resource, Simulation, topology};
use tokio::time::Instant;

use crate::ledger::{Actor, Ledger};
use crate::plan::{Deed, Target};
use crate::workload::CLOUD_LABEL;
use crate::world::{CONFIG, word};
use crate::{plain, shape};

/// The image that [`Deed::OsImage`] brings.
pub const OS_IMAGE: &str = "registry.example.com/release/os@sha256:\
                            1111111111111111111111111111111111111111111111111111111111111111";

/// Does a deed. One that the API server refuses, such as a change of an object that is gone, is noted in
/// the trace and otherwise nothing.
pub fn perform(cluster: &Cluster, ledger: &Ledger, deed: &Deed) {
    // What is due now happens before, and in the cluster's own name.
    cluster.with(|_, _| ());
    let result = ledger.acting(Actor::Episode, || cluster.with(|sim, _| change(sim, deed)));
    let edited = match deed {
        Deed::Edit { object, .. } if object.plural == NODES.plural => Some(&object.name),
        Deed::Label { node, key, .. } if key == CLOUD_LABEL => Some(node),
        _ => None,
    };
    if let Some(node) = edited {
        ledger.open().edited.insert(node.clone(), Instant::now());
    }
    if let Deed::ForeignChange { node, .. }
    | Deed::ForeignRestart { node }
    | Deed::ForeignEnd { node } = deed
    {
        let starts =
            cluster.with(|sim, _| sim.world.hosts.get(node).map(|it| it.containerd.starts));
        let mut page = ledger.open();
        page.foreign.remove(node);
        if let (Deed::ForeignChange { .. }, Some(starts)) = (deed, starts) {
            page.foreign.insert(node.clone(), starts);
        }
    }
    let refusal = result.map_or_else(|error| format!(": {}", error.message), |()| String::new());
    let what = serde_json::to_string(deed).unwrap_or_default();
    ledger.open().note(&format!("deed {what}{refusal}"));
}

/// Changes the cluster.
///
/// # Errors
/// What the API server refuses.
pub fn change(sim: &mut Simulation, deed: &Deed) -> Result<(), ApiError> {
    let admin = Writer { manager: "kubectl", now: sim.now() };
    let rival = Writer { manager: "rival", now: sim.now() };
    let options = DeleteOptions::default();
    match deed {
        Deed::DeleteConfig => sim.api.delete(admin, &KATACONFIGS, "", CONFIG, &options).map(drop),
        Deed::EditConfig { patch } => {
            sim.api.merge(admin, &KATACONFIGS, "", CONFIG, patch).map(drop)
        }
        Deed::Label { node, key, value } => shape::label(sim, node, key, value.as_deref()),
        Deed::Edit { object, patch } => {
            let resource = resource(object);
            if patch.get("status").is_some() {
                sim.api.merge_status(rival, &resource, "", &object.name, patch).map(drop)
            } else {
                sim.api.merge(rival, &resource, "", &object.name, patch).map(drop)
            }
        }
        Deed::Remove { object } => {
            sim.api.delete(rival, &resource(object), "", &object.name, &options).map(drop)
        }
        Deed::Pod { name, class } => {
            sim.api.create(admin, &PODS, "default", pod(name, class)).map(drop)
        }
        Deed::EndPod { name } => sim.api.delete(admin, &PODS, "default", name, &options).map(drop),
        Deed::OsImage => simcluster::mco::set_os_image(sim, OS_IMAGE),
        Deed::StealLease => {
            let patch = json!({"spec": {"holderIdentity": "thief"}});
            let namespace = names::NAMESPACE;
            sim.api.merge(rival, &LEASES, namespace, "kata-operator", &patch).map(drop)
        }
        Deed::RemoveJobs { node } => {
            let jobs = sim.api.list(&JOBS);
            let of_node = |job: &&Arc<Value>| {
                plain::is_agents(job) && plain::annotation(job, names::node_job::NODE) == node
            };
            jobs.iter().filter(of_node).try_for_each(|job| {
                let name = word(job, "/metadata/name");
                let namespace = word(job, "/metadata/namespace");
                sim.api.delete(rival, &JOBS, namespace, name, &options).map(drop)
            })
        }
        Deed::KillAgent { node } => topology::set_fault(sim, node, NodeFault::AgentKilled),
        Deed::ForeignChange { node, breaks } => {
            let fault = if *breaks { NodeFault::ForeignBreak } else { NodeFault::ForeignChange };
            topology::set_fault(sim, node, fault)
        }
        Deed::ForeignRestart { node } => {
            let host = sim.world.hosts.get_mut(node);
            host.ok_or_else(|| ApiError::not_found(&NODES, node))?.restart_runtime();
            sim.world.touch(node);
            Ok(())
        }
        Deed::ForeignEnd { node } => {
            let faults = [NodeFault::ForeignBreak, NodeFault::ForeignChange];
            faults.iter().try_for_each(|fault| topology::clear_fault(sim, node, Some(fault)))
        }
        // Matters of the operators, not of the cluster.
        Deed::Kill { .. } | Deed::Second => Ok(()),
    }
}

/// Creates the KataConfig of the episodes.
///
/// # Errors
/// If the API server refuses it.
pub fn create_config(sim: &mut Simulation, spec: &Value) -> Result<(), ApiError> {
    let admin = Writer { manager: "kubectl", now: sim.now() };
    let config = json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": CONFIG}, "spec": spec,
    });
    sim.api.create(admin, &KATACONFIGS, "", config).map(drop)
}

fn resource(target: &Target) -> Resource {
    Resource::dynamic(target.group.clone(), target.plural.clone())
}

fn pod(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "runtimeClassName": class,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "registry.example/app:1"}],
        },
    })
}
