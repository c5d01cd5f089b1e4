//! Random histories where Jobs change the nodes: no event on the way breaks a promise, and when the faults end, every
//! node has Kata, or all of it is removed.

use kata_api::names;
use kata_plan::Kind;
use proptest::prelude::*;
use serde_json::json;

use crate::journeys::{condition, is};
use crate::plain::Fate;
use crate::world::{KATA_CLASS, World};

#[derive(Clone, Debug)]
enum Deed {
    Passes(u8),
    Crash(u8),
    Minutes(u8),
    Fate(u8, usize),
    Sound(u8),
    Ready(u8, bool),
    Cordon(u8, bool),
    Select(u8, bool),
    Pod(u8),
    NoPods,
    Payload(u8),
    Settings(usize),
    Fast(u8, bool),
    Provided(u8, bool),
    Paused(bool),
    MaxUnavailable(u8),
    DeleteJobs,
    ForgetNode(u8),
    Unreadable(u8),
    NewNode(u8),
    Promised(u8),
    Flap(u8),
}

/// The label of the nodes of the class `fast`.
const FAST: &str = "kata.node-restriction.kubernetes.io/fast";
/// Settings of a runtime: none, valid ones, and some that are no TOML.
const SETTINGS: [Option<&str>; 4] = [
    None,
    Some("[hypervisor.qemu]\ndefault_memory = 4096\n"),
    Some("[runtime]\nenable_debug = true\n"),
    Some("[hypervisor.qemu"),
];

fn deed() -> impl Strategy<Value = Deed> {
    let node = 0_u8..4;
    prop_oneof![
        6 => (1_u8..12).prop_map(Deed::Passes),
        3 => (0_u8..6).prop_map(Deed::Crash),
        2 => (1_u8..90).prop_map(Deed::Minutes),
        3 => (node.clone(), 0_usize..Fate::ALL.len()).prop_map(|(node, fate)| Deed::Fate(node, fate)),
        1 => node.clone().prop_map(Deed::Sound),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, ready)| Deed::Ready(node, ready)),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, cordon)| Deed::Cordon(node, cordon)),
        2 => (node.clone(), any::<bool>()).prop_map(|(node, selected)| Deed::Select(node, selected)),
        1 => node.clone().prop_map(Deed::Pod),
        1 => Just(Deed::NoPods),
        1 => (1_u8..4).prop_map(Deed::Payload),
        1 => (0..SETTINGS.len()).prop_map(Deed::Settings),
        2 => (node.clone(), any::<bool>()).prop_map(|(node, fast)| Deed::Fast(node, fast)),
        2 => (node.clone(), any::<bool>()).prop_map(|(node, provided)| Deed::Provided(node, provided)),
        1 => any::<bool>().prop_map(Deed::Paused),
        1 => (1_u8..4).prop_map(Deed::MaxUnavailable),
        1 => Just(Deed::DeleteJobs),
        1 => node.clone().prop_map(Deed::ForgetNode),
        1 => (0_u8..4).prop_map(Deed::Unreadable),
        1 => node.clone().prop_map(Deed::NewNode),
        1 => node.clone().prop_map(Deed::Promised),
        2 => node.prop_map(Deed::Flap),
    ]
}

fn spec(world: &mut World, patch: &serde_json::Value) {
    if world.get(Kind::KataConfig, "cluster-kataconfig").is_some() {
        world.edit(Kind::KataConfig, "cluster-kataconfig", &json!({"spec": patch}));
    }
}

fn does(world: &mut World, deed: &Deed) {
    let name = |node: u8| format!("worker-{node}");
    let there = |world: &World, node: u8| world.get(Kind::Node, &name(node)).is_some();
    match deed {
        Deed::Passes(count) => {
            for _ in 0..*count {
                world.pass();
                world.tick();
            }
        }
        Deed::Crash(writes) => {
            world.crashing_pass(usize::from(*writes));
            world.tick();
        }
        Deed::Minutes(minutes) => {
            let span = jiff::SignedDuration::from_mins(i64::from(*minutes));
            world.now = world.now.checked_add(span).unwrap();
        }
        Deed::Fate(node, fate) => {
            world.hosts.insert(name(*node), Fate::ALL[*fate]);
        }
        Deed::Sound(node) => {
            world.hosts.remove(&name(*node));
        }
        Deed::Ready(node, ready) if there(world, *node) => world.set_ready(&name(*node), *ready),
        Deed::Cordon(node, cordon) if there(world, *node) => world.cordon(&name(*node), *cordon),
        Deed::Select(node, selected) if there(world, *node) => {
            world.label(&name(*node), "kata", Some(if *selected { "yes" } else { "no" }));
        }
        Deed::Pod(node) => {
            if there(world, *node) && world.node(&name(*node)).labels.contains_key(FAST) {
                world.pod(&format!("fast-{node}"), "fast", &name(*node));
            }
            // The scheduler puts no pod on a node that the RuntimeClass does not select.
            let open = there(world, *node)
                && world
                    .node(&name(*node))
                    .labels
                    .get("katacontainers.io/kata-runtime")
                    .map(String::as_str)
                    == Some("true")
                && world.get(Kind::RuntimeClass, "kata").is_some();
            if open {
                world.pod(&format!("web-{node}"), "kata", &name(*node));
            }
        }
        Deed::NoPods => {
            for pod in world.names(Kind::Pod).iter().filter(|pod| pod.starts_with("default/")) {
                world.delete(Kind::Pod, pod);
            }
        }
        Deed::Payload(version) => {
            spec(
                world,
                &json!({"payload": {"image": format!("registry.example/payload:{version}")}}),
            );
        }
        Deed::Settings(which) => {
            let kata = json!({"name": "kata", "config": SETTINGS[*which]});
            let fast = json!({"name": "fast", "shim": "clh", "installOn": {"matchLabels": {"fast": "yes"}}});
            spec(world, &json!({"runtimes": [kata, fast]}));
        }
        Deed::Fast(node, fast) if there(world, *node) => {
            world.label(&name(*node), "fast", Some(if *fast { "yes" } else { "no" }));
        }
        Deed::Provided(node, provided) if there(world, *node) => {
            world.label(&name(*node), "cloud", Some(if *provided { "yes" } else { "no" }));
        }
        Deed::Paused(paused) => spec(world, &json!({"rollout": {"paused": paused}})),
        Deed::MaxUnavailable(most) => spec(world, &json!({"rollout": {"maxUnavailable": most}})),
        Deed::DeleteJobs => {
            for job in world.names(Kind::Job) {
                world.delete(Kind::Job, &job);
            }
        }
        Deed::ForgetNode(node) => world.delete(Kind::KataNode, &name(*node)),
        Deed::Unreadable(which) => {
            let kind = ["jobs", "nodes", "katanodes", "runtimeclasses"][usize::from(*which)];
            world.unreadable.insert(kind.to_owned());
            world.pass();
            world.unreadable.clear();
        }
        Deed::NewNode(node) => {
            world.delete(Kind::Node, &name(*node));
            world.add_plain_node(&name(*node));
        }
        Deed::Promised(node) => {
            world.delete(Kind::Node, &name(*node));
            world.add_plain_node(&name(*node));
            let labels = json!({
                names::RUNTIME_LABEL: "true", names::CLAIM_LABEL: "true", KATA_CLASS: "true",
            });
            let taint = json!({"key": names::AUTOSCALER_STARTUP_TAINT, "effect": "NoSchedule"});
            let born = json!({"metadata": {"labels": labels}, "spec": {"taints": [taint]}});
            world.edit(Kind::Node, &name(*node), &born);
        }
        Deed::Flap(node) if there(world, *node) => {
            flap(world, &name(*node));
        }
        Deed::Ready(..)
        | Deed::Cordon(..)
        | Deed::Select(..)
        | Deed::Fast(..)
        | Deed::Provided(..)
        | Deed::Flap(..) => {}
    }
}

/// The label is away for half a minute: a node that serves, and of which nothing else changes, goes on serving. Whether it
/// is one.
fn flap(world: &mut World, node: &str) -> bool {
    // Until an edit of the selectors has been seen, it acts at once.
    world.pass();
    let status = world.get(Kind::KataNode, node).map(|kata_node| kata_node["status"].clone());
    let is_steady = status.is_some_and(|it| it["phase"] == "Ready" && it["leavesAt"].is_null())
        && world.node(node).labels.get("cloud").is_none_or(|value| value == "no")
        && world.get(Kind::KataConfig, "cluster-kataconfig").is_some()
        && !world.hosts.contains_key(node);
    let before = world.node(node).labels;
    let serves = is_steady
        && before.get("kata").is_none_or(|value| value == "yes")
        && before.contains_key(names::RUNTIME_LABEL);
    world.label(node, "kata", Some("no"));
    for _ in 0..6 {
        world.pass();
        assert!(!serves || world.node(node).labels.contains_key(names::RUNTIME_LABEL), "{node}");
        world.tick();
    }
    world.label(node, "kata", Some("yes"));
    serves
}

#[test]
fn a_node_that_serves_is_one_that_a_flap_may_not_change() {
    let mut world = World::plain(1, 1);
    world.config(&json!({"kataConfigPoolSelector": {"matchExpressions": [
        {"key": "kata", "operator": "NotIn", "values": ["no"]}]}}));
    world.settle();
    assert!(flap(&mut world, "worker-0"));
}

/// A history that was found: the removal from a node that is provided now had ended, and a pass that read this put the
/// node into no list. [`World::pass`] checks the lists.
#[test]
fn a_node_that_is_provided_now_is_listed_when_its_removal_has_ended() {
    let mut world = world();
    for deed in [
        Deed::Select(0, false),
        Deed::Fate(1, 3),
        Deed::Minutes(59),
        Deed::Flap(2),
        Deed::Promised(3),
        Deed::Passes(6),
        Deed::Provided(1, true),
        Deed::Flap(0),
        Deed::Crash(1),
        Deed::Passes(1),
    ] {
        does(&mut world, &deed);
    }
}

/// Nodes that labels select, or mark as provided.
fn world() -> World {
    let mut world = World::plain(1, 3);
    world.config(&json!({
        "kataConfigPoolSelector": {"matchExpressions": [
            {"key": "kata", "operator": "NotIn", "values": ["no"]}]},
        "providedNodes": {"matchLabels": {"cloud": "yes"}},
    }));
    world
}

/// Nothing goes wrong any more.
fn heal(world: &mut World) {
    world.hosts.clear();
    // So that a forgotten KataNode is there again: its retry is asked for below.
    world.pass();
    for node in world.names(Kind::Node) {
        world.set_ready(&node, true);
        world.cordon(&node, false);
        world.label(&node, "cloud", None);
        if let Some(kata_node) = world.get(Kind::KataNode, &node) {
            // The kubelet reports at last what the container runtime offers, which it may not have done before.
            let reported = kata_node["status"]["host"]["handlers"].as_array().cloned();
            let reported = reported.into_iter().flatten().map(|name| json!({"name": name}));
            let status = &world.get(Kind::Node, &node).unwrap()["status"];
            let mut handlers = status["runtimeHandlers"].as_array().cloned().unwrap_or_default();
            let new: Vec<_> = reported.filter(|handler| !handlers.contains(handler)).collect();
            handlers.extend(new);
            world.edit(Kind::Node, &node, &json!({"status": {"runtimeHandlers": handlers}}));
            let retry = json!({"metadata": {"annotations": {"kata-operator.dev/retry": "healed"}}});
            world.edit(Kind::KataNode, &node, &retry);
        }
    }
    for pod in world.names(Kind::Pod).iter().filter(|pod| pod.starts_with("default/")) {
        world.delete(Kind::Pod, pod);
    }
    spec(world, &json!({"rollout": {"paused": false}}));
    let settings = world.get(Kind::KataConfig, "cluster-kataconfig");
    let settings = settings.map(|config| config["spec"]["runtimes"][0]["config"].clone());
    if settings == Some(json!(SETTINGS[3])) {
        spec(world, &json!({"runtimes": null}));
    }
}

fn passes(world: &mut World) {
    for _ in 0..24 {
        world.pass();
        world.tick();
    }
    // Past every pause.
    for _ in 0..8 {
        let hour = jiff::SignedDuration::from_mins(61);
        world.now = world.now.checked_add(hour).unwrap();
        for _ in 0..24 {
            world.pass();
            world.tick();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_it_ends_well(deeds in prop::collection::vec(deed(), 1..30), deleted in any::<bool>()) {
        let mut world = world();
        for deed in &deeds {
            does(&mut world, deed);
        }
        heal(&mut world);
        if deleted {
            world.delete(Kind::KataConfig, "cluster-kataconfig");
        } else {
            for node in world.names(Kind::Node) {
                world.label(&node, "kata", Some("yes"));
            }
        }
        passes(&mut world);
        world.settle();
        if deleted {
            for kind in [Kind::KataConfig, Kind::KataNode, Kind::Job, Kind::RuntimeClass] {
                prop_assert_eq!(world.names(kind), Vec::<String>::new());
            }
            for name in world.names(Kind::Node) {
                let labels = world.node(&name).labels;
                prop_assert!(!labels.contains_key("kata-operator.dev/claimed"), "{}: {:?}", name, labels);
            }
        } else {
            prop_assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
            let runtimes = &world.get(Kind::KataConfig, "cluster-kataconfig").unwrap()["spec"]["runtimes"];
            let has_fast = runtimes.as_array().is_some_and(|list| list.len() > 1);
            for name in world.names(Kind::Node).iter().filter(|name| name.starts_with("worker")) {
                let taints = world.node(name).taints;
                prop_assert!(taints.is_empty(), "{}: {:?}", name, taints);
                let labels = world.node(name).labels;
                let should = has_fast && labels.get("fast").is_some_and(|value| value == "yes");
                prop_assert_eq!(labels.contains_key(FAST), should, "{}: {:?}", name, labels);
                prop_assert_eq!(world.node(name).runtime_handlers.unwrap().contains("fast"), should);
            }
        }
    }
}
