//! Whole lives of a KataConfig where Jobs change the nodes: what must hold at the end, and on the way.

use kata_api::node_task::NodeAction;
use kata_plan::{Kind, Observed, decide};
use serde_json::json;

use crate::journeys::{condition, is};
use crate::plain::{Fate, NAMESPACE, task_of};
use crate::world::{KATA_CLASS, VERIFIED, World};

mod ahead;
mod deletion;
mod eligibility;
mod install_on;
mod jobs;
mod leave_delay;
mod payload;
mod periods;
mod provided;
mod runtimes;
mod startup_taint;
mod take_over;
mod trouble;
mod unknown;
mod unstarted;

const CLAIM: &str = "kata-operator.dev/claimed";

fn label(world: &World, node: &str) -> Option<String> {
    world.node(node).labels.get(VERIFIED).cloned()
}

/// The keys of a node's taints.
fn taints(world: &World, node: &str) -> Vec<String> {
    world.node(node).taints.into_iter().map(|taint| taint.key).collect()
}

/// Whether new sandboxed pods can come to a node: it has the label, and no taint keeps them away.
fn serves(world: &World, node: &str) -> bool {
    label(world, node).as_deref() == Some("true") && taints(world, node).is_empty()
}

fn host(world: &World, node: &str) -> serde_json::Value {
    world.get(Kind::KataNode, node).unwrap()["status"]["host"].clone()
}

pub(crate) fn nothing_left(world: &World) {
    for kind in [Kind::KataConfig, Kind::KataNode, Kind::RuntimeClass, Kind::Job] {
        assert_eq!(world.names(kind), Vec::<String>::new());
    }
    for name in world.names(Kind::Node) {
        let labels = world.node(&name).labels;
        assert!(
            [VERIFIED, KATA_CLASS, CLAIM].iter().all(|key| !labels.contains_key(*key)),
            "{name}: {labels:?}"
        );
        assert_eq!(taints(world, &name), Vec::<String>::new(), "{name}");
    }
}

/// The installations that are under way, and whether they read every file.
fn installs(world: &World) -> Vec<bool> {
    let jobs = world.names(Kind::Job);
    let tasks = jobs.iter().map(|name| task_of(world.get(Kind::Job, name).unwrap()));
    tasks.filter(|task| task.action == NodeAction::Install).map(|task| task.verify).collect()
}

/// Passes until it holds.
fn until(world: &mut World, holds: impl Fn(&World) -> bool) {
    for _ in 0..3_000 {
        if holds(world) {
            return;
        }
        world.pass();
        world.tick();
    }
    panic!("it never holds:\n{}", crate::render::decision(&world.pass()));
}

fn finding(world: &World, code: &str) -> String {
    let decision = decide(&world.observe());
    let all: Vec<String> = decision.report.findings.iter().map(ToString::to_string).collect();
    all.iter().find(|text| text.starts_with(code)).unwrap_or_else(|| panic!("{all:#?}")).clone()
}

#[test]
fn installs_one_node_after_the_other_and_removes_them() {
    let mut world = World::plain(1, 3);
    world.config(&json!({}));
    let last = world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert_eq!(condition(&world, "InProgress"), is("False", "AsExpected"));
    assert!(last.report.waiting_on.is_empty() && last.report.findings.is_empty(), "{last:#?}");
    for index in 0..3 {
        assert_eq!(label(&world, &format!("worker-{index}")).as_deref(), Some("true"));
    }
    assert_eq!(label(&world, "master-0"), None);
    let class = world.get(Kind::RuntimeClass, "kata").unwrap();
    let selector = json!({CLAIM: "true", VERIFIED: "true", KATA_CLASS: "true"});
    assert_eq!(class["scheduling"]["nodeSelector"], selector);
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    nothing_left(&world);
}

#[test]
fn never_more_nodes_change_than_may_be_unavailable() {
    for (value, most) in [(json!(null), 1), (json!(2), 2), (json!("50%"), 3), (json!("1%"), 1)] {
        let mut world = World::plain(1, 6);
        world.config(&json!({"rollout": {"maxUnavailable": value}}));
        let mut peak = 0;
        for round in 0..2_000 {
            let before = world.objects.clone();
            let decision = world.pass();
            let changing = world.changing().len();
            let succeeded = world
                .names(Kind::Node)
                .iter()
                .any(|node| label(&world, node).as_deref() == Some("true"));
            assert!(succeeded || changing <= 1, "the first node goes alone");
            peak = peak.max(changing);
            world.tick();
            if decision.plan.steps.is_empty() && world.objects == before {
                break;
            }
            assert!(round < 1_999, "does not settle");
        }
        assert_eq!(peak, most, "{value}");
        assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    }
}

#[test]
fn a_node_that_is_down_uses_up_the_budget() {
    let mut world = World::plain(1, 3);
    world.config(&json!({}));
    world.set_ready("worker-2", false);
    for _ in 0..40 {
        world.pass();
        assert_eq!(world.changing(), Vec::<String>::new());
        world.tick();
    }
    let (status, reason) = condition(&world, "Ready");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NodeNotReady"));
    world.set_ready("worker-2", true);
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

#[test]
fn a_node_that_is_rolled_back_does_not_hold_up_the_others_and_is_not_tried_again() {
    let mut world = World::plain(1, 3);
    world.hosts.insert("worker-0".to_owned(), Fate::RollsBack);
    world.config(&json!({}));
    world.settle();
    assert_eq!(label(&world, "worker-0"), None);
    assert_eq!(label(&world, "worker-1").as_deref(), Some("true"));
    assert_eq!(label(&world, "worker-2").as_deref(), Some("true"));
    assert_eq!(condition(&world, "Degraded"), is("True", "NodeRolledBack"));
    assert_eq!(condition(&world, "Stalled"), is("True", "NodeRolledBack"));
    assert!(finding(&world, "KATA3103").contains("simulated RolledBack"));
    assert_eq!(host(&world, "worker-0")["rollbacks"], json!(1));
    // Neither time nor another pass changes that.
    for _ in 0..1_000 {
        world.pass();
        world.tick();
    }
    assert_eq!(host(&world, "worker-0")["rollbacks"], json!(1));
    // The admin corrects the cause and says so.
    world.hosts.clear();
    world.edit(
        Kind::KataNode,
        "worker-0",
        &json!({"metadata": {"annotations": {"kata-operator.dev/retry": "1"}}}),
    );
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

#[test]
fn a_change_that_fails_again_and_again_goes_no_further() {
    let mut world = World::plain(1, 6);
    for index in 0..6 {
        world.hosts.insert(format!("worker-{index}"), Fate::RollsBack);
    }
    world.config(&json!({"rollout": {"maxUnavailable": 3}}));
    world.settle();
    let claimed =
        (0..6).filter(|index| world.node(&format!("worker-{index}")).labels.contains_key(CLAIM));
    assert_eq!(claimed.count(), 2);
    assert!(finding(&world, "KATA3111").contains("worker-0, worker-1"));
    // Another payload is another change.
    world.hosts.clear();
    world.edit(Kind::KataConfig, "cluster-kataconfig", &json!({
        "metadata": {"generation": 2}, "spec": {"payload": {"image": "registry.example/payload:2"}}}));
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

#[test]
fn paused_stops_before_the_next_node() {
    let mut world = World::plain(1, 3);
    world.config(&json!({}));
    until(&mut world, |world| !world.changing().is_empty());
    world.edit(
        Kind::KataConfig,
        "cluster-kataconfig",
        &json!({"spec": {"rollout": {"paused": true}}}),
    );
    world.settle();
    let verified: Vec<String> = world
        .names(Kind::Node)
        .into_iter()
        .filter(|node| label(&world, node).as_deref() == Some("true"))
        .collect();
    assert_eq!(verified, ["worker-0"]);
    assert!(finding(&world, "KATA3112").contains("paused"));
    world.edit(
        Kind::KataConfig,
        "cluster-kataconfig",
        &json!({"spec": {"rollout": {"paused": false}}}),
    );
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

#[test]
fn a_new_payload_goes_node_by_node_and_running_pods_stay() {
    let mut world = World::plain(1, 3);
    world.config(&json!({"payload": {"image": "registry.example/payload:1"}}));
    world.settle();
    world.pod("web", "kata", "worker-1");
    let before = host(&world, "worker-1")["installed"].clone();
    world.edit(Kind::KataConfig, "cluster-kataconfig", &json!({
        "metadata": {"generation": 2}, "spec": {"payload": {"image": "registry.example/payload:2"}}}));
    world.pass();
    assert_eq!(condition(&world, "Ready").0, "False");
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert_ne!(host(&world, "worker-1")["installed"], before);
    assert!(world.get(Kind::Pod, "default/web").is_some());
}

#[test]
fn an_upgrade_that_is_undone_leaves_the_node_ready_with_what_it_had() {
    let mut world = World::plain(1, 3);
    world.config(&json!({"payload": {"image": "registry.example/payload:1"}}));
    world.settle();
    world.hosts.insert("worker-0".to_owned(), Fate::RollsBack);
    world.edit(Kind::KataConfig, "cluster-kataconfig", &json!({
        "metadata": {"generation": 2}, "spec": {"payload": {"image": "registry.example/payload:2"}}}));
    world.settle();
    assert_eq!(label(&world, "worker-0").as_deref(), Some("true"));
    assert_eq!(condition(&world, "Degraded"), is("True", "NodeRolledBack"));
    let installed = |node: &str| host(&world, node)["installed"].clone();
    assert_ne!(installed("worker-0"), installed("worker-1"));
    assert_eq!(installed("worker-1"), installed("worker-2"));
    let last = |node: &str| {
        let history = world.get(Kind::KataNode, node).unwrap()["status"]["history"].clone();
        history.as_array().unwrap().last().unwrap().clone()
    };
    assert_eq!(
        (&last("worker-0")["phase"], &last("worker-0")["rolledBack"]),
        (&json!("Ready"), &json!(true))
    );
    assert_eq!(
        (&last("worker-1")["phase"], &last("worker-1")["rolledBack"]),
        (&json!("Ready"), &json!(null))
    );
    // Back to what was: nothing is changed on the node that has it.
    let restarts = host(&world, "worker-0")["restarts"].clone();
    world.edit(Kind::KataConfig, "cluster-kataconfig", &json!({
        "metadata": {"generation": 3}, "spec": {"payload": {"image": "registry.example/payload:1"}}}));
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert_eq!(host(&world, "worker-0")["restarts"], restarts);
}

#[test]
fn nodes_join_and_leave() {
    let mut world = World::plain(1, 2);
    world.config(
        &json!({"rollout": {"leaveDelay": "0s"}, "kataConfigPoolSelector": {"matchExpressions": [
        {"key": "kata", "operator": "NotIn", "values": ["no"]}]}}),
    );
    world.settle();
    world.add_plain_node("worker-9");
    world.settle();
    assert_eq!(label(&world, "worker-9").as_deref(), Some("true"));
    world.pod("web", "kata", "worker-9");
    world.label("worker-9", "kata", Some("no"));
    for _ in 0..50 {
        world.pass();
        assert_eq!(world.changing(), Vec::<String>::new());
        world.tick();
    }
    // A kubelet that restarts would fail the pod if the label were gone.
    assert_eq!(label(&world, "worker-9").as_deref(), Some("true"));
    assert_eq!(taints(&world, "worker-9"), Vec::<String>::new());
    assert!(finding(&world, "KATA2112").contains("default/web"));
    world.delete(Kind::Pod, "default/web");
    world.settle();
    assert_eq!(label(&world, "worker-9"), None);
    assert_eq!(taints(&world, "worker-9"), Vec::<String>::new());
    assert!(world.get(Kind::KataNode, "worker-9").is_none());
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

/// The scheduler may bind a pod between the read of the pods and the change of the label.
#[test]
fn a_pod_that_slips_in_gives_its_node_the_label_back() {
    for mut world in [World::plain(1, 2), World::new(1, 2)] {
        world.config(&json!({"rollout": {"leaveDelay": "0s"}, "kataConfigPoolSelector": {"matchExpressions": [
            {"key": "kata", "operator": "NotIn", "values": ["no"]}]}}));
        world.settle();
        world.label("worker-1", "kata", Some("no"));
        let mut passes = 0;
        while label(&world, "worker-1").is_some() {
            world.pass();
            passes += 1;
            assert!(passes < 10);
        }
        world.pod("web", "kata", "worker-1");
        for _ in 0..20 {
            world.pass();
            world.tick();
        }
        assert_eq!(label(&world, "worker-1").as_deref(), Some("true"));
        assert!(finding(&world, "KATA2112").contains("default/web"));
        world.delete(Kind::Pod, "default/web");
        world.settle();
        assert_eq!(label(&world, "worker-1"), None);
        assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    }
}

#[test]
fn a_node_that_vanishes_in_the_middle_leaves_nothing_behind() {
    let mut world = World::plain(1, 3);
    world.hosts.insert("worker-0".to_owned(), Fate::Hangs);
    world.config(&json!({}));
    until(&mut world, |world| !world.changing().is_empty());
    world.delete(Kind::Node, "worker-0");
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert!(world.names(Kind::Job).iter().all(|job| !job.contains("worker-0")));
    assert!(world.get(Kind::KataNode, "worker-0").is_none());
}

#[test]
fn a_node_that_comes_back_under_its_name_is_a_new_one() {
    let mut world = World::plain(1, 2);
    world.config(&json!({}));
    world.settle();
    // The garbage collector has not taken the old one's KataNode yet.
    let labels = json!({VERIFIED: null, CLAIM: null});
    world.edit(
        Kind::Node,
        "worker-0",
        &json!({
            "metadata": {"uid": "another", "labels": labels},
            "status": {"runtimeHandlers": [{"name": ""}, {"name": "runc"}]},
        }),
    );
    world.settle();
    assert_eq!(label(&world, "worker-0").as_deref(), Some("true"));
    let jobs = world.names(Kind::Job);
    let jobs = jobs.iter().map(|name| &world.get(Kind::Job, name).unwrap()["metadata"]);
    let uids = jobs
        .filter(|job| job["annotations"]["kata-operator.dev/node"] == "worker-0")
        .map(|job| job["annotations"]["kata-operator.dev/node-uid"].clone());
    assert_eq!(uids.collect::<Vec<_>>(), ["another"]);
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

#[test]
fn a_deletion_waits_for_the_last_pod_and_then_completes() {
    let mut world = World::plain(1, 2);
    world.config(&json!({}));
    world.settle();
    world.pod("web", "kata", "worker-1");
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    for _ in 0..30 {
        world.pass();
        assert_eq!(world.changing(), Vec::<String>::new());
        world.tick();
    }
    assert_eq!(condition(&world, "DeletionBlocked"), is("True", "PodsStillRunning"));
    // A kubelet that restarts would fail the pod if the label were gone; the class takes no new pods.
    for node in ["worker-0", "worker-1"] {
        assert_eq!(label(&world, node).as_deref(), Some("true"));
    }
    let class = world.get(Kind::RuntimeClass, "kata").unwrap();
    assert_eq!(
        class["scheduling"]["nodeSelector"],
        json!({"kata-operator.node-restriction.kubernetes.io/closed": "true"})
    );
    world.delete(Kind::Pod, "default/web");
    world.settle();
    nothing_left(&world);
}

#[test]
fn sandboxes_that_only_the_runtime_knows_hold_a_removal_up_by_name() {
    let mut world = World::plain(1, 1);
    world.config(&json!({}));
    world.settle();
    world.hosts.insert("worker-0".to_owned(), Fate::Blocked);
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    until(&mut world, |world| host(world, "worker-0")["job"]["outcome"] == "Blocked");
    assert!(finding(&world, "KATA3110").contains("shop/ghost"));
    world.hosts.clear();
    until(&mut world, |world| world.get(Kind::KataConfig, "cluster-kataconfig").is_none());
    nothing_left(&world);
}

#[test]
fn a_claim_that_somebody_takes_away_leaves_no_label_behind() {
    let mut world = World::plain(1, 1);
    world.config(&json!({}));
    world.settle();
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    until(&mut world, |world| label(world, "worker-0").is_none());
    world.label("worker-0", CLAIM, None);
    world.settle();
    nothing_left(&world);
}

#[test]
fn an_inspection_comes_once_a_period_and_drift_is_repaired() {
    let mut world = World::plain(1, 2);
    world.config(&json!({}));
    until(&mut world, |world| !installs(world).is_empty());
    assert_eq!(installs(&world), [false], "nothing is there yet that could be damaged");
    world.settle();
    let first = host(&world, "worker-0")["inspected"].clone();
    let hours = |world: &mut World, hours: i64| {
        world.now = world.now.checked_add(jiff::SignedDuration::from_hours(hours)).unwrap();
        world.settle();
    };
    hours(&mut world, 7);
    assert_ne!(host(&world, "worker-0")["inspected"], first);
    let restarts = host(&world, "worker-0")["restarts"].clone();
    world.hosts.insert("worker-0".to_owned(), Fate::Drifted);
    world.now = world.now.checked_add(jiff::SignedDuration::from_hours(7)).unwrap();
    until(&mut world, |world| host(world, "worker-0")["drifts"] == json!(1));
    world.hosts.clear();
    // A bad disk changes neither size nor times, so the repair reads every file.
    until(&mut world, |world| installs(world).contains(&true));
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert_ne!(host(&world, "worker-0")["restarts"], restarts);
}

/// A RuntimeClass selects only nodes that can run it.
#[test]
fn a_node_that_lost_its_virtualization_loses_the_label_until_it_has_it_again() {
    for upgrade in [false, true] {
        let mut world = World::plain(1, 3);
        world.config(&json!({}));
        world.settle();
        world.hosts.insert("worker-0".to_owned(), Fate::Unfit);
        if upgrade {
            let payload = json!({"spec": {"payload": {"image": "registry.example/payload:2"}}});
            world.edit(Kind::KataConfig, "cluster-kataconfig", &payload);
        } else {
            world.now = world.now.checked_add(jiff::SignedDuration::from_hours(7)).unwrap();
        }
        until(&mut world, |world| {
            host(world, "worker-0")["job"]["outcome"] == "Refused"
                && label(world, "worker-0").is_none()
        });
        for _ in 0..100 {
            world.pass();
            assert_eq!(label(&world, "worker-0"), None, "{upgrade}");
            world.tick();
        }
        // While it is looked at again nothing is said of the last time.
        until(&mut world, |world| host(world, "worker-0")["job"]["outcome"] == "Refused");
        assert!(finding(&world, "KATA3101").contains("KATA3001"), "{upgrade}");
        assert_eq!(condition(&world, "Ready").0, "False", "{upgrade}");
        for other in ["worker-1", "worker-2"] {
            assert_eq!(label(&world, other).as_deref(), Some("true"), "{upgrade}");
        }
        world.hosts.clear();
        until(&mut world, |world| label(world, "worker-0").as_deref() == Some("true"));
        world.settle();
        assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    }
}

#[test]
fn a_result_counts_once_whatever_crashes() {
    let mut world = World::plain(1, 3);
    world.hosts.insert("worker-1".to_owned(), Fate::RollsBack);
    world.config(&json!({}));
    for round in 0..400 {
        world.crashing_pass(round % 4);
        world.tick();
    }
    world.settle();
    assert_eq!(host(&world, "worker-1")["rollbacks"], json!(1));
    assert_eq!(host(&world, "worker-0")["restarts"], json!(1));
    assert_eq!(label(&world, "worker-2").as_deref(), Some("true"));
}

#[test]
fn reads_that_fail_change_nothing() {
    let mut world = World::plain(1, 2);
    world.config(&json!({}));
    until(&mut world, |world| !world.changing().is_empty());
    for kind in ["jobs", "pods", "nodes", "katanodes"] {
        world.unreadable.insert(kind.to_owned());
        assert!(!world.observe().jobs.jobs.is_known() || kind != "jobs");
        let decision = world.pass();
        assert!(decision.plan.steps.is_empty(), "{kind}: {}", crate::render::decision(&decision));
        world.unreadable.clear();
    }
    assert!(matches!(world.observe().jobs.jobs, Observed::Known(_)));
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
}

#[test]
fn the_first_pass_and_the_job_of_an_installation() {
    let mut world = World::plain(1, 2);
    world.config(
        &json!({"logLevel": "debug", "runtimes": [{"name": "kata"}, {"name": "kata-clh"}]}),
    );
    insta::assert_snapshot!("hosts_first_pass", crate::render::decision(&world.pass()));
    until(&mut world, |world| !world.changing().is_empty());
    let job = world.names(Kind::Job).into_iter().find(|job| {
        world.get(Kind::Job, job).unwrap()["metadata"]["annotations"]["kata-operator.dev/action"] == "Install"
    }).unwrap();
    assert!(job.starts_with(&format!("{NAMESPACE}/kata-worker-0-")));
    let mut job = world.get(Kind::Job, &job).unwrap().clone();
    job["metadata"]
        .as_object_mut()
        .unwrap()
        .retain(|key, _| ["annotations", "labels", "name"].contains(&key.as_str()));
    job.as_object_mut().unwrap().remove("status");
    insta::assert_snapshot!("hosts_install_job", serde_saphyr::to_string(&job).unwrap());
}

/// A node whose turn had not come has nothing to be clear of.
#[test]
fn only_of_nodes_that_were_changed_it_is_told_that_they_are_clear() {
    let mut world = World::plain(1, 2);
    world.config(&json!({}));
    world.pass();
    until(&mut world, |world| host(world, "worker-0")["mayHaveArtifacts"] == true);
    assert!(host(&world, "worker-1")["mayHaveArtifacts"].is_null());
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    let mut reported = Vec::new();
    for _ in 0..100 {
        let events = world.pass().report.events.into_iter();
        reported.extend(events.filter(|it| it.reason == "KataRemoved").map(|it| it.note));
        world.tick();
    }
    nothing_left(&world);
    assert_eq!(reported, ["Kata was removed from node worker-0"]);
}

/// A kubelet that restarts, as it does with the container runtime of k3s, fails the pods whose node selector no
/// longer matches: the one of a RuntimeClass is in each of its pods.
#[test]
fn a_node_keeps_its_labels_while_it_is_changed_in_place() {
    let mut world = World::plain(1, 3);
    world.config(&json!({}));
    world.settle();
    let runtimes = json!([{"name": "kata"}, {"name": "kata-clh"}]);
    let spec = json!({"metadata": {"generation": 2}, "spec": {"runtimes": runtimes}});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &spec);
    let mut most = 0;
    for _ in 0..200 {
        world.pass();
        let changing = world.names(Kind::Job).into_iter().filter_map(|name| {
            let job = world.get(Kind::Job, &name).unwrap();
            let task = task_of(job);
            let runs = job["status"]["conditions"].is_null();
            (runs && task.action == NodeAction::Install).then_some(task.node)
        });
        let changing: Vec<String> = changing.collect();
        most = most.max(changing.len());
        for node in ["worker-0", "worker-1", "worker-2"] {
            assert_eq!(label(&world, node).as_deref(), Some("true"));
            assert_eq!(taints(&world, node), Vec::<String>::new());
        }
        world.tick();
    }
    assert_eq!(most, 1, "one node at a time");
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    assert!(world.get(Kind::RuntimeClass, "kata-clh").is_some());
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    world.settle();
    nothing_left(&world);
}
