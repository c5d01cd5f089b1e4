//! A single Job on a node: how it can fail, when it is over, and what it means that it is still in the list.

use kata_plan::{Kind, decide};
use serde_json::json;

use super::{finding, host, label, nothing_left, serves, until};
use crate::journeys::{condition, is};
use crate::plain::{Fate, NAMESPACE};
use crate::world::World;

fn fix(world: &World, code: &str) -> String {
    let decision = decide(&world.observe());
    let found = decision.report.findings.into_iter().find(|it| it.code.entry().code == code);
    found.unwrap_or_else(|| panic!("no {code}")).fix
}

#[test]
fn what_goes_wrong_with_a_job_has_a_code_and_is_tried_again() {
    for (fate, code) in [
        (Fate::Unfit, "KATA3101"),
        (Fate::Pending, "KATA3047"),
        (Fate::NoShim, "KATA3023"),
        (Fate::Fails, "KATA3102"),
        (Fate::Breaks, "KATA3104"),
        (Fate::NoRoom, "KATA3106"),
        (Fate::NoImage, "KATA3107"),
        (Fate::Hangs, "KATA3108"),
        (Fate::NoMount, "KATA3117"),
        (Fate::Garbage, "KATA3109"),
        (Fate::Silent, "KATA3109"),
        (Fate::Blocked, "KATA3110"),
        (Fate::NoPod, "KATA3115"),
        (Fate::Unreported, "KATA2108"),
    ] {
        let mut world = World::plain(1, 1);
        world.hosts.insert("worker-0".to_owned(), fate);
        world.config(&json!({}));
        until(&mut world, |world| {
            let decision = decide(&world.observe());
            decision.report.findings.iter().any(|it| it.code.to_string() == code)
        });
        assert_ne!(label(&world, "worker-0").as_deref(), Some("true"), "{fate:?}");
        world.hosts.clear();
        if fate == Fate::Unreported {
            let handlers = json!([{"name": ""}, {"name": "runc"}, {"name": "kata"}]);
            world.edit(Kind::Node, "worker-0", &json!({"status": {"runtimeHandlers": handlers}}));
        }
        if matches!(fate, Fate::Breaks | Fate::NoShim) {
            world.edit(
                Kind::KataNode,
                "worker-0",
                &json!({"metadata": {"annotations": {"kata-operator.dev/retry": "1"}}}),
            );
        }
        until(&mut world, |world| label(world, "worker-0").as_deref() == Some("true"));
        world.settle();
        assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"), "{fate:?}");
    }
}

#[test]
fn a_job_that_somebody_deletes_is_made_again_and_never_beside_its_pod() {
    let mut world = World::plain(1, 1);
    world.hosts.insert("worker-0".to_owned(), Fate::Hangs);
    world.config(&json!({}));
    until(&mut world, |world| {
        !world.changing().is_empty() && host(world, "worker-0")["job"]["action"] == "Install"
    });
    let job = world
        .names(Kind::Job)
        .into_iter()
        .find(|job| world.get(Kind::Job, job).unwrap()["status"]["conditions"].is_null())
        .unwrap();
    // With orphans, as `kubectl delete --cascade=orphan` does it.
    world.edit(Kind::Pod, &format!("{job}-pod"), &json!({"metadata": {"ownerReferences": null}}));
    world.delete(Kind::Job, &job);
    for _ in 0..20 {
        world.pass();
        assert_eq!(world.changing(), Vec::<String>::new());
        world.tick();
    }
    let said = format!("is gone, but pod {job}-pod has not ended");
    assert!(finding(&world, "KATA3105").contains(&said));
    assert!(fix(&world, "KATA3105").starts_with("Delete the pod"));
    world.hosts.clear();
    world.delete(Kind::Pod, &format!("{job}-pod"));
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

/// It is unknown what a deleted Job has done, so its node is not counted as one that serves.
#[test]
fn no_other_node_leaves_service_while_a_job_that_is_gone_is_made_again() {
    for fate in [None, Some(Fate::Silent), Some(Fate::Garbage)] {
        let mut world = World::plain(1, 4);
        world.config(&json!({}));
        world.settle();
        let payload = json!({"spec": {"payload": {"image": "registry.example/payload:2"}}});
        world.edit(Kind::KataConfig, "cluster-kataconfig", &payload);
        // Of the second node, since the first one goes alone in any case.
        let changed = |world: &World| {
            let state = |name: &String| host(world, name)["installed"].clone();
            let states = world.names(Kind::KataNode).iter().map(state).collect::<Vec<_>>();
            states.iter().filter(|state| **state != states[3]).count()
        };
        // The Job is known, so that it is missed.
        let runs = |world: &World| host(world, &world.changing()[0])["job"]["outcome"].is_null();
        until(&mut world, |world| {
            changed(world) == 1 && !world.changing().is_empty() && runs(world)
        });
        let node = world.changing().remove(0);
        match fate {
            Some(fate) => drop(world.hosts.insert(node.clone(), fate)),
            None => world.delete(Kind::Job, &world.changing_jobs().remove(0)),
        }
        let wanted = if fate.is_some() { "NoReport" } else { "Vanished" };
        until(&mut world, |world| host(world, &node)["job"]["outcome"] == wanted);
        world.hosts.clear();
        for _ in 0..400 {
            let nodes = world.names(Kind::KataNode);
            let serving = nodes.iter().filter(|it| serves(&world, it));
            assert!(serving.count() >= 3, "{fate:?}: {node}");
            world.pass();
            world.tick();
        }
        world.settle();
        assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    }
}

/// It may well serve, and would be the second one that does not.
#[test]
fn a_node_of_which_nobody_knows_does_not_lose_kata_while_another_is_down() {
    let mut world = World::plain(1, 3);
    world.config(&json!({"kataConfigPoolSelector": {"matchExpressions": [
        {"key": "kata", "operator": "NotIn", "values": ["no"]}]}}));
    world.settle();
    let image = json!({"spec": {"payload": {"image": "registry.example/payload:2"}}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &image);
    until(&mut world, |world| {
        world.changing() == ["worker-0"] && host(world, "worker-0")["job"]["outcome"].is_null()
    });
    for job in world.changing_jobs() {
        world.delete(Kind::Job, &job);
    }
    world.set_ready("worker-1", false);
    world.label("worker-0", "kata", Some("no"));
    until(&mut world, |world| host(world, "worker-0")["job"]["outcome"] == "Vanished");
    for _ in 0..200 {
        world.pass();
        assert_eq!(world.changing(), Vec::<String>::new());
        world.tick();
    }
    world.set_ready("worker-1", true);
    until(&mut world, |world| world.get(Kind::KataNode, "worker-0").is_none());
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

/// More nodes are out than may be, and each of them has to be gone on with.
#[test]
fn nodes_whose_jobs_are_gone_are_gone_on_with_one_after_the_other() {
    let mut world = World::plain(1, 4);
    world.config(&json!({"rollout": {"maxUnavailable": 2}}));
    world.settle();
    let spec = |world: &mut World, spec: serde_json::Value| {
        world.edit(Kind::KataConfig, "cluster-kataconfig", &json!({"spec": spec}));
    };
    spec(&mut world, json!({"payload": {"image": "registry.example/payload:2"}}));
    until(&mut world, |world| world.changing().len() == 2);
    let nodes = world.changing();
    until(&mut world, |world| {
        nodes.iter().all(|node| host(world, node)["job"]["outcome"].is_null())
    });
    for job in world.changing_jobs() {
        world.delete(Kind::Job, &job);
    }
    spec(&mut world, json!({"rollout": {"maxUnavailable": 1}}));
    until(&mut world, |world| {
        nodes.iter().all(|node| host(world, node)["job"]["outcome"] == "Vanished")
    });
    for _ in 0..400 {
        assert!(world.changing().len() <= 1, "{:?}", world.changing());
        world.pass();
        world.tick();
    }
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

#[test]
fn a_job_is_over_when_its_pod_is() {
    let mut world = World::plain(1, 1);
    world.hosts.insert("worker-0".to_owned(), Fate::Hangs);
    world.config(&json!({}));
    until(&mut world, |world| {
        !world.changing().is_empty() && host(world, "worker-0")["job"]["action"] == "Install"
    });
    let [job] = &world.changing_jobs()[..] else { panic!("one Job changes the node") };
    let pod = format!("{job}-pod");
    // Its deadline passes; the pod has its grace to end, or a watch is behind.
    world.end(job, Some(("DeadlineExceeded", "Job was active longer than specified deadline")));
    for _ in 0..20 {
        let jobs = world.names(Kind::Job);
        world.pass();
        assert_eq!(world.names(Kind::Job), jobs);
        assert_eq!(host(&world, "worker-0")["job"]["outcome"], json!(null));
        world.tick();
    }
    let said = format!("has ended, but pod {pod} has not");
    assert!(finding(&world, "KATA3108").contains(&said));
    assert!(fix(&world, "KATA3108").starts_with("Delete the pod"));
    world.set_ready("worker-0", false);
    assert!(finding(&world, "KATA2103").contains("worker-0"));
    world.set_ready("worker-0", true);
    world.hosts.clear();
    world.delete(Kind::Pod, &pod);
    world.pass();
    assert_eq!(host(&world, "worker-0")["job"]["outcome"], "TimedOut");
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

/// What a cloud does to nodes that it replaces, while the controller of Jobs is slow.
#[test]
fn a_job_of_an_earlier_node_of_the_same_name_has_to_go_before_the_next_one_comes() {
    let mut world = World::plain(1, 1);
    world.hosts.insert("worker-0".to_owned(), Fate::NoPod);
    world.config(&json!({}));
    until(&mut world, |world| !world.names(Kind::Job).is_empty());
    let [job] = &world.names(Kind::Job)[..] else { panic!("one Job") };
    let keep = json!({"metadata": {"finalizers": ["example.com/audit"]}});
    world.edit(Kind::Job, job, &keep);
    world.delete(Kind::Node, "worker-0");
    world.add_plain_node("worker-0");
    for _ in 0..10 {
        world.pass();
        assert_eq!(world.names(Kind::Job), std::slice::from_ref(job));
        world.tick();
    }
    let decision = decide(&world.observe());
    let waits: Vec<&str> =
        decision.report.waiting_on.iter().map(|wait| wait.message.as_str()).collect();
    let name = job.rsplit('/').next().unwrap();
    assert_eq!(waits, [format!("Job {name} on worker-0 to be gone")]);
    world.hosts.clear();
    world.edit(Kind::Job, job, &json!({"metadata": {"finalizers": null}}));
    world.delete(Kind::Job, job);
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

#[test]
fn an_installation_that_stays_in_the_list_of_jobs_is_no_news_after_the_removal() {
    let mut world = World::plain(1, 1);
    world.config(&json!({}));
    until(&mut world, |world| !world.changing().is_empty());
    let install = world.changing_jobs().remove(0);
    let keep = json!({"metadata": {"finalizers": ["example.com/audit"]}});
    world.edit(Kind::Job, &install, &keep);
    world.settle();
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    let decision = world.settle();
    let mut jobs = world.names(Kind::Job);
    jobs.retain(|job| *job != install);
    assert_eq!(jobs.len(), 1, "one removal, and not another: {jobs:?}");
    let waits: Vec<&str> =
        decision.report.waiting_on.iter().map(|wait| wait.message.as_str()).collect();
    assert!(waits.iter().any(|wait| wait.contains("to be gone")), "{waits:#?}");

    world.edit(Kind::Job, &install, &json!({"metadata": {"finalizers": null}}));
    world.delete(Kind::Job, &install);
    world.settle();
    nothing_left(&world);
}

#[test]
fn the_kata_config_stays_until_the_last_job_is_gone() {
    let mut world = World::plain(1, 1);
    world.config(&json!({}));
    world.settle();
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    until(&mut world, |world| !world.changing().is_empty());
    let removal = world.changing_jobs().remove(0);
    let keep = json!({"metadata": {"finalizers": ["example.com/audit"]}});
    world.edit(Kind::Job, &removal, &keep);
    let decision = world.settle();
    assert_eq!(world.names(Kind::KataConfig), ["cluster-kataconfig"]);
    let waits: Vec<&str> =
        decision.report.waiting_on.iter().map(|wait| wait.message.as_str()).collect();
    assert_eq!(waits, ["the Jobs on the nodes to be gone"]);

    world.edit(Kind::Job, &removal, &json!({"metadata": {"finalizers": null}}));
    world.delete(Kind::Job, &removal);
    world.settle();
    nothing_left(&world);
}

/// A kubelet may make mirror pods with any labels, and must not speak for other nodes with them.
#[test]
fn a_mirror_pod_says_nothing_of_any_node() {
    let mut world = World::plain(1, 2);
    world.config(&json!({}));
    world.settle();
    let job = world.names(Kind::Job).remove(0);
    let job = world.get(Kind::Job, &job).unwrap().clone();
    let mut annotations = job["metadata"]["annotations"].clone();
    annotations["kubernetes.io/config.mirror"] = json!("x");
    annotations["kata-operator.dev/action"] = json!("Install");
    for node in ["worker-0", "worker-1"] {
        annotations["kata-operator.dev/node"] = json!(node);
        world.create(json!({
            "kind": "Pod",
            "metadata": {
                "namespace": NAMESPACE, "name": format!("of-{node}"),
                "creationTimestamp": world.now.to_string(),
                "labels": {"batch.kubernetes.io/job-name": "none"},
                "annotations": annotations,
            },
            "spec": {"containers": []},
            "status": {"phase": "Pending"},
        }));
    }
    for _ in 0..20 {
        let decision = world.pass();
        assert!(decision.report.findings.is_empty(), "{:#?}", decision.report.findings);
        world.tick();
        for node in ["worker-0", "worker-1"] {
            assert!(serves(&world, node), "{node}");
        }
    }
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    // Nor do such nodes wait for it to end before they are changed.
    let other = json!({"spec": {"payload": {"image": "registry.example/payload:2"}}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &other);
    until(&mut world, |world| !world.changing().is_empty());
}

#[test]
fn a_node_gets_no_label_before_its_kubelet_reports_the_handler() {
    let mut world = World::plain(1, 1);
    world.hosts.insert("worker-0".to_owned(), Fate::Unreported);
    world.config(&json!({}));
    until(&mut world, |world| {
        let kata_node = world.get(Kind::KataNode, "worker-0");
        let job = kata_node.map(|it| it["status"]["host"]["job"].clone()).unwrap_or_default();
        job["action"] == "Install" && job["outcome"] == "Done"
    });
    for _ in 0..15 {
        world.pass();
        world.tick();
        assert_eq!(label(&world, "worker-0"), None);
    }
}
