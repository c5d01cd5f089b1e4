//! The Operator Lifecycle Manager, as far as a Subscription needs it: the InstallPlan, the ClusterServiceVersion with
//! its Deployment and roles, and the replacement of an older version by a newer one.
//!
//! No image is pulled: what a catalog has is asked of [`Catalog`]. There is no resolution of dependencies, no
//! `startingCSV`, and no Role of an OperatorGroup.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api::Event;
use crate::api::server::DeleteOptions;
use crate::recorder::{condition, note};
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

/// The label of what belongs to a version, with the version's name.
const OWNER: &str = "olm.owner";

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
            let status = match offered(&subscription, cx) {
                Ok(bundle) => subscribe(&subscription, &bundle, cx),
                Err(message) => json!({"conditions": [{
                    "type": "ResolutionFailed", "status": "True",
                    "reason": "ConstraintsNotSatisfiable", "message": message,
                }]}),
            };
            write_status(&SUBSCRIPTIONS, &subscription, status, cx);
        }
        for version in cx.api.list(&VERSIONS) {
            let replaced = replaced_by(&version, cx);
            if replaced {
                delete(&VERSIONS, &version, cx);
                continue;
            }
            let (phase, reason, message) = operate(&version, cx);
            let status = json!({"phase": phase, "reason": reason, "message": message});
            write_status(&VERSIONS, &version, status, cx);
        }
        // What is not in a namespace goes by its label: a version, which is in one, cannot own it.
        for plural in ["clusterroles", "clusterrolebindings"] {
            let resource = Resource::new(RBAC, plural);
            for object in cx.api.list(&resource) {
                let owner = &object["metadata"]["labels"][OWNER];
                let mut versions = cx.api.list(&VERSIONS).into_iter();
                if !owner.is_null() && !versions.any(|it| it["metadata"]["name"] == *owner) {
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
    let bundle = cx.api.get(&CATALOG_SOURCES, place, catalog).and_then(|source| {
        let image = text(&source, "/spec/image").to_owned();
        cx.world.catalog.and_then(|catalog| catalog(&image))
    });
    let bundle = bundle.ok_or_else(|| {
        because(format!("no operators found from catalog {catalog} in namespace {place}"))
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

/// Takes one step towards the version of the bundle; returns the subscription's status.
fn subscribe(subscription: &Value, bundle: &Bundle, cx: &mut Context<'_>) -> Value {
    let place = namespace(subscription).to_owned();
    let wanted = bundle.version().map(name).unwrap_or_default().to_owned();
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
    if plan["spec"]["approved"] != true {
        write_status(&INSTALL_PLANS, &plan, json!({"phase": "RequiresApproval"}), cx);
        return status(&installed, "UpgradePending", &plan_name);
    }
    // A version that was deleted stays deleted.
    if plan["status"]["phase"] != "Complete" {
        install(bundle, &installed, &place, cx);
        write_status(&INSTALL_PLANS, &plan, json!({"phase": "Complete"}), cx);
    }
    status(&installed, "UpgradePending", &plan_name)
}

/// Brings what is in the bundle. What is in the namespace goes with the version; the rest stays, as the real one leaves it.
fn install(bundle: &Bundle, installed: &Value, place: &str, cx: &mut Context<'_>) {
    let Some(version) = bundle.version() else { return };
    let mut version = version.clone();
    if !installed.is_null() {
        version["spec"]["replaces"] = installed.clone();
    }
    let Some(version) = put(version, place, None, cx) else { return };
    for object in &bundle.objects {
        if object["kind"] != "ClusterServiceVersion" {
            put(object.clone(), place, Some(&version), cx);
        }
    }
}

/// Whether another version of the namespace that works replaces this one.
fn replaced_by(version: &Value, cx: &Context<'_>) -> bool {
    cx.api.list(&VERSIONS).iter().any(|other| {
        namespace(other) == namespace(version)
            && other["spec"]["replaces"] == version["metadata"]["name"]
            && other["status"]["phase"] == "Succeeded"
    })
}

/// Makes what the version's install strategy names; returns the version's phase, its reason and a message.
fn operate(version: &Value, cx: &mut Context<'_>) -> (&'static str, &'static str, String) {
    let place = namespace(version).to_owned();
    let groups = cx.api.list(&OPERATOR_GROUPS);
    match groups.iter().filter(|group| namespace(group) == place).count() {
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
    let install = &version["spec"]["install"]["spec"];
    for (field, kind) in [("clusterPermissions", "ClusterRole"), ("permissions", "Role")] {
        for permission in install[field].as_array().into_iter().flatten() {
            let account = &permission["serviceAccountName"];
            let object = json!({
                "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account},
            });
            put(object, &place, Some(version), cx);
            let metadata = json!({"name": version["metadata"]["name"]});
            let role = json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata,
                "rules": permission["rules"],
            });
            put(role, &place, Some(version), cx);
            let binding = json!({
                "apiVersion": format!("{RBAC}/v1"), "kind": format!("{kind}Binding"),
                "metadata": metadata,
                "roleRef": {"apiGroup": RBAC, "kind": kind, "name": version["metadata"]["name"]},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": place}],
            });
            put(binding, &place, Some(version), cx);
        }
    }
    let mut waits = None;
    for wanted in install["deployments"].as_array().into_iter().flatten() {
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": wanted["name"], "labels": wanted["label"]},
            "spec": wanted["spec"],
        });
        let made = put(deployment, &place, Some(version), cx);
        if made.is_none_or(|made| condition(&made, "Available") != "True") {
            waits = Some(text(wanted, "/name").to_owned());
        }
    }
    match waits {
        None => {
            let message = "install strategy completed with no errors".to_owned();
            ("Succeeded", "InstallSucceeded", message)
        }
        Some(name) => {
            let message = format!("installing: waiting for deployment {name} to become ready");
            ("Installing", "InstallWaiting", message)
        }
    }
}

/// Creates an object, or makes it as it should be; what is in a namespace is owned by the version.
fn put(
    mut object: Value,
    place: &str,
    version: Option<&Value>,
    cx: &mut Context<'_>,
) -> Option<Value> {
    let kind = text(&object, "/kind").to_owned();
    let group = text(&object, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
    let Some(def) = cx.api.registry.by_kind(group, &kind).cloned() else {
        tracing::warn!(kind, "the simulated cluster does not serve a kind of the bundle");
        return None;
    };
    let place = if def.namespaced { place } else { "" };
    if def.namespaced {
        object["metadata"]["namespace"] = json!(place);
    }
    if let Some(version) = version {
        let is_of_strategy = kind.starts_with("ClusterRole") && name(&object) == name(version);
        if def.namespaced || is_of_strategy {
            object["metadata"]["labels"][OWNER] = version["metadata"]["name"].clone();
        }
        if def.namespaced {
            object["metadata"]["ownerReferences"] = json!([owner(version)]);
        }
    }
    let writer = cx.writer();
    let known = cx.api.get(&def.resource, place, name(&object));
    let written = match known {
        None => cx.api.create(writer, &def.resource, place, object),
        Some(_) => {
            let name = name(&object).to_owned();
            cx.api.merge(writer, &def.resource, place, &name, &object)
        }
    };
    match written {
        Ok(object) => Some((*object).clone()),
        Err(error) => {
            tracing::warn!(kind, %error, "an object of a bundle is refused");
            None
        }
    }
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
