//! Promises: what a legal object of another client must not stop, and that a step that would break a promise
//! stops alone.

use std::sync::Arc;

use std::collections::{BTreeMap, BTreeSet};

use kata_api::{Code, names};
use kata_plan::invariants::{Property, remove_vetoed_steps, vetoes};
use kata_plan::{
    Action, Freshness, Kind, ObjectRef, Observed, OnFailure, Plan, Snapshot, Step, decide,
    report_after_apply,
};
use serde_json::{Value, json};

use crate::hosts;
use crate::journeys::{assert_nothing_left, condition, is};
use crate::world::{KATA, MC, VERIFIED, World};

pub(crate) mod forms;

const CONFIG: &str = "cluster-kataconfig";

fn selected() -> Value {
    json!({"kataConfigPoolSelector": {"matchLabels": {"kata": "true"}}})
}

fn conditions(world: &World) -> Vec<Value> {
    let config = world.get(Kind::KataConfig, CONFIG).unwrap();
    config["status"]["conditions"].as_array().unwrap().clone()
}

#[test]
fn a_foreign_condition_with_a_legal_reason_stops_nothing_and_stays() {
    let mut world = World::new(1, 2);
    world.label("worker-0", "kata", Some("true"));
    world.config(&selected());
    world.settle();
    let foreign = json!({
        "type": "policy.example.com/Checked", "status": "True", "reason": "Policy_Checked",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let mut all = conditions(&world);
    all.push(foreign.clone());
    world.edit(Kind::KataConfig, CONFIG, &json!({"status": {"conditions": all}}));
    world.label("worker-1", "kata", Some("true"));
    world.settle();
    let config = world.get(Kind::KataConfig, CONFIG).unwrap();
    assert_eq!(config["status"]["kataNodes"]["readyNodeCount"], 2);
    assert!(conditions(&world).contains(&foreign), "{:#?}", conditions(&world));
    world.delete(Kind::KataConfig, CONFIG);
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn a_role_label_of_our_pool_on_plain_kubernetes_does_not_hold_a_deletion() {
    let mut world = World::plain(1, 2);
    world.label("worker-1", KATA, Some(""));
    world.config(&json!({}));
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    world.delete(Kind::KataConfig, CONFIG);
    world.settle();
    hosts::nothing_left(&world);
    assert!(world.node("worker-1").labels.contains_key(KATA), "the label is not the operator's");
}

#[test]
fn an_older_paused_kataconfig_that_a_foreign_finalizer_holds_stops_nothing() {
    let mut world = World::plain(1, 2);
    world.create(json!({
        "kind": "KataConfig",
        "metadata": {
            "name": "older", "generation": 1, "creationTimestamp": "2025-01-01T00:00:00Z",
            "deletionTimestamp": "2025-06-01T00:00:00Z", "finalizers": ["example.com/hold"],
        },
        "spec": {"rollout": {"paused": true}},
    }));
    world.config(&json!({}));
    world.settle();
    assert_eq!(condition(&world, "Ready"), is("True", "AllNodesReady"));
    world.delete(Kind::KataConfig, CONFIG);
    world.settle();
    assert_eq!(world.names(Kind::KataConfig), ["older"]);
    assert_eq!(world.names(Kind::KataNode), Vec::<String>::new());
}

#[test]
fn a_role_label_that_somebody_sets_on_a_compact_cluster_does_not_hold_a_deletion() {
    let mut world = World::compact(3);
    world.config(&json!({}));
    world.settle();
    world.delete(Kind::KataConfig, CONFIG);
    world.label("master-1", KATA, Some(""));
    world.settle();
    assert_nothing_left(&world);
}

#[test]
fn a_runtime_class_of_another_kind_kataconfig_does_not_hold_a_deletion() {
    let mut world = World::new(1, 1);
    world.create(json!({
        "kind": "RuntimeClass", "handler": "other",
        "metadata": {"name": "other", "ownerReferences": [
            {"apiVersion": "example.com/v1", "kind": "KataConfig", "name": "x", "uid": "x"},
        ]},
    }));
    world.config(&json!({}));
    world.settle();
    world.delete(Kind::KataConfig, CONFIG);
    world.settle();
    assert_eq!(world.names(Kind::KataConfig), Vec::<String>::new());
    assert_eq!(world.names(Kind::RuntimeClass), ["other"]);
}

/// A cluster on which Kata is installed on both workers, by the Machine Config Operator or by Jobs.
fn installed(mut world: World) -> World {
    world.config(&json!({}));
    world.settle();
    world
}

fn step(action: Action, on_failure: OnFailure) -> Step {
    Step { action, on_failure, why: String::new() }
}

fn object(world: &World, kind: Kind, name: &str) -> ObjectRef {
    let found = world.get(kind, name).unwrap();
    let reference =
        ObjectRef::new(kind, name.rsplit('/').next().unwrap(), found["metadata"]["uid"].as_str());
    match found["metadata"]["namespace"].as_str() {
        Some(namespace) => reference.within(namespace),
        None => reference,
    }
}

fn delete(world: &World, kind: Kind, name: &str) -> Action {
    Action::Delete { object: object(world, kind, name), resource_version: None }
}

/// Sets a label of a node (`key=value`) or removes it (`key-`), as the node was read.
fn label(world: &World, node: &str, change: &str) -> Action {
    let (mut set, mut remove) = (BTreeMap::new(), BTreeSet::new());
    match change.split_once('=') {
        Some((key, value)) => drop(set.insert(key.to_owned(), value.to_owned())),
        None => drop(remove.insert(change.trim_end_matches('-').to_owned())),
    }
    let seen = Some(world.node(node).resource_version);
    let node = object(world, Kind::Node, node);
    Action::LabelNode { node, seen, set, remove, needs_fresh_classes: false }
}

/// A snapshot of everything, as fresh as can be, with the pods of the cluster.
fn snapshot(world: &World) -> Snapshot {
    let mut snapshot = world.observe();
    snapshot.freshness = Freshness::Quorum;
    let pods = world.names(Kind::Pod).into_iter().filter_map(|name| {
        let pod = serde_json::from_value(world.get(Kind::Pod, &name).unwrap().clone()).unwrap();
        kata_plan::validate::sandboxed_pod(&pod)
    });
    snapshot.pods.insert(kata_plan::PodScope::Cluster, Observed::Known(pods.collect()));
    snapshot
}

/// The promise that a single step would break.
fn broken(snapshot: &Snapshot, action: Action) -> Option<Property> {
    let plan = Plan { steps: vec![step(action, OnFailure::Continue)] };
    vetoes(snapshot, &plan).first().map(|veto| veto.violation.property)
}

#[test]
fn a_step_that_would_break_a_promise_of_the_pool_is_vetoed() {
    let mut world = installed(World::new(1, 2));
    let check = |world: &World, action: fn(&World) -> Action, property: Property| {
        assert_eq!(broken(&snapshot(world), action(world)), Some(property), "{}", action(world));
    };
    let unused = Property::UnusedConfiguration;
    check(&world, |it| delete(it, Kind::MachineConfigPool, "kata-oc"), unused);
    check(&world, |it| delete(it, Kind::MachineConfig, MC), unused);
    let foreign = Property::Ownership;
    check(&world, |it| delete(it, Kind::MachineConfigPool, "worker"), foreign);
    check(&world, |it| delete(it, Kind::MachineConfig, "00-worker"), foreign);
    check(&world, |it| label(it, "worker-0", "zone=a"), foreign);
    let by_name = |world: &World| Action::Delete {
        object: ObjectRef { uid: None, ..object(world, Kind::RuntimeClass, "kata") },
        resource_version: None,
    };
    check(&world, by_name, foreign);
    let finalizer = |world: &World| Action::RemoveFinalizers {
        config: object(world, Kind::KataConfig, CONFIG),
        resource_version: "1".to_owned(),
        finalizers: Vec::new(),
    };
    check(&world, finalizer, Property::Finalizer);
    let leaves: fn(&World) -> Action = |it| label(it, "worker-0", &format!("{KATA}-"));
    check(&world, leaves, Property::ClosedToNewPods);
    world.label("worker-0", VERIFIED, None);
    assert_eq!(broken(&snapshot(&world), leaves(&world)), None);
    world.pod("web", "kata", "worker-0");
    check(&world, leaves, Property::RunningPods);
    check(&world, |it| delete(it, Kind::RuntimeClass, "kata"), Property::RunningPods);
    world.set_ready("worker-0", false);
    let offer: fn(&World) -> Action = |it| label(it, "worker-0", &format!("{VERIFIED}=true"));
    check(&world, offer, Property::VerifiedNodes);
    world.set_ready("worker-0", true);
    assert_eq!(broken(&snapshot(&world), offer(&world)), None);
    let mut cached = snapshot(&world);
    let Action::LabelNode { node, set, remove, .. } = offer(&world) else { panic!() };
    let seen = Some("0".to_owned());
    let changed = Action::LabelNode { node, seen, set, remove, needs_fresh_classes: false };
    cached.freshness = Freshness::Cached;
    assert_eq!(broken(&cached, changed.clone()), Some(Property::KnownState));
    let mut blind = snapshot(&world);
    blind.nodes = Observed::unknown("nodes", "timeout");
    let pool = delete(&world, Kind::MachineConfigPool, "kata-oc");
    assert_eq!(broken(&blind, pool), Some(Property::KnownState));
    let mut unguarded = snapshot(&world);
    unguarded.configs[0].metadata.finalizers = None;
    assert_eq!(broken(&unguarded, changed), Some(Property::Finalizer));
}

#[test]
fn a_step_that_would_break_a_promise_of_jobs_is_vetoed() {
    let mut world = World::plain(1, 3);
    world.config(&json!({}));
    // Until the first node is to be changed.
    let (before, job) = loop {
        let snapshot = world.observe();
        let mut plan = decide(&snapshot).plan;
        plan.steps.retain(|step| {
            matches!(&step.action, Action::Apply { object, body } if object.kind == Kind::Job
                && body["metadata"]["annotations"][names::node_job::ACTION] == "Install")
        });
        if let Some(step) = plan.steps.pop() {
            break (snapshot, step.action);
        }
        world.pass();
        world.tick();
    };
    assert_eq!(broken(&before, job.clone()), None);
    let mut paused = before.clone();
    paused.configs[0].spec.rollout = serde_json::from_value(json!({"paused": true})).unwrap();
    assert_eq!(broken(&paused, job.clone()), Some(Property::RolloutLimits));
    world.set_ready("worker-2", false);
    assert_eq!(broken(&snapshot(&world), job.clone()), Some(Property::RolloutLimits));
    world.set_ready("worker-2", true);
    let node = world.names(Kind::Node).into_iter().find(|it| job.to_string().contains(&**it));
    let node = node.unwrap();
    world.label(&node, VERIFIED, Some("true"));
    assert_eq!(
        broken(&snapshot(&world), job.clone()),
        None,
        "pods stay while Kata is changed in place"
    );
    let Action::Apply { object, body } = &job else { panic!() };
    let removal = body.to_string().replace("Install", "Remove").parse().unwrap();
    let removal = Action::Apply { object: object.clone(), body: removal };
    assert_eq!(broken(&snapshot(&world), removal), Some(Property::ClosedToNewPods));
    world.label(&node, VERIFIED, Some("false"));
    world.pass();
    assert_eq!(broken(&snapshot(&world), job.clone()), Some(Property::OneJobPerNode));
    let Action::Apply { object: running, .. } = &job else { panic!() };
    let name = format!("{}/{}", running.namespace.as_ref().unwrap(), running.name);
    let kill = delete(&world, Kind::Job, &name);
    assert_eq!(broken(&snapshot(&world), kill), Some(Property::OneJobPerNode));
    // An installation with other handlers, while a pod needs one that the node has.
    let mut with_pod = before.clone();
    let class = json!({"metadata": {"name": "kata", "labels": {"app.kubernetes.io/managed-by": "kata-operator"}},
        "handler": "kata"});
    with_pod.runtime_classes = Observed::Known(vec![serde_json::from_value(class).unwrap()]);
    let Observed::Known(kata_nodes) = &mut with_pod.kata_nodes else { panic!() };
    let kata_node = kata_nodes.iter_mut().find(|it| it.spec.node_name == node).unwrap();
    let status = &mut Arc::make_mut(kata_node).status.as_mut().unwrap();
    status.host =
        serde_json::from_value(json!({"mayHaveArtifacts": true, "handlers": ["kata"]})).unwrap();
    let of_pods = |class: &str| {
        let pod = json!({"metadata": {"name": "web", "namespace": "shop"},
            "spec": {"containers": [], "nodeName": node, "runtimeClassName": class}});
        vec![kata_plan::validate::sandboxed_pod(&serde_json::from_value(pod).unwrap()).unwrap()]
    };
    let mut with_pods = |class: &str| {
        with_pod.pods.insert(kata_plan::PodScope::Cluster, Observed::Known(of_pods(class)));
        with_pod.clone()
    };
    let without = body.to_string().replace(r#"\"name\":\"kata\""#, r#"\"name\":\"other\""#);
    let without = Action::Apply { object: object.clone(), body: without.parse().unwrap() };
    assert_eq!(broken(&with_pods("kata"), job.clone()), None);
    assert_eq!(broken(&with_pods("kata"), without.clone()), Some(Property::RunningPods));
    assert_eq!(broken(&with_pods("unrelated"), without), None);
    let twice = Plan {
        steps: vec![step(job.clone(), OnFailure::Continue), step(job, OnFailure::Continue)],
    };
    let vetoes = vetoes(&before, &twice);
    assert_eq!(vetoes.len(), 1);
    assert_eq!((vetoes[0].step, vetoes[0].violation.property), (1, Property::OneJobPerNode));
}

#[test]
fn a_step_that_would_break_a_promise_is_skipped_and_named() {
    let mut world = installed(World::new(1, 2));
    world.edit(Kind::KataConfig, CONFIG, &json!({"metadata": {"generation": 2}}));
    world.label("worker-1", VERIFIED, None);
    let snapshot = snapshot(&world);
    let mut decision = decide(&snapshot);
    let harmless = decision.plan.steps.clone();
    assert!(!harmless.is_empty());
    let unsafe_step = delete(&world, Kind::MachineConfigPool, "kata-oc");
    decision.plan.steps.insert(0, step(unsafe_step.clone(), OnFailure::Continue));
    let found = vetoes(&snapshot, &decision.plan);
    assert_eq!(found.iter().map(|veto| veto.step).collect::<Vec<_>>(), [0]);
    let (plan, failures) = remove_vetoed_steps(&decision.plan, &found);
    assert_eq!(plan.steps, harmless, "all other steps go on");
    let report = report_after_apply(&decision, &failures);
    let finding = report.findings.iter().find(|it| it.code == Code::UnsafeStepSkipped).unwrap();
    assert_eq!(finding.subject.name, "kata-oc");
    assert_eq!(
        finding.message,
        "skipped \"delete MachineConfigPool kata-oc\": MachineConfigPool kata-oc is deleted while nodes are on it: \
         worker-0, worker-1"
    );
    let status = report.status.unwrap().status;
    let reason = |type_: &str| {
        let found = status.conditions.iter().find(|it| it.type_ == type_).unwrap();
        (found.status.as_str(), found.reason.as_str())
    };
    assert_eq!(reason("Ready"), ("False", "UnsafeStepSkipped"));
    assert_eq!(reason("Degraded"), ("True", "UnsafeStepSkipped"));
    assert_eq!(status.observed_generation, Some(1), "the spec is not acted on as a whole");

    // What relies on the step is not done either: all that follows, or what follows about the same object.
    decision.plan.steps[0].on_failure = OnFailure::Stop;
    let (plan, _) = remove_vetoed_steps(&decision.plan, &vetoes(&snapshot, &decision.plan));
    assert_eq!(plan.steps, []);
    let Action::Delete { object, .. } = unsafe_step else { panic!() };
    let after = Action::Apply { object, body: json!({}) };
    decision.plan.steps[0].on_failure = OnFailure::Continue;
    decision.plan.steps.push(step(after, OnFailure::Continue));
    let (plan, _) = remove_vetoed_steps(&decision.plan, &vetoes(&snapshot, &decision.plan));
    assert_eq!(plan.steps, harmless);
}
