//! What a deletion reads before each Job that removes Kata, and what holds it up.

use std::collections::BTreeMap;

use kata_plan::{Freshness, Kind, Observed, PodScope, SandboxedPod, Snapshot, decide, invariants};
use serde_json::json;

use super::{finding, nothing_left, until};
use crate::journeys::{condition, is};
use crate::world::World;

fn installed(workers: usize) -> World {
    let mut world = World::plain(1, workers);
    world.config(&json!({}));
    world.settle();
    world
}

/// Whether Kata was removed from a node, or is being removed.
fn is_removed_from(world: &World, node: &str) -> bool {
    world.get(Kind::KataNode, node).is_none() || world.changing().iter().any(|name| name == node)
}

/// All pods of a large cluster cost much; those of a node cost little.
#[test]
fn all_pods_are_read_before_the_first_job_and_those_of_a_node_before_each_other() {
    let mut world = installed(6);
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    until(&mut world, |world| world.changing() == ["worker-0"]);
    world.tick();
    let mut read = Vec::new();
    while world.get(Kind::KataConfig, "cluster-kataconfig").is_some() {
        read.extend(world.observe().pods.into_keys());
        world.pass();
        world.tick();
    }
    let node = |index: usize| PodScope::Node(format!("worker-{index}"));
    assert_eq!(read, (1..6).map(node).collect::<Vec<_>>());
    nothing_left(&world);
}

/// The cluster as it is when worker-1 is next, with these pods.
fn before_the_second_job(
    world: &World,
    pods: impl IntoIterator<Item = (PodScope, Observed<Vec<SandboxedPod>>)>,
) -> Snapshot {
    let freshness = Freshness::Quorum;
    Snapshot { freshness, pods: pods.into_iter().collect::<BTreeMap<_, _>>(), ..world.observe() }
}

/// A list of the whole cluster may be a remembered one, in which a pod that was scheduled since has no node.
#[test]
fn a_list_of_all_pods_with_one_on_another_node_lets_no_job_begin() {
    let mut world = installed(3);
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    until(&mut world, |world| world.changing() == ["worker-0"]);
    until(&mut world, |world| world.changing().is_empty());
    let late = |node: &str| SandboxedPod {
        namespace: "default".to_owned(),
        name: "late".to_owned(),
        runtime_class: "kata".to_owned(),
        node: Some(node.to_owned()),
        owner: None,
        finished: false,
        deleting: false,
    };
    let creates_a_job = |pods: Vec<(PodScope, Observed<Vec<SandboxedPod>>)>| {
        let snapshot = before_the_second_job(&world, pods);
        let decision = decide(&snapshot);
        assert_eq!(invariants::check(&snapshot, &decision), []);
        let mut steps = decision.plan.steps.iter().map(|step| &step.action);
        steps.any(|action| action.object().kind == Kind::Job && action.object().uid.is_none())
    };
    let on_next = PodScope::Node("worker-1".to_owned());
    let known = Observed::Known;
    assert!(creates_a_job(vec![(on_next.clone(), known(vec![]))]));
    assert!(!creates_a_job(vec![(on_next.clone(), known(vec![late("worker-1")]))]));
    assert!(!creates_a_job(vec![(PodScope::Cluster, known(vec![late("worker-2")]))]));
    // The list of all pods is the later one.
    let failed = Observed::unknown("pods", "timeout");
    assert!(creates_a_job(vec![(on_next, failed), (PodScope::Cluster, known(vec![]))]));
}

/// A RuntimeClass that is not the operator's may still send pods to nodes that have Kata.
#[test]
fn a_pod_that_comes_to_a_node_during_the_deletion_holds_it_up_and_is_named() {
    let mut world = installed(3);
    world.create(json!({"kind": "RuntimeClass", "metadata": {"name": "mine"}, "handler": "kata"}));
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    until(&mut world, |world| world.changing() == ["worker-0"]);
    world.pod("late", "mine", "worker-1");
    for _ in 0..50 {
        world.tick();
        world.pass();
        assert!(!is_removed_from(&world, "worker-1"));
    }
    assert_eq!(condition(&world, "DeletionBlocked"), is("True", "PodsStillRunning"));
    assert!(finding(&world, "KATA4001").contains("default/late"));
    world.delete(Kind::Pod, "default/late");
    until(&mut world, |world| world.get(Kind::KataConfig, "cluster-kataconfig").is_none());
    world.delete(Kind::RuntimeClass, "mine");
    nothing_left(&world);
}

/// A node may have left just before.
#[test]
fn a_job_that_is_older_than_the_deletion_lets_no_other_begin() {
    let mut world = installed(3);
    world.label("worker-0", "kata", Some("true"));
    world.label("worker-1", "kata", Some("true"));
    let selector = json!({"kataConfigPoolSelector": {"matchLabels": {"kata": "true"}}});
    let edit = json!({"metadata": {"generation": 2}, "spec": selector});
    world.edit(Kind::KataConfig, "cluster-kataconfig", &edit);
    until(&mut world, |world| world.changing() == ["worker-2"]);
    world.pod("web", "kata", "worker-1");
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    for _ in 0..50 {
        world.pass();
        assert!(!is_removed_from(&world, "worker-0"));
        world.tick();
    }
    assert_eq!(condition(&world, "DeletionBlocked"), is("True", "PodsStillRunning"));
}
