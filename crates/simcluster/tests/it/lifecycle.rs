//! The Operator Lifecycle Manager: what becomes of a Subscription.

use std::time::Duration;

use serde_json::{Value, json};
use simcluster::api::server::{DeleteOptions, Writer};
use simcluster::openshift::lifecycle::Bundle;
use simcluster::resource::{DEPLOYMENTS, NAMESPACES, SERVICEACCOUNTS};
use simcluster::topology::{self, Layout};
use simcluster::{Resource, Simulation};

const GROUP: &str = "operators.coreos.com";
const SUBSCRIPTIONS: Resource = Resource::new(GROUP, "subscriptions");
const SOURCES: Resource = Resource::new(GROUP, "catalogsources");
const PLANS: Resource = Resource::new(GROUP, "installplans");
const VERSIONS: Resource = Resource::new(GROUP, "clusterserviceversions");
const GROUPS: Resource = Resource::new(GROUP, "operatorgroups");
const ROLES: Resource = Resource::new("rbac.authorization.k8s.io", "clusterroles");

/// A catalog whose image's tag is the version of its only operator.
fn catalog(image: &str) -> Option<Bundle> {
    let version = image.strip_prefix("x.example/catalog:")?;
    let template = json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "a", "image": format!("x.example/a:{version}")}]},
    });
    let spec = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template});
    let rules = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]);
    let object = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "ClusterServiceVersion",
        "metadata": {"name": format!("a.v{version}"), "namespace": "placeholder"},
        "spec": {"displayName": "A", "version": version, "install": {
            "strategy": "deployment",
            "spec": {
                "deployments": [{"name": "a", "spec": spec}],
                "clusterPermissions": [{"serviceAccountName": "a", "rules": rules}],
            },
        }},
    });
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let (package, channel) = ("a".to_owned(), "stable".to_owned());
    Some(Bundle { package, channel, objects: vec![object, settings] })
}

fn create(sim: &mut Simulation, resource: &Resource, place: &str, object: Value) {
    let writer = Writer { manager: "admin", now: sim.now() };
    sim.api.create(writer, resource, place, object).unwrap();
}

fn merge(sim: &mut Simulation, resource: &Resource, name: &str, patch: &Value) {
    let writer = Writer { manager: "admin", now: sim.now() };
    sim.api.merge(writer, resource, "ns", name, patch).unwrap();
}

/// A cluster with a catalog, and a Subscription to its operator.
fn subscribed(channel: &str, approval: &str) -> Simulation {
    let mut sim =
        topology::build(&Layout::default(), "2026-01-01T00:00:00Z".parse().unwrap()).unwrap();
    sim.world.catalog = Some(catalog);
    create(&mut sim, &NAMESPACES, "", json!({"metadata": {"name": "ns"}}));
    let source = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "CatalogSource", "metadata": {"name": "a"},
        "spec": {"sourceType": "grpc", "image": "x.example/catalog:1.0.0"},
    });
    create(&mut sim, &SOURCES, "ns", source);
    subscribe(&mut sim, channel, approval);
    sim
}

fn subscribe(sim: &mut Simulation, channel: &str, approval: &str) {
    let subscription = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "Subscription", "metadata": {"name": "a"},
        "spec": {"name": "a", "channel": channel, "source": "a", "sourceNamespace": "ns",
                 "installPlanApproval": approval},
    });
    create(sim, &SUBSCRIPTIONS, "ns", subscription);
}

fn group(sim: &mut Simulation, name: &str) {
    let group = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "OperatorGroup", "metadata": {"name": name},
        "spec": {},
    });
    create(sim, &GROUPS, "ns", group);
}

/// The versions to which ClusterRoles belong.
fn roles(sim: &Simulation) -> Vec<String> {
    let owner = |role: &Value| {
        let owner = role["metadata"]["labels"]["olm.owner"].as_str()?;
        assert!(role["metadata"]["name"].as_str()?.starts_with(&format!("{owner}-")));
        Some(owner.to_owned())
    };
    sim.api.list(&ROLES).iter().filter_map(|role| owner(role)).collect()
}

fn after(sim: &mut Simulation, resource: &Resource, name: &str) -> Value {
    sim.advance(Duration::from_secs(60));
    sim.api.get(resource, "ns", name).map(|object| (*object).clone()).unwrap_or_default()
}

#[test]
fn a_subscription_becomes_a_version_that_a_newer_one_replaces() {
    let mut sim = subscribed("stable", "Automatic");
    group(&mut sim, "one");
    let subscription = after(&mut sim, &SUBSCRIPTIONS, "a");
    assert_eq!(subscription["status"]["installedCSV"], "a.v1.0.0");
    assert_eq!(subscription["status"]["state"], "AtLatestKnown");
    let plan = subscription["status"]["installPlanRef"]["name"].as_str().unwrap().to_owned();
    assert_eq!(after(&mut sim, &PLANS, &plan)["status"]["phase"], "Complete");
    assert_eq!(after(&mut sim, &VERSIONS, "a.v1.0.0")["status"]["phase"], "Succeeded");
    let deployment = after(&mut sim, &DEPLOYMENTS, "a");
    assert_eq!(deployment["metadata"]["labels"]["olm.owner"], "a.v1.0.0");
    assert_eq!(roles(&sim), ["a.v1.0.0"]);
    let account = after(&mut sim, &SERVICEACCOUNTS, "a")["metadata"]["uid"].clone();
    // Nothing is written while nothing changes.
    let revision = sim.api.store.revision();
    sim.advance(Duration::from_secs(600));
    assert_eq!(sim.api.store.revision(), revision);

    merge(&mut sim, &SOURCES, "a", &json!({"spec": {"image": "x.example/catalog:1.1.0"}}));
    let version = after(&mut sim, &VERSIONS, "a.v1.1.0");
    assert_eq!(version["status"]["phase"], "Succeeded");
    assert_eq!(version["spec"]["replaces"], "a.v1.0.0");
    assert!(after(&mut sim, &VERSIONS, "a.v1.0.0").is_null());
    let newer = after(&mut sim, &DEPLOYMENTS, "a");
    assert_eq!(newer["metadata"]["uid"], deployment["metadata"]["uid"]);
    assert_eq!(newer["spec"]["template"]["spec"]["containers"][0]["image"], "x.example/a:1.1.0");
    assert_eq!(roles(&sim), ["a.v1.1.0"]);
    // The account stays, and with it the tokens that pods have.
    assert_eq!(after(&mut sim, &SERVICEACCOUNTS, "a")["metadata"]["uid"], account);

    // A catalog without the operator, and one that has gone back, change nothing.
    for image in ["x.example/none:1", "x.example/catalog:1.0.0"] {
        merge(&mut sim, &SOURCES, "a", &json!({"spec": {"image": image}}));
        let subscription = after(&mut sim, &SUBSCRIPTIONS, "a");
        assert_eq!(subscription["status"]["installedCSV"], "a.v1.1.0", "{image}");
        assert_eq!(after(&mut sim, &VERSIONS, "a.v1.1.0")["status"]["phase"], "Succeeded");
        let revision = sim.api.store.revision();
        sim.advance(Duration::from_secs(600));
        assert_eq!(sim.api.store.revision(), revision, "{image}");
    }

    // Without its Subscription a version that is deleted takes with it what it made.
    let writer = Writer { manager: "admin", now: sim.now() };
    for (resource, name) in [(&SUBSCRIPTIONS, "a"), (&VERSIONS, "a.v1.1.0")] {
        sim.api.delete(writer, resource, "ns", name, &DeleteOptions::default()).unwrap();
    }
    assert!(after(&mut sim, &DEPLOYMENTS, "a").is_null());
    assert!(roles(&sim).is_empty());
    assert!(after(&mut sim, &VERSIONS, "a.v1.1.0").is_null());
}

#[test]
fn what_is_missing_for_a_subscription_is_in_a_status() {
    let mut sim = subscribed("stable", "Manual");
    let subscription = after(&mut sim, &SUBSCRIPTIONS, "a");
    assert_eq!(subscription["status"]["state"], "UpgradePending");
    let plan = subscription["status"]["installPlanRef"]["name"].as_str().unwrap().to_owned();
    assert_eq!(after(&mut sim, &PLANS, &plan)["status"]["phase"], "RequiresApproval");
    merge(&mut sim, &PLANS, &plan, &json!({"spec": {"approved": true}}));
    // Without an OperatorGroup there is no version.
    let plan = after(&mut sim, &PLANS, &plan);
    assert_eq!(plan["status"]["phase"], "Installing");
    let message = &plan["status"]["conditions"][0]["message"];
    assert_eq!(message, "no operator group found that is managing this namespace");
    assert!(after(&mut sim, &VERSIONS, "a.v1.0.0").is_null());
    let reason = |sim: &mut Simulation| {
        after(sim, &VERSIONS, "a.v1.0.0")["status"]["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    group(&mut sim, "one");
    assert_eq!(reason(&mut sim), "InstallSucceeded");
    group(&mut sim, "two");
    assert_eq!(reason(&mut sim), "TooManyOperatorGroups");

    // A version without a Subscription is in the way of another one.
    let mut sim = subscribed("stable", "Automatic");
    group(&mut sim, "one");
    assert_eq!(reason(&mut sim), "InstallSucceeded");
    let writer = Writer { manager: "admin", now: sim.now() };
    sim.api.delete(writer, &SUBSCRIPTIONS, "ns", "a", &DeleteOptions::default()).unwrap();
    merge(&mut sim, &SOURCES, "a", &json!({"spec": {"image": "x.example/catalog:1.1.0"}}));
    subscribe(&mut sim, "stable", "Automatic");
    let condition = &after(&mut sim, &SUBSCRIPTIONS, "a")["status"]["conditions"][0];
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.contains("clusterserviceversion a.v1.0.0 exists and is not referenced"),
        "{message}"
    );

    let mut sim = subscribed("preview", "Automatic");
    let subscription = after(&mut sim, &SUBSCRIPTIONS, "a");
    let condition = &subscription["status"]["conditions"][0];
    assert_eq!(condition["type"], "ResolutionFailed");
    assert_eq!(
        condition["message"],
        "constraints not satisfiable: no operators found in channel preview of package a in the \
         catalog referenced by subscription a, subscription a exists"
    );
}
