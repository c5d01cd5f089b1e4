//! The runtimes of a KataConfig and the shims behind them on a node.

use kata_plan::Kind;
use serde_json::json;

use super::{finding, host, label, until};
use crate::journeys::{condition, is};
use crate::plain::Fate;
use crate::world::World;

/// The handlers of the last Job that changed a node, with their shims.
fn handlers_asked_for(world: &World, node: &str) -> serde_json::Value {
    let jobs = world.names(Kind::Job);
    let jobs = jobs.iter().map(|name| world.get(Kind::Job, name).unwrap());
    let number = |job: &serde_json::Value| {
        let annotations = &job["metadata"]["annotations"];
        annotations["kata-operator.dev/number"].as_str().unwrap().parse::<u32>().unwrap()
    };
    let last = jobs
        .filter(|job| job["metadata"]["annotations"]["kata-operator.dev/node"] == node)
        .max_by_key(|job| number(job))
        .unwrap();
    let command = &last["spec"]["template"]["spec"]["containers"][0]["command"];
    let words = command.as_array().unwrap();
    let at = words.iter().position(|word| word == "--task").unwrap();
    let task: serde_json::Value = serde_json::from_str(words[at + 1].as_str().unwrap()).unwrap();
    task["handlers"].clone()
}

#[test]
fn a_runtime_that_is_dropped_keeps_its_shim_while_pods_use_it_and_goes_with_them() {
    let mut world = World::plain(1, 2);
    let both = json!([{"name": "fast", "shim": "clh"}, {"name": "kata", "shim": "qemu"}]);
    let two = json!([{"name": "kata"}, {"name": "fast", "shim": "clh"}]);
    world.config(&json!({"runtimes": two}));
    world.settle();
    assert_eq!(handlers_asked_for(&world, "worker-0"), both);
    world.pod("guest", "fast", "worker-0");
    let installed = [host(&world, "worker-0"), host(&world, "worker-1")];
    let one = json!({"spec": {"runtimes": [{"name": "kata"}]}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &one);
    for _ in 0..60 {
        world.pass();
        assert_eq!(world.changing(), Vec::<String>::new());
        world.tick();
    }
    assert_eq!([host(&world, "worker-0"), host(&world, "worker-1")], installed);
    assert!(finding(&world, "KATA").contains("fast"));
    world.delete(Kind::Pod, "default/guest");
    world.settle();
    assert_eq!(world.names(Kind::RuntimeClass), ["kata"]);
    for node in ["worker-0", "worker-1"] {
        assert_eq!(handlers_asked_for(&world, node), json!([{"name": "kata", "shim": "qemu"}]));
        assert_eq!(label(&world, node).as_deref(), Some("true"));
        assert_eq!(host(&world, node)["restarts"], json!(2));
    }
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

/// The label of a class's nodes.
const FAST: &str = "kata.node-restriction.kubernetes.io/fast";

/// A class may come while a node cannot be changed.
#[test]
fn a_node_that_missed_a_runtime_serves_only_when_it_has_it() {
    let mut world = World::plain(1, 3);
    world.config(&json!({"rollout": {"maxUnavailable": 2}}));
    world.settle();
    let cordon = |world: &mut World, cordoned: bool| {
        world.edit(Kind::Node, "worker-2", &json!({"spec": {"unschedulable": cordoned}}));
    };
    cordon(&mut world, true);
    let two = json!([{"name": "kata"}, {"name": "fast", "shim": "clh"}]);
    world.edit(Kind::KataConfig, "cluster-kataconfig", &json!({"spec": {"runtimes": two}}));
    until(&mut world, |world| world.names(Kind::RuntimeClass) == ["fast", "kata"]);
    let paused = |world: &mut World, paused: bool| {
        let spec = json!({"spec": {"rollout": {"paused": paused}}});
        world.edit(Kind::KataConfig, "cluster-kataconfig", &spec);
    };
    paused(&mut world, true);
    cordon(&mut world, false);
    for _ in 0..40 {
        world.pass();
        world.tick();
        assert!(!world.node("worker-2").labels.contains_key(FAST));
        assert!(world.node("worker-0").labels.contains_key(FAST));
    }
    paused(&mut world, false);
    world.settle();
    assert!(world.node("worker-2").labels.contains_key(FAST));
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

/// What was installed has not worked before the kubelet offers it.
#[test]
fn a_runtime_that_a_kubelet_never_offers_goes_to_no_further_node() {
    let mut world = World::plain(1, 3);
    world.config(&json!({}));
    world.settle();
    for index in 0..3 {
        world.hosts.insert(format!("worker-{index}"), Fate::Unreported);
    }
    let two = json!([{"name": "kata"}, {"name": "fast", "shim": "clh"}]);
    world.edit(Kind::KataConfig, "cluster-kataconfig", &json!({"spec": {"runtimes": two}}));
    let names = ["worker-0", "worker-1", "worker-2"];
    let marked = |world: &World| {
        names.iter().filter(|name| label(world, name).as_deref() == Some("true")).count()
    };
    for _ in 0..400 {
        world.pass();
        world.tick();
        assert!(marked(&world) >= 2);
    }
    assert_eq!(world.names(Kind::RuntimeClass), ["kata"]);
    assert!(finding(&world, "KATA2108").contains("worker-0"));
    world.hosts.clear();
    let handlers = json!([{"name": ""}, {"name": "fast"}, {"name": "kata"}, {"name": "runc"}]);
    world.edit(Kind::Node, "worker-0", &json!({"status": {"runtimeHandlers": handlers}}));
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}
