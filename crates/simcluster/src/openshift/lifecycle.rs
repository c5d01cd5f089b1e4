//! The Operator Lifecycle Manager, as far as a Subscription needs it: the InstallPlan, the ClusterServiceVersion with
//! its Deployment and roles, and the replacement of an older version by a newer one.
//!
//! No image is pulled: what a catalog has is asked of [`Catalog`]. There is no resolution of dependencies, no
//! `startingCSV`, and no Role of an OperatorGroup.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::server::DeleteOptions;
use crate::api::{ApiError, Event};
use crate::recorder::note;
use crate::resource::DEPLOYMENTS;
use crate::world::identity;
use crate::{Context, Controller, Resource};

const GROUP: &str = "operators.coreos.com";
const SUBSCRIPTIONS: Resource = Resource::new(GROUP, "subscriptions");
const CATALOG_SOURCES: Resource = Resource::new(GROUP, "catalogsources");
const INSTALL_PLANS: Resource = Resource::new(GROUP, "installplans");
const VERSIONS: Resource = Resource::new(GROUP, "clusterserviceversions");
const OPERATOR_GROUPS: Resource = Resource::new(GROUP, "operatorgroups");
const RBAC: &str = "rbac.authorization.k8s.io";

/// From a change to what follows from it.
const DELAY: Duration = Duration::from_secs(1);

/// The labels of what belongs to a version, with the version's name and namespace.
const OWNER: &str = "olm.owner";
const OWNER_NAMESPACE: &str = "olm.owner.namespace";

/// What the image of a CatalogSource offers.
pub type Catalog = fn(&str) -> Option<Bundle>;

/// The newest version of an operator in a channel.
#[derive(Debug, Clone)]
pub struct Bundle {
    /// The name of the operator's package.
    pub package: String,
    /// The channel.
    pub channel: String,
    /// What is in the bundle's folder `manifests`: one ClusterServiceVersion, and other objects.
    pub objects: Vec<Value>,
}

impl Bundle {
    fn version(&self) -> Option<&Value> {
        self.objects.iter().find(|object| object["kind"] == "ClusterServiceVersion")
    }
}

/// The Operator Lifecycle Manager.
#[derive(Debug)]
pub struct LifecycleManager;

impl Controller for LifecycleManager {
    fn name(&self) -> &'static str {
        "olm"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        let is_owned = || !event.current["metadata"]["labels"][OWNER].is_null();
        if event.resource.group == GROUP || (event.resource == DEPLOYMENTS && is_owned()) {
            cx.after("", DELAY);
        }
    }

    fn act(&mut self, _key: &str, cx: &mut Context<'_>) {
        for subscription in cx.api.list(&SUBSCRIPTIONS) {
            let resolved = offered(&subscription, cx)
                .and_then(|bundle| unowned(&subscription, &bundle, cx).map(|()| bundle));
            let status = match resolved {
                Ok(bundle) => subscribe(&subscription, &bundle, cx),
                Err(message) => {
                    let mut status = subscription["status"].clone();
                    status["conditions"] = json!([{
                        "type": "ResolutionFailed", "status": "True",
                        "reason": "ConstraintsNotSatisfiable", "message": message,
                    }]);
                    status
                }
            };
            write_status(&SUBSCRIPTIONS, &subscription, status, cx);
        }
        for version in cx.api.list(&VERSIONS) {
            let (phase, reason, message) = match replacement(&version, cx) {
                Some(other) if other["status"]["phase"] == "Succeeded" => {
                    delete(&VERSIONS, &version, cx);
                    continue;
                }
                Some(other) => {
                    let message = format!("being replaced by csv: {}", name(&other));
                    ("Replacing", "BeingReplaced", message)
                }
                None => operate(&version, cx),
            };
            let status = json!({"phase": phase, "reason": reason, "message": message});
            write_status(&VERSIONS, &version, status, cx);
        }
        // What is not in a namespace goes by its labels: a version, which is in one, cannot own it.
        for plural in ["clusterroles", "clusterrolebindings"] {
            let resource = Resource::new(RBAC, plural);
            for object in cx.api.list(&resource) {
                let labels = &object["metadata"]["labels"];
                let place = labels[OWNER_NAMESPACE].as_str().unwrap_or_default();
                let gone = |owner: &str| cx.api.get(&VERSIONS, place, owner).is_none();
                if labels[OWNER].as_str().is_some_and(gone) {
                    delete(&resource, &object, cx);
                }
            }
        }
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// A reference to an object, with which what it owns goes.
fn owner(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"],
        "name": object["metadata"]["name"], "uid": object["metadata"]["uid"],
        "controller": false, "blockOwnerDeletion": false,
    })
}

/// What the subscription's catalog has for it, or why it has nothing.
fn offered(subscription: &Value, cx: &Context<'_>) -> Result<Bundle, String> {
    let spec = |field: &str| text(subscription, &format!("/spec/{field}"));
    let (package, channel, own) = (spec("name"), spec("channel"), name(subscription));
    let (catalog, place) = (spec("source"), spec("sourceNamespace"));
    let because = |what: String| {
        format!(
            "constraints not satisfiable: {what} referenced by subscription {own}, subscription {own} exists"
        )
    };
    let source = cx.api.get(&CATALOG_SOURCES, place, catalog);
    let bundle = source.as_ref().and_then(|source| {
        let image = text(source, "/spec/image").to_owned();
        cx.world.catalog.and_then(|catalog| catalog(&image))
    });
    let bundle = bundle.ok_or_else(|| {
        let why = match source {
            Some(_) => " (simulated: its image is not known)",
            None => "",
        };
        because(format!("no operators found from catalog {catalog} in namespace {place}{why}"))
    })?;
    if bundle.package != package {
        return Err(because(format!("no operators found in package {package} in the catalog")));
    }
    if !channel.is_empty() && bundle.channel != channel {
        return Err(because(format!(
            "no operators found in channel {channel} of package {package} in the catalog"
        )));
    }
    Ok(bundle)
}

/// The number of a version, to compare it with others.
fn number(version: &Value) -> Vec<u64> {
    let parts = text(version, "/spec/version").split('.');
    parts.map(|part| part.parse().unwrap_or_default()).collect()
}

/// Whether the namespace has no version of the operator but the one that the subscription has installed.
fn unowned(subscription: &Value, bundle: &Bundle, cx: &Context<'_>) -> Result<(), String> {
    let installed = &subscription["status"]["installedCSV"];
    let offered = bundle.version().map(name).unwrap_or_default();
    let other = cx.api.list(&VERSIONS).into_iter().find(|version| {
        namespace(version) == namespace(subscription)
            && name(version).starts_with(&format!("{}.v", bundle.package))
            && name(version) != offered
            && installed.is_null()
    });
    other.map_or(Ok(()), |version| {
        let (own, version) = (name(subscription), name(&version));
        Err(format!(
            "constraints not satisfiable: clusterserviceversion {version} exists and is not referenced by a \
             subscription, subscription {own} exists"
        ))
    })
}

/// Takes one step towards the version of the bundle; returns the subscription's status.
fn subscribe(subscription: &Value, bundle: &Bundle, cx: &mut Context<'_>) -> Value {
    let place = namespace(subscription).to_owned();
    let offered = bundle.version().cloned().unwrap_or_default();
    let wanted = name(&offered).to_owned();
    let installed = subscription["status"]["installedCSV"].clone();
    let status = |installed: &Value, state: &str, plan: &str| {
        json!({
            "currentCSV": wanted, "installedCSV": installed, "state": state,
            "installPlanRef": {"kind": "InstallPlan", "name": plan, "namespace": place},
        })
    };
    let plan_name = format!("install-{}", &identity::hex_id(&format!("{place}/{wanted}"))[..5]);
    if cx.api.get(&VERSIONS, &place, &wanted).is_some() {
        return status(&json!(wanted), "AtLatestKnown", &plan_name);
    }
    let present = installed.as_str().and_then(|name| cx.api.get(&VERSIONS, &place, name));
    if present.is_some_and(|present| number(&present) > number(&offered)) {
        // A catalog that goes back takes nothing back.
        return subscription["status"].clone();
    }
    let Some(plan) = cx.api.get(&INSTALL_PLANS, &place, &plan_name) else {
        let approval = subscription["spec"]["installPlanApproval"].as_str().unwrap_or("Automatic");
        let plan = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "InstallPlan",
            "metadata": {
                "name": plan_name, "namespace": place,
                "ownerReferences": [owner(subscription)],
            },
            "spec": {
                "approval": approval, "approved": approval == "Automatic",
                "clusterServiceVersionNames": [wanted],
            },
        });
        note("install plan", cx.api.create(cx.writer(), &INSTALL_PLANS, &place, plan));
        return status(&installed, "UpgradePending", &plan_name);
    };
    // A version that was deleted stays deleted.
    if plan["status"]["phase"] != "Complete" {
        let status = carry_out(&plan, bundle, &installed, cx);
        write_status(&INSTALL_PLANS, &plan, status, cx);
    }
    status(&installed, "UpgradePending", &plan_name)
}

/// Installs what an InstallPlan is for, if it may; returns its status.
fn carry_out(plan: &Value, bundle: &Bundle, installed: &Value, cx: &mut Context<'_>) -> Value {
    let failed = |phase: &str, reason: &str, message: String| {
        json!({"phase": phase, "conditions": [{
            "type": "Installed", "status": "False", "reason": reason, "message": message,
        }]})
    };
    if plan["spec"]["approved"] != true {
        return json!({"phase": "RequiresApproval"});
    }
    let place = namespace(plan);
    let count = operator_groups(place, cx);
    if count != 1 {
        let message = match count {
            0 => "no operator group found that is managing this namespace".to_owned(),
            _ => {
                format!("more than one operator group(s) are managing this namespace count={count}")
            }
        };
        return failed("Installing", "InstallCheckFailed", message);
    }
    match install(bundle, installed, place, cx) {
        Ok(()) => json!({"phase": "Complete"}),
        Err(error) => failed("Failed", "InstallComponentFailed", error.message),
    }
}

fn operator_groups(place: &str, cx: &Context<'_>) -> usize {
    cx.api.list(&OPERATOR_GROUPS).iter().filter(|group| namespace(group) == place).count()
}

/// Creates what is in the bundle. What is in the namespace goes with the version; the rest stays, as with the real one.
fn install(
    bundle: &Bundle,
    installed: &Value,
    place: &str,
    cx: &mut Context<'_>,
) -> Result<(), ApiError> {
    let mut version = bundle.version().cloned().unwrap_or_default();
    if !installed.is_null() {
        version["spec"]["replaces"] = installed.clone();
    }
    let version = put(version, place, None, cx)?;
    for object in &bundle.objects {
        if object["kind"] != "ClusterServiceVersion" {
            put(object.clone(), place, Some(&version), cx)?;
        }
    }
    Ok(())
}

/// The version of the namespace that is to replace this one.
fn replacement(version: &Value, cx: &Context<'_>) -> Option<Arc<Value>> {
    cx.api.list(&VERSIONS).into_iter().find(|other| {
        namespace(other) == namespace(version)
            && other["spec"]["replaces"] == version["metadata"]["name"]
    })
}

/// Makes what the version's install strategy names; returns the version's phase, its reason and a message.
fn operate(version: &Value, cx: &mut Context<'_>) -> (&'static str, &'static str, String) {
    match operator_groups(namespace(version), cx) {
        0 => {
            let message = "csv in namespace with no operatorgroups".to_owned();
            return ("Failed", "NoOperatorGroup", message);
        }
        1 => {}
        _ => {
            let message = "csv created in namespace with multiple operatorgroups, can't pick one \
                           automatically";
            return ("Failed", "TooManyOperatorGroups", message.to_owned());
        }
    }
    match deploy(version, cx) {
        Err(error) => ("Failed", "InstallComponentFailed", error.message),
        Ok(Some(waits)) => {
            let message = format!("installing: waiting for deployment {waits} to become ready");
            ("Installing", "InstallWaiting", message)
        }
        Ok(None) => {
            let message = "install strategy completed with no errors".to_owned();
            ("Succeeded", "InstallSucceeded", message)
        }
    }
}

/// Makes accounts, roles and Deployments of a version; returns the Deployment that is not rolled out yet.
fn deploy(version: &Value, cx: &mut Context<'_>) -> Result<Option<String>, ApiError> {
    let place = namespace(version).to_owned();
    let install = &version["spec"]["install"]["spec"];
    for (field, kind) in [("clusterPermissions", "ClusterRole"), ("permissions", "Role")] {
        for permission in install[field].as_array().into_iter().flatten() {
            let account = permission["serviceAccountName"].as_str().unwrap_or_default();
            let object = json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account},
            });
            put(object, &place, Some(version), cx)?;
            let hash = identity::hex_id(&format!("{place}/{account}"));
            let role_name = format!("{}-{}", name(version), &hash[..5]);
            let labels = json!({OWNER: name(version), OWNER_NAMESPACE: place});
            let metadata = json!({"name": role_name, "labels": labels});
            let role = json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata,
                "rules": permission["rules"],
            });
            put(role, &place, Some(version), cx)?;
            let binding = json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": format!("{kind}Binding"),
                "metadata": metadata,
                "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role_name},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": place}],
            });
            put(binding, &place, Some(version), cx)?;
        }
    }
    let mut waits = None;
    for wanted in install["deployments"].as_array().into_iter().flatten() {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": wanted["name"], "labels": wanted["label"]},
            "spec": wanted["spec"],
        });
        let made = put(deployment, &place, Some(version), cx)?;
        if !is_rolled_out(&made) {
            waits = Some(text(wanted, "/name").to_owned());
        }
    }
    Ok(waits)
}

/// Whether all pods of a Deployment are those of its present template, and available.
fn is_rolled_out(deployment: &Value) -> bool {
    let (status, wanted) = (&deployment["status"], &deployment["spec"]["replicas"]);
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && ["replicas", "updatedReplicas", "availableReplicas"]
            .iter()
            .all(|it| status[*it] == *wanted)
}

/// Creates an object, or makes it as it should be; what is in a namespace is owned by the version.
fn put(
    mut object: Value,
    place: &str,
    version: Option<&Value>,
    cx: &mut Context<'_>,
) -> Result<Value, ApiError> {
    let kind = text(&object, "/kind").to_owned();
    let group = text(&object, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
    let def = cx.api.registry.by_kind(group, &kind).cloned();
    let def = def.ok_or_else(ApiError::unknown_resource)?;
    let place = if def.namespaced { place } else { "" };
    if def.namespaced {
        object["metadata"]["namespace"] = json!(place);
        if let Some(version) = version {
            object["metadata"]["labels"][OWNER] = version["metadata"]["name"].clone();
            object["metadata"]["ownerReferences"] = json!([owner(version)]);
        }
    }
    let writer = cx.writer();
    let Some(known) = cx.api.get(&def.resource, place, name(&object)) else {
        return cx.api.create(writer, &def.resource, place, object).map(|it| (*it).clone());
    };
    let mut new = (*known).clone();
    for (key, value) in object.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("metadata", Value::Object(metadata)) => {
                for (key, value) in metadata {
                    new["metadata"][key] = value.clone();
                }
            }
            // The API server has filled in addresses.
            ("spec", Value::Object(spec)) if kind == "Service" => {
                for (key, value) in spec {
                    new["spec"][key] = value.clone();
                }
            }
            _ => new[key] = value.clone(),
        }
    }
    cx.api.update(writer, &def.resource, place, new).map(|it| (*it).clone())
}

fn delete(resource: &Resource, object: &Value, cx: &mut Context<'_>) {
    let options = DeleteOptions::default();
    let deleted = cx.api.delete(cx.writer(), resource, namespace(object), name(object), &options);
    note("object of a version", deleted);
}

fn write_status(resource: &Resource, object: &Value, status: Value, cx: &mut Context<'_>) {
    if object["status"] == status {
        return;
    }
    let mut new = object.clone();
    new["status"] = status;
    note("status", cx.api.update_status(cx.writer(), resource, namespace(object), new));
}
