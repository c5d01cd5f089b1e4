//! A cluster whose kubelets only register, reboot and report: what the recorder had, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use simcluster::api::server::{DeleteOptions, Writer};
use simcluster::api::{Event, EventKind};
use simcluster::mco::{self, Timing};
use simcluster::resource::{MACHINECONFIGPOOLS, MACHINECONFIGS, NODES, PODS};
use simcluster::world::{Host, NodeFault, Power};
use simcluster::{Context, Controller, Resource, Simulation};

/// The extension's MachineConfig.
pub(super) const EXTENSION: &str = "50-enable-sandboxed-containers-extension";
const DRIVER: &str = "driver";

pub(super) fn epoch() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// The kubelets: a node is ready some seconds after it registers, and after a reboot.
struct Kubelets;

impl Kubelets {
    fn report(node: &str, ready: bool, cx: &mut Context<'_>) {
        let status = if ready { "True" } else { "False" };
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        cx.api.merge_status(cx.writer(), &NODES, "", node, &patch).unwrap();
    }
}

impl Controller for Kubelets {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource == NODES && event.kind == EventKind::Added {
            cx.after(&event.name, Duration::from_millis(3_600));
        }
    }

    fn host_changed(&mut self, host: &str, cx: &mut Context<'_>) {
        if let Power::Rebooting { until } = cx.world.hosts[host].power {
            Self::report(host, false, cx);
            if until < Timestamp::MAX {
                cx.reschedule(host, Duration::try_from(until.duration_since(cx.now)).unwrap());
            }
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let now = cx.now;
        if cx.api.get(&NODES, "", key).is_none() {
            return;
        }
        let host = cx.world.hosts.get_mut(key).unwrap();
        if host.power != Power::On {
            host.boot(now);
        }
        Self::report(key, true, cx);
    }
}

/// Deletes what a deleted pool owned.
struct Collector {
    /// How long it takes, in milliseconds.
    delay: Arc<AtomicU64>,
}

impl Controller for Collector {
    fn name(&self) -> &'static str {
        "collector"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource == MACHINECONFIGPOOLS && event.kind == EventKind::Deleted {
            let delay = Duration::from_millis(self.delay.load(Ordering::Relaxed));
            cx.after(event.current["metadata"]["uid"].as_str().unwrap(), delay);
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        for config in cx.api.list(&MACHINECONFIGS) {
            if config["metadata"]["ownerReferences"][0]["uid"] == key {
                let name = config["metadata"]["name"].as_str().unwrap();
                let writer = cx.writer();
                let options = DeleteOptions::default();
                // Another collector may have been faster.
                if cx.api.delete(writer, &MACHINECONFIGS, "", name, &options).is_err() {
                    assert!(cx.api.get(&MACHINECONFIGS, "", name).is_none());
                }
            }
        }
    }
}

/// A cluster and what a test does to it.
pub(super) struct Cluster {
    pub(super) sim: Simulation,
    /// The revision at which the test begins.
    pub(super) start: u64,
    started: Timestamp,
    /// How long the garbage collector takes, in milliseconds.
    pub(super) collection: Arc<AtomicU64>,
}

impl Cluster {
    /// The operator is just being installed; there are no nodes.
    pub(super) fn empty(timing: Timing) -> Self {
        let collection = Arc::new(AtomicU64::new(20));
        let collector = Collector { delay: Arc::clone(&collection) };
        let mut sim = Simulation::new(epoch(), vec![Box::new(Kubelets), Box::new(collector)]);
        mco::install(&mut sim, timing).unwrap();
        Self { sim, start: 1, started: epoch(), collection }
    }

    /// Three masters and three workers with nothing left to do; `kata` are in the pool `kata-oc`.
    pub(super) fn settled(kata: &[&str]) -> Self {
        Self::settled_with(kata, &[("worker", 3)], false)
    }

    /// As [`Self::settled`], with masters that are workers and nothing else.
    pub(super) fn compact() -> Self {
        Self::settled_with(&[], &[], false)
    }

    /// As [`Self::settled`]; the nodes of `kata-oc` booted into it first.
    pub(super) fn settled_first_booted(kata: &[&str]) -> Self {
        Self::settled_with(kata, &[("worker", 3)], true)
    }

    fn settled_with(kata: &[&str], workers: &[(&str, usize)], first_booted: bool) -> Self {
        let mut cluster = Self::empty(Timing::recorded());
        if !kata.is_empty() {
            cluster.create_extension("kata-oc", "sandboxed-containers");
            cluster.create_pool("kata-oc");
        }
        cluster.advance(20);
        let roles: &[&str] =
            if workers.is_empty() { &["control-plane", "worker"] } else { &["control-plane"] };
        for index in 0..3 {
            let mut roles = roles.to_vec();
            roles.push("master");
            cluster.register(&format!("master-{index}"), &roles, None);
            cluster.advance(1);
        }
        for (role, count) in workers {
            for index in 0..*count {
                let name = format!("worker-{index}");
                if kata.contains(&name.as_str()) {
                    cluster.register(&name, &["kata-oc", role], Some("kata-oc"));
                } else {
                    cluster.register(&name, &[role], None);
                }
                cluster.advance(1);
            }
        }
        cluster.advance(60);
        if !first_booted {
            let first = cluster.pool("worker")["spec"]["configuration"]["name"].clone();
            for node in kata {
                let patch =
                    json!({"metadata": {"annotations": {(mco::FIRST_PIVOT_CONFIG): first}}});
                cluster.patch(&NODES, node, &patch);
            }
        }
        // The recorder began with conditions in this order.
        for pool in cluster.sim.api.list(&MACHINECONFIGPOOLS) {
            let mut pool = (*pool).clone();
            let order = ["RenderDegraded", "Updated", "Updating", "NodeDegraded", "Degraded"];
            pool["status"]["conditions"]
                .as_array_mut()
                .unwrap()
                .sort_by_key(|condition| order.iter().position(|kind| condition["type"] == *kind));
            let writer = cluster.writer();
            cluster.sim.api.update_status(writer, &MACHINECONFIGPOOLS, "", pool).unwrap();
        }
        cluster.advance(30);
        cluster.start = cluster.sim.api.store.revision();
        cluster.started = cluster.sim.now();
        cluster
    }

    fn writer(&self) -> Writer<'static> {
        Writer { manager: DRIVER, now: self.sim.now() }
    }

    pub(super) fn advance(&mut self, seconds: u64) {
        self.sim.advance(Duration::from_secs(seconds));
    }

    /// Lets time pass until so many seconds after the test's start.
    pub(super) fn at(&mut self, seconds: f64) {
        let end = self.started + jiff::SignedDuration::from_secs_f64(seconds);
        self.sim.advance(Duration::try_from(end.duration_since(self.sim.now())).unwrap());
    }

    pub(super) fn get(&self, resource: &Resource, name: &str) -> Value {
        self.sim.api.get(resource, "", name).map(|object| (*object).clone()).unwrap_or_default()
    }

    pub(super) fn pool(&self, name: &str) -> Value {
        self.get(&MACHINECONFIGPOOLS, name)
    }

    pub(super) fn node(&self, name: &str) -> Value {
        self.get(&NODES, name)
    }

    /// An annotation of the operator on a node.
    pub(super) fn annotation(&self, node: &str, key: &str) -> String {
        self.node(node)["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned()
    }

    /// `machine/updated/ready/unavailable/degraded` of a pool.
    pub(super) fn counts(&self, pool: &str) -> String {
        super::timeline::counts(&self.pool(pool)["status"])
    }

    /// The status of a pool's condition; empty if it is missing.
    pub(super) fn condition(&self, pool: &str, kind: &str) -> String {
        let pool = self.pool(pool);
        let conditions = pool["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == kind);
        found.map(|found| found["status"].as_str().unwrap().to_owned()).unwrap_or_default()
    }

    pub(super) fn create(&mut self, resource: &Resource, object: Value) {
        self.sim.api.create(self.writer(), resource, "", object).unwrap();
    }

    pub(super) fn patch(&mut self, resource: &Resource, name: &str, patch: &Value) {
        self.sim.api.merge(self.writer(), resource, "", name, patch).unwrap();
    }

    pub(super) fn delete(&mut self, resource: &Resource, name: &str) {
        let options = DeleteOptions::default();
        self.sim.api.delete(self.writer(), resource, "", name, &options).unwrap();
    }

    /// A new host registers its node.
    pub(super) fn register(&mut self, name: &str, roles: &[&str], ignition_pool: Option<&str>) {
        let mut host = Host::default();
        host.ignition_pool = ignition_pool.map(str::to_owned);
        host.boot(self.sim.now());
        self.sim.world.hosts.insert(name.to_owned(), host);
        let labels: serde_json::Map<String, Value> = roles
            .iter()
            .map(|role| (format!("node-role.kubernetes.io/{role}"), json!("")))
            .collect();
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {}, "status": {},
        });
        self.create(&NODES, node);
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
        let writer = self.writer();
        self.sim.api.merge_status(writer, &NODES, "", name, &patch).unwrap();
    }

    pub(super) fn label(&mut self, node: &str, role: &str, on: bool) {
        let value = if on { json!("") } else { Value::Null };
        let patch =
            json!({"metadata": {"labels": {(format!("node-role.kubernetes.io/{role}")): value}}});
        self.patch(&NODES, node, &patch);
    }

    pub(super) fn cordon(&mut self, node: &str, on: bool) {
        let value = if on { json!(true) } else { Value::Null };
        self.patch(&NODES, node, &json!({"spec": {"unschedulable": value}}));
    }

    pub(super) fn create_extension(&mut self, role: &str, extension: &str) {
        self.create_config(
            EXTENSION,
            role,
            &json!({
                "config": {"ignition": {"version": "3.2.0"}}, "extensions": [extension],
            }),
        );
    }

    pub(super) fn create_config(&mut self, name: &str, role: &str, spec: &Value) {
        let object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": name, "labels": {(mco::ROLE): role}}, "spec": spec,
        });
        self.create(&MACHINECONFIGS, object);
    }

    /// A custom pool that inherits from `worker`.
    pub(super) fn create_pool(&mut self, name: &str) {
        self.create_pool_with(name, &json!({}));
    }

    pub(super) fn create_pool_with(&mut self, name: &str, more: &Value) {
        let label = format!("pools.operator.machineconfiguration.openshift.io/{name}");
        let mut object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": name, "labels": {(label): ""}},
            "spec": {
                "machineConfigSelector": {"matchExpressions": [
                    {"key": mco::ROLE, "operator": "In", "values": [name, "worker"]}]},
                "nodeSelector": {"matchLabels": {(format!("node-role.kubernetes.io/{name}")): ""}},
            },
        });
        for (key, value) in more.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        self.create(&MACHINECONFIGPOOLS, object);
    }

    /// A small change of a base configuration.
    pub(super) fn change_base(&mut self, name: &str) {
        let file = json!({"path": "/etc/changed", "contents": {"source": "data:,changed"}});
        let patch = json!({"spec": {"config": {"storage": {"files": [file]}}}});
        self.patch(&MACHINECONFIGS, name, &patch);
    }

    pub(super) fn fault(&mut self, node: &str, fault: NodeFault) {
        self.sim.world.hosts.get_mut(node).unwrap().faults.insert(fault);
    }

    pub(super) fn repair(&mut self, node: &str) {
        self.sim.world.hosts.get_mut(node).unwrap().faults.clear();
    }

    /// A pod on a node.
    pub(super) fn pod(&mut self, name: &str, node: &str, owner: Option<&str>) {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "registry.example.com/main"}]},
        });
        if let Some(kind) = owner {
            pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": kind,
                "name": "owner", "uid": "00000000-0000-4000-8000-00000000000f",
                "controller": true}]);
        }
        let writer = self.writer();
        self.sim.api.create(writer, &PODS, "default", pod).unwrap();
        let ready = json!({"status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}]}});
        self.sim.api.merge_status(writer, &PODS, "default", name, &ready).unwrap();
    }
}
