//! Commands that change the cluster: what an admin, a rival or bad luck does.

use serde_json::{Value, json};
use simcluster::Simulation;
use simcluster::api::ApiError;
use simcluster::api::server::{PatchType, WriteOptions, WriteRequest, WriteVerb, Writer};
use simcluster::topology;
use simcluster::workload::kata_deploy;

use crate::script::command::Verb;
use crate::script::resource::resource;
use crate::script::words::Target;

/// Why a command did nothing.
pub(super) enum Failed {
    /// The API server says no.
    Refused(String),
    /// The script is wrong.
    Mistake(String),
}

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        Self::Refused(error.message)
    }
}

/// Changes the cluster as a command says; returns what to show.
pub(super) fn change(sim: &mut Simulation, verb: Verb) -> Result<String, Failed> {
    match verb {
        Verb::Apply(objects) => {
            let mut lines = String::new();
            for object in objects {
                lines.push_str(&apply(sim, object)?);
                lines.push('\n');
            }
            return Ok(lines);
        }
        Verb::Delete(target) => {
            let (def, namespace) = find(sim, &target)?;
            let writer = Writer { manager: "kubectl", now: sim.now() };
            sim.api.delete(writer, &def, &namespace, &target.name, &Default::default())?;
        }
        Verb::Label { target, set } => {
            merge(sim, &target, "kubectl", &json!({"metadata": {"labels": set}}))?;
        }
        Verb::Merge { target, status: false, patch, manager } => {
            merge(sim, &target, manager, &patch)?;
        }
        Verb::Merge { target, status: true, patch, manager } => {
            let (resource, namespace) = find(sim, &target)?;
            let writer = Writer { manager, now: sim.now() };
            sim.api.merge_status(writer, &resource, &namespace, &target.name, &patch)?;
        }
        Verb::Fault { node, fault: Some(fault), .. } => topology::set_fault(sim, &node, fault)?,
        Verb::Fault { node, fault: None, .. } => topology::clear_fault(sim, &node, None)?,
        Verb::NodeAdd(name, options) => {
            topology::add_node(sim, &name, topology::Role::Worker, options)?;
        }
        Verb::GroupAdd(group) => topology::add_group(sim, group)?,
        Verb::NodeRemove(name) => topology::remove_node(sim, &name)?,
        Verb::NodeBoot { name, reinstall } => topology::boot_node(sim, &name, reinstall)?,
        Verb::KataDeploy(mode) => {
            let workers = kata_deploy::workers(sim);
            kata_deploy::install(sim, mode, &workers)?;
        }
        Verb::OsImage(image) => simcluster::mco::set_os_image(sim, &image)?,
        Verb::ApiFault(Some(rule)) => sim.frontend.faults.add(rule),
        Verb::ApiFault(None) => sim.frontend.faults.clear(),
        Verb::Comment
        | Verb::Cluster(_)
        | Verb::ApplyFile(_)
        | Verb::Show { .. }
        | Verb::Wait { .. }
        | Verb::Expect(_)
        | Verb::Advance(_)
        | Verb::EtcdBackup
        | Verb::EtcdRestore
        | Verb::Crash(_)
        | Verb::Restart { .. }
        | Verb::Invariants(_) => {}
    }
    Ok(String::new())
}

fn find(sim: &Simulation, target: &Target) -> Result<(simcluster::Resource, String), Failed> {
    let def = resource(sim, &target.kind).map_err(Failed::Mistake)?;
    Ok((def.resource.clone(), target.namespace(def.namespaced).to_owned()))
}

fn merge(
    sim: &mut Simulation,
    target: &Target,
    manager: &str,
    patch: &Value,
) -> Result<(), Failed> {
    let (resource, namespace) = find(sim, target)?;
    let writer = Writer { manager, now: sim.now() };
    sim.api.merge(writer, &resource, &namespace, &target.name, patch)?;
    Ok(())
}

/// Gives owner references without a uid that of the object which they name: no script can know it.
fn complete_owners(sim: &Simulation, object: &mut Value) -> Result<(), Failed> {
    for owner in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
        if owner.get("uid").is_some() {
            continue;
        }
        let word = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        let target = Target { kind: word("kind"), name: word("name"), namespace: None };
        let (resource, namespace) = find(sim, &target)?;
        let found = sim.api.get(&resource, &namespace, &target.name).ok_or_else(|| {
            Failed::Mistake(format!("the owner {} {} does not exist", target.kind, target.name))
        })?;
        owner["uid"] = found["metadata"]["uid"].clone();
    }
    Ok(())
}

/// Server-side apply, as kubectl does it.
fn apply(sim: &mut Simulation, mut object: Value) -> Result<String, Failed> {
    complete_owners(sim, &mut object)?;
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (word(&object["apiVersion"]), word(&object["kind"]));
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let def = sim.api.registry.by_kind(group, &kind).cloned().ok_or_else(|| {
        Failed::Mistake(format!("the cluster serves no kind {kind:?} of {api_version:?}"))
    })?;
    let name = word(&object["metadata"]["name"]);
    let namespace = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => namespace.to_owned(),
        None if def.namespaced => "default".to_owned(),
        None => String::new(),
    };
    let request = WriteRequest {
        user: None,
        verb: WriteVerb::Patch(PatchType::Apply),
        resource: def.resource.clone(),
        namespace,
        name: name.clone(),
        subresource: String::new(),
        body: object,
        options: WriteOptions {
            field_manager: "kubectl".to_owned(),
            field_validation: simcluster::api::server::FieldValidation::Strict,
            force: true,
            ..WriteOptions::default()
        },
    };
    let now = sim.now();
    let answer = sim.api.write(now, &request)?;
    let what = if answer.code == 201 { "created" } else { "configured" };
    let warnings: String =
        answer.warnings.iter().map(|warning| format!("\nWarning: {warning}")).collect();
    Ok(format!("{}/{name} {what}{warnings}", def.singular))
}
