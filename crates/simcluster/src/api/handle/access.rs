//! Whether a request may be answered: who sends it, and what RBAC says.
//!
//! Where RBAC is not enforced, service accounts and impersonated users are held against it all the same
//! when they ask for objects; everybody else is the administrator.

use http::HeaderMap;
use jiff::Timestamp;

use super::objects::Call;
use crate::Simulation;
use crate::api::authentication::{User, authenticate};
use crate::api::error::ApiError;
use crate::api::rbac::{self, Access};
use crate::api::request::{Query, Request, Target};
use crate::api::selector::FieldSelector;
use crate::api::server::{PatchType, creates_on_update};

/// Who sends a request, or is impersonated by who sends it.
///
/// # Errors
/// `401` for a token that is not valid, `403` for an impersonation that is not allowed.
pub(super) fn identify(
    sim: &mut Simulation,
    headers: &HeaderMap,
    now: Timestamp,
) -> Result<User, ApiError> {
    let signer = sim.frontend.signer.clone();
    let strangers = sim.frontend.strangers;
    let user = authenticate(&sim.api, signer.as_ref(), strangers, headers, now)?;
    let Some(other) = User::impersonated(headers)? else { return Ok(user) };
    if signer.is_none() {
        return Ok(other);
    }
    let ask = |group: &str, resource: &str, namespace: &str, name: &str| Access {
        verb: "impersonate".to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        path: String::new(),
    };
    let mut asked = vec![match other.service_account_name() {
        Some((namespace, name)) => ask("", "serviceaccounts", namespace, name),
        None => ask("", "users", "", &other.name),
    }];
    let text = |name: &str| -> Vec<String> {
        let values = headers.get_all(name).iter();
        values.filter_map(|value| value.to_str().ok().map(str::to_owned)).collect()
    };
    asked.extend(text("impersonate-group").iter().map(|name| ask("", "groups", "", name)));
    for (key, values) in &other.extra {
        let resource = format!("userextras/{key}");
        let values = values.iter();
        asked.extend(values.map(|value| ask("authentication.k8s.io", &resource, "", value)));
    }
    if !other.uid.is_empty() {
        asked.push(ask("authentication.k8s.io", "uids", "", &other.uid));
    }
    for access in &asked {
        demand(sim, &user, access)?;
    }
    Ok(other)
}

/// Refuses a request for a path that is not about objects.
///
/// # Errors
/// `401` and `403`.
pub(super) fn path(
    sim: &mut Simulation,
    request: &Request,
    now: Timestamp,
) -> Result<(), ApiError> {
    if sim.frontend.signer.is_none() {
        return Ok(());
    }
    let user = identify(sim, request.headers(), now)?;
    let access = Access::to_path(request.method().as_str(), request.uri().path());
    demand(sim, &user, &access)
}

/// Refuses a request about objects.
///
/// # Errors
/// `403`.
pub(super) fn target(
    sim: &mut Simulation,
    user: &User,
    target: &Target,
    verb: &str,
    query: &Query,
) -> Result<(), ApiError> {
    // Everybody may ask about themselves; where RBAC is enforced a default role says so.
    if sim.frontend.signer.is_none() && target.plural.starts_with("selfsubject") {
        return Ok(());
    }
    let mut access = wanted(target, verb);
    // One name can be chosen by a field selector, and rules with names hold for it.
    if access.name.is_empty()
        && matches!(verb, "list" | "watch")
        && let Some(name) = query.get("fieldSelector").and_then(FieldSelector::exact_name)
    {
        access.name = name;
    }
    demand(sim, user, &access)
}

/// Refuses an apply or an update that would create its object to who may not create it.
///
/// # Errors
/// `403`.
pub(super) fn creation(
    sim: &mut Simulation,
    user: &User,
    call: &Call<'_>,
    patch: Option<PatchType>,
) -> Result<(), ApiError> {
    let creates = match call.verb {
        "patch" => patch == Some(PatchType::Apply),
        "update" => creates_on_update(&call.def),
        _ => false,
    };
    let (target, resource) = (call.target, &call.resource);
    if !creates || sim.api.get(resource, &target.namespace, &target.name).is_some() {
        return Ok(());
    }
    demand(sim, user, &wanted(target, "create"))
}

/// Refuses to grant what the user does not have; `object` is what would be stored.
///
/// # Errors
/// `403`.
pub(super) fn escalation(
    sim: &mut Simulation,
    user: &User,
    call: &Call<'_>,
    object: &serde_json::Value,
) -> Result<(), ApiError> {
    let namespace = &call.target.namespace;
    let checked = rbac::escalation::check(&sim.api, user, &call.resource, namespace, object);
    checked.inspect_err(|error| sim.frontend.deny(&error.message))
}

fn wanted(target: &Target, verb: &str) -> Access {
    let mut resource = target.plural.clone();
    if !target.subresource.is_empty() {
        resource = format!("{resource}/{}", target.subresource);
    }
    // A Namespace is in itself, so that a role in it can be about it.
    let itself = target.group.is_empty() && target.plural == "namespaces";
    Access {
        verb: verb.to_owned(),
        group: target.group.clone(),
        resource,
        namespace: if itself { target.name.clone() } else { target.namespace.clone() },
        name: target.name.clone(),
        path: String::new(),
    }
}

fn demand(sim: &mut Simulation, user: &User, access: &Access) -> Result<(), ApiError> {
    let verdict = rbac::judge(&sim.api, user, access);
    if verdict.allowed {
        return Ok(());
    }
    let error = access.refusal(user, &verdict.reason);
    sim.frontend.deny(&error.message);
    Err(error)
}
