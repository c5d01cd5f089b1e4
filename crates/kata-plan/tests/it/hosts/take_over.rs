//! Nodes and RuntimeClasses of kata-deploy become ours, and go back.

use kata_api::node_task::NodeAction;
use kata_plan::{Kind, Request, decide};
use serde_json::{Value, json};

use super::{CLAIM, finding, label};
use crate::journeys::{condition, is};
use crate::plain::{Fate, task_of};
use crate::world::{VERIFIED, World};

const ITS_LABEL: &str = "kata-deploy.katacontainers.io/default";
const CLASS_LABEL: &str = "kata.node-restriction.kubernetes.io/kata-qemu";

/// A class as Helm leaves it, which writes its own label over that of the chart.
fn class(name: &str) -> Value {
    json!({
        "kind": "RuntimeClass",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "Helm", "kata-deploy/instance": "default"}},
        "handler": name,
        "overhead": {"podFixed": {"cpu": "250m", "memory": "320Mi"}},
        "scheduling": {"nodeSelector": {VERIFIED: "true", ITS_LABEL: "true"}},
    })
}

/// Two nodes of kata-deploy with its class, and one without anything.
fn world() -> World {
    let mut world = World::plain(1, 3);
    for node in ["worker-0", "worker-1"] {
        world.label(node, VERIFIED, Some("true"));
        world.label(node, ITS_LABEL, Some("true"));
        let handlers = json!([{"name": ""}, {"name": "runc"}, {"name": "kata-qemu"}]);
        world.edit(Kind::Node, node, &json!({"status": {"runtimeHandlers": handlers}}));
    }
    world.create(class("kata-qemu"));
    world
}

fn spec() -> Value {
    json!({"takeOver": "KataDeploy", "runtimes": [{"name": "kata-qemu"}]})
}

fn get_class(world: &World) -> Value {
    world.get(Kind::RuntimeClass, "kata-qemu").unwrap().clone()
}

/// What people see of a class.
fn face(class: &Value) -> Value {
    json!([class["metadata"]["labels"], class["overhead"], class["scheduling"]["nodeSelector"]])
}

/// Whether any write took a label of kata-deploy from a node of it.
fn lost_labels(world: &World) -> bool {
    world.writes.iter().any(|request| match request {
        Request::Merge { object, body, .. } if object.kind == Kind::Node => {
            let labels = &body["metadata"]["labels"];
            let is_lost = |key: &str| labels.get(key).is_some_and(Value::is_null);
            object.name != "worker-2" && [VERIFIED, ITS_LABEL].into_iter().any(is_lost)
        }
        _ => false,
    })
}

#[test]
fn nodes_keep_their_labels_and_the_class_is_taken_over_last() {
    let mut world = world();
    world.config(&spec());
    let mut seen_between = false;
    for _ in 0..300 {
        world.pass();
        world.tick();
        let taken = |node: &&str| world.node(node).labels.contains_key(CLASS_LABEL);
        let taken = ["worker-0", "worker-1"].iter().filter(|node| taken(node)).count();
        let is_ours = get_class(&world)["metadata"]["labels"]["app.kubernetes.io/managed-by"]
            == "kata-operator";
        assert!(taken == 2 || !is_ours, "{taken}");
        seen_between |= taken == 1 && !is_ours;
    }
    assert!(seen_between);
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert!(!lost_labels(&world));
    let class = get_class(&world);
    assert_eq!(class["scheduling"]["nodeSelector"][CLASS_LABEL], "true");
    assert_eq!(class["scheduling"]["nodeSelector"][ITS_LABEL], Value::Null);
    // Its overhead stays.
    assert_eq!(class["overhead"]["podFixed"]["memory"], "320Mi");
    assert_eq!(world.node("worker-0").labels.get(ITS_LABEL).map(String::as_str), Some("true"));
}

#[test]
fn every_task_says_whether_nodes_are_taken_over() {
    let mut world = world();
    world.config(&spec());
    let mut seen = 0;
    for _ in 0..300 {
        world.pass();
        for job in world.names(Kind::Job) {
            assert!(task_of(world.get(Kind::Job, &job).unwrap()).take_over);
            seen += 1;
        }
        world.tick();
    }
    assert!(seen > 0);
    // Only the nodes that were kata-deploy's are changed once it is dropped.
    world.edit(Kind::KataConfig, "cluster-kataconfig", &json!({"spec": {"takeOver": null}}));
    let before = world.names(Kind::Job);
    let mut changed = Vec::new();
    for _ in 0..300 {
        world.pass();
        for job in world.names(Kind::Job).into_iter().filter(|job| !before.contains(job)) {
            let task = task_of(world.get(Kind::Job, &job).unwrap());
            assert!(!task.take_over);
            if task.action == NodeAction::Install && !changed.contains(&task.node) {
                changed.push(task.node);
            }
        }
        world.tick();
    }
    changed.sort();
    assert_eq!(changed, ["worker-0", "worker-1"]);
}

#[test]
fn nothing_begins_while_a_class_of_kata_deploy_has_no_counterpart() {
    let mut world = world();
    world.create(class("kata-clh"));
    world.config(&spec());
    world.settle();
    assert_eq!(
        finding(&world, "KATA1037"),
        "KATA1037 TakeOverIncomplete: KataConfig cluster-kataconfig: no node is taken over or gets Kata, since RuntimeClasses of kata-deploy have no entry in spec.runtimes, or one with installOn; add: {name: kata-clh}"
    );
    assert_eq!(world.names(Kind::Job), Vec::<String>::new());
    assert!(!lost_labels(&world));
    let runtimes = json!([{"name": "kata-qemu"}, {"name": "kata-clh"}]);
    world.edit(Kind::KataConfig, "cluster-kataconfig", &json!({"spec": {"runtimes": runtimes}}));
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

#[test]
fn nodes_that_kata_deploy_has_not_finished_and_others_of_it_are_left_alone() {
    let mut world = world();
    world.label("worker-0", ITS_LABEL, Some("false"));
    world.label("worker-1", "kata-deploy.katacontainers.io/blue", Some("true"));
    world.add_plain_node("worker-3");
    world.label("worker-3", VERIFIED, Some("true"));
    world.config(&spec());
    world.settle();
    let decision = decide(&world.observe());
    let found = decision.report.findings.iter().filter(|it| it.code.entry().code == "KATA3114");
    let messages: Vec<&str> = found.map(|it| it.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "node worker-0 is excluded: kata-deploy has not finished it: its label kata-deploy.katacontainers.io/default is false",
            "node worker-1 is excluded: it carries the label kata-deploy.katacontainers.io/blue, and only a kata-deploy without a suffix can be taken over",
            "node worker-3 is excluded: it carries the label katacontainers.io/kata-runtime, and not kata-deploy.katacontainers.io/default, by which nodes of kata-deploy 4.1 and newer are known",
        ]
    );
    assert!(!lost_labels(&world));
}

#[test]
fn a_refused_node_stays_as_it_is_and_the_others_go_on() {
    let mut world = world();
    world.hosts.insert("worker-0".to_owned(), Fate::Unfit);
    world.config(&spec());
    world.settle();
    assert!(!lost_labels(&world));
    assert!(world.node("worker-1").labels.contains_key(CLASS_LABEL));
    assert_eq!(get_class(&world)["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Helm");
}

#[test]
fn a_deletion_gives_nodes_and_classes_back_and_waits_for_our_pods_only() {
    let mut world = world();
    let before = face(&get_class(&world));
    world.config(&spec());
    world.settle();
    let old = json!({
        "kind": "Pod",
        "metadata": {"namespace": "default", "name": "old", "uid": "0123abcd-old"},
        "spec": {"runtimeClassName": "kata-qemu", "nodeName": "worker-0", "containers": []},
        "status": {"phase": "Running"},
    });
    let (_, old) = world.create(old);
    let earlier = json!([{"pods": ["0123abcd"], "ofKataDeploy": true}]);
    let status = json!({"status": {"host": {"earlier": earlier}}});
    world.edit(Kind::KataNode, "worker-0", &status);
    world.pod("new", "kata-qemu", "worker-1");
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    for _ in 0..100 {
        world.pass();
        world.tick();
    }
    assert!(world.get(Kind::KataConfig, "cluster-kataconfig").is_some());
    assert!(world.node("worker-1").labels.contains_key(CLASS_LABEL));
    world.delete(Kind::Pod, "default/new");
    let mut removals = 0;
    for _ in 0..300 {
        world.pass();
        for job in world.names(Kind::Job) {
            let task = task_of(world.get(Kind::Job, &job).unwrap());
            removals += usize::from(task.action == NodeAction::Remove);
            assert!(task.take_over || task.action != NodeAction::Remove);
        }
        let node_is_ours =
            (0..3).any(|n| world.node(&format!("worker-{n}")).labels.contains_key(CLAIM));
        let is_back = face(&get_class(&world)) == before;
        assert!(!(node_is_ours && is_back), "the class is given back before the nodes");
        world.tick();
    }
    world.settle();
    assert!(removals > 0);
    assert!(world.get(Kind::KataConfig, "cluster-kataconfig").is_none());
    assert_eq!(face(&get_class(&world)), before);
    assert_eq!(get_class(&world)["metadata"]["ownerReferences"], Value::Null);
    for node in ["worker-0", "worker-1"] {
        let labels = world.node(node).labels;
        assert_eq!(
            (labels.get(VERIFIED), labels.get(ITS_LABEL)).0.map(String::as_str),
            Some("true")
        );
        assert!(!labels.contains_key(CLASS_LABEL) && !labels.contains_key(CLAIM), "{labels:?}");
    }
    assert_eq!(label(&world, "worker-2"), None);
    assert!(world.get(Kind::Pod, &old).is_some());
    assert!(!lost_labels(&world));
}

/// Nothing of ours is on it, so that its pods hold up nothing.
#[test]
fn a_node_that_was_refused_does_not_hold_up_a_deletion() {
    let mut world = world();
    world.hosts.insert("worker-0".to_owned(), Fate::Unfit);
    world.config(&spec());
    world.settle();
    world.pod("old", "kata-qemu", "worker-0");
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    assert!(world.get(Kind::KataConfig, "cluster-kataconfig").is_none());
    assert!(!lost_labels(&world));
    assert_eq!(face(&get_class(&world)), face(&class("kata-qemu")));
}

/// Its change was undone, so that the label is still that of kata-deploy.
#[test]
fn a_node_that_was_not_taken_keeps_its_label_when_take_over_is_dropped() {
    let mut world = world();
    world.hosts.insert("worker-0".to_owned(), Fate::RollsBack);
    world.config(&spec());
    world.settle();
    assert!(world.node("worker-0").labels.contains_key(CLAIM));
    world.hosts.clear();
    world.edit(Kind::KataConfig, "cluster-kataconfig", &json!({"spec": {"takeOver": null}}));
    world.settle();
    assert!(finding(&world, "KATA3114").contains("worker-0"));
    assert!(!world.node("worker-0").labels.contains_key(CLAIM));
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    assert!(world.get(Kind::KataConfig, "cluster-kataconfig").is_none());
    let labels = world.node("worker-0").labels;
    assert_eq!(labels.get(VERIFIED).map(String::as_str), Some("true"));
    assert!(!labels.contains_key(CLAIM), "{labels:?}");
}

/// A selector with one node tries it out, and the other nodes need the class of kata-deploy.
#[test]
fn a_class_stays_that_of_kata_deploy_while_it_has_nodes_of_its_own() {
    let mut world = world();
    let mut spec = spec();
    let selector = json!({"matchLabels": {"kubernetes.io/hostname": "worker-0"}});
    spec["kataConfigPoolSelector"] = selector;
    world.config(&spec);
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert!(world.node("worker-0").labels.contains_key(CLASS_LABEL));
    assert_eq!(face(&get_class(&world)), face(&class("kata-qemu")));
    world.edit(
        Kind::KataConfig,
        "cluster-kataconfig",
        &json!({"spec": {"kataConfigPoolSelector": null}}),
    );
    world.settle();
    assert_eq!(get_class(&world)["scheduling"]["nodeSelector"][CLASS_LABEL], "true");
    // The garbage collector must not delete it with the KataConfig.
    assert_eq!(get_class(&world)["metadata"]["ownerReferences"], Value::Null);
}
