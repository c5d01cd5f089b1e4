//! What a deletion reads before each Job that removes Kata, and what holds it up.

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

/// A cluster of which the first node is changed, and the next is worker-1.
fn before_the_second_job() -> World {
    let mut world = installed(3);
    world.delete(Kind::KataConfig, "cluster-kataconfig");
    until(&mut world, |world| world.changing() == ["worker-0"]);
    until(&mut world, |world| world.changing().is_empty());
    world
}

/// Whether a Job is created if the pods were read so.
fn creates_a_job(
    mut snapshot: Snapshot,
    pods: impl IntoIterator<Item = (PodScope, Observed<Vec<SandboxedPod>>)>,
) -> bool {
    snapshot.freshness = Freshness::Quorum;
    snapshot.pods = pods.into_iter().collect();
    let decision = decide(&snapshot);
    assert_eq!(invariants::check(&snapshot, &decision), []);
    let mut steps = decision.plan.steps.iter().map(|step| &step.action);
    steps.any(|action| action.object().kind == Kind::Job && action.object().uid.is_none())
}

fn on_worker_1() -> PodScope {
    PodScope::Node("worker-1".to_owned())
}

#[test]
fn the_second_job_begins_if_no_pod_is_on_its_node_and_none_is_known_in_the_cluster() {
    let world = before_the_second_job();
    let late = |node: Option<&str>| SandboxedPod {
        namespace: "default".to_owned(),
        name: "late".to_owned(),
        uid: "late".to_owned(),
        runtime_class: "kata".to_owned(),
        node: node.map(str::to_owned),
        owner: None,
        finished: false,
        deleting: false,
    };
    let known = Observed::Known;
    let creates = |pods: Vec<_>| creates_a_job(world.observe(), pods);
    assert!(creates(vec![(on_worker_1(), known(vec![]))]));
    assert!(!creates(vec![(on_worker_1(), known(vec![late(Some("worker-1"))]))]));
    // The list of all pods may be a remembered one, in which a pod that was scheduled since has no node.
    for node in [Some("worker-2"), None] {
        let all = (PodScope::Cluster, known(vec![late(node)]));
        assert!(!creates(vec![(on_worker_1(), known(vec![])), all]));
    }
    // The list of all pods is the later one.
    let failed = Observed::unknown("pods", "timeout");
    assert!(creates(vec![(on_worker_1(), failed), (PodScope::Cluster, known(vec![]))]));
}

/// A node may have left just before, while pods ran on others.
#[test]
fn a_job_that_is_older_than_the_deletion_lets_no_other_begin() {
    let mut snapshot = before_the_second_job().observe();
    let none = || [(on_worker_1(), Observed::Known(vec![]))];
    assert!(creates_a_job(snapshot.clone(), none()));
    let deleted = snapshot.configs[0].metadata.deletion_timestamp.clone().unwrap().0;
    snapshot.jobs.jobs = snapshot.jobs.jobs.map(|mut jobs| {
        for job in &mut jobs {
            job.created = Some(deleted);
        }
        jobs
    });
    assert!(!creates_a_job(snapshot, none()));
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
