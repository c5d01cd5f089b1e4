//! Jobs that do not start: when that is reported, and what it does to other nodes.

use jiff::SignedDuration;
use kata_plan::{Kind, decide};
use serde_json::json;

use super::{finding, host, label, until};
use crate::journeys::{condition, is};
use crate::plain::Fate;
use crate::world::World;

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

/// A kubelet that cannot mount a volume says so only in Events, which the operator does not read.
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

/// If the registry fails during a roll-out, two nodes that cannot start hold up the others. After three attempts on
/// each they do not any more, so that a new node gets Kata although two others never start.
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

/// The status still reports after a check's deadline that its Job had no pod.
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
    let message = finding(&world, "KATA3115");
    assert!(message.contains("did not start: it got no pod"), "{message}");
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
    // It waits for its node, which has a finding of its own.
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

/// The Job that installs Kata now.
fn install_job(world: &World) -> String {
    let runs = |job: &String| {
        let job = world.get(Kind::Job, job).unwrap();
        job["metadata"]["annotations"]["kata-operator.dev/action"] == "Install"
            && job["status"]["conditions"].is_null()
    };
    world.names(Kind::Job).into_iter().find(runs).unwrap()
}

/// What suspends a Job would suspend the next one, too, and another node waits for it.
#[test]
fn a_job_that_something_else_suspends_waits_and_says_who_did_that() {
    for (manager, says) in [
        ("queue-controller", "is suspended (spec.suspend), last set by queue-controller"),
        (
            "kata-operator",
            "is suspended (spec.suspend), by an admission webhook when it was created",
        ),
    ] {
        let mut world = World::plain(1, 2);
        world.config(&json!({}));
        until(&mut world, |world| {
            let node = world.get(Kind::KataNode, "worker-0");
            node.is_some_and(|node| node["status"]["host"]["fitFor"].is_string())
        });
        world.hosts.insert("worker-0".to_owned(), Fate::NoPod);
        while world.changing().is_empty() {
            world.pass();
        }
        assert_eq!(world.changing(), ["worker-0"]);
        let job = install_job(&world);
        let fields = json!([
            {"manager": "kata-operator", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:template": {}}}},
            {"manager": manager, "time": "2026-01-01T00:00:01Z", "fieldsV1": {"f:spec": {"f:suspend": {}}}},
        ]);
        let patch = json!({"metadata": {"managedFields": fields}, "spec": {"suspend": true}});
        world.edit(Kind::Job, &job, &patch);
        for minute in 0..20 {
            world.now = world.now.checked_add(SignedDuration::from_mins(1)).unwrap();
            world.pass();
            if minute > 1 {
                assert!(finding(&world, "KATA3120").contains(says));
            }
        }
        assert!(world.names(Kind::Job).contains(&job));
        world.hosts.clear();
        world.edit(Kind::Job, &job, &json!({"spec": {"suspend": false}}));
        until(&mut world, |world| condition(world, "Ready") == is("True", "AllNodesReady"));
    }
}

/// Its Job began, and was suspended: what it has done is not known before its next run.
#[test]
fn a_change_that_was_suspended_after_it_began_is_not_taken_for_one_that_never_did() {
    let mut world = World::plain(1, 2);
    world.config(&json!({"payload": {"image": "registry.example/payload:1"}}));
    world.settle();
    world.hosts.insert("worker-0".to_owned(), Fate::Hangs);
    let image = |world: &mut World, generation: i64, image: &str| {
        let spec = json!({"payload": {"image": format!("registry.example/payload:{image}")}});
        let patch = json!({"metadata": {"generation": generation}, "spec": spec});
        world.edit(Kind::KataConfig, "cluster-kataconfig", &patch);
    };
    image(&mut world, 2, "2");
    until(&mut world, |world| !world.changing().is_empty());
    let job = install_job(&world);
    world.edit(Kind::Job, &job, &json!({"spec": {"suspend": true}}));
    for pod in world.names(Kind::Pod) {
        world.delete(Kind::Pod, &pod);
    }
    image(&mut world, 3, "1");
    for _ in 0..20 {
        world.now = world.now.checked_add(SignedDuration::from_mins(1)).unwrap();
        world.pass();
    }
    assert!(world.names(Kind::Job).contains(&job));
    assert_ne!(host(&world, "worker-0")["job"]["outcome"], json!("NotStarted"));
}

/// A pod that has scheduling gates is not scheduled until they are open.
#[test]
fn a_gate_of_a_pod_is_named() {
    let mut world = World::plain(1, 2);
    world.hosts.insert("worker-0".to_owned(), Fate::NoRoom);
    world.config(&json!({}));
    until(&mut world, |world| !world.names(Kind::Pod).is_empty());
    let gates = json!({"spec": {"schedulingGates": [{"name": "example.com/queue"}]}});
    for pod in world.names(Kind::Pod) {
        world.edit(Kind::Pod, &pod, &gates);
    }
    let found = |world: &World| {
        let all = decide(&world.observe()).report.findings.into_iter();
        all.map(|finding| finding.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found(&world), [""; 0], "it may be opened at once");
    let says = "has scheduling gates, and is scheduled once they are removed: example.com/queue";
    for _ in 0..4 {
        // Past the time in which a Job has to start, its end says the same.
        world.now = world.now.checked_add(SignedDuration::from_mins(2)).unwrap();
        world.pass();
        assert!(finding(&world, "KATA3120").contains(says));
    }
}

/// An admission webhook may have pods take their images from elsewhere.
#[test]
fn an_image_that_something_else_has_changed_is_named_beside_ours() {
    let mut world = World::plain(1, 1);
    world.hosts.insert("worker-0".to_owned(), Fate::NoImage);
    world.config(&json!({"payload": {"image": "registry.example/payload:1"}}));
    let stuck = |world: &World| {
        let findings = decide(&world.observe()).report.findings;
        findings.iter().any(|it| it.to_string().starts_with("KATA3107"))
    };
    until(&mut world, stuck);
    let says = "the operator requested registry.example/payload:1";
    assert!(!finding(&world, "KATA3107").contains(says));
    let waits = |pod: &String| {
        let status = &world.get(Kind::Pod, pod).unwrap()["status"];
        status["initContainerStatuses"][0]["state"]["waiting"].is_object()
    };
    let pod = world.names(Kind::Pod).into_iter().find(waits).unwrap();
    let stage = json!([{"name": "stage", "image": "mirror.example/payload:1", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull"}}}]);
    world.edit(Kind::Pod, &pod, &json!({"status": {"initContainerStatuses": stage}}));
    let text = finding(&world, "KATA3107");
    assert!(
        text.contains("image mirror.example/payload:1 cannot be pulled: ErrImagePull"),
        "{text}"
    );
    assert!(text.contains(says), "{text}");
}
