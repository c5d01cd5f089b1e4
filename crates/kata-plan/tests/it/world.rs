//! A small model of an API server with the Machine Config Operator's part of the world: just enough for
//! a decision's requests to have their effect. It is not the simulator and knows nothing of time.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kata_plan::{Decision, Kind, NodeFacts, ObjectRef, Options, Platform, Request};
use serde_json::{Value, json};

mod mco;
mod operator;

pub(crate) const PREFIX: &str = "machineconfiguration.openshift.io/";
pub(crate) const KATA: &str = "node-role.kubernetes.io/kata-oc";
pub(crate) const VERIFIED: &str = "katacontainers.io/kata-runtime";
/// The label of the nodes that serve the class `kata`.
pub(crate) const KATA_CLASS: &str = "kata.node-restriction.kubernetes.io/kata";
pub(crate) const MC: &str = "50-enable-sandboxed-containers-extension";

type Key = (Kind, String);

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) server_ahead: SignedDuration,
    /// By how much the clock of who ends Jobs is ahead of the API server's.
    pub(crate) controllers_ahead: SignedDuration,
    pub(crate) options: Options,
    /// Whether the API server serves SecurityContextConstraints.
    pub(crate) constraints_served: bool,
    pub(crate) objects: BTreeMap<Key, Value>,
    pub(crate) unreadable: BTreeSet<String>,
    /// Objects that cannot be understood.
    pub(crate) broken: BTreeSet<Key>,
    /// Namespaces that do not exist any more.
    pub(crate) namespaces_gone: BTreeSet<String>,
    /// Nodes whose drain does not get on.
    pub(crate) undrainable: BTreeSet<String>,
    /// Nodes that do not get the extension installed.
    pub(crate) failing: BTreeSet<String>,
    pub(crate) writes: Vec<Request>,
    /// What Jobs come to on nodes where they do not succeed.
    pub(crate) hosts: BTreeMap<String, crate::plain::Fate>,
    /// What kubelets report of an image with a payload that is named by a tag, after its repository.
    pub(crate) resolved: String,
    uids: u64,
}

fn name_of(object: &Value) -> String {
    let metadata = &object["metadata"];
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{}", metadata["name"].as_str().unwrap()),
        None => metadata["name"].as_str().unwrap().to_owned(),
    }
}

fn key_of(object: &ObjectRef) -> Key {
    let name = match &object.namespace {
        Some(namespace) => format!("{namespace}/{}", object.name),
        None => object.name.clone(),
    };
    (object.kind, name)
}

/// Maps are merged, null removes, everything else is replaced.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

impl World {
    /// A cluster with this many control-plane nodes and workers, and nothing of ours.
    pub(crate) fn new(masters: usize, workers: usize) -> Self {
        let mut world = Self {
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            server_ahead: SignedDuration::ZERO,
            controllers_ahead: SignedDuration::ZERO,
            options: Options::default(),
            constraints_served: true,
            objects: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            broken: BTreeSet::new(),
            namespaces_gone: BTreeSet::new(),
            undrainable: BTreeSet::new(),
            failing: BTreeSet::new(),
            writes: Vec::new(),
            hosts: BTreeMap::new(),
            resolved: format!("@sha256:{}", "1".repeat(64)),
            uids: 0,
        };
        for pool in ["master", "worker"] {
            world.create(json!({
                "kind": "MachineConfigPool",
                "metadata": {"name": pool, "generation": 1, "labels":
                    {format!("pools.operator.machineconfiguration.openshift.io/{pool}"): ""}},
                "spec": {
                    "machineConfigSelector": {"matchLabels": {format!("{PREFIX}role"): pool}},
                    "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{pool}"): ""}},
                },
            }));
            world.create(json!({
                "kind": "MachineConfig",
                "metadata": {"name": format!("00-{pool}"), "labels": {format!("{PREFIX}role"): pool}},
                "spec": {},
            }));
        }
        world.render();
        for index in 0..masters {
            world.add_node(&format!("master-{index}"), "master");
        }
        for index in 0..workers {
            world.add_node(&format!("worker-{index}"), "worker");
        }
        world
    }

    /// A compact cluster: the control plane's nodes are the workers.
    pub(crate) fn compact(masters: usize) -> Self {
        let mut world = Self::new(masters, 0);
        for index in 0..masters {
            let name = format!("master-{index}");
            world.label(&name, "node-role.kubernetes.io/worker", Some(""));
        }
        world
    }

    pub(crate) fn add_node(&mut self, name: &str, role: &str) {
        let config = self.pool(role)["spec"]["configuration"]["name"].as_str().unwrap().to_owned();
        self.create(json!({
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {format!("node-role.kubernetes.io/{role}"): "", "kubernetes.io/os": "linux"},
                "annotations": {
                    format!("{PREFIX}currentConfig"): config,
                    format!("{PREFIX}desiredConfig"): config,
                    format!("{PREFIX}state"): "Done",
                    format!("{PREFIX}desiredDrain"): format!("uncordon-{config}"),
                    format!("{PREFIX}lastAppliedDrain"): format!("uncordon-{config}"),
                },
            },
            "spec": {},
            "status": {
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "runtimeHandlers": [{"name": ""}, {"name": "runc"}],
                "nodeInfo": {
                    "operatingSystem": "linux", "bootID": "boot", "kernelVersion": "5.14",
                    "containerRuntimeVersion": "cri-o://1.32", "architecture": "amd64",
                    "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "osImage": "",
                    "systemUUID": "",
                },
            },
        }));
    }

    pub(crate) fn create(&mut self, mut object: Value) -> Key {
        self.uids += 1;
        let kind = kind_of(object["kind"].as_str().unwrap());
        let metadata = &mut object["metadata"];
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(format!("uid-{}", self.uids));
        }
        metadata["resourceVersion"] = json!("1");
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let key = (kind, name_of(&object));
        object["apiVersion"] = json!(kind.api_version());
        self.objects.insert(key.clone(), object);
        key
    }

    /// The KataConfig of the examples, with this spec.
    pub(crate) fn config(&mut self, spec: &Value) {
        self.create(json!({
            "kind": "KataConfig",
            "metadata": {"name": "cluster-kataconfig", "generation": 1},
            "spec": spec,
        }));
    }

    pub(crate) fn pod(&mut self, name: &str, class: &str, node: &str) {
        self.create(json!({
            "kind": "Pod",
            "metadata": {"namespace": "default", "name": name},
            "spec": {"runtimeClassName": class, "nodeName": node, "containers": []},
            "status": {"phase": "Running"},
        }));
    }

    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.objects.get(&(kind, name.to_owned()))
    }

    pub(crate) fn edit(&mut self, kind: Kind, name: &str, patch: &Value) {
        let object = self.objects.get_mut(&(kind, name.to_owned())).unwrap();
        merge(object, patch);
    }

    pub(crate) fn pool(&self, name: &str) -> &Value {
        self.get(Kind::MachineConfigPool, name).unwrap()
    }

    pub(crate) fn node(&self, name: &str) -> NodeFacts {
        let node: Node =
            serde_json::from_value(self.get(Kind::Node, name).unwrap().clone()).unwrap();
        NodeFacts::from(&node)
    }

    /// Whether the node runs, or is to run, a configuration of our pool.
    pub(crate) fn is_on_pool(&self, node: &str) -> bool {
        let annotations = self.node(node).annotations;
        ["currentConfig", "desiredConfig"]
            .iter()
            .any(|key| annotations[&format!("{PREFIX}{key}")].starts_with("rendered-kata-oc-"))
    }

    pub(crate) fn names(&self, kind: Kind) -> Vec<String> {
        self.objects.keys().filter(|(of, _)| *of == kind).map(|(_, name)| name.clone()).collect()
    }

    pub(crate) fn label(&mut self, node: &str, key: &str, value: Option<&str>) {
        self.edit(Kind::Node, node, &json!({"metadata": {"labels": {key: value}}}));
    }

    pub(crate) fn annotate(&mut self, node: &str, key: &str, value: &str) {
        let key = format!("{PREFIX}{key}");
        self.edit(Kind::Node, node, &json!({"metadata": {"annotations": {key: value}}}));
    }

    pub(crate) fn cordon(&mut self, node: &str, cordoned: bool) {
        let value = cordoned.then_some(true);
        // The taint is the node controller's.
        let mut taints = self.objects[&(Kind::Node, node.to_owned())]["spec"]["taints"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        taints.retain(|taint| taint["key"] != "node.kubernetes.io/unschedulable");
        if cordoned {
            let since = self.now.to_string();
            taints.push(json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule",
                "timeAdded": since}));
        }
        let spec = json!({"unschedulable": value, "taints": taints});
        self.edit(Kind::Node, node, &json!({"spec": spec}));
    }

    pub(crate) fn set_ready(&mut self, node: &str, ready: bool) {
        let status = if ready { "True" } else { "False" };
        let since = self.now.to_string();
        self.edit(Kind::Node, node, &json!({"status": {"conditions": [
            {"type": "Ready", "status": status, "reason": "KubeletReady", "lastTransitionTime": since}]}}));
    }

    pub(crate) fn delete(&mut self, kind: Kind, name: &str) {
        let key = (kind, name.to_owned());
        let Some(object) = self.objects.get_mut(&key) else { return };
        if object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()) {
            object["metadata"]["deletionTimestamp"] = json!(self.now.to_string());
            return;
        }
        let uid = object["metadata"]["uid"].clone();
        self.objects.remove(&key);
        if kind == Kind::MachineConfigPool {
            let rendered = format!("rendered-{name}-");
            self.objects
                .retain(|(of, name), _| *of != Kind::MachineConfig || !name.starts_with(&rendered));
        }
        // The garbage collector.
        self.objects.retain(|_, object| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_none_or(|owners| owners.iter().any(|owner| owner["uid"] != uid))
        });
    }

    pub(crate) fn execute(&mut self, request: &Request) {
        self.writes.push(request.clone());
        match request {
            Request::Apply { object, body, .. } => self.apply(object, body),
            Request::Merge { object, body, .. } => {
                let Some(existing) = self.objects.get_mut(&key_of(object)) else {
                    return;
                };
                assert_eq!(existing["metadata"]["uid"], body["metadata"]["uid"], "precondition");
                let version = &body["metadata"]["resourceVersion"];
                let current =
                    version.is_null() || existing["metadata"]["resourceVersion"] == *version;
                assert!(current, "precondition");
                merge(existing, body);
                let metadata = &existing["metadata"];
                let finished = metadata["deletionTimestamp"].is_string()
                    && metadata["finalizers"].as_array().is_none_or(Vec::is_empty);
                if finished {
                    self.delete(object.kind, &key_of(object).1);
                }
            }
            Request::Delete { object, uid, .. } => {
                let (kind, name) = key_of(object);
                let Some(existing) = self.get(kind, &name) else { return };
                assert_eq!(existing["metadata"]["uid"].as_str(), uid.as_deref(), "precondition");
                self.delete(kind, &name);
            }
        }
    }

    fn apply(&mut self, object: &ObjectRef, body: &Value) {
        let key = key_of(object);
        match self.objects.get_mut(&key) {
            // All of a KataNode's status is ours, so what is left out goes.
            Some(existing) if body["status"].is_object() => {
                existing["status"] = body["status"].clone();
            }
            Some(existing) => {
                // What is ours and left out goes.
                if body["metadata"]["annotations"].is_null()
                    && let Some(all) = existing["metadata"]["annotations"].as_object_mut()
                {
                    all.retain(|key, _| !key.starts_with("kata-operator.dev/"));
                }
                if object.kind == Kind::RuntimeClass
                    && body["metadata"]["ownerReferences"].is_null()
                    && let Some(metadata) = existing["metadata"].as_object_mut()
                {
                    metadata.remove("ownerReferences");
                    metadata.remove("annotations");
                    metadata.remove("labels");
                }
                // Atomic maps: they are replaced as a whole.
                for path in [
                    "/spec/nodeSelector",
                    "/spec/machineConfigSelector",
                    "/scheduling/nodeSelector",
                ] {
                    if body.pointer(path).is_some()
                        && let Some(map) = existing.pointer_mut(path)
                    {
                        *map = Value::Null;
                    }
                }
                merge(existing, body);
            }
            None if body["status"].is_object() => panic!("status of absent {object}"),
            None => {
                let mut body = body.clone();
                if key.0 == Kind::Job {
                    body["metadata"]["creationTimestamp"] = json!(self.now.to_string());
                }
                self.create(body);
            }
        }
    }

    /// Everything besides the operator moves by one step.
    pub(crate) fn tick(&mut self) {
        self.now = self.now.checked_add(jiff::SignedDuration::from_secs(5)).unwrap();
        if self.options.platform == Platform::Kubernetes {
            self.run_jobs();
            return;
        }
        self.container_runtime();
        self.render();
        self.target();
        for node in self.names(Kind::Node) {
            self.daemon(&node);
        }
    }

    /// When the next node leaves whose labels no longer match.
    fn next_leave(&self) -> Option<Timestamp> {
        let leaves = |name: &String| {
            let node = self.get(Kind::KataNode, name)?;
            node["status"]["leavesAt"].as_str()?.parse().ok()
        };
        self.names(Kind::KataNode).iter().filter_map(leaves).filter(|at| *at > self.now).min()
    }

    /// Operator and world in turns until nothing is done, nothing moves and no node leaves later.
    pub(crate) fn settle(&mut self) -> Decision {
        for _ in 0..600 {
            let before = self.objects.clone();
            let decision = self.pass();
            self.tick();
            if decision.plan.steps.is_empty() && self.objects == before {
                let Some(leaves) = self.next_leave() else { return decision };
                self.now = leaves;
            }
        }
        panic!("does not settle:\n{}", crate::render::decision(&self.pass()));
    }
}

fn kind_of(kind: &str) -> Kind {
    match kind {
        "KataConfig" => Kind::KataConfig,
        "KataNode" => Kind::KataNode,
        "Node" => Kind::Node,
        "Job" => Kind::Job,
        "MachineConfig" => Kind::MachineConfig,
        "MachineConfigPool" => Kind::MachineConfigPool,
        "ContainerRuntimeConfig" => Kind::ContainerRuntimeConfig,
        "RuntimeClass" => Kind::RuntimeClass,
        "DaemonSet" => Kind::DaemonSet,
        "SecurityContextConstraints" => Kind::SecurityContextConstraints,
        "ConfigMap" => Kind::ConfigMap,
        "Pod" => Kind::Pod,
        "PodDisruptionBudget" => Kind::PodDisruptionBudget,
        other => panic!("no kind {other}"),
    }
}
