//! Random histories: no event on the way breaks a promise, and when the faults end, the cluster reaches the desired
//! state and stays there.

use kata_plan::Kind;
use proptest::prelude::*;
use proptest::test_runner::Config;
use serde_json::json;

use crate::journeys::assert_nothing_left;
use crate::world::{KATA, MC, PREFIX, VERIFIED, World};

#[derive(Clone, Debug)]
enum Act {
    Pass,
    Crash(usize),
    Tick,
    Daemon(usize),
    Select(usize, bool),
    Cordon(usize, bool),
    Ready(usize, bool),
    Pod(usize),
    NoPod(usize),
    AddNode,
    RemoveNode(usize),
    OtherPool(usize, bool),
    Pause(bool, bool),
    Unreadable(usize),
    Readable,
    Fail(usize),
    Stick(usize),
    Config,
    NoConfig,
    LogLevel(bool),
    DropClass,
    DropLabel(usize),
    DropPool,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => Just(Act::Pass),
        3 => (0..6_usize).prop_map(Act::Crash),
        8 => Just(Act::Tick),
        4 => (0..4_usize).prop_map(Act::Daemon),
        4 => (0..4_usize, any::<bool>()).prop_map(|(node, on)| Act::Select(node, on)),
        1 => (0..4_usize, any::<bool>()).prop_map(|(node, on)| Act::Cordon(node, on)),
        1 => (0..4_usize, any::<bool>()).prop_map(|(node, on)| Act::Ready(node, on)),
        3 => (0..4_usize).prop_map(Act::Pod),
        2 => (0..4_usize).prop_map(Act::NoPod),
        1 => Just(Act::AddNode),
        1 => (0..4_usize).prop_map(Act::RemoveNode),
        1 => (0..4_usize, any::<bool>()).prop_map(|(node, on)| Act::OtherPool(node, on)),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(ours, on)| Act::Pause(ours, on)),
        1 => (0..6_usize).prop_map(Act::Unreadable),
        2 => Just(Act::Readable),
        1 => (0..4_usize).prop_map(Act::Fail),
        1 => (0..4_usize).prop_map(Act::Stick),
        3 => Just(Act::Config),
        2 => Just(Act::NoConfig),
        1 => any::<bool>().prop_map(Act::LogLevel),
        1 => Just(Act::DropClass),
        1 => (0..4_usize).prop_map(Act::DropLabel),
        1 => Just(Act::DropPool),
    ]
}

const UNREADABLE: &[&str] = &[
    "nodes",
    "machineconfigpools",
    "runtimeclasses",
    "katanodes",
    "pods",
    "containerruntimeconfigs",
];
const CONFIG: &str = "cluster-kataconfig";

fn node(world: &World, index: usize) -> Option<String> {
    let nodes = world.names(Kind::Node);
    let workers: Vec<&String> = nodes.iter().filter(|name| name.starts_with("worker")).collect();
    (!workers.is_empty()).then(|| workers[index % workers.len()].clone())
}

fn perform(world: &mut World, act: &Act, selective: bool) {
    let exists = world.get(Kind::KataConfig, CONFIG).is_some();
    let on = |world: &World, index: &usize| node(world, *index);
    match act {
        Act::Pass => {
            world.pass();
        }
        Act::Crash(writes) => world.crashing_pass(*writes),
        Act::Tick => world.tick(),
        Act::Daemon(index) => {
            if let Some(name) = on(world, index) {
                world.daemon(&name);
            }
        }
        Act::Select(index, value) => {
            if let Some(name) = on(world, index) {
                world.label(&name, "kata", value.then_some("true"));
            }
        }
        Act::Cordon(index, value) => {
            if let Some(name) = on(world, index) {
                world.cordon(&name, *value);
            }
        }
        Act::Ready(index, value) => {
            if let Some(name) = on(world, index) {
                world.set_ready(&name, *value);
            }
        }
        Act::Pod(index) => {
            // As the scheduler does it: only while there is a class, and only where its labels are.
            if let Some(name) = on(world, index)
                && world.get(Kind::RuntimeClass, "kata").is_some()
                && world.node(&name).labels.contains_key(VERIFIED)
            {
                world.pod(&format!("pod-{name}"), "kata", &name);
            }
        }
        Act::NoPod(index) => {
            if let Some(name) = on(world, index) {
                world.delete(Kind::Pod, &format!("default/pod-{name}"));
            }
        }
        Act::AddNode => {
            if world.get(Kind::Node, "worker-9").is_none() {
                world.add_node("worker-9", "worker");
            }
        }
        Act::RemoveNode(index) => {
            if let Some(name) = on(world, index) {
                world.delete(Kind::Node, &name);
                world.delete(Kind::Pod, &format!("default/pod-{name}"));
            }
        }
        Act::OtherPool(index, value) => {
            if let Some(name) = on(world, index) {
                world.label(&name, "infra", value.then_some(""));
            }
        }
        Act::Pause(ours, value) => {
            let pool = if *ours { "kata-oc" } else { "worker" };
            if world.get(Kind::MachineConfigPool, pool).is_some() {
                world.edit(Kind::MachineConfigPool, pool, &json!({"spec": {"paused": value}}));
            }
        }
        Act::Unreadable(index) => {
            world.unreadable.insert(UNREADABLE[index % UNREADABLE.len()].to_owned());
        }
        Act::Readable => world.unreadable.clear(),
        Act::Fail(index) => world.failing.extend(on(world, index)),
        Act::Stick(index) => world.undrainable.extend(on(world, index)),
        Act::Config if !exists => world.config(&if selective {
            json!({"kataConfigPoolSelector": {"matchLabels": {"kata": "true"}}})
        } else {
            json!({})
        }),
        Act::NoConfig => world.delete(Kind::KataConfig, CONFIG),
        Act::LogLevel(debug) if exists => {
            let level = if *debug { "debug" } else { "info" };
            world.edit(Kind::KataConfig, CONFIG, &json!({"spec": {"logLevel": level}}));
        }
        Act::Config | Act::LogLevel(_) => {}
        Act::DropClass => world.delete(Kind::RuntimeClass, "kata"),
        Act::DropLabel(index) => {
            if let Some(name) = on(world, index) {
                world.label(&name, VERIFIED, None);
            }
        }
        Act::DropPool => world.delete(Kind::MachineConfigPool, "kata-oc"),
    }
}

/// Undoes all changes to the cluster but those of the KataConfig.
fn heal(world: &mut World) {
    world.unreadable.clear();
    world.failing.clear();
    world.undrainable.clear();
    for pool in world.names(Kind::MachineConfigPool) {
        world.edit(Kind::MachineConfigPool, &pool, &json!({"spec": {"paused": false}}));
    }
    for pod in world.names(Kind::Pod) {
        world.delete(Kind::Pod, &pod);
    }
    for name in world.names(Kind::Node) {
        world.label(&name, "infra", None);
        send_back(world, &name);
        let annotations = world.node(&name).annotations;
        if annotations[&format!("{PREFIX}currentConfig")]
            == annotations[&format!("{PREFIX}desiredConfig")]
        {
            world.cordon(&name, false);
            world.set_ready(&name, true);
        }
    }
}

/// A configuration that was collected with its pool never comes back: the Machine Config Operator passes
/// over a node that fails on it and is cordoned, and an admin has to send the node back to what it runs.
fn send_back(world: &mut World, name: &str) {
    let annotations = world.node(name).annotations;
    let get = |key: &str| annotations.get(&format!("{PREFIX}{key}")).cloned().unwrap_or_default();
    let desired = get("desiredConfig");
    // Nor can it leave a configuration that is gone, but by force.
    let left = world.get(Kind::MachineConfig, &get("currentConfig")).is_none();
    if left && get("state") == "Degraded" {
        let forced = json!({"metadata": {"annotations": {
            format!("{PREFIX}currentConfig"): desired.clone(),
            format!("{PREFIX}reason"): "",
            format!("{PREFIX}state"): "Done",
        }}});
        world.edit(Kind::Node, name, &forced);
        return;
    }
    let gone = !desired.is_empty() && world.get(Kind::MachineConfig, &desired).is_none();
    if gone && get("state") == "Degraded" {
        let back = json!({"metadata": {"annotations": {
            format!("{PREFIX}desiredConfig"): get("currentConfig"),
            format!("{PREFIX}desiredDrain"): get("lastAppliedDrain"),
            format!("{PREFIX}reason"): "",
            format!("{PREFIX}state"): "Done",
        }}});
        world.edit(Kind::Node, name, &back);
    }
}

fn run(acts: &[Act], selective: bool) {
    let mut world = World::new(1, 3);
    world.create(json!({
        "kind": "MachineConfigPool",
        "metadata": {"name": "infra", "labels": {}},
        "spec": {
            "machineConfigSelector": {"matchLabels": {format!("{PREFIX}role"): "worker"}},
            "nodeSelector": {"matchLabels": {"infra": ""}},
        },
    }));
    for act in acts {
        perform(&mut world, act, selective);
    }
    heal(&mut world);
    world.settle();
    // A node that was cordoned while it was being changed is still cordoned now.
    heal(&mut world);
    let last = world.settle();
    assert!(last.report.events.is_empty(), "{:?}", last.report.events);
    let Some(config) = world.get(Kind::KataConfig, CONFIG) else {
        if !acts.iter().any(|act| matches!(act, Act::Config)) {
            return;
        }
        return assert_nothing_left(&world);
    };
    assert!(config["metadata"]["deletionTimestamp"].is_null(), "the deletion does not end");
    for name in world.names(Kind::Node) {
        let node = world.node(&name);
        let wanted = name.starts_with("worker") && (!selective || node.labels.contains_key("kata"));
        assert_eq!(node.labels.contains_key(KATA), wanted, "{name}");
        assert_eq!(node.labels.contains_key(VERIFIED), wanted, "{name}");
        assert_eq!(world.is_on_pool(&name), wanted, "{name}");
        if wanted {
            assert!(world.get(Kind::RuntimeClass, "kata").is_some());
            assert!(world.get(Kind::MachineConfig, MC).is_some());
        }
    }
}

#[test]
fn a_pool_that_is_deleted_while_nodes_run_what_goes_with_it_comes_back() {
    let mut acts = vec![Act::Config, Act::LogLevel(true), Act::Pass, Act::RemoveNode(0)];
    acts.extend((0..8).map(|_| Act::Tick));
    acts.extend([Act::DropPool, Act::LogLevel(false)]);
    run(&acts, false);
}

/// A node that leaves waits for its pods, which cannot be read.
#[test]
fn a_node_whose_pods_cannot_be_read_waits_for_a_reason() {
    use Act::{AddNode, Config, Pass, RemoveNode, Select, Tick, Unreadable};
    let joining = [Unreadable(4), AddNode, Select(3, true), RemoveNode(0), RemoveNode(0)];
    let leaving = [Select(2, true), Config, Pass, Select(1, false), Tick, Pass];
    run(&[&joining[..], &leaving].concat(), true);
}

proptest! {
    #![proptest_config(Config { cases: 96, max_shrink_iters: 400, failure_persistence: None, ..Config::default() })]

    #[test]
    fn no_history_breaks_a_promise(acts in prop::collection::vec(act(), 1..60), selective: bool) {
        run(&acts, selective);
    }
}

/// The pool is deleted under a node that is on its way, and comes back with another configuration.
#[test]
fn a_pool_that_comes_back_changed_takes_its_nodes_along() {
    run(
        &[
            Act::Config,
            Act::Select(0, true),
            Act::Pass,
            Act::Tick,
            Act::DropPool,
            Act::LogLevel(true),
        ],
        false,
    );
}

/// The pool is deleted after the log level changed, under nodes that wait for their turn.
#[test]
fn a_pool_that_is_deleted_while_its_log_level_changes_comes_back() {
    run(&[Act::Config, Act::Pass, Act::Tick, Act::Tick, Act::LogLevel(true), Act::DropPool], false);
}
