//! Admission: what the API server's plugins add to or refuse about an object.
//!
//! Plugins run in the order of the real server. They may read other objects, never write them.

mod node_restriction;
mod pod;
mod policy;
mod pool_policy;
mod quota;
mod runtime_class;

use serde_json::{Value, json};

use super::error::ApiError;
use super::server::{ApiServer, Call};
use crate::resource::{CRDS, MACHINECONFIGPOOLS, NAMESPACES, NODES, PODS};
pub(crate) use policy::{Deed, errors as policy_errors};

/// Admits a new object, and completes it.
///
/// # Errors
/// The first plugin's refusal.
pub(crate) fn admit_create(
    api: &ApiServer,
    call: &Call<'_>,
    name: &str,
    object: &mut Value,
) -> Result<(), ApiError> {
    namespace_lifecycle(api, call, name)?;
    definition_lifecycle(api, call)?;
    if *call.resource() == NODES {
        taint_not_ready(object);
    }
    if *call.resource() == PODS {
        pod::account(object);
        pod::priority(api, name, object)?;
        pod::default_tolerations(object);
        runtime_class::admit(api, name, object)?;
        quota::admit(api, call.namespace, name)?;
    }
    Ok(())
}

/// Checks what is about to be stored or removed.
///
/// # Errors
/// The first plugin's refusal.
pub(crate) fn validate(api: &ApiServer, call: &Call<'_>, deed: Deed<'_>) -> Result<(), ApiError> {
    let written = deed.operation != "DELETE" && call.subresource.is_empty();
    if *call.resource() == MACHINECONFIGPOOLS && written {
        pool_policy::validate(deed.name, deed.object)?;
    }
    if *call.resource() == NODES {
        node_restriction::validate(call, &deed)?;
    }
    policy::admit(api, call, deed)
}

/// Nothing is created in a namespace that does not exist or is being deleted.
fn namespace_lifecycle(api: &ApiServer, call: &Call<'_>, name: &str) -> Result<(), ApiError> {
    if call.namespace.is_empty() {
        return Ok(());
    }
    let Some(namespace) = api.store.get(&NAMESPACES, "", call.namespace) else {
        return Err(ApiError::not_found(&NAMESPACES, call.namespace));
    };
    if namespace["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    let mut error = ApiError::forbidden(
        call.resource(),
        name,
        &format!(
            "unable to create new content in namespace {} because it is being terminated",
            call.namespace
        ),
    );
    if let Some(details) = &mut error.details {
        details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {} is being terminated", call.namespace),
            "field": "metadata.namespace",
        }]);
    }
    Err(error)
}

/// Nothing is created of a kind that is being deleted.
fn definition_lifecycle(api: &ApiServer, call: &Call<'_>) -> Result<(), ApiError> {
    if call.def.custom.is_none() {
        return Ok(());
    }
    let definition = api.store.get(&CRDS, "", &call.resource().to_string());
    match definition {
        Some(crd) if !crd["metadata"]["deletionTimestamp"].is_null() => {
            Err(ApiError::method_not_allowed(
                "create not allowed while custom resource definition is terminating",
            ))
        }
        _ => Ok(()),
    }
}

/// A new node takes no pods before it says that it is ready.
fn taint_not_ready(node: &mut Value) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    if !node["spec"].is_object() {
        node["spec"] = json!({});
    }
    let taints = &mut node["spec"]["taints"];
    let taint = json!({"key": KEY, "effect": "NoSchedule"});
    match taints.as_array_mut() {
        Some(list) => {
            if !list.iter().any(|taint| taint["key"] == KEY && taint["effect"] == "NoSchedule") {
                list.push(taint);
            }
        }
        None => *taints = json!([taint]),
    }
}
