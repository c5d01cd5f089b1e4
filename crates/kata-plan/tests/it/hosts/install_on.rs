//! Runtimes on the nodes that should have them: `spec.runtimes[].installOn`.

use std::collections::BTreeSet;

use kata_plan::{Kind, decide};
use serde_json::{Value, json};

use super::{finding, host, label, until};
use crate::journeys::{condition, is};
use crate::plain::Fate;
use crate::world::World;

/// `kata` on nodes with `vm=qemu` or `vm=both`, and `fast` on those with `vm=clh` or `vm=both`.
fn runtimes() -> Value {
    let on = |values: Value| json!({"matchExpressions": [{"key": "vm", "operator": "In", "values": values}]});
    json!([
        {"name": "kata", "installOn": on(json!(["qemu", "both"]))},
        {"name": "fast", "shim": "clh", "installOn": on(json!(["clh", "both"]))},
    ])
}

/// Four kinds of nodes, two of each.
fn four_kinds() -> World {
    let mut world = World::plain(1, 8);
    for (index, kind) in ["qemu", "clh", "both", "none"].into_iter().enumerate() {
        for node in [2 * index, 2 * index + 1] {
            world.label(&format!("worker-{node}"), "vm", Some(kind));
        }
    }
    world.config(&json!({"runtimes": runtimes(), "rollout": {"maxUnavailable": 2}}));
    world
}

/// The classes of which a node has the label.
fn classes(world: &World, node: &str) -> BTreeSet<String> {
    let labels = world.node(node).labels;
    let classes =
        labels.keys().filter_map(|key| key.strip_prefix("kata.node-restriction.kubernetes.io/"));
    classes.map(str::to_owned).collect()
}

/// The handlers of Kata that a node's container runtime has.
fn handlers(world: &World, node: &str) -> BTreeSet<String> {
    let handlers = world.node(node).runtime_handlers.unwrap();
    handlers.into_iter().filter(|name| !["", "runc"].contains(&name.as_str())).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn runtimes_of_status(world: &World) -> Value {
    let config = world.get(Kind::KataConfig, "cluster-kataconfig").unwrap();
    config["status"]["runtimes"].clone()
}

#[test]
fn each_runtime_is_on_its_nodes_only() {
    let mut world = four_kinds();
    world.settle();
    for (node, expected) in [
        ("worker-0", &["kata"][..]),
        ("worker-1", &["kata"]),
        ("worker-2", &["fast"]),
        ("worker-3", &["fast"]),
        ("worker-4", &["fast", "kata"]),
        ("worker-5", &["fast", "kata"]),
        ("worker-6", &[]),
        ("worker-7", &[]),
    ] {
        assert_eq!(classes(&world, node), set(expected), "{node}");
        assert_eq!(handlers(&world, node), set(expected), "{node}");
        assert_eq!(label(&world, node).is_some(), !expected.is_empty(), "{node}");
    }
    assert!(world.get(Kind::KataNode, "worker-6").is_none());
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    let counts = |name| json!({"name": name, "nodeCount": 4, "readyNodeCount": 4});
    assert_eq!(runtimes_of_status(&world), json!([counts("kata"), counts("fast")]));

    // The first node of each kind goes alone, and no kind waits for another one.
    let mut world = four_kinds();
    world.config(&json!({"runtimes": runtimes(), "rollout": {"maxUnavailable": 8}}));
    until(&mut world, |world| world.changing().len() == 3);
    assert_eq!(world.changing(), ["worker-0", "worker-2", "worker-4"]);
}

#[test]
fn a_node_that_a_runtime_leaves_keeps_it_until_its_pods_have_ended() {
    let mut world = four_kinds();
    world.settle();
    world.pod("guest", "fast", "worker-4");
    world.pod("other", "kata", "worker-4");
    let before = host(&world, "worker-4");
    world.label("worker-4", "vm", Some("qemu"));
    for _ in 0..60 {
        world.pass();
        assert_eq!(world.changing(), Vec::<String>::new());
        world.tick();
    }
    assert_eq!(classes(&world, "worker-4"), set(&["fast", "kata"]));
    assert_eq!(host(&world, "worker-4"), before);
    let reported = finding(&world, "KATA2112");
    assert!(
        reported.contains(
            "node worker-4 is no longer selected for the runtime of fast, but 1 sandboxed pod still runs on it: default/guest"
        ),
        "{reported}"
    );
    // The label goes first, so that no further pod comes; then the handler. The other class is not touched.
    world.delete(Kind::Pod, "default/guest");
    until(&mut world, |world| classes(world, "worker-4") == set(&["kata"]));
    assert_eq!(handlers(&world, "worker-4"), set(&["fast", "kata"]));
    until(&mut world, |world| handlers(world, "worker-4") == set(&["kata"]));
    world.settle();
    assert_eq!(host(&world, "worker-4")["restarts"], json!(2));
    assert!(world.get(Kind::Pod, "default/other").is_some());
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    // And comes back.
    world.label("worker-4", "vm", Some("both"));
    world.settle();
    assert_eq!(classes(&world, "worker-4"), set(&["fast", "kata"]));

    // A node that no runtime selects any more loses Kata.
    world.pod("guest", "kata", "worker-0");
    world.label("worker-0", "vm", Some("none"));
    for _ in 0..60 {
        world.pass();
        world.tick();
    }
    assert_eq!(label(&world, "worker-0").as_deref(), Some("true"));
    world.delete(Kind::Pod, "default/guest");
    until(&mut world, |world| world.get(Kind::KataNode, "worker-0").is_none());
    assert_eq!(handlers(&world, "worker-0"), set(&[]));
}

/// A pod that the scheduler bound at the same moment gets the label back.
#[test]
fn a_pod_that_slips_in_keeps_its_runtime() {
    let mut world = four_kinds();
    world.settle();
    world.label("worker-4", "vm", Some("qemu"));
    until(&mut world, |world| classes(world, "worker-4") == set(&["kata"]));
    world.pod("late", "fast", "worker-4");
    until(&mut world, |world| classes(world, "worker-4") == set(&["fast", "kata"]));
    for _ in 0..40 {
        world.pass();
        assert_eq!(world.changing(), Vec::<String>::new());
        world.tick();
    }
    assert_eq!(handlers(&world, "worker-4"), set(&["fast", "kata"]));
    world.delete(Kind::Pod, "default/late");
    world.settle();
    assert_eq!(handlers(&world, "worker-4"), set(&["kata"]));
}

#[test]
fn a_failure_of_one_kind_of_nodes_stops_no_other() {
    let mut world = four_kinds();
    for node in ["worker-2", "worker-3"] {
        world.hosts.insert(node.to_owned(), Fate::RollsBack);
    }
    until(&mut world, |world| {
        ["worker-0", "worker-1", "worker-4", "worker-5"]
            .iter()
            .all(|node| label(world, node).as_deref() == Some("true"))
    });
    until(&mut world, |world| {
        decide(&world.observe())
            .report
            .findings
            .iter()
            .any(|it| it.to_string().contains("KATA3111"))
    });
    let reported = finding(&world, "KATA3111");
    assert!(
        reported.contains("worker-2, worker-3") && !reported.contains("worker-0"),
        "{reported}"
    );
    assert_eq!(classes(&world, "worker-2"), set(&[]));
    assert_eq!(world.names(Kind::RuntimeClass), ["fast", "kata"]);
}

#[test]
fn a_selector_that_no_node_or_no_program_can_match_is_reported_and_takes_nothing_away() {
    let mut world = four_kinds();
    world.settle();
    let with = |install_on: Value| {
        json!({"spec": {"runtimes": [
            {"name": "kata"}, {"name": "fast", "shim": "clh", "installOn": install_on}]}})
    };
    let broken =
        json!({"matchExpressions": [{"key": "vm", "operator": "Near", "values": ["clh"]}]});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &with(broken));
    until(&mut world, |world| classes(world, "worker-6") == set(&["kata"]));
    world.settle();
    let reported = finding(&world, "KATA1005");
    assert!(
        reported.contains("spec.runtimes[fast].installOn: operator \"Near\" for label vm")
            && reported
                .contains("nodes of the KataConfig neither get nor lose this runtime meanwhile"),
        "{reported}"
    );
    assert_eq!(classes(&world, "worker-4"), set(&["fast", "kata"]));
    assert_eq!(classes(&world, "worker-0"), set(&["kata"]));

    world.edit(
        Kind::KataConfig,
        "cluster-kataconfig",
        &with(json!({"matchLabels": {"gpu": "yes"}})),
    );
    world.settle();
    assert!(
        finding(&world, "KATA1036")
            .contains("spec.runtimes[fast].installOn selects none of the nodes")
    );
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert_eq!(world.names(Kind::RuntimeClass), ["fast", "kata"], "an autoscaler may need it");
    assert_eq!(
        runtimes_of_status(&world)[1],
        json!({"name": "fast", "nodeCount": 0, "readyNodeCount": 0})
    );
    for index in 0..8 {
        let node = format!("worker-{index}");
        assert_eq!(handlers(&world, &node), set(&["kata"]), "{node}");
    }

    // If no runtime selects a node, it is not the KataConfig's selector that has to change.
    let nowhere = json!({"spec": {"runtimes": [
        {"name": "kata", "installOn": {"matchLabels": {"gpu": "yes"}}}]}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &nowhere);
    world.settle();
    let reported = decide(&world.observe()).report.findings;
    let reported = reported.iter().find(|it| it.to_string().contains("KATA1003")).unwrap();
    assert!(reported.message.contains("is selected by installOn of a runtime"), "{reported:?}");
    assert!(
        reported.fix.starts_with("Label nodes so that spec.runtimes[].installOn"),
        "{reported:?}"
    );
}

/// The class cannot be changed, so it stays until no pod uses it, and its pods need the handler that it has.
#[test]
fn a_class_that_should_have_another_handler_keeps_its_own_on_the_nodes() {
    let mut world = World::plain(1, 2);
    world.config(&json!({"runtimes": [{"name": "kata", "handler": "kata"}]}));
    world.settle();
    world.pod("guest", "kata", "worker-0");
    let other =
        json!({"spec": {"runtimes": [{"name": "kata", "handler": "kata-next", "shim": "qemu"}]}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &other);
    world.add_plain_node("worker-2");
    for _ in 0..200 {
        world.pass();
        world.tick();
        for node in ["worker-0", "worker-1"] {
            assert_eq!(label(&world, node).as_deref(), Some("true"), "{node}");
            assert!(handlers(&world, node).contains("kata"), "{node}");
        }
    }
    assert!(finding(&world, "KATA1013").contains("kata-next"));
    assert_eq!(handlers(&world, "worker-2"), set(&["kata-next"]));
    assert_eq!(classes(&world, "worker-2"), set(&[]), "the class still has the old handler");
    world.delete(Kind::Pod, "default/guest");
    world.settle();
    assert_eq!(handlers(&world, "worker-0"), set(&["kata-next"]));
    assert_eq!(classes(&world, "worker-2"), set(&["kata"]));
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

/// A node whose only runtime changes is healthy all the time.
#[test]
fn a_node_that_gets_another_runtime_keeps_its_label() {
    let mut world = four_kinds();
    world.settle();
    world.label("worker-2", "vm", Some("qemu"));
    for _ in 0..200 {
        world.pass();
        world.tick();
        assert_eq!(label(&world, "worker-2").as_deref(), Some("true"));
    }
    assert_eq!(handlers(&world, "worker-2"), set(&["kata"]));
}
