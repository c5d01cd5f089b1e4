//! The reason that is reported for a waiting node is the true one.

use kata_api::Code;
use kata_plan::{Kind, decide};
use serde_json::json;

use crate::plain::Fate;
use crate::world::{KATA, World};

/// What is said of nodes that are not being changed.
fn waits(world: &World) -> Vec<String> {
    let waits = decide(&world.observe()).report.waiting_on.into_iter();
    waits.map(|wait| wait.message).filter(|message| message.contains("not being changed")).collect()
}

/// Passes until it holds.
#[track_caller]
fn until(world: &mut World, holds: impl Fn(&World) -> bool) {
    for _ in 0..400 {
        if holds(world) {
            return;
        }
        world.pass();
        world.tick();
    }
    panic!("it never holds:\n{}", crate::render::decision(&world.pass()));
}

fn says(world: &World, part: &str) -> bool {
    waits(world).iter().any(|wait| wait.contains(part))
}

fn ready(world: &World) -> String {
    let status = decide(&world.observe()).report.status.unwrap().status;
    status.conditions.into_iter().find(|condition| condition.type_ == "Ready").unwrap().message
}

#[test]
fn of_many_nodes_some_wait_to_be_checked() {
    let mut world = World::plain(1, 25);
    world.config(&json!({}));
    let names = |numbers: std::ops::Range<u32>| {
        numbers.map(|number| format!("worker-{number}")).collect::<Vec<_>>().join(", ")
    };
    let late = "5 nodes that are not being changed (at most 20 nodes are checked at once)";
    let first = "20 nodes that are not being changed (the next Job is being created)";
    assert_eq!(
        waits(&world),
        [format!("{late}: {}", names(20..25)), format!("{first}: {} and 10 more", names(0..10))]
    );
    assert!(ready(&world).ends_with(" waiting: at most 20 nodes are checked at once"));
}

#[test]
fn the_first_node_of_a_change_goes_alone_although_there_is_room() {
    let mut world = World::plain(1, 3);
    world.hosts.insert("worker-0".to_owned(), Fate::Hangs);
    world.config(&json!({"rollout": {"maxUnavailable": 3}}));
    until(&mut world, |world| !world.changing().is_empty());
    assert_eq!(
        waits(&world),
        [
            "2 nodes that are not being changed (the first node must succeed first): worker-1, worker-2"
        ]
    );
    assert!(ready(&world).ends_with(" waiting: the first node must succeed first"));
}

#[test]
fn a_node_that_is_down_or_being_changed_takes_the_room() {
    let mut world = World::plain(1, 3);
    world.config(&json!({}));
    world.set_ready("worker-2", false);
    until(&mut world, |world| says(world, "at most 1"));
    assert_eq!(
        waits(&world),
        [
            "2 nodes that are not being changed (at most 1 may be unavailable, and worker-2 is): worker-0, worker-1",
            "1 node that is not being changed: worker-2",
        ]
    );
    world.set_ready("worker-2", true);
    // The one whose turn it is takes the room before its Job is made.
    until(&mut world, |world| says(world, "about to be"));
    let wait = "1 node that is not being changed (at most 1 may be unavailable, and worker-1 is about to be): worker-2";
    assert!(says(&world, wait), "{:#?}", waits(&world));
    until(&mut world, |world| world.changing() == ["worker-1"]);
    let wait = "1 node that is not being changed (at most 1 may be unavailable, and worker-1 is): worker-2";
    assert_eq!(waits(&world), [wait]);
}

#[test]
fn room_is_shared_by_those_that_are_down_and_those_whose_turn_it_is() {
    let mut world = World::plain(1, 5);
    world.config(&json!({"rollout": {"maxUnavailable": 2}}));
    until(&mut world, |world| {
        world.node("worker-0").labels.contains_key("katacontainers.io/kata-runtime")
    });
    world.set_ready("worker-4", false);
    until(&mut world, |world| says(world, "at most 2"));
    let wait = "(at most 2 may be unavailable, and worker-1, worker-4 are, or are about to be): worker-2, worker-3";
    assert!(says(&world, wait), "{:#?}", waits(&world));
}

#[test]
fn a_node_that_leaves_waits_for_its_pods_and_then_for_room() {
    let mut world = World::plain(1, 3);
    world.config(
        &json!({"rollout": {"leaveDelay": "0s"}, "kataConfigPoolSelector": {"matchExpressions": [
        {"key": "kata", "operator": "NotIn", "values": ["no"]}]}}),
    );
    world.settle();
    world.pod("web", "kata", "worker-2");
    world.set_ready("worker-0", false);
    world.label("worker-2", "kata", Some("no"));
    for _ in 0..10 {
        world.pass();
        world.tick();
        assert!(!says(&world, "at most"), "{:#?}", waits(&world));
    }
    // What holds each of them up is reported elsewhere.
    assert_eq!(waits(&world), ["2 nodes that are not being changed: worker-0, worker-2"]);
    world.delete(Kind::Pod, "default/web");
    world.pass();
    let wait = "1 node that is not being changed (at most 1 may be unavailable, and worker-0 is): worker-2";
    assert!(says(&world, wait), "{:#?}", waits(&world));
}

#[test]
fn what_a_finding_says_is_no_matter_of_turns() {
    let hold_back = |spec: &serde_json::Value| {
        let mut world = World::plain(1, 3);
        world.config(spec);
        until(&mut world, |world| !world.changing().is_empty());
        world
    };
    let mut world = hold_back(&json!({}));
    world.edit(
        Kind::KataConfig,
        "cluster-kataconfig",
        &json!({"spec": {"rollout": {"paused": true}}}),
    );
    assert_eq!(waits(&world), ["2 nodes that are not being changed: worker-1, worker-2"]);

    // Inspections of the others do not concern a node that failed.
    let mut world = hold_back(&json!({}));
    world.hosts.insert("worker-0".to_owned(), Fate::RollsBack);
    world.settle();
    world.now = world.now.checked_add(jiff::SignedDuration::from_hours(7)).unwrap();
    assert!(!decide(&world.observe()).plan.steps.is_empty(), "an inspection is due");
    assert_eq!(waits(&world), ["1 node that is not being changed: worker-0"]);

    // Who cannot make Jobs is not making any.
    let mut world = World::plain(1, 1);
    world.options.agent_image = None;
    world.config(&json!({}));
    assert_eq!(waits(&world), ["1 node that is not being changed: worker-0"]);
}

const TURN: &str = "at most 2 of the pool kata-oc may be unavailable";

/// A pool of three that is to change, of which as many are being changed as the Machine Config Operator chose.
fn changing(spec: &serde_json::Value, nodes: &[&str]) -> World {
    let mut world = World::new(3, 3);
    world.config(&json!({"rollout": spec}));
    until(&mut world, |world| world.is_on_pool("worker-0"));
    let target =
        world.pool("kata-oc")["spec"]["configuration"]["name"].as_str().unwrap().to_owned();
    for node in nodes {
        world.annotate(node, "desiredConfig", &target);
    }
    world
}

#[test]
fn a_pool_is_full_when_as_many_of_its_nodes_are_being_changed_as_may_be() {
    for (limit, text, more, is_full) in [
        (json!(1), "1", &[][..], true),
        (json!(2), "2", &[], false),
        (json!(2), "2", &["worker-1"], true),
        (json!("50%"), "50%", &[], true),
        (json!("70%"), "70%", &[], false),
    ] {
        let world = changing(&json!({"maxUnavailable": limit}), more);
        let turn = format!("at most {text} of the pool kata-oc may be unavailable");
        let waits = waits(&world);
        assert_eq!(waits.len(), 1, "{limit}: {waits:#?}");
        assert_eq!(waits[0].contains(&turn), is_full, "{limit}: {waits:#?}");
        let chosen = waits[0].contains("the Machine Config Operator chooses the next node");
        assert_eq!(chosen, !is_full, "{limit}: {waits:#?}");
    }
}

#[test]
fn a_pool_that_is_paused_is_not_full() {
    let mut world = changing(&json!({"maxUnavailable": 2}), &["worker-1"]);
    assert!(says(&world, TURN), "{:#?}", waits(&world));
    world.edit(Kind::MachineConfigPool, "kata-oc", &json!({"spec": {"paused": true}}));
    assert_eq!(waits(&world), ["1 node that is not being changed: worker-2"]);
}

#[test]
fn nodes_of_another_pool_take_nobodys_turn() {
    let mut world = World::new(3, 3);
    for node in ["worker-0", "worker-1"] {
        world.label(node, "kata", Some("true"));
    }
    world.config(&json!({"rollout": {"leaveDelay": "0s"}, "kataConfigPoolSelector": {"matchLabels": {"kata": "true"}}}));
    world.settle();
    // One leaves, and is being changed in the pool worker.
    world.label("worker-0", "kata", None);
    until(&mut world, |world| {
        let annotations = world.node("worker-0").annotations;
        let config =
            |key: &str| annotations[&format!("machineconfiguration.openshift.io/{key}")].clone();
        config("currentConfig") != config("desiredConfig")
    });
    // One joins the pool kata-oc, of which no node is being changed.
    world.label("worker-2", "kata", Some("true"));
    world.pass();
    let chosen = "1 node that is not being changed (the Machine Config Operator chooses the next node): worker-2";
    assert_eq!(waits(&world), [chosen]);
    // Another one leaves: that one has to wait.
    world.label("worker-1", "kata", None);
    world.pass();
    world.pass();
    assert_eq!(
        waits(&world),
        [
            "1 node that is not being changed (at most 1 of the pool worker may be unavailable: worker-0 (being changed)): worker-1",
            chosen,
        ]
    );
}

/// An installation or a removal in which the Machine Config Operator has to choose the next node.
fn before_the_next_node_is_chosen(deleting: bool) -> World {
    let mut world = World::new(3, 2);
    world.config(&json!({}));
    if deleting {
        world.settle();
        world.delete(Kind::KataConfig, "cluster-kataconfig");
    }
    while world.pass().plan.steps.is_empty()
        || world.node("worker-1").labels.contains_key(KATA) == deleting
    {
        world.tick();
    }
    world
}

/// The Machine Config Operator reads more conditions than Ready (`checkNodeReady` of its node controller).
#[test]
fn a_node_with_disk_pressure_that_takes_the_room_of_others_is_named_with_the_condition() {
    for deleting in [false, true] {
        let mut world = before_the_next_node_is_chosen(deleting);
        let conditions = json!([
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "DiskPressure", "status": "True"},
        ]);
        world.edit(Kind::Node, "worker-0", &json!({"status": {"conditions": conditions}}));
        let pool = if deleting { "worker" } else { "kata-oc" };
        let report = decide(&world.observe()).report;
        let finding = report.findings.iter().find(|it| it.code == Code::NodeUnderPressure);
        assert_eq!(
            finding.map(|finding| finding.message.clone()),
            Some(format!(
                "node worker-0 has the condition DiskPressure, so the Machine Config Operator counts it as \
                 unavailable in the pool {pool}"
            )),
            "{:#?}",
            report.findings
        );
    }
}

/// If no node explains why the Machine Config Operator does not continue, its count is the reason.
#[test]
fn a_count_that_no_node_explains_is_the_reason() {
    for deleting in [false, true] {
        let mut world = before_the_next_node_is_chosen(deleting);
        world.render();
        let pool = if deleting { "worker" } else { "kata-oc" };
        let count = json!({"status": {"unavailableMachineCount": 1}});
        world.edit(Kind::MachineConfigPool, pool, &count);
        let reason = format!(
            "at most 1 of the pool {pool} may be unavailable, and the Machine Config Operator counts 1"
        );
        assert!(says(&world, &reason), "{:#?}", waits(&world));
        assert!(ready(&world).contains(&reason), "{}", ready(&world));
    }
}

/// It is Ready, so ordinary pods may run on it.
#[test]
fn a_node_that_was_left_broken_loses_kata_in_its_turn() {
    let mut world = World::plain(1, 3);
    let expressions = json!([{"key": "kata", "operator": "NotIn", "values": ["no"]}]);
    world.config(&json!({"rollout": {"leaveDelay": "0s"}, "kataConfigPoolSelector": {"matchExpressions": expressions}}));
    let outcome = |world: &World, node: &str| {
        let kata_node = world.get(Kind::KataNode, node)?;
        kata_node["status"]["host"]["job"]["outcome"].as_str().map(str::to_owned)
    };
    let done =
        |world: &World| world.names(Kind::KataNode).len() == 3 && !world.changing().is_empty();
    until(&mut world, done);
    world.hosts.insert("worker-2".to_owned(), Fate::Breaks);
    until(&mut world, |world| outcome(world, "worker-2").as_deref() == Some("Unsafe"));
    world.hosts.clear();
    world.cordon("worker-0", true);
    world.label("worker-2", "kata", Some("no"));
    for _ in 0..20 {
        world.pass();
        world.tick();
        assert_eq!(world.changing(), [""; 0]);
    }
    let wait = "1 node that is not being changed (at most 1 may be unavailable, and worker-0, worker-2 are): worker-2";
    assert!(says(&world, wait), "{:#?}", waits(&world));
    world.cordon("worker-0", false);
    until(&mut world, |world| world.get(Kind::KataNode, "worker-2").is_none());
}
