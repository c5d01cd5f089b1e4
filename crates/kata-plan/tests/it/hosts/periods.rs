//! Inspections, which are repeated, and finished Jobs, which are kept for a time because of their logs.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use kata_plan::Kind;
use serde_json::{Value, json};

use super::{host, label, until};
use crate::plain::{Fate, NAMESPACE};
use crate::world::World;

fn inspected(world: &World) -> BTreeMap<String, String> {
    let nodes = world.names(Kind::KataNode).into_iter();
    nodes.map(|node| (node.clone(), host(world, &node)["inspected"].to_string())).collect()
}

/// The nodes that are inspected in each quarter of an hour of six.
fn inspections(world: &mut World) -> Vec<Vec<String>> {
    let quarters = 0..24;
    let quarter = |_| {
        let before = inspected(world);
        world.now = world.now.checked_add(SignedDuration::from_mins(15)).unwrap();
        let now = world.now;
        world.settle();
        // What was done meanwhile takes its time as well.
        world.now = now;
        let after = inspected(world).into_iter();
        after.filter(|(node, at)| before[node] != *at).map(|(node, _)| node).collect()
    };
    quarters.map(quarter).collect()
}

#[test]
fn every_node_is_inspected_once_in_six_hours_and_few_at_the_same_time() {
    let mut world = World::plain(1, 24);
    world.config(&json!({"rollout": {"maxUnavailable": "100%"}}));
    world.settle();
    let all = world.names(Kind::KataNode);
    assert_eq!(all.len(), 24);
    let first = inspections(&mut world);
    let mut nodes = first.concat();
    nodes.sort_unstable();
    assert_eq!(nodes, all, "{first:#?}");
    let most = first.iter().map(Vec::len).max().unwrap();
    assert!(most <= 6, "of 24 nodes {most} within a quarter of an hour: {first:#?}");
    // Each at its own time, again and again.
    assert_eq!(inspections(&mut world), first);
}

/// A machine can be installed anew under the name of a node, and a system can write its files anew when it starts.
#[test]
fn a_node_that_has_booted_is_inspected_once_when_it_is_ready() {
    let mut world = World::plain(1, 2);
    world.config(&json!({}));
    world.settle();
    let number = |world: &World, node: &str| host(world, node)["job"]["number"].as_u64().unwrap();
    let before = (number(&world, "worker-0"), number(&world, "worker-1"));
    let ready = |world: &mut World, status: &str| {
        let conditions = json!([{"type": "Ready", "status": status, "reason": "R"}]);
        world.edit(Kind::Node, "worker-0", &json!({"status": {"conditions": conditions}}));
    };
    for (boot, runtime) in [("two", "containerd://2.1.4"), ("two", "containerd://2.1.5")] {
        let count = number(&world, "worker-0");
        world.now = world.now.checked_add(SignedDuration::from_mins(1)).unwrap();
        ready(&mut world, "False");
        let info = json!({"bootID": boot, "containerRuntimeVersion": runtime});
        world.edit(Kind::Node, "worker-0", &json!({"status": {"nodeInfo": info}}));
        world.settle();
        assert_eq!(number(&world, "worker-0"), count, "{boot} {runtime}: before it is Ready");
        ready(&mut world, "True");
        let begun = world.now;
        world.settle();
        let job = &host(&world, "worker-0")["job"];
        assert_eq!((&job["action"], &job["outcome"]), (&json!("Inspect"), &json!("Done")));
        assert_eq!(number(&world, "worker-0"), count + 1, "{boot} {runtime}");
        assert!(world.now.duration_since(begun) < SignedDuration::from_mins(5));
        assert_eq!(label(&world, "worker-0").as_deref(), Some("true"));
    }
    assert_eq!((number(&world, "worker-0"), number(&world, "worker-1")), (before.0 + 2, before.1));
}

/// A toolkit that writes the runtime's whole configuration back takes the handler of others away or adds its own.
#[test]
fn a_runtime_that_somebody_else_restarted_with_other_handlers_is_inspected_once() {
    let mut world = World::plain(1, 1);
    world.config(&json!({}));
    world.settle();
    let number = |world: &World| host(world, "worker-0")["job"]["number"].as_u64().unwrap();
    let report = |world: &mut World, names: &[&str]| {
        let handlers: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        world.edit(Kind::Node, "worker-0", &json!({"status": {"runtimeHandlers": handlers}}));
    };
    let installed = number(&world);
    let wait = |world: &mut World| {
        world.now = world.now.checked_add(SignedDuration::from_mins(16)).unwrap();
        world.settle();
    };
    let steps = [
        (&["", "runc", "kata"][..], 0),
        (&["", "kata", "nvidia", "runc"][..], 1),
        (&["", "kata", "nvidia", "runc"][..], 1),
        (&["", "kata", "runc"][..], 2),
    ];
    for (reported, inspections) in steps {
        // The fake container runtime reports to a Job what the kubelet does.
        report(&mut world, reported);
        wait(&mut world);
        assert_eq!(number(&world), installed + inspections, "{reported:?}");
    }
    assert_eq!(host(&world, "worker-0")["job"]["action"], "Inspect");
    // A kubelet of an earlier Kubernetes reports none at all.
    report(&mut world, &[]);
    wait(&mut world);
    assert_eq!(number(&world), installed + 2);
}

#[test]
fn an_inspection_after_a_boot_that_had_no_result_is_repeated() {
    let mut world = World::plain(1, 1);
    world.config(&json!({}));
    world.settle();
    world.hosts.insert("worker-0".to_owned(), Fate::Garbage);
    world.edit(Kind::Node, "worker-0", &json!({"status": {"nodeInfo": {"bootID": "two"}}}));
    until(&mut world, |world| host(world, "worker-0")["job"]["failures"] == json!(2));
    world.hosts.clear();
    let begun = world.now;
    until(&mut world, |world| host(world, "worker-0")["job"]["outcome"] == "Done");
    assert_eq!(host(&world, "worker-0")["job"]["action"], "Inspect");
    assert!(world.now.duration_since(begun) < SignedDuration::from_hours(1));
}

#[test]
fn a_change_waits_for_the_inspection_that_runs_and_says_so() {
    let mut world = World::plain(1, 2);
    world.config(&json!({}));
    world.settle();
    let inspects = |world: &World| {
        let jobs = ["worker-0", "worker-1"].map(|node| host(world, node)["job"].clone());
        jobs.iter().any(|job| job["action"] == "Inspect" && job["outcome"].is_null())
    };
    world.now = world.now.checked_add(SignedDuration::from_hours(6)).unwrap();
    until(&mut world, inspects);
    world.edit(
        Kind::KataConfig,
        "cluster-kataconfig",
        &json!({"spec": {"payload": {"image": "registry.example/payload:2"}}}),
    );
    let waiting = world.pass().report.waiting_on;
    assert!(inspects(&world));
    let says = |it: &kata_plan::WaitingOn| {
        let job = it.message.strip_prefix("Job kata-worker-");
        job.is_some_and(|rest| rest.ends_with(" to end")) && it.subject.kind == Kind::Job
    };
    assert!(waiting.iter().any(says), "{waiting:#?}");
    // A pause is the reason then.
    world.edit(
        Kind::KataConfig,
        "cluster-kataconfig",
        &json!({"spec": {"rollout": {"paused": true}}}),
    );
    let waiting = world.pass().report.waiting_on;
    assert!(inspects(&world));
    assert!(!waiting.iter().any(says), "{waiting:#?}");
}

#[test]
fn jobs_that_failed_are_kept_until_one_succeeds() {
    let mut world = World::plain(1, 1);
    world.hosts.insert("worker-0".to_owned(), Fate::Fails);
    world.config(&json!({}));
    until(&mut world, |world| world.names(Kind::KataNode) == ["worker-0"]);
    let number = |world: &World| host(world, "worker-0")["job"]["number"].as_u64().unwrap_or(0);
    let is_over = |world: &World, job: &str| {
        !world.get(Kind::Job, job).unwrap()["status"]["conditions"].is_null()
    };
    let mut failed = Vec::new();
    while failed.len() < 6 {
        let next = number(&world) + 1;
        until(&mut world, |world| {
            let job = &host(world, "worker-0")["job"];
            number(world) == next && job["outcome"] != json!(null)
        });
        let job = host(&world, "worker-0")["job"].clone();
        world.pass();
        if job["outcome"] == "Failed" {
            failed.push(format!("{NAMESPACE}/{}", job["name"].as_str().unwrap()));
        }
        let kept = world.names(Kind::Job);
        for name in failed.iter().rev().take(4) {
            assert!(kept.contains(name), "the logs of {name} are gone: {kept:?}");
        }
        assert!(kept.iter().filter(|name| is_over(&world, name)).count() <= 4, "{kept:?}");
    }
    world.hosts.clear();
    until(&mut world, |world| label(world, "worker-0").as_deref() == Some("true"));
    world.settle();
    let kept = world.names(Kind::Job);
    let last = host(&world, "worker-0")["job"]["name"].as_str().unwrap().to_owned();
    assert_eq!(kept, [format!("{NAMESPACE}/{last}")]);
}

/// The end of a Job is dated by the controller manager.
#[test]
fn clocks_of_other_machines_change_no_period() {
    let course = |minutes| {
        let mut world = World::plain(1, 2);
        world.controllers_ahead = SignedDuration::from_mins(minutes);
        world.config(&json!({}));
        world.settle();
        let begun = world.now;
        for _ in 0..8 {
            world.now = world.now.checked_add(SignedDuration::from_hours(1)).unwrap();
            world.settle();
        }
        let numbers =
            ["worker-0", "worker-1"].map(|node| host(&world, node)["job"]["number"].clone());
        (numbers, world.now.duration_since(begun))
    };
    let right = course(0);
    for minutes in [-400, -20, -3, 3, 20, 400] {
        assert_eq!(course(minutes), right, "{minutes} min");
    }
}
