//! How long a decision takes on a large cluster: `cargo bench -p kata-plan --bench decide [-- NODES]`.
//!
//! Prints the best and the median of several runs for a cluster before, in the middle of and after an install by the Machine
//! Config Operator and by Jobs, and in a removal by Jobs; with the preconditions of the steps, which every pass checks too.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for people that measures time, not a product"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kata_api::names::{self, mco};
use kata_api::{KataConfig, KataNode, MachineConfig, MachineConfigPool};
use kata_plan::snapshot::Readiness;
use kata_plan::{
    Action, Decision, Freshness, JobObjects, MonitorObjects, NodeFacts, Observed, Options, Outcome,
    Platform, SandboxedPod, Snapshot, invariants, next,
};
use serde_json::{Value, json};

/// The rendered configuration without and with our extension.
const BEFORE: &str = "rendered-worker-0123456789abcdef0123456789abcdef";
const AFTER: &str = "rendered-kata-oc-0123456789abcdef0123456789abcdef";
const RUNS: usize = 15;

fn main() {
    let given = std::env::args().skip(1).find_map(|argument| argument.parse().ok());
    let nodes: usize = given.unwrap_or(10_000);
    println!("{:>34} {:>8} {:>10} {:>10} {:>10}", "nodes", "steps", "best", "median", "promises");
    for (what, changed) in
        [("before", 0), ("one node is changed", 1), ("half", nodes / 2), ("installed", nodes)]
    {
        measure(&format!("{nodes}, {what}"), &cluster(nodes, changed));
    }
    for (what, installed) in
        [("before", 0), ("one node is changed", 1), ("half", nodes / 2), ("installed", nodes)]
    {
        measure(&format!("{nodes}, Jobs, {what}"), &with_jobs(nodes, installed));
    }
    measure(&format!("{nodes}, Jobs, an update begins"), &updated_by_jobs(nodes));
    measure(&format!("{nodes}, Jobs, held up by pods"), &held_up_by_pods(nodes));
    measure(&format!("{nodes}, Jobs, first removal"), &removed_by_jobs(nodes));
}

fn measure(what: &str, snapshot: &Snapshot) {
    let (mut taken, mut checked) = (Vec::new(), Vec::new());
    let mut steps = 0;
    for _ in 0..RUNS {
        let begun = Instant::now();
        let decision = decide(snapshot);
        taken.push(begun.elapsed());
        let begun = Instant::now();
        assert_eq!(invariants::check(snapshot, &decision), []);
        checked.push(begun.elapsed());
        steps = decision.plan.steps.len();
    }
    taken.sort_unstable();
    checked.sort_unstable();
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    println!(
        "{what:>34} {steps:>8} {:>10} {:>10} {:>10}",
        ms(taken[0]),
        ms(taken[RUNS / 2]),
        ms(checked[RUNS / 2])
    );
}

fn decide(snapshot: &Snapshot) -> Decision {
    match next(snapshot) {
        Outcome::Act(decision) => *decision,
        Outcome::Read(wanted) => panic_on(&wanted),
    }
}

#[expect(clippy::panic, reason = "the snapshot of a benchmark has all that is wanted")]
fn panic_on(wanted: &impl std::fmt::Debug) -> ! {
    panic!("the decision wants {wanted:?}")
}

/// A cluster of workers of which the first `changed` run Kata, and all that is written of them is.
fn cluster(workers: usize, changed: usize) -> Snapshot {
    let nodes = (0..workers).map(|index| Arc::new(node(index, changed > 0, index < changed)));
    let mut snapshot = Snapshot {
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
        server_ahead: jiff::SignedDuration::ZERO,
        freshness: Freshness::Objects,
        options: Options::default(),
        configs: vec![config()],
        unreadable: Vec::new(),
        nodes: Observed::Known(nodes.collect()),
        pools: Observed::Known(vec![pool(names::WORKER_POOL, BEFORE)]),
        machine_configs: BTreeMap::from([
            (BEFORE.to_owned(), Observed::Known(Some(machine_config(BEFORE, false)))),
            (AFTER.to_owned(), Observed::Known(Some(machine_config(AFTER, true)))),
            (names::MACHINE_CONFIG.to_owned(), Observed::Known(None)),
            (names::IMAGE_MACHINE_CONFIG.to_owned(), Observed::Known(None)),
        ]),
        feature_gates: Observed::Known(None),
        image_mode: Observed::Known(None),
        container_runtime_configs: Observed::Known(Vec::new()),
        runtime_classes: Observed::Known(Vec::new()),
        kata_nodes: Observed::Known(Vec::new()),
        monitor: MonitorObjects::absent(),
        jobs: JobObjects::absent(),
        pods: BTreeMap::new(),
        drain_blockers: BTreeMap::new(),
        namespaces: BTreeMap::new(),
    };
    if changed > 0 {
        settle(&mut snapshot);
    }
    snapshot
}

/// A cluster without the Machine Config Operator on which Jobs installed Kata on the first `installed` nodes, whose labels
/// and KataNodes are up to date.
fn with_jobs(workers: usize, installed: usize) -> Snapshot {
    let mut snapshot = cluster(workers, 0);
    snapshot.options = Options {
        platform: Platform::Kubernetes,
        agent_image: Some("registry.example/kata-operator:1".to_owned()),
        ..Options::default()
    };
    let nodes = (0..workers).map(|index| {
        let mut node = node(index, false, false);
        node.annotations.clear();
        node.labels.remove(names::WORKER_ROLE_LABEL);
        Arc::new(node)
    });
    snapshot.nodes = Observed::Known(nodes.collect());
    if installed == 0 {
        return snapshot;
    }
    let state = desired_state(&snapshot);
    let nodes = snapshot.nodes.known().unwrap();
    let kata_nodes =
        nodes.iter().take(installed).map(|node| Arc::new(installed_node(node, &state)));
    snapshot.kata_nodes = Observed::Known(kata_nodes.collect());
    let nodes = nodes.iter().enumerate().map(|(index, node)| {
        let mut node = node.as_ref().clone();
        if index < installed {
            node.labels.insert(names::CLAIM_LABEL.to_owned(), names::CLAIMED.to_owned());
            node.runtime_handlers = Some(["kata".to_owned()].into());
        }
        Arc::new(node)
    });
    snapshot.nodes = Observed::Known(nodes.collect());
    settle(&mut snapshot);
    snapshot
}

/// The digest of what a node should have, as a Job names it.
fn desired_state(snapshot: &Snapshot) -> String {
    let steps = decide(snapshot).plan.steps;
    let mut jobs = steps.iter().filter_map(|step| match &step.action {
        Action::Apply { object, body } if object.kind == kata_plan::Kind::Job => {
            body["metadata"]["annotations"][names::node_job::STATE].as_str()
        }
        _ => None,
    });
    jobs.next().unwrap().to_owned()
}

fn installed_node(node: &NodeFacts, state: &str) -> KataNode {
    typed(json!({
        "apiVersion": "kata-operator.dev/v1alpha1", "kind": "KataNode",
        "metadata": {"name": node.name, "uid": node.name, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid},
        ]},
        "spec": {"nodeName": node.name, "kataConfig": "example"},
        "status": {"host": {
            "installed": state, "mayHaveArtifacts": true, "handlers": ["kata"],
            "inspected": "2026-01-01T00:00:00Z",
            "job": {
                "name": format!("job-{}", node.name), "number": 2, "action": "Install",
                "desiredStateDigest": state, "outcome": "Done", "time": "2026-01-01T00:00:00Z",
            },
        }},
    }))
}

/// The same before the first Job of a removal: the labels and the RuntimeClass are gone, and all pods were read.
fn removed_by_jobs(workers: usize) -> Snapshot {
    let mut snapshot = with_jobs(workers, workers);
    let deleted = "2026-01-01T00:00:00Z";
    for config in &mut snapshot.configs {
        config.metadata.deletion_timestamp = Some(typed(json!(deleted)));
    }
    snapshot.runtime_classes = Observed::Known(Vec::new());
    let nodes = snapshot.nodes.known().unwrap().iter().map(|node| {
        let mut node = node.as_ref().clone();
        node.labels.remove(names::RUNTIME_LABEL);
        node.labels.retain(|key, _| !key.starts_with(names::CLASS_LABEL_PREFIX));
        Arc::new(node)
    });
    snapshot.nodes = Observed::Known(nodes.collect());
    snapshot.freshness = Freshness::Quorum;
    snapshot.pods.insert(kata_plan::PodScope::Cluster, Observed::Known(Vec::new()));
    settle(&mut snapshot);
    snapshot
}

/// A cluster on all nodes of which Jobs installed Kata, when all should have another payload.
fn updated_by_jobs(workers: usize) -> Snapshot {
    let mut snapshot = with_jobs(workers, workers);
    for config in &mut snapshot.configs {
        config.spec.payload = Some(typed(json!({"image": "registry.example/payload:2"})));
    }
    snapshot
}

/// A cluster on all nodes of which Jobs installed Kata, in a deletion that one sandboxed pod on each node holds up.
fn held_up_by_pods(workers: usize) -> Snapshot {
    let mut snapshot = with_jobs(workers, workers);
    for config in &mut snapshot.configs {
        config.metadata.deletion_timestamp = Some(typed(json!("2026-01-01T00:00:00Z")));
    }
    let pods = (0..workers).map(|index| SandboxedPod {
        namespace: "default".to_owned(),
        name: format!("pod-{index}"),
        uid: format!("pod-{index}"),
        runtime_class: names::RUNTIME_CLASS.to_owned(),
        node: Some(format!("worker-{index}")),
        owner: None,
        finished: false,
        deleting: false,
    });
    snapshot.freshness = Freshness::Quorum;
    snapshot.pods.insert(kata_plan::PodScope::Cluster, Observed::Known(pods.collect()));
    settle(&mut snapshot);
    snapshot
}

fn node(index: usize, joined: bool, changed: bool) -> NodeFacts {
    let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let current = if changed { AFTER } else { BEFORE };
    let mut labels: BTreeMap<String, String> = [
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/os", "linux"),
        ("node.openshift.io/os_id", "rhcos"),
        ("node.kubernetes.io/instance-type", "m6i.metal"),
        ("topology.kubernetes.io/zone", "eu-central-1a"),
        (names::WORKER_ROLE_LABEL, ""),
    ]
    .map(text)
    .into();
    labels.insert("kubernetes.io/hostname".to_owned(), format!("worker-{index}"));
    if joined {
        labels.insert(names::KATA_ROLE_LABEL.to_owned(), String::new());
    }
    if changed {
        labels.insert(names::RUNTIME_LABEL.to_owned(), "true".to_owned());
    }
    NodeFacts {
        name: format!("worker-{index}"),
        uid: format!("00000000-0000-0000-0000-{index:012}"),
        resource_version: index.to_string(),
        labels,
        annotations: [
            (mco::CURRENT_CONFIG, current),
            (mco::DESIRED_CONFIG, current),
            (mco::STATE, "Done"),
            (mco::DESIRED_DRAIN, "uncordon-x"),
            (mco::LAST_APPLIED_DRAIN, "uncordon-x"),
        ]
        .map(text)
        .into(),
        ready: Readiness { status: Some(true), ..Readiness::default() },
        operating_system: "linux".to_owned(),
        ..NodeFacts::default()
    }
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn config() -> KataConfig {
    typed(json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": "example", "uid": "u", "generation": 1, "resourceVersion": "1",
            "finalizers": [names::FINALIZER], "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {},
    }))
}

fn pool(name: &str, rendered: &str) -> MachineConfigPool {
    typed(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name, "uid": name},
        "spec": {
            "nodeSelector": {"matchLabels": {(format!("node-role.kubernetes.io/{name}")): ""}},
            "configuration": {"name": rendered, "source": [{"name": names::MACHINE_CONFIG}]},
        },
    }))
}

fn machine_config(name: &str, extended: bool) -> MachineConfig {
    let extensions = if extended { json!([names::EXTENSION]) } else { json!([]) };
    typed(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name, "uid": name}, "spec": {"extensions": extensions},
    }))
}

/// Until the objects, labels and KataNodes are there that the decision itself wants.
fn settle(snapshot: &mut Snapshot) {
    for _ in 0..3 {
        write(snapshot);
    }
}

/// Does to the snapshot what the decision about it wants.
fn write(snapshot: &mut Snapshot) {
    let decision = decide(snapshot);
    let mut kata_nodes: BTreeMap<String, KataNode> = snapshot
        .kata_nodes
        .known()
        .into_iter()
        .flatten()
        .map(|it| (it.spec.node_name.clone(), it.as_ref().clone()))
        .collect();
    let mut changed: BTreeMap<String, BTreeMap<String, Option<String>>> = BTreeMap::new();
    for step in decision.plan.steps {
        match step.action {
            Action::Apply { object, mut body } => match object.kind {
                kata_plan::Kind::KataNode => {
                    kata_nodes.insert(object.name, typed(body));
                }
                kata_plan::Kind::MachineConfigPool => {
                    body["spec"]["configuration"] =
                        json!({"name": AFTER, "source": [{"name": names::MACHINE_CONFIG}]});
                    body["metadata"]["uid"] = json!("pool");
                    if let Observed::Known(pools) = &mut snapshot.pools {
                        pools.push(typed(body));
                    }
                }
                kata_plan::Kind::MachineConfig => {
                    body["metadata"]["uid"] = json!("mc");
                    let config = Observed::Known(Some(typed(body)));
                    snapshot.machine_configs.insert(object.name, config);
                }
                kata_plan::Kind::RuntimeClass => {
                    body["metadata"]["uid"] = json!("class");
                    snapshot.runtime_classes = Observed::Known(vec![typed(body)]);
                }
                _ => {}
            },
            Action::ApplyStatus { object, body } => {
                let status = typed(body["status"].clone());
                kata_nodes.entry(object.name).and_modify(|it| it.status = Some(status));
            }
            Action::LabelNode { node, set, remove, .. } => {
                let labels = changed.entry(node.name).or_default();
                labels.extend(set.into_iter().map(|(key, value)| (key, Some(value))));
                labels.extend(remove.into_iter().map(|key| (key, None)));
            }
            _ => {}
        }
    }
    snapshot.kata_nodes = Observed::Known(kata_nodes.into_values().map(Arc::new).collect());
    let nodes = snapshot.nodes.known().unwrap().iter().map(|node| {
        let mut node = node.as_ref().clone();
        for (key, value) in changed.remove(&node.name).into_iter().flatten() {
            match value {
                Some(value) => node.labels.insert(key, value),
                None => node.labels.remove(&key),
            };
        }
        Arc::new(node)
    });
    snapshot.nodes = Observed::Known(nodes.collect());
    for config in &mut snapshot.configs {
        config.status = decision.report.status.as_ref().map(|report| report.status.clone());
    }
}
