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
    assert!(finding(&world, "KATA3101").contains("worker-0"), "the reason is told");
    let findings = decide(&world.observe()).report.findings;
    assert!(!findings.iter().any(|it| it.to_string().starts_with("KATA3111")), "{findings:?}");
    world.hosts.clear();
    until(&mut world, |world| condition(world, "Ready") == is("True", "AllNodesReady"));
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
    let told = finding(&world, "KATA3111");
    assert!(
        told.contains(
            "the payload is unusable on node worker-0, so it is not installed on worker-1"
        ),
        "{told}"
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

/// It goes on being tried, and whoever waits for it learns that it is not expected to succeed by itself.
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
    let told = finding(&world, "KATA3102");
    assert!(told.ends_with(&next), "{told} {next}");
    assert_eq!(condition(&world, "Stalled"), is("", ""));
    assert_eq!(condition(&world, "Degraded"), is("False", "AsExpected"));
    until(&mut world, |world| after(world, 1, false));
    let told = finding(&world, "KATA3102");
    assert!(told.ends_with("simulated Failed; a retry is running"), "{told}");
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
    let mut told = false;
    for _ in 0..3_000 {
        if drifted(&world) == 4 && host(&world, "worker-3")["installed"] != json!("drifted") {
            break;
        }
        world.pass();
        world.tick();
        assert!(marked(&world) >= 3, "only one may lose it at a time");
        let findings = decide(&world.observe()).report.findings;
        told |= findings.iter().any(|finding| finding.to_string().starts_with("KATA3113"));
    }
    assert_eq!(drifted(&world), 4);
    assert!(told);
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
    let mut told = Vec::new();
    for _ in 0..80 {
        let step = world.get(Kind::KataNode, "worker-0").map(|it| it["status"]["step"].clone());
        if step == Some(json!("4/4 Confirming")) {
            let handlers = json!([{"name": ""}, {"name": "kata"}, {"name": "runc"}]);
            world.edit(Kind::Node, "worker-0", &json!({"status": {"runtimeHandlers": handlers}}));
        }
        let events = world.pass().report.events;
        told.extend(events.into_iter().map(|event| event.reason));
        world.tick();
    }
    let of_nodes: Vec<&str> =
        told.iter().map(String::as_str).filter(|reason| reason.starts_with("Kata")).collect();
    assert_eq!(of_nodes, ["KataInstalling", "KataRuntimeInstalled"], "{told:?}");
}

/// The Job waits for its image, and would do so until its deadline.
#[test]
fn a_job_that_cannot_start_goes_once_something_else_is_wanted() {
    let image = |world: &mut World, generation: i64, image: &str| {
        let spec = json!({"payload": {"image": format!("registry.example/payload:{image}")}});
        let patch = json!({"metadata": {"generation": generation}, "spec": spec});
        world.edit(Kind::KataConfig, "cluster-kataconfig", &patch);
    };
    let mut world = World::plain(1, 3);
    world.config(&json!({"payload": {"image": "registry.example/payload:1"}}));
    world.settle();
    for index in 0..3 {
        world.hosts.insert(format!("worker-{index}"), Fate::NoImage);
    }
    image(&mut world, 2, "typo");
    let stuck = |world: &World| {
        let findings = decide(&world.observe()).report.findings;
        findings.iter().any(|it| it.to_string().starts_with("KATA3107"))
    };
    until(&mut world, stuck);
    // The typo is corrected: what is installed is what is wanted, and nothing has to be pulled for it.
    image(&mut world, 3, "1");
    until(&mut world, |world| condition(world, "Ready") == is("True", "AllNodesReady"));
    assert!(
        (0..3).all(|index| label(&world, &format!("worker-{index}")).as_deref() == Some("true"))
    );
    assert_eq!(host(&world, "worker-0")["job"]["outcome"], json!("NotStarted"));

    // Nor does it keep Kata from being removed.
    image(&mut world, 4, "typo");
    until(&mut world, stuck);
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    until(&mut world, |world| world.get(Kind::KataConfig, "cluster-kataconfig").is_none());
    assert_eq!(world.names(Kind::Job), [""; 0]);
}

/// The image comes just when the Job is given up: what it does counts.
#[test]
fn a_job_that_was_given_up_and_began_all_the_same_is_waited_for() {
    let mut world = World::plain(1, 1);
    world.hosts.insert("worker-0".to_owned(), Fate::NoImage);
    world.config(&json!({"payload": {"image": "registry.example/payload:1"}}));
    until(&mut world, |world| {
        let findings = decide(&world.observe()).report.findings;
        findings.iter().any(|it| it.to_string().starts_with("KATA3107"))
    });
    assert_eq!(host(&world, "worker-0")["job"]["action"], json!("Install"));
    let patch = json!({"metadata": {"generation": 2}, "spec": {"payload": {"image": "registry.example/payload:2"}}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &patch);
    until(&mut world, |world| host(world, "worker-0")["job"]["outcome"] == json!("NotStarted"));
    let job = host(&world, "worker-0")["job"]["name"].as_str().unwrap().to_owned();
    let is_there = |world: &World| world.names(Kind::Job).iter().any(|name| name.ends_with(&job));
    assert!(is_there(&world));
    world.hosts.insert("worker-0".to_owned(), Fate::Hangs);
    world.tick();
    for _ in 0..20 {
        world.pass();
        world.tick();
    }
    assert!(is_there(&world), "it changes the node");
    assert_eq!(host(&world, "worker-0")["job"]["outcome"], json!(null));
    world.hosts.clear();
    until(&mut world, |world| condition(world, "Ready") == is("True", "AllNodesReady"));
}

/// A kubelet that cannot mount a volume says so only in Events, which nobody here reads.
#[test]
fn a_pod_that_does_not_begin_is_named_after_some_minutes() {
    let mut world = World::plain(1, 1);
    world.hosts.insert("worker-0".to_owned(), Fate::NoMount);
    world.config(&json!({}));
    until(&mut world, |world| !world.names(Kind::Pod).is_empty());
    let named = |world: &World| {
        let findings = decide(&world.observe()).report.findings;
        findings.into_iter().find(|it| it.code.to_string() == "KATA3117")
    };
    world.now = world.now.checked_add(SignedDuration::from_mins(4)).unwrap();
    world.pass();
    assert_eq!(named(&world), None, "images take their time");
    let again = decide(&world.observe()).requeue_after.unwrap();
    assert!(again <= std::time::Duration::from_secs(60), "{again:?}");
    world.now = world.now.checked_add(SignedDuration::from_mins(1)).unwrap();
    let found = named(&world).unwrap();
    assert!(
        found.message.contains(
            "see the Events of pod openshift-sandboxed-containers-operator/kata-worker-0-"
        ),
        "{}",
        found.message
    );
    assert!(found.fix.contains("kubectl describe pod"), "{}", found.fix);
    world.pass();
    assert_ne!(condition(&world, "Stalled").0, "True", "it may begin at any moment");
    world.hosts.clear();
    until(&mut world, |world| condition(world, "Ready") == is("True", "AllNodesReady"));
}

/// Time until these nodes serve.
fn until_they_serve(world: &mut World, names: &[String]) -> jiff::SignedDuration {
    let begun = world.now;
    until(world, |world| names.iter().all(|node| label(world, node).as_deref() == Some("true")));
    world.now.duration_since(begun)
}

/// A node that cannot pull the payload is passed over, and costs the others no more than it may wait.
#[test]
fn one_node_that_never_pulls_costs_nine_others_its_limit_and_no_more() {
    let names: Vec<String> = (1..10).map(|index| format!("worker-{index}")).collect();
    let mut good = World::plain(1, 10);
    good.config(&json!({}));
    let without = until_they_serve(&mut good, &names);
    let mut world = World::plain(1, 10);
    world.hosts.insert("worker-0".to_owned(), Fate::NoImage);
    world.config(&json!({}));
    let with = until_they_serve(&mut world, &names);
    let limit = jiff::SignedDuration::from_mins(5);
    assert!(with <= without.checked_mul(11).unwrap() / 10 + limit, "{with:#}, without {without:#}");
    assert!(finding(&world, "KATA3107").contains("worker-0"));
}

/// Where two nodes in a row cannot start, the others would not, either.
#[test]
fn after_two_nodes_that_never_pull_no_other_is_tried_until_one_of_them_does() {
    let mut world = World::plain(1, 10);
    for index in 0..10 {
        world.hosts.insert(format!("worker-{index}"), Fate::NoImage);
    }
    world.config(&json!({}));
    let is_stopped = |world: &World| {
        let findings = decide(&world.observe()).report.findings;
        findings.iter().any(|it| it.code == kata_api::Code::RolloutStopped)
    };
    until(&mut world, is_stopped);
    let stopped = finding(&world, "KATA3111");
    assert!(
        stopped
            .contains("the installation could not start on 2 nodes, so no further node is tried"),
        "{stopped}"
    );
    let tried = |world: &World| {
        let all = (0..10).map(|index| host(world, &format!("worker-{index}")));
        all.filter(|host| host["job"]["action"] == "Install").count()
    };
    let begun = world.now;
    until(&mut world, |world| {
        world.now.duration_since(begun) > jiff::SignedDuration::from_hours(3)
    });
    assert_eq!(tried(&world), 2);
    // The registry works again.
    world.hosts.clear();
    until(&mut world, |world| condition(world, "Ready") == is("True", "AllNodesReady"));
}

/// A registry that fails in the middle does not cost each of the nodes that are left its five minutes in a row,
/// and a node that could never start holds up no node that comes later.
#[test]
fn after_a_success_two_nodes_that_cannot_start_hold_up_the_others_for_some_tries_only() {
    let mut world = World::plain(1, 8);
    world.config(&json!({}));
    until(&mut world, |world| label(world, "worker-1").as_deref() == Some("true"));
    for index in 2..8 {
        world.hosts.insert(format!("worker-{index}"), Fate::NoImage);
    }
    let tried = |world: &World| {
        let all = (2..8).map(|index| host(world, &format!("worker-{index}")));
        all.filter(|host| host["job"]["action"] == "Install").count()
    };
    let stopped = |world: &World| {
        let findings = decide(&world.observe()).report.findings;
        findings.into_iter().find(|it| it.code == kata_api::Code::RolloutStopped)
    };
    until(&mut world, |world| stopped(world).is_some());
    assert!(
        stopped(&world).unwrap().message.contains("the installation could not start on 2 nodes")
    );
    assert_eq!(tried(&world), 2);
    let begun = world.now;
    until(&mut world, |world| tried(world) == 3);
    let held = world.now.duration_since(begun);
    assert!(held > jiff::SignedDuration::from_mins(10), "{held:#}");
    // Two of them never start; the others do.
    for index in 4..8 {
        world.hosts.remove(&format!("worker-{index}"));
    }
    until(&mut world, |world| label(world, "worker-7").as_deref() == Some("true"));
    assert_eq!(stopped(&world), None);
}

/// At the deadline of a check, why it never had a pod is still told.
#[test]
fn a_check_that_never_got_a_pod_did_not_start() {
    let mut world = World::plain(1, 1);
    world.hosts.insert("worker-0".to_owned(), Fate::NoPod);
    world.config(&json!({}));
    until(&mut world, |world| {
        let node = world.get(Kind::KataNode, "worker-0");
        node.is_some_and(|node| node["status"]["host"]["job"]["failures"] == json!(2))
    });
    let job = host(&world, "worker-0")["job"].clone();
    assert_eq!((&job["action"], &job["outcome"]), (&json!("Preflight"), &json!("NotStarted")));
    let told = finding(&world, "KATA3115");
    assert!(told.contains("did not start: it got no pod"), "{told}");
    world.hosts.clear();
    until(&mut world, |world| condition(world, "Ready") == is("True", "AllNodesReady"));
}

/// What the decision says of a pod that does not begin.
fn not_started(world: &World) -> Option<String> {
    let findings = decide(&world.observe()).report.findings;
    let found = findings.into_iter().find(|it| it.code.to_string() == "KATA3117");
    found.map(|finding| finding.message)
}

/// A cluster of one node with a pod of a Job that does not begin, and that pod.
fn not_beginning() -> (World, String) {
    let mut world = World::plain(1, 1);
    world.hosts.insert("worker-0".to_owned(), Fate::NoMount);
    world.config(&json!({}));
    until(&mut world, |world| !world.names(Kind::Pod).is_empty());
    let pod = world.names(Kind::Pod).remove(0);
    (world, pod)
}

fn minutes(world: &mut World, minutes: i64) {
    world.now = world.now.checked_add(SignedDuration::from_mins(minutes)).unwrap();
}

#[test]
fn the_time_of_a_pod_to_begin_counts_from_when_its_node_had_it() {
    let (mut world, pod) = not_beginning();
    let scheduled = |status: &str, at: jiff::Timestamp| {
        let condition = json!({"type": "PodScheduled", "status": status, "message": "no cpu is left",
            "lastTransitionTime": at.to_string()});
        json!({"status": {"conditions": [condition]}})
    };
    // It waits for its node, which is told otherwise.
    world.edit(Kind::Pod, &pod, &scheduled("False", world.now));
    minutes(&mut world, 6);
    assert_eq!(not_started(&world), None);
    assert!(finding(&world, "KATA3106").contains("no cpu is left"));
    world.edit(Kind::Pod, &pod, &scheduled("True", world.now));
    minutes(&mut world, 4);
    assert_eq!(not_started(&world), None, "it came to the node four minutes ago");
    minutes(&mut world, 1);
    assert!(not_started(&world).unwrap().contains("for more than 5 minutes"));
}

/// Containers of a pod, each with its state.
fn containers(states: &[(&str, serde_json::Value)]) -> serde_json::Value {
    let status = states.iter().map(|(name, state)| {
        json!({"name": name, "image": "registry.example/payload:1", "imageID": "", "ready": false,
            "restartCount": 0, "state": state})
    });
    json!({"status": {"initContainerStatuses": status.collect::<Vec<_>>()}})
}

#[test]
fn a_pod_of_which_a_container_runs_has_begun() {
    let (mut world, pod) = not_beginning();
    minutes(&mut world, 6);
    assert!(not_started(&world).is_some());
    // To stage a big payload takes its time.
    world.edit(Kind::Pod, &pod, &containers(&[("stage", json!({"running": {}}))]));
    assert_eq!(not_started(&world), None);
    minutes(&mut world, 10);
    assert_eq!(not_started(&world), None);
}

/// The agent's own image is on the node nearly always, and the payload's is the large one.
#[test]
fn a_pod_whose_next_container_does_not_come_is_told_from_when_the_last_one_ended() {
    let (mut world, pod) = not_beginning();
    minutes(&mut world, 6);
    assert!(not_started(&world).is_some());
    let copied = json!({"terminated": {"exitCode": 0, "finishedAt": world.now.to_string()}});
    let waits = json!({"waiting": {"reason": "PodInitializing"}});
    world.edit(Kind::Pod, &pod, &containers(&[("copy", copied), ("stage", waits)]));
    minutes(&mut world, 4);
    assert_eq!(not_started(&world), None);
    minutes(&mut world, 2);
    assert!(not_started(&world).is_some());
}

/// What was seen last is the reason, whatever the kubelet does after it.
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
            // No Job can run there, so it has to be told what to do first.
            world.edit(Kind::KataNode, "worker-0", &retry);
        }
    }
    let told = finding(&world, "KATA3104");
    assert!(told.contains("worker-0 is not Ready, because a change failed"), "{told}");
    world.hosts.clear();
    world.set_ready("worker-0", true);
    until(&mut world, |world| condition(world, "Ready") == is("True", "AllNodesReady"));
}

/// A backup without status, or somebody who cleans up: the nodes serve as they did.
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
