//! What is wrong with single nodes, and must not become the trouble of all.

use jiff::SignedDuration;
use kata_api::node_task::NodeAction;
use kata_plan::{Kind, decide};
use serde_json::json;

use super::{finding, host, label, until};
use crate::journeys::{condition, is};
use crate::plain::{Fate, task_of};
use crate::world::World;

#[test]
fn an_installation_that_is_refused_comes_ever_more_rarely_and_stops_nobody_else() {
    let mut world = World::plain(1, 6);
    for index in 0..4 {
        world.hosts.insert(format!("worker-{index}"), Fate::Refused);
    }
    world.config(&json!({"rollout": {"maxUnavailable": 3}}));
    until(&mut world, |world| {
        ["worker-4", "worker-5"].iter().all(|node| label(world, node).as_deref() == Some("true"))
    });
    for _ in 0..36 {
        world.now = world.now.checked_add(SignedDuration::from_mins(5)).unwrap();
        for _ in 0..8 {
            world.pass();
            world.tick();
        }
    }
    // Each doubles the pause, up to an hour; a check before each would make it two.
    let number = host(&world, "worker-0")["job"]["number"].as_i64().unwrap();
    assert!((6..=12).contains(&number), "{number}");
    assert!(host(&world, "worker-0")["job"]["failures"].as_i64().unwrap() >= 5);
    assert!(finding(&world, "KATA3101").contains("worker-0"), "the reason is reported");
    let findings = decide(&world.observe()).report.findings;
    assert!(!findings.iter().any(|it| it.to_string().starts_with("KATA3111")), "{findings:?}");
    world.hosts.clear();
    until(&mut world, |world| condition(world, "Ready") == is("True", "AllNodesReady"));
}

/// No watch event reports that its owner has restarted the runtime.
#[test]
fn a_node_that_waits_for_a_restart_by_another_program_is_looked_at_again_within_minutes() {
    let mut world = World::plain(1, 2);
    world.hosts.insert("worker-0".to_owned(), Fate::Pending);
    world.config(&json!({}));
    until(&mut world, |world| label(world, "worker-1").as_deref() == Some("true"));
    let pass = |world: &mut World| {
        world.now = world.now.checked_add(SignedDuration::from_mins(5)).unwrap();
        for _ in 0..8 {
            world.pass();
            world.tick();
        }
    };
    (0..36).for_each(|_| pass(&mut world));
    let number = host(&world, "worker-0")["job"]["number"].as_i64().unwrap();
    assert!(number > 30, "{number}");
    let said = finding(&world, "KATA3047");
    assert!(said.contains("worker-0") && said.contains("the next retry is at"), "{said}");
    world.hosts.clear();
    pass(&mut world);
    until(&mut world, |world| label(world, "worker-0").as_deref() == Some("true"));

    let mut world = World::plain(1, 1);
    world.hosts.insert("worker-0".to_owned(), Fate::Pending);
    world.config(&json!({"rollout": {"foreignChanges": "Activate"}}));
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

/// It is the payload that lacks something, and what is wanted of it: no other node would fare better.
#[test]
fn a_payload_that_is_of_no_use_on_one_node_is_not_tried_on_others_like_it() {
    let mut world = World::plain(1, 4);
    for index in 0..4 {
        let name = format!("worker-{index}");
        let architecture = if index < 2 { "amd64" } else { "arm64" };
        let labels = json!({"metadata": {"labels": {"kubernetes.io/arch": architecture}}});
        world.edit(Kind::Node, &name, &labels);
        if index < 2 {
            world.hosts.insert(name, Fate::NoShim);
        }
    }
    world.config(
        &json!({"runtimes": [{"name": "kata", "shim": "qemuu"}], "rollout": {"maxUnavailable": 4}}),
    );
    until(&mut world, |world| {
        ["worker-2", "worker-3"].iter().all(|node| label(world, node).as_deref() == Some("true"))
    });
    for _ in 0..200 {
        world.pass();
        world.tick();
    }
    let job = host(&world, "worker-0")["job"].clone();
    assert_eq!((&job["failures"], &job["code"]), (&json!(1), &json!("KATA3023")), "{job:#}");
    assert_eq!(host(&world, "worker-1")["job"]["action"], "Preflight");
    let reported = finding(&world, "KATA3111");
    assert!(
        reported.contains(
            "the payload is unusable on node worker-0, so the change is not made on worker-1"
        ),
        "{reported}"
    );
    assert!(finding(&world, "KATA3023").contains("no shim qemuu for x86_64; it has: clh, qemu"));
    assert_eq!(condition(&world, "Stalled"), is("True", "ShimMissing"));
    let phase =
        |world: &World| world.get(Kind::KataNode, "worker-0").unwrap()["status"]["phase"].clone();
    assert_eq!(phase(&world), "Failed");
    world.hosts.clear();
    let spec = json!({"spec": {"runtimes": [{"name": "kata", "shim": "qemu"}]}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &spec);
    until(&mut world, |world| condition(world, "Ready") == is("True", "AllNodesReady"));
}

/// What is installed is as good as before, and what is known of it stays.
#[test]
fn a_node_keeps_what_it_has_when_another_payload_is_of_no_use() {
    let mut world = World::plain(1, 2);
    world.config(&json!({}));
    world.settle();
    let before = host(&world, "worker-0");
    world.hosts.insert("worker-0".to_owned(), Fate::NoShim);
    world.edit(Kind::KataConfig, "cluster-kataconfig", &json!({
        "metadata": {"generation": 2}, "spec": {"payload": {"image": "registry.example/payload:2"}}}));
    until(&mut world, |world| host(world, "worker-0")["job"]["code"] == "KATA3023");
    world.settle();
    for node in ["worker-0", "worker-1"] {
        assert_eq!(label(&world, node).as_deref(), Some("true"), "{node}");
    }
    for key in ["installed", "runtime", "handlers"] {
        assert_eq!(host(&world, "worker-0")[key], before[key], "{key}");
    }
    assert_eq!(condition(&world, "Stalled"), is("True", "ShimMissing"));
    let back = json!({"spec": {"payload": null}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &back);
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

/// The operator goes on trying, and reports that it does not expect success without help.
#[test]
fn what_has_failed_often_is_told_until_another_try_succeeds() {
    let mut world = World::plain(1, 1);
    world.hosts.insert("worker-0".to_owned(), Fate::Fails);
    world.config(&json!({}));
    let after = |world: &World, failures: i64, over: bool| {
        let node = world.get(Kind::KataNode, "worker-0");
        let job = node.map(|node| node["status"]["host"]["job"].clone()).unwrap_or_default();
        job["failures"] == failures && job["outcome"].is_null() != over
    };
    until(&mut world, |world| after(world, 1, true));
    let at = host(&world, "worker-0")["job"]["time"].as_str().unwrap().parse::<jiff::Timestamp>();
    let next = at.unwrap().checked_add(SignedDuration::from_secs(30)).unwrap();
    let next = next.strftime("; the next retry is at %Y-%m-%dT%H:%M:%SZ").to_string();
    let reported = finding(&world, "KATA3102");
    assert!(reported.ends_with(&next), "{reported} {next}");
    assert_eq!(condition(&world, "Stalled"), is("", ""));
    assert_eq!(condition(&world, "Degraded"), is("False", "AsExpected"));
    until(&mut world, |world| after(world, 1, false));
    let reported = finding(&world, "KATA3102");
    assert!(reported.ends_with("simulated Failed; a retry is running"), "{reported}");
    until(&mut world, |world| after(world, 3, true));
    world.pass();
    for type_ in ["Stalled", "Degraded"] {
        assert_eq!(condition(&world, type_), is("True", "NodeJobFailed"));
    }
    // A further try changes nothing about that.
    until(&mut world, |world| after(world, 3, false));
    world.pass();
    for type_ in ["Stalled", "Degraded"] {
        assert_eq!(condition(&world, type_), is("True", "NodeJobFailed"));
    }
    world.hosts.clear();
    until(&mut world, |world| condition(world, "Ready") == is("True", "AllNodesReady"));
    assert!(host(&world, "worker-0")["job"]["message"].is_null());
}

#[test]
fn sandboxes_that_are_in_the_way_of_upgrades_do_not_stop_the_rollout() {
    let mut world = World::plain(1, 5);
    world.config(&json!({"payload": {"image": "registry.example/payload:1"}, "rollout": {"maxUnavailable": 2}}));
    world.settle();
    for index in 0..4 {
        world.hosts.insert(format!("worker-{index}"), Fate::Blocked);
    }
    world.edit(Kind::KataConfig, "cluster-kataconfig", &json!({
        "metadata": {"generation": 2}, "spec": {"payload": {"image": "registry.example/payload:2"}}}));
    for _ in 0..12 {
        world.now = world.now.checked_add(SignedDuration::from_mins(5)).unwrap();
        for _ in 0..8 {
            world.pass();
            world.tick();
        }
    }
    let last = world.get(Kind::KataNode, "worker-4").unwrap();
    assert_eq!(last["status"]["phase"], "Ready", "{last:#}");
    // As soon as the pods are gone it goes on by itself.
    world.hosts.clear();
    until(&mut world, |world| condition(world, "Ready") == is("True", "AllNodesReady"));
}

#[test]
fn nodes_with_an_edited_file_keep_the_label_until_it_is_their_turn() {
    let mut world = World::plain(1, 4);
    world.config(&json!({}));
    world.settle();
    for index in 0..4 {
        world.hosts.insert(format!("worker-{index}"), Fate::Edited);
    }
    world.now = world.now.checked_add(SignedDuration::from_hours(13)).unwrap();
    let marked = |world: &World| {
        let nodes = (0..4).map(|index| format!("worker-{index}"));
        nodes.filter(|node| label(world, node).as_deref() == Some("true")).count()
    };
    let drifted = |world: &World| {
        (0..4).filter(|index| host(world, &format!("worker-{index}"))["drifts"] == json!(1)).count()
    };
    let mut reported = false;
    for _ in 0..3_000 {
        if drifted(&world) == 4 && host(&world, "worker-3")["installed"] != json!("drifted") {
            break;
        }
        world.pass();
        world.tick();
        assert!(marked(&world) >= 3, "only one may lose it at a time");
        let findings = decide(&world.observe()).report.findings;
        reported |= findings.iter().any(|finding| finding.to_string().starts_with("KATA3113"));
    }
    assert_eq!(drifted(&world), 4);
    assert!(reported);
    world.hosts.clear();
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert_eq!(marked(&world), 4);
}

#[test]
fn a_kubelet_that_reports_late_ends_an_installation_and_not_an_outage() {
    let mut world = World::plain(1, 1);
    world.hosts.insert("worker-0".to_owned(), Fate::Unreported);
    world.config(&json!({}));
    let mut reported = Vec::new();
    for _ in 0..80 {
        let step = world.get(Kind::KataNode, "worker-0").map(|it| it["status"]["step"].clone());
        if step == Some(json!("4/4 Confirming")) {
            let handlers = json!([{"name": ""}, {"name": "kata"}, {"name": "runc"}]);
            world.edit(Kind::Node, "worker-0", &json!({"status": {"runtimeHandlers": handlers}}));
        }
        let events = world.pass().report.events;
        reported.extend(events.into_iter().map(|event| event.reason));
        world.tick();
    }
    let of_nodes: Vec<&str> =
        reported.iter().map(String::as_str).filter(|reason| reason.starts_with("Kata")).collect();
    assert_eq!(of_nodes, ["KataInstalling", "KataRuntimeInstalled"], "{reported:?}");
}

/// The reason stays what was seen last, also when the kubelet stops after it.
#[test]
fn a_node_that_a_change_left_broken_stays_so_when_its_kubelet_stops() {
    let mut world = World::plain(1, 2);
    world.hosts.insert("worker-0".to_owned(), Fate::Breaks);
    world.config(&json!({}));
    until(&mut world, |world| {
        world.get(Kind::KataNode, "worker-0").is_some()
            && host(world, "worker-0")["job"]["outcome"] == "Unsafe"
    });
    world.set_ready("worker-0", false);
    let retry = json!({"metadata": {"annotations": {"kata-operator.dev/retry": "1"}}});
    for round in 0..40 {
        world.pass();
        assert_eq!(condition(&world, "Degraded"), is("True", "NodeBroken"));
        assert_eq!(condition(&world, "Stalled"), is("True", "NodeBroken"));
        world.tick();
        if round == 20 {
            // No Job can run there, so the finding names what to do first.
            world.edit(Kind::KataNode, "worker-0", &retry);
        }
    }
    let reported = finding(&world, "KATA3104");
    assert!(reported.contains("worker-0 is not Ready, because a change failed"), "{reported}");
    world.hosts.clear();
    world.set_ready("worker-0", true);
    until(&mut world, |world| condition(world, "Ready") == is("True", "AllNodesReady"));
}

/// After a restore without status, or after KataNodes were deleted, the nodes serve as before.
#[test]
fn nodes_of_which_everything_is_forgotten_keep_the_label_until_it_is_their_turn() {
    for (inspected, kinds) in
        [(false, &[Kind::Job, Kind::KataNode][..]), (true, &[Kind::KataNode][..])]
    {
        forget(inspected, kinds);
    }
}

fn forget(inspected: bool, kinds: &[Kind]) {
    let mut world = World::plain(1, 4);
    world.config(&json!({}));
    world.settle();
    if inspected {
        world.now = world.now.checked_add(SignedDuration::from_hours(13)).unwrap();
        let done = |world: &World, index: usize| {
            let job = host(world, &format!("worker-{index}"))["job"].clone();
            job["action"] == "Inspect" && job["outcome"] == "Done"
        };
        until(&mut world, |world| (0..4).all(|index| done(world, index)));
        world.settle();
    }
    for kind in kinds {
        for name in world.names(*kind) {
            world.delete(*kind, &name);
        }
    }
    let marked = |world: &World| {
        let nodes = (0..4).map(|index| format!("worker-{index}"));
        nodes.filter(|node| label(world, node).as_deref() == Some("true")).count()
    };
    let mut fewest = 4;
    for _ in 0..400 {
        world.pass();
        fewest = fewest.min(marked(&world));
        world.tick();
    }
    assert_eq!((fewest, marked(&world)), (4, 4));
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

/// A label that anybody can set is no record of what was done on a node.
#[test]
fn a_claim_that_somebody_sets_brings_kata_to_no_node_of_the_control_plane() {
    let mut world = World::plain(1, 2);
    world.config(&json!({}));
    world.settle();
    world.label("master-0", super::CLAIM, Some("true"));
    for _ in 0..60 {
        world.pass();
        let jobs = world.names(Kind::Job);
        let tasks = jobs.iter().map(|name| task_of(world.get(Kind::Job, name).unwrap()));
        // That nothing of ours is there has to be seen to before the claim goes.
        let mut of_master = tasks.filter(|task| task.node == "master-0");
        assert!(of_master.all(|task| task.action == NodeAction::Remove));
        assert_ne!(label(&world, "master-0").as_deref(), Some("true"));
        world.tick();
    }
    world.settle();
    assert_eq!(world.node("master-0").labels.get(super::CLAIM), None);
    assert_eq!(world.get(Kind::KataNode, "master-0"), None);
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

/// Each class has a label of its own, so that it does not have to wait until every node serves it.
#[test]
fn a_class_is_offered_as_soon_as_one_node_serves_it_and_points_at_no_other() {
    let mut world = World::plain(1, 2);
    world.config(&json!({}));
    world.settle();
    let both = json!({"spec": {"runtimes": [{"name": "kata"}, {"name": "fast", "shim": "clh"}]}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &both);
    let key = "kata.node-restriction.kubernetes.io/fast";
    until(&mut world, |world| world.get(Kind::RuntimeClass, "fast").is_some());
    assert!(world.node("worker-0").labels.contains_key(key));
    assert!(!world.node("worker-1").labels.contains_key(key));
    let class = world.get(Kind::RuntimeClass, "fast").unwrap();
    assert_eq!(class["scheduling"]["nodeSelector"][key], "true");
    world.settle();
    assert!(world.node("worker-1").labels.contains_key(key));
}
