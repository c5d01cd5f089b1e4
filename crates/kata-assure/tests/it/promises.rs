//! Each promise is noticed when it is broken: what the operator never does is done here in its name.

use std::time::Duration;

use kata_api::names;
use kata_assure::ledger::{Actor, Call, Ledger};
use kata_assure::promises::Promises;
use kata_assure::promises::requests::Requests;
use kata_assure::shape::{self, Topology, worker};
use kata_assure::world::KATANODES;
use serde_json::{Value, json};
use simcluster::api::server::{
    DeleteOptions, FieldValidation, PatchType, WriteOptions, WriteRequest, WriteVerb, Writer,
};
use simcluster::resource::{
    KATACONFIGS, MACHINECONFIGPOOLS, MACHINECONFIGS, NODES, PODS, RUNTIMECLASSES,
};
use simcluster::{Resource, Simulation};

/// A cluster with a checker.
struct Lab {
    sim: Simulation,
    ledger: Ledger,
}

impl Lab {
    fn new() -> Self {
        let mut sim = Topology::Three.build().unwrap();
        let ledger = Ledger::new(false);
        sim.add_controller(Box::new(Promises::new(ledger.clone(), false)));
        let mut lab = Self { sim, ledger };
        lab.settle();
        lab
    }

    fn settle(&mut self) {
        self.sim.advance(Duration::from_secs(60));
    }

    /// Does something as an actor, and lets the cluster see it.
    fn act<T>(&mut self, actor: Actor, work: impl FnOnce(&mut Simulation) -> T) -> T {
        let Self { sim, ledger } = self;
        ledger.acting(actor, || {
            let result = work(sim);
            let now = sim.now();
            sim.run_due(now);
            result
        })
    }

    fn apply(&mut self, resource: &Resource, name: &str, body: Value) {
        let (group, plural) = (resource.group.to_string(), resource.plural.to_string());
        let request = WriteRequest {
            user: None,
            verb: WriteVerb::Patch(PatchType::Apply),
            resource: Resource::dynamic(group, plural),
            namespace: String::new(),
            name: name.to_owned(),
            subresource: String::new(),
            body,
            options: WriteOptions {
                field_manager: names::FIELD_MANAGER.to_owned(),
                field_validation: FieldValidation::Strict,
                force: true,
                ..WriteOptions::default()
            },
        };
        self.act(Actor::Operator, |sim| {
            let now = sim.now();
            sim.api.write(now, &request).unwrap();
        });
    }

    fn merge(&mut self, resource: &Resource, name: &str, patch: &Value) {
        self.act(Actor::Operator, |sim| {
            let writer = Writer { manager: names::FIELD_MANAGER, now: sim.now() };
            if patch.get("status").is_some() {
                sim.api.merge_status(writer, resource, "", name, patch).unwrap();
            } else {
                sim.api.merge(writer, resource, "", name, patch).unwrap();
            }
        });
    }

    fn delete(&mut self, resource: &Resource, name: &str) {
        self.act(Actor::Operator, |sim| {
            let writer = Writer { manager: names::FIELD_MANAGER, now: sim.now() };
            sim.api.delete(writer, resource, "", name, &DeleteOptions::default()).unwrap();
        });
    }

    fn label(&mut self, key: &str, value: &Value) {
        let patch = json!({"metadata": {"labels": {key: value}}});
        self.merge(&NODES, &worker(0), &patch);
    }

    /// A KataConfig with our finalizer.
    fn config(&mut self) {
        self.act(Actor::Episode, |sim| {
            let writer = Writer { manager: "kubectl", now: sim.now() };
            let config = json!({
                "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
                "metadata": {"name": "example", "finalizers": [names::FINALIZER]}, "spec": {},
            });
            sim.api.create(writer, &KATACONFIGS, "", config).unwrap();
        });
    }

    /// What our class selects besides the pool's label.
    fn open() -> Value {
        json!({
            names::RUNTIME_LABEL: "true",
            names::class_label(names::RUNTIME_CLASS): names::CLASS_LABEL_SERVED,
        })
    }

    fn class(&mut self, selector: &Value) {
        let class = json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "kata",
            "metadata": {"name": "kata", "labels": {names::MANAGED_BY: names::PRODUCT}},
            "scheduling": {"nodeSelector": selector},
        });
        self.apply(&RUNTIMECLASSES, "kata", class);
    }

    fn pool(&mut self) {
        let pool = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": names::POOL, "labels": {names::MANAGED_BY: names::PRODUCT}},
            "spec": {
                "machineConfigSelector": {"matchExpressions": [{
                    "key": names::MACHINE_CONFIG_ROLE_LABEL, "operator": "In",
                    "values": [names::POOL, names::WORKER_POOL],
                }]},
                "nodeSelector": {"matchLabels": {names::KATA_ROLE_LABEL: ""}},
            },
        });
        self.apply(&MACHINECONFIGPOOLS, names::POOL, pool);
    }

    /// A sandboxed pod that names its node.
    fn pod(&mut self) {
        self.act(Actor::Episode, |sim| {
            let writer = Writer { manager: "kubectl", now: sim.now() };
            let pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sandboxed"},
                "spec": {
                    "runtimeClassName": "kata", "nodeName": worker(0),
                    "containers": [{"name": "main", "image": "registry.example/app:1"}],
                },
            });
            sim.api.create(writer, &PODS, "default", pod).unwrap();
        });
    }

    /// Asserts that a promise was found broken.
    fn broken(&self, promise: &str) {
        let page = self.ledger.open();
        let found = page.broken.iter().any(|text| text.starts_with(promise));
        assert!(found, "{promise} is not in {:#?}", page.broken);
    }
}

#[test]
fn a_node_that_leaves_the_pool_under_a_pod_breaks_s1_and_s2() {
    let mut lab = Lab::new();
    lab.config();
    lab.class(&json!({names::RUNTIME_LABEL: "true"}));
    lab.label(names::KATA_ROLE_LABEL, &json!(""));
    lab.label(names::RUNTIME_LABEL, &json!("true"));
    lab.pod();
    lab.label(names::KATA_ROLE_LABEL, &Value::Null);
    lab.broken("S1: node worker-0 left the pool under pod sandboxed");
    lab.broken("S2: node worker-0 left the pool while pods could still come");
}

#[test]
fn a_node_that_loses_the_runtime_label_under_a_pod_breaks_s1() {
    let mut lab = Lab::new();
    lab.config();
    lab.class(&Lab::open());
    lab.label(names::RUNTIME_LABEL, &json!("true"));
    lab.act(Actor::Cluster, |sim| {
        let host = sim.world.hosts.get_mut(&worker(0)).unwrap();
        host.extensions.insert(names::EXTENSION.to_owned());
    });
    lab.pod();
    lab.label(names::RUNTIME_LABEL, &Value::Null);
    lab.broken("S1: node worker-0 lost the runtime label under pod sandboxed");
}

#[test]
fn a_class_that_goes_under_a_pod_breaks_s1() {
    let mut lab = Lab::new();
    lab.config();
    lab.class(&json!({names::RUNTIME_LABEL: "true"}));
    lab.pod();
    lab.delete(&RUNTIMECLASSES, "kata");
    lab.broken("S1: RuntimeClass kata was deleted under pod sandboxed");
}

#[test]
fn a_mark_without_the_runtime_and_a_class_without_the_mark_break_s3() {
    let mut lab = Lab::new();
    lab.config();
    lab.label(names::RUNTIME_LABEL, &json!("true"));
    lab.broken("S3: node worker-0 was marked");
    lab.class(&json!({names::KATA_ROLE_LABEL: ""}));
    lab.broken("S3: RuntimeClass kata matches unverified nodes");
    // One that every node with Kata serves, whichever class it is.
    let mut lab = Lab::new();
    lab.config();
    lab.class(&json!({names::RUNTIME_LABEL: "true"}));
    lab.broken("S3: RuntimeClass kata matches unverified nodes");
}

#[test]
fn more_nodes_out_than_the_pool_allows_break_s4() {
    let mut lab = Lab::new();
    for index in 0..3 {
        lab.act(Actor::Cluster, |sim| {
            let writer = Writer { manager: "machine-config-controller", now: sim.now() };
            let patch = json!({
                "spec": {"unschedulable": true},
                "metadata": {"annotations": {names::mco::DESIRED_CONFIG: "rendered-worker-x"}},
            });
            sim.api.merge(writer, &NODES, "", &worker(index), &patch).unwrap();
        });
    }
    lab.broken("S4: 3 nodes of pool worker are out");
}

#[test]
fn a_pool_that_goes_under_its_nodes_breaks_s7() {
    let mut lab = Lab::new();
    lab.config();
    lab.pool();
    lab.label(names::KATA_ROLE_LABEL, &json!(""));
    lab.settle();
    lab.delete(&MACHINECONFIGPOOLS, names::POOL);
    lab.broken("S7: machineconfigpools.machineconfiguration.openshift.io kata-oc was deleted");
}

#[test]
fn deleting_what_is_not_ours_breaks_s8() {
    let mut lab = Lab::new();
    lab.config();
    lab.delete(&RUNTIMECLASSES, "gvisor");
    lab.broken("S8: runtimeclasses.node.k8s.io gvisor was deleted");
}

#[test]
fn writing_what_is_not_ours_breaks_s9() {
    let mut lab = Lab::new();
    lab.config();
    lab.merge(&KATACONFIGS, "example", &json!({"spec": {"logLevel": "debug"}}));
    lab.broken("S9: /spec/logLevel of kataconfigs");
    lab.label("theirs", &json!("x"));
    lab.broken("S9: /metadata/labels/theirs of nodes worker-0");
    let both = json!({
        "metadata": {"labels": {names::CLAIM_LABEL: "example"}},
        "spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]},
    });
    lab.merge(&NODES, &worker(0), &both);
    lab.broken("S9: taints of node worker-0 were written that are not ours");
    lab.merge(&MACHINECONFIGS, "99-worker-ssh", &json!({"spec": {"extensions": ["usbguard"]}}));
    lab.broken("S9: machineconfigs.machineconfiguration.openshift.io 99-worker-ssh is not ours");
}

#[test]
fn an_effect_without_finalizer_and_a_finalizer_that_goes_too_early_break_s10() {
    let mut lab = Lab::new();
    lab.class(&json!({names::RUNTIME_LABEL: "true"}));
    lab.broken("S10: runtimeclasses.node.k8s.io kata written without a finalizer");
    lab.config();
    lab.act(Actor::Episode, |sim| {
        let writer = Writer { manager: "kubectl", now: sim.now() };
        let options = DeleteOptions::default();
        sim.api.delete(writer, &KATACONFIGS, "", "example", &options).unwrap();
    });
    lab.merge(&KATACONFIGS, "example", &json!({"metadata": {"finalizers": []}}));
    lab.broken("S10: the finalizer went while there was still RuntimeClass kata");
}

#[test]
fn an_observed_generation_that_goes_back_breaks_s11() {
    let mut lab = Lab::new();
    lab.config();
    lab.merge(&KATACONFIGS, "example", &json!({"status": {"observedGeneration": 7}}));
    lab.broken("S11: example: generation 7 observed, 1 exists");
    lab.merge(&KATACONFIGS, "example", &json!({"status": {"observedGeneration": 1}}));
    lab.broken("S11: example: observedGeneration went from 7 to 1");
}

#[test]
fn a_malformed_status_breaks_o_status() {
    let mut lab = Lab::new();
    lab.config();
    let condition = |type_: &str, reason: &str, time: &str| {
        json!({
            "type": type_, "status": "True", "reason": reason, "message": "",
            "lastTransitionTime": time,
        })
    };
    let (one, two) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
    let write = |lab: &mut Lab, conditions: Value| {
        lab.merge(&KATACONFIGS, "example", &json!({"status": {"conditions": conditions}}));
    };
    write(&mut lab, json!([condition("Ready", "Not-a-reason", one)]));
    lab.broken("O-status: example: malformed condition");
    write(&mut lab, json!([condition("Ready", "A", two)]));
    lab.broken("O-status: example: the time of \"Ready\" changed");
    write(&mut lab, json!([condition("Reconciling", "A", one), condition("Stalled", "A", one)]));
    lab.broken("O-status: example is Reconciling and Stalled");
}

/// The requests of an operator, without a cluster behind them.
struct Wire {
    ledger: Ledger,
    requests: Requests,
}

const KINDS: [&str; 7] = [
    "/apis/kataconfiguration.openshift.io/v1/kataconfigs",
    "/api/v1/nodes",
    "/apis/machineconfiguration.openshift.io/v1/machineconfigpools",
    "/apis/machineconfiguration.openshift.io/v1/machineconfigs",
    "/apis/machineconfiguration.openshift.io/v1/containerruntimeconfigs",
    "/apis/node.k8s.io/v1/runtimeclasses",
    "/apis/kata-operator.dev/v1alpha1/katanodes",
];

impl Wire {
    fn new() -> Self {
        Self { ledger: Ledger::new(false), requests: Requests::default() }
    }

    fn send(&mut self, method: http::Method, path: &str, body: &Value, code: u16) {
        let mut page = self.ledger.open();
        let at = page.start.elapsed();
        let number = u64::try_from(page.calls.len()).unwrap() + 1;
        let path = path.to_owned();
        page.calls.push(Call { number, operator: 0, at, method, path, code: Some(code) });
        let index = page.calls.len() - 1;
        self.requests.check(&mut page, index, body.to_string().as_bytes());
        self.requests.answered(&page, index, code == 200);
    }

    fn list(&mut self, path: &str, code: u16) {
        self.send(http::Method::GET, path, &Value::Null, code);
    }

    fn list_all(&mut self) {
        for path in KINDS {
            self.list(path, 200);
        }
    }

    /// Sends a node to the pool, which reboots it.
    fn disrupt(&mut self) {
        let body = json!({"metadata": {"labels": {names::KATA_ROLE_LABEL: ""}}});
        self.send(http::Method::PATCH, "/api/v1/nodes/worker-0", &body, 200);
    }

    /// The same, if the node is as it was seen.
    fn disrupt_as_seen(&mut self) {
        let labels = json!({names::KATA_ROLE_LABEL: ""});
        let body = json!({"metadata": {"resourceVersion": "7", "labels": labels}});
        self.send(http::Method::PATCH, "/api/v1/nodes/worker-0", &body, 200);
    }

    /// Marks a node, or takes its mark.
    fn mark(&mut self, value: &Value) {
        let body = json!({"metadata": {"labels": {names::RUNTIME_LABEL: value}}});
        self.send(http::Method::PATCH, "/api/v1/nodes/worker-0", &body, 200);
    }

    /// What was found broken since the last time.
    fn broken(&self) -> Vec<String> {
        std::mem::take(&mut self.ledger.open().broken)
    }
}

#[tokio::test(start_paused = true)]
async fn disrupting_on_reads_that_are_missing_old_or_failed_breaks_s13() {
    const WRITE: &str = "PATCH /api/v1/nodes/worker-0 [nodes]";
    let mut wire = Wire::new();
    for path in KINDS.iter().filter(|path| !path.ends_with("/nodes")) {
        wire.list(path, 200);
    }
    wire.disrupt();
    assert_eq!(wire.broken(), [format!("S13: written without any read: {WRITE}")]);

    wire.list("/api/v1/nodes", 200);
    wire.disrupt();
    assert_eq!(wire.broken(), [""; 0]);

    tokio::time::advance(Duration::from_secs(80)).await;
    for path in KINDS.iter().filter(|path| !path.ends_with("/nodes")) {
        wire.list(path, 200);
    }
    tokio::time::advance(Duration::from_secs(20)).await;
    wire.disrupt();
    assert_eq!(wire.broken(), [format!("S13: written on old reads: {WRITE}")]);

    wire.list_all();
    tokio::time::advance(Duration::from_secs(10)).await;
    wire.list("/api/v1/nodes", 503);
    wire.disrupt();
    assert_eq!(wire.broken(), [format!("S13: written after a read that failed: {WRITE}")]);

    wire.list("/api/v1/nodes?resourceVersion=0", 200);
    let cached = "S13: a read from the server's cache: /api/v1/nodes?resourceVersion=0";
    assert_eq!(wire.broken(), [cached]);
}

/// A request that the API server refuses if the node has changed needs no list of nodes, but the rest.
#[tokio::test(start_paused = true)]
async fn a_node_is_disrupted_as_it_was_seen_and_on_fresh_reads_of_the_rest() {
    const WRITE: &str = "PATCH /api/v1/nodes/worker-0";
    let pools = KINDS[2];
    let mut wire = Wire::new();
    for path in KINDS {
        if path != pools && !path.ends_with("nodes") {
            wire.list(path, 200);
        }
    }
    wire.disrupt_as_seen();
    let unread = format!("S13: written without any read: {WRITE} [machineconfigpools]");
    assert_eq!(wire.broken(), [unread]);
    wire.list(pools, 200);
    wire.disrupt_as_seen();
    assert_eq!(wire.broken(), [""; 0]);

    // Taking the mark from a node that has changed could take it from under a pod.
    wire.mark(&Value::Null);
    assert_eq!(
        wire.broken(),
        ["nodes", "katanodes"]
            .map(|kind| format!("S13: written without any read: {WRITE} [{kind}]"))
    );
}

#[test]
fn what_the_operator_may_do_breaks_nothing() {
    let mut lab = Lab::new();
    lab.config();
    lab.pool();
    lab.class(&Lab::open());
    lab.label(names::KATA_ROLE_LABEL, &json!(""));
    lab.label(names::KATA_ROLE_LABEL, &Value::Null);
    lab.class(&json!({names::CLOSED_LABEL: "true"}));
    assert!(lab.ledger.open().broken.is_empty(), "{:#?}", lab.ledger.open().broken);
    assert!(lab.sim.api.list(&KATANODES).is_empty());
    assert!(shape::worker(0) == "worker-0");
}
