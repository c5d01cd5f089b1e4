//! Nodes that have Kata and get another payload: they serve while it is brought onto them.

use kata_plan::Kind;
use serde_json::{Value, json};

use super::{finding, host, serves, until};
use crate::journeys::{condition, is};
use crate::plain::{Fate, stage_of, task_of};
use crate::world::World;

fn upgrade(world: &mut World) {
    let image = json!({"spec": {"payload": {"image": "registry.example/payload:2"}}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &image);
}

/// The nodes on which a Job takes the payload out of its image, and changes nothing else.
fn staging(world: &World) -> Vec<String> {
    let jobs = world.names(Kind::Job);
    let open = jobs.iter().map(|name| world.get(Kind::Job, name).unwrap()).filter(|job| {
        job["status"]["conditions"].is_null()
            && job["metadata"]["annotations"]["kata-operator.dev/action"] == "Preflight"
            && stage_of(job).is_some()
    });
    open.map(|job| task_of(job).node).collect()
}

fn out_of_service(world: &World) -> Vec<String> {
    let nodes = world.names(Kind::Node).into_iter().filter(|name| name.starts_with("worker"));
    nodes.filter(|name| !serves(world, name)).collect()
}

#[test]
fn a_node_serves_until_its_next_payload_is_there() {
    let mut world = World::plain(1, 4);
    world.config(&json!({"rollout": {"maxUnavailable": 2}}));
    world.settle();
    upgrade(&mut world);
    let mut staged = Vec::new();
    let mut at_once = 0;
    for _ in 0..400 {
        world.pass();
        let now = staging(&world);
        for node in &now {
            assert!(serves(&world, node), "{node} stages");
        }
        for node in out_of_service(&world) {
            assert!(staged.contains(&node), "{node} went out of service before it was staged");
        }
        let changed = host(&world, "worker-0")["payloadDigest"].is_null();
        assert!(!changed || now.len() <= 2);
        at_once = at_once.max(now.len());
        staged.extend(now);
        world.tick();
    }
    assert_eq!(at_once, 2);
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert_eq!(out_of_service(&world), Vec::<String>::new());
}

/// The first one goes alone, with its payload too: what fails there is not brought onto others.
#[test]
fn nothing_is_staged_ahead_of_the_first_node() {
    let mut world = World::plain(1, 4);
    world.config(&json!({"rollout": {"maxUnavailable": 3}}));
    world.settle();
    world.hosts.insert("worker-0".to_owned(), Fate::RollsBack);
    upgrade(&mut world);
    let mut undone = false;
    for _ in 0..100 {
        let findings = world.pass().report.findings;
        undone = findings.iter().any(|finding| finding.code.to_string() == "KATA3103");
        if undone {
            break;
        }
        assert!(staging(&world).iter().all(|node| node == "worker-0"), "{:?}", staging(&world));
        world.tick();
    }
    assert!(undone);
    assert_eq!(staging(&world), ["worker-1"]);
    // Another one is the first to try it, and the rest follows.
    until(&mut world, |world| {
        (1..4).all(|index| host(world, &format!("worker-{index}"))["job"]["action"] == "Install")
    });
}

/// A mistyped image costs no node its Kata.
#[test]
fn an_image_that_cannot_be_pulled_takes_no_node_out_of_service() {
    let mut world = World::plain(1, 3);
    world.config(&json!({}));
    world.settle();
    let classes = world.get(Kind::RuntimeClass, "kata").cloned();
    for index in 0..3 {
        world.hosts.insert(format!("worker-{index}"), Fate::NoImage);
    }
    upgrade(&mut world);
    for _ in 0..400 {
        world.pass();
        assert_eq!(out_of_service(&world), Vec::<String>::new());
        assert!(staging(&world).len() <= 1, "{:?}", staging(&world));
        world.tick();
    }
    until(&mut world, |world| staging(world) == ["worker-0"]);
    until(&mut world, |world| condition(world, "Ready") == is("False", "NodeJobImage"));
    assert!(finding(&world, "KATA3107").contains("registry.example/payload"));
    let reported =
        world.get(Kind::KataConfig, "cluster-kataconfig").unwrap()["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|condition| condition["type"] == "Ready")
            .map(|condition| condition["message"].as_str().unwrap_or_default().to_owned());
    let reported = reported.unwrap_or_default();
    assert!(reported.contains("worker-0 ready while its next payload is staged"), "{reported}");
    assert!(reported.contains("waiting: the first node must succeed first"), "{reported}");
    let back = json!({"spec": {"payload": Value::Null}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &back);
    for _ in 0..40 {
        let d = world.pass();
        assert_eq!(out_of_service(&world), Vec::<String>::new(), "{}", crate::render::decision(&d));
        world.tick();
    }
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert_eq!(world.get(Kind::RuntimeClass, "kata").cloned(), classes);
    // The pod of a Job that changes nothing may outlast it, and the node serves all the same.
    let mut pod = world.get(Kind::Pod, &world.names(Kind::Pod)[0]).unwrap().clone();
    pod["metadata"]["name"] = json!("late-pod");
    pod["metadata"]["ownerReferences"] = Value::Null;
    pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] = json!("late");
    pod["metadata"]["annotations"]["kata-operator.dev/action"] = json!("Preflight");
    pod["metadata"]["annotations"]["kata-operator.dev/node"] = json!("worker-0");
    pod["status"] = json!({"phase": "Pending"});
    world.create(pod);
    for _ in 0..4 {
        world.pass();
        assert_eq!(out_of_service(&world), Vec::<String>::new());
    }
    // If the label is removed by hand, the operator sets it again meanwhile.
    world.label("worker-0", "katacontainers.io/kata-runtime", None);
    for _ in 0..4 {
        world.pass();
    }
    assert_eq!(out_of_service(&world), Vec::<String>::new());
    for index in 0..3 {
        assert_eq!(host(&world, &format!("worker-{index}"))["restarts"], 1);
    }
}

/// One node lacks what is asked for and waits for another payload; those of another kind go on beside it.
#[test]
fn a_node_that_is_spared_holds_up_nobody() {
    let mut world = World::plain(1, 3);
    for (index, architecture) in ["amd64", "amd64", "arm64"].into_iter().enumerate() {
        let labels = json!({"metadata": {"labels": {"kubernetes.io/arch": architecture}}});
        world.edit(Kind::Node, &format!("worker-{index}"), &labels);
    }
    world.config(&json!({}));
    world.settle();
    world.hosts.insert("worker-0".to_owned(), Fate::NoShim);
    upgrade(&mut world);
    until(&mut world, |world| {
        let job = host(world, "worker-2")["job"].clone();
        (job["number"].clone(), job["outcome"].clone()) == (json!(4), json!("Done"))
    });
    assert!(finding(&world, "KATA3111").contains("so the change is not made on worker-1"));
    assert_eq!(host(&world, "worker-1")["job"]["number"], 2, "nothing was tried there");
}

/// An admin who chooses the time of an upgrade pauses the roll-out first.
#[test]
fn an_upgrade_that_is_paused_says_so() {
    let mut world = World::plain(1, 2);
    world.config(&json!({"rollout": {"paused": true}}));
    let go = json!({"spec": {"rollout": {"paused": false}}});
    let stop = json!({"spec": {"rollout": {"paused": true}}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &go);
    world.settle();
    world.edit(Kind::KataConfig, "cluster-kataconfig", &stop);
    upgrade(&mut world);
    for _ in 0..20 {
        world.pass();
        assert_eq!(staging(&world), Vec::<String>::new());
        world.tick();
    }
    assert!(finding(&world, "KATA3112").contains("spec.rollout.paused is true"));
    world.edit(Kind::KataConfig, "cluster-kataconfig", &go);
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert_eq!(host(&world, "worker-1")["job"]["number"], 4);
}
