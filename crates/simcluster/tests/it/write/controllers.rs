//! Garbage collection, the end of namespaces, and the end of definitions.

use std::time::Duration;

use serde_json::{Value, json};
use simcluster::api::server::{DeleteOptions, Writer};
use simcluster::resource::{CONFIGMAPS, CRDS, NAMESPACES, SECRETS, SERVICEACCOUNTS};
use simcluster::{Resource, Simulation};

use super::{config_map, now};

fn cluster() -> Simulation {
    Simulation::new(now(), simcluster::controllers::all())
}

fn writer(sim: &Simulation) -> Writer<'static> {
    Writer { manager: "test", now: sim.now() }
}

fn create(sim: &mut Simulation, namespace: &str, body: Value) -> Value {
    let writer = writer(sim);
    (*sim.api.create(writer, &CONFIGMAPS, namespace, body).unwrap()).clone()
}

fn delete(sim: &mut Simulation, resource: &Resource, namespace: &str, name: &str, policy: &str) {
    let options =
        DeleteOptions { propagation: Some(policy.to_owned()), ..DeleteOptions::default() };
    let writer = writer(sim);
    sim.api.delete(writer, resource, namespace, name, &options).unwrap();
}

fn reference(owner: &Value, blocking: bool) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocking,
    })
}

fn owned(name: &str, owners: &[Value]) -> Value {
    let mut body = config_map(name);
    body["metadata"]["ownerReferences"] = json!(owners);
    body
}

fn names(sim: &Simulation) -> Vec<String> {
    sim.api
        .list(&CONFIGMAPS)
        .iter()
        .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

fn settle(sim: &mut Simulation) {
    sim.advance(Duration::from_secs(10));
}

#[test]
fn dependents_follow_their_owner_and_theirs_follow_them() {
    let mut sim = cluster();
    let owner = create(&mut sim, "default", config_map("a"));
    let child = create(&mut sim, "default", owned("b", &[reference(&owner, true)]));
    create(&mut sim, "default", owned("c", &[reference(&child, true)]));
    create(&mut sim, "default", config_map("z"));
    settle(&mut sim);
    assert_eq!(names(&sim), ["a", "b", "c", "z"]);
    delete(&mut sim, &CONFIGMAPS, "default", "a", "Background");
    assert_eq!(names(&sim), ["b", "c", "z"]);
    settle(&mut sim);
    assert_eq!(names(&sim), ["z"]);
}

#[test]
fn an_owner_that_never_was_counts_as_gone() {
    let mut sim = cluster();
    let mut never = reference(&config_map("never"), false);
    never["uid"] = json!("11111111-1111-4111-8111-111111111111");
    create(&mut sim, "default", owned("b", &[never.clone()]));
    // The same name with another uid is another object.
    create(&mut sim, "default", config_map("never"));
    // An owner in another namespace is nobody.
    let far = create(&mut sim, "kube-system", config_map("far"));
    create(&mut sim, "default", owned("d", &[reference(&far, false)]));
    // A kind that nobody knows proves nothing.
    let mut unknown = never;
    unknown["apiVersion"] = json!("example.com/v1");
    unknown["kind"] = json!("Thing");
    create(&mut sim, "default", owned("e", &[unknown]));
    settle(&mut sim);
    assert_eq!(names(&sim), ["e", "never", "far"]);
}

#[test]
fn an_object_lives_while_one_owner_does() {
    let mut sim = cluster();
    let one = create(&mut sim, "default", config_map("one"));
    let two = create(&mut sim, "default", config_map("two"));
    create(&mut sim, "default", owned("x", &[reference(&one, false), reference(&two, false)]));
    delete(&mut sim, &CONFIGMAPS, "default", "one", "Background");
    settle(&mut sim);
    let kept = sim.api.get(&CONFIGMAPS, "default", "x").unwrap();
    assert_eq!(kept["metadata"]["ownerReferences"], json!([reference(&two, false)]));
    delete(&mut sim, &CONFIGMAPS, "default", "two", "Background");
    settle(&mut sim);
    assert!(names(&sim).is_empty());
}

#[test]
fn a_foreground_deletion_waits_for_what_blocks_it() {
    let mut sim = cluster();
    let owner = create(&mut sim, "default", config_map("a"));
    let mut held = owned("b", &[reference(&owner, true)]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&mut sim, "default", held);
    create(&mut sim, "default", owned("c", &[reference(&owner, false)]));
    delete(&mut sim, &CONFIGMAPS, "default", "a", "Foreground");
    settle(&mut sim);
    assert_eq!(names(&sim), ["a", "b"], "the owner waits for the dependent that blocks");
    let patch = json!({"metadata": {"finalizers": null}});
    let writer = writer(&sim);
    sim.api.merge(writer, &CONFIGMAPS, "default", "b", &patch).unwrap();
    settle(&mut sim);
    assert!(names(&sim).is_empty());
}

#[test]
fn an_orphaning_deletion_sets_dependents_free() {
    let mut sim = cluster();
    let owner = create(&mut sim, "default", config_map("a"));
    create(&mut sim, "default", owned("b", &[reference(&owner, true)]));
    delete(&mut sim, &CONFIGMAPS, "default", "a", "Orphan");
    settle(&mut sim);
    assert_eq!(names(&sim), ["b"]);
    let free = sim.api.get(&CONFIGMAPS, "default", "b").unwrap();
    assert_eq!(free["metadata"]["ownerReferences"], Value::Null);
}

#[test]
fn a_namespace_ends_with_everything_in_it() {
    let mut sim = cluster();
    let writer = writer(&sim);
    sim.api.create(writer, &NAMESPACES, "", json!({"metadata": {"name": "x"}})).unwrap();
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    create(&mut sim, "x", held);
    sim.api.create(writer, &SECRETS, "x", json!({"metadata": {"name": "s"}})).unwrap();
    create(&mut sim, "default", config_map("elsewhere"));
    delete(&mut sim, &NAMESPACES, "", "x", "Background");
    settle(&mut sim);
    assert!(sim.api.list(&SECRETS).is_empty());
    let ending = sim.api.get(&NAMESPACES, "", "x").unwrap();
    assert_eq!(ending["status"]["phase"], "Terminating");
    assert_eq!(
        ending["status"]["conditions"][0]["message"],
        "Some resources are remaining: configmaps. has 1 resource instances"
    );
    assert_eq!(
        ending["status"]["conditions"][1]["message"],
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    );
    let patch = json!({"metadata": {"finalizers": null}});
    sim.api.merge(writer, &CONFIGMAPS, "x", "held", &patch).unwrap();
    settle(&mut sim);
    assert!(sim.api.get(&NAMESPACES, "", "x").is_none());
    assert_eq!(names(&sim), ["elsewhere"]);
}

#[test]
fn a_definition_ends_with_its_instances() {
    const WIDGETS: Resource = Resource::new("example.com", "widgets");
    let mut sim = cluster();
    super::definitions::define(&mut sim.api, "example.com", "Widget", "widgets");
    let writer = writer(&sim);
    let held = json!({"metadata": {"name": "h", "finalizers": ["example.com/hold"]}});
    sim.api.create(writer, &WIDGETS, "", held).unwrap();
    sim.api.create(writer, &WIDGETS, "", json!({"metadata": {"name": "w"}})).unwrap();
    delete(&mut sim, &CRDS, "", "widgets.example.com", "Background");
    settle(&mut sim);
    assert_eq!(sim.api.list(&WIDGETS).len(), 1, "the finalizer holds one instance");
    let crd = sim.api.get(&CRDS, "", "widgets.example.com").unwrap();
    let terminating = crd["status"]["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!(terminating["type"], "Terminating");
    assert!(sim.api.registry.get(&WIDGETS).is_some());
    let patch = json!({"metadata": {"finalizers": null}});
    sim.api.merge(writer, &WIDGETS, "", "h", &patch).unwrap();
    settle(&mut sim);
    assert!(sim.api.get(&CRDS, "", "widgets.example.com").is_none());
    assert!(sim.api.registry.get(&WIDGETS).is_none());
}

#[test]
fn every_namespace_has_a_default_service_account() {
    let mut sim = cluster();
    let writer = writer(&sim);
    sim.api.create(writer, &NAMESPACES, "", json!({"metadata": {"name": "x"}})).unwrap();
    settle(&mut sim);
    assert!(sim.api.get(&SERVICEACCOUNTS, "default", "default").is_some());
    assert!(sim.api.get(&SERVICEACCOUNTS, "x", "default").is_some());
    delete(&mut sim, &SERVICEACCOUNTS, "x", "default", "Background");
    settle(&mut sim);
    assert!(sim.api.get(&SERVICEACCOUNTS, "x", "default").is_some());
    delete(&mut sim, &NAMESPACES, "", "x", "Background");
    settle(&mut sim);
    assert!(sim.api.get(&NAMESPACES, "", "x").is_none());
}
