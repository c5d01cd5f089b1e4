//! Each promise where Jobs change the nodes is noticed when it is broken.

use std::time::Duration;

use kata_api::names::{self, node_job};
use kata_assure::ledger::{Actor, Ledger};
use kata_assure::promises::Promises;
use kata_assure::shape::{Topology, worker};
use serde_json::{Value, json};
use simcluster::api::server::{DeleteOptions, Writer};
use simcluster::resource::{JOBS, KATACONFIGS, NODES, PODS, RUNTIMECLASSES};
use simcluster::world::NodeFault;
use simcluster::{Resource, Simulation, topology};

/// A cluster with a checker, and a KataConfig with our finalizer.
struct Lab {
    sim: Simulation,
    ledger: Ledger,
}

impl Lab {
    fn new() -> Self {
        let mut sim = Topology::PlainMixed.build().unwrap();
        let ledger = Ledger::new(false);
        sim.add_controller(Box::new(Promises::new(ledger.clone(), false)));
        let mut lab = Self { sim, ledger };
        let config = json!({
            "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
            "metadata": {"name": "example", "finalizers": [names::FINALIZER]}, "spec": {},
        });
        lab.create(Actor::Episode, &KATACONFIGS, "", config);
        lab.settle();
        lab
    }

    fn settle(&mut self) {
        self.sim.advance(Duration::from_secs(60));
    }

    fn create(&mut self, actor: Actor, resource: &Resource, namespace: &str, object: Value) {
        let manager = if actor == Actor::Operator { names::FIELD_MANAGER } else { "kubectl" };
        let Self { sim, ledger } = self;
        ledger.acting(actor, || {
            let writer = Writer { manager, now: sim.now() };
            sim.api.create(writer, resource, namespace, object).unwrap();
            let now = sim.now();
            sim.run_due(now);
        });
    }

    /// Labels a node as the operator does.
    fn label(&mut self, node: &str, labels: &Value) {
        let Self { sim, ledger } = self;
        ledger.acting(Actor::Operator, || {
            let writer = Writer { manager: names::FIELD_MANAGER, now: sim.now() };
            let patch = json!({"metadata": {"labels": labels}});
            sim.api.merge(writer, &NODES, "", node, &patch).unwrap();
            let now = sim.now();
            sim.run_due(now);
        });
    }

    fn claim(&mut self, node: &str) {
        self.label(node, &json!({names::CLAIM_LABEL: names::CLAIMED}));
    }

    fn job(&mut self, name: &str, node: &str, action: &str) {
        let job = job(&self.sim, name, node, action);
        self.create(Actor::Operator, &JOBS, names::NAMESPACE, job);
    }

    fn broken(&self) -> Vec<String> {
        self.ledger.open().broken.clone()
    }

    /// What is broken begins with this, and nothing else is.
    #[track_caller]
    fn assert_broken(&self, promise: &str) {
        let broken = self.broken();
        assert!(
            !broken.is_empty() && broken.iter().all(|broken| broken.starts_with(promise)),
            "{promise}: {broken:#?}"
        );
    }
}

fn job(sim: &Simulation, name: &str, node: &str, action: &str) -> Value {
    let uid = sim.api.get(&NODES, "", node).unwrap()["metadata"]["uid"].clone();
    let labels = json!({
        names::MANAGED_BY: names::PRODUCT,
        node_job::COMPONENT_LABEL: node_job::COMPONENT,
    });
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": name, "namespace": names::NAMESPACE, "labels": labels,
            "annotations": {
                node_job::NODE: node, node_job::NODE_UID: uid, node_job::ACTION: action,
            },
        },
        "spec": {
            "backoffLimit": 0, "activeDeadlineSeconds": 600,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "restartPolicy": "Never", "automountServiceAccountToken": false,
                    "containers": [{
                        "name": "node-agent", "image": "registry.example/x:1",
                        "command": ["sleep", "30"],
                        "securityContext": {
                            "privileged": false, "allowPrivilegeEscalation": false,
                        },
                    }],
                },
            },
        },
    })
}

#[test]
fn what_is_allowed_breaks_nothing() {
    let mut lab = Lab::new();
    lab.job("look", &worker(0), "Preflight");
    lab.settle();
    lab.claim(&worker(0));
    lab.job("change", &worker(0), "Install");
    lab.settle();
    lab.claim(&worker(1));
    lab.job("next", &worker(1), "Install");
    lab.settle();
    assert_eq!(lab.broken(), Vec::<String>::new());
}

#[test]
fn a_job_under_a_pod_or_on_a_node_that_is_open() {
    let mut lab = Lab::new();
    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "kata",
        "metadata": {"name": "kata"},
    });
    lab.create(Actor::Episode, &RUNTIMECLASSES, "", class);
    // It waits there for a runtime: bound, and not ended.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "guest"},
        "spec": {
            "runtimeClassName": "kata", "nodeName": worker(0),
            "containers": [{"name": "main", "image": "registry.example/app:1"}],
        },
    });
    lab.create(Actor::Episode, &PODS, "default", pod);
    lab.claim(&worker(0));
    lab.job("remove", &worker(0), "Remove");
    lab.assert_broken("S1");

    let mut lab = Lab::new();
    let open = json!({
        names::CLAIM_LABEL: names::CLAIMED, names::RUNTIME_LABEL: names::RUNTIME_LABEL_VERIFIED,
    });
    lab.label(&worker(0), &open);
    lab.assert_broken("S3");
    lab.job("change", &worker(0), "Remove");
    assert!(lab.broken().iter().any(|broken| broken.starts_with("S2")), "{:?}", lab.broken());
}

#[test]
fn a_class_that_leads_to_nodes_of_another_installer() {
    let class = |selector: Value| {
        json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "kata",
            "metadata": {"name": "kata"}, "scheduling": {"nodeSelector": selector},
        })
    };
    let mut lab = Lab::new();
    let shared = class(json!({names::RUNTIME_LABEL: names::RUNTIME_LABEL_VERIFIED}));
    lab.create(Actor::Operator, &RUNTIMECLASSES, "", shared);
    lab.assert_broken("S3");

    let mut lab = Lab::new();
    let ours = class(json!({
        names::CLAIM_LABEL: names::CLAIMED, names::RUNTIME_LABEL: names::RUNTIME_LABEL_VERIFIED,
        names::class_label(names::RUNTIME_CLASS): names::CLASS_LABEL_SERVED,
    }));
    lab.create(Actor::Operator, &RUNTIMECLASSES, "", ours);
    assert_eq!(lab.broken(), Vec::<String>::new());
}

#[test]
fn a_node_of_another_installer_that_is_written() {
    let mut lab = Lab::new();
    lab.label(&worker(3), &json!({names::RUNTIME_LABEL: null}));
    lab.assert_broken("S9");
}

#[test]
fn a_startup_taint_that_goes_too_early_and_a_taint_that_is_not_ours() {
    let untaint = |left: Value| {
        let mut lab = Lab::new();
        let Lab { sim, ledger } = &mut lab;
        ledger.acting(Actor::Operator, || {
            let writer = Writer { manager: names::FIELD_MANAGER, now: sim.now() };
            let patch = json!({"spec": {"taints": left}});
            sim.api.merge(writer, &NODES, "", &worker(1), &patch).unwrap();
            let now = sim.now();
            sim.run_due(now);
        });
        lab
    };
    untaint(json!([{"key": "example.com/batch", "effect": "PreferNoSchedule"}]))
        .assert_broken("S3");
    let lab = untaint(json!([]));
    assert!(lab.broken().iter().any(|broken| broken.starts_with("S9")), "{:?}", lab.broken());
}

#[test]
fn too_many_jobs() {
    let mut lab = Lab::new();
    lab.claim(&worker(0));
    lab.claim(&worker(1));
    lab.job("one", &worker(0), "Install");
    lab.job("two", &worker(1), "Install");
    lab.assert_broken("S4");

    let mut lab = Lab::new();
    lab.job("one", &worker(0), "Preflight");
    lab.job("two", &worker(0), "Preflight");
    lab.assert_broken("S6");
}

#[test]
fn a_job_where_none_may_be() {
    let mut lab = Lab::new();
    lab.job("others", &worker(3), "Preflight");
    lab.assert_broken("S9");

    let mut lab = Lab::new();
    lab.job("control", "control-plane-0", "Preflight");
    lab.assert_broken("S9");

    let mut lab = Lab::new();
    lab.job("unclaimed", &worker(0), "Install");
    lab.assert_broken("S10");
}

#[test]
fn a_job_that_is_deleted_while_it_changes_its_node() {
    let mut lab = Lab::new();
    lab.claim(&worker(0));
    lab.job("change", &worker(0), "Install");
    let Lab { sim, ledger } = &mut lab;
    ledger.acting(Actor::Operator, || {
        let writer = Writer { manager: names::FIELD_MANAGER, now: sim.now() };
        let options = DeleteOptions::default();
        sim.api.delete(writer, &JOBS, names::NAMESPACE, "change", &options).unwrap();
        let now = sim.now();
        sim.run_due(now);
    });
    lab.assert_broken("S12");
}

#[test]
fn a_restart_that_brings_the_change_of_another_program_into_effect() {
    let mut lab = Lab::new();
    let node = worker(0);
    topology::set_fault(&mut lab.sim, &node, NodeFault::ForeignChange).unwrap();
    let starts = lab.sim.world.hosts[&node].containerd.starts;
    lab.ledger.open().foreign.insert(node.clone(), starts);
    lab.claim(&node);
    assert_eq!(lab.broken(), Vec::<String>::new());
    lab.sim.world.hosts.get_mut(&node).unwrap().restart_runtime();
    lab.job("look", &node, "Preflight");
    lab.assert_broken("S16");
}

#[test]
fn a_job_with_more_than_it_needs() {
    for (pointer, value) in [
        ("/spec/template/spec/automountServiceAccountToken", json!(true)),
        ("/spec/template/spec/containers/0/securityContext/privileged", json!(true)),
        ("/spec/template/spec/containers/0/securityContext/allowPrivilegeEscalation", json!(true)),
        ("/spec/backoffLimit", json!(3)),
    ] {
        let mut lab = Lab::new();
        let mut job = job(&lab.sim, "look", &worker(0), "Preflight");
        *job.pointer_mut(pointer).unwrap() = value;
        lab.create(Actor::Operator, &JOBS, names::NAMESPACE, job);
        lab.assert_broken("S14");
    }
}

#[test]
fn what_is_left_when_the_kata_config_goes() {
    let mut lab = Lab::new();
    lab.claim(&worker(0));
    let Lab { sim, ledger } = &mut lab;
    let writer = Writer { manager: "kubectl", now: sim.now() };
    sim.api.delete(writer, &KATACONFIGS, "", "example", &DeleteOptions::default()).unwrap();
    ledger.acting(Actor::Operator, || {
        let writer = Writer { manager: names::FIELD_MANAGER, now: sim.now() };
        let patch = json!({"metadata": {"finalizers": []}});
        sim.api.merge(writer, &KATACONFIGS, "", "example", &patch).unwrap();
        let now = sim.now();
        sim.run_due(now);
    });
    lab.assert_broken("S10");
    assert!(lab.broken().iter().any(|broken| broken.contains("the claim of Node worker-0")));
}
