//! A small model of an API server with the Machine Config Operator's part of the world: just enough for
//! a decision's requests to have their effect. It is not the simulator and knows nothing of time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kata_api::KataNode;
use kata_plan::{
    Decision, Freshness, JobObjects, Kind, MonitorObjects, Need, NodeFacts, ObjectRef, Observed,
    Options, Platform, PodScope, Request, Snapshot, UnreadableObject, decide, needs, validate,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub(crate) const PREFIX: &str = "machineconfiguration.openshift.io/";
pub(crate) const KATA: &str = "node-role.kubernetes.io/kata-oc";
pub(crate) const VERIFIED: &str = "katacontainers.io/kata-runtime";
pub(crate) const MC: &str = "50-enable-sandboxed-containers-extension";

type Key = (Kind, String);

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) options: Options,
    /// Whether the API server serves SecurityContextConstraints.
    pub(crate) constraints_served: bool,
    pub(crate) objects: BTreeMap<Key, Value>,
    pub(crate) unreadable: BTreeSet<String>,
    /// Objects that cannot be understood.
    pub(crate) broken: BTreeSet<Key>,
    /// Nodes whose drain does not get on.
    pub(crate) undrainable: BTreeSet<String>,
    /// Nodes that do not get the extension installed.
    pub(crate) failing: BTreeSet<String>,
    pub(crate) writes: Vec<Request>,
    /// What Jobs come to on nodes where they do not succeed.
    pub(crate) hosts: BTreeMap<String, crate::plain::Fate>,
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
            options: Options::default(),
            constraints_served: true,
            objects: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            broken: BTreeSet::new(),
            undrainable: BTreeSet::new(),
            failing: BTreeSet::new(),
            writes: Vec::new(),
            hosts: BTreeMap::new(),
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

    /// Whether the node runs or shall run a configuration of our pool.
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
        self.edit(Kind::Node, node, &json!({"spec": {"unschedulable": value}}));
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
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
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

    fn typed<T: DeserializeOwned>(&self, kind: Kind) -> Observed<Vec<T>> {
        if self.unreadable.contains(kind.plural()) {
            return Observed::unknown(kind.plural(), "the server is currently unable");
        }
        Observed::Known(
            self.objects
                .iter()
                .filter(|(key, _)| key.0 == kind && !self.broken.contains(*key))
                .map(|(_, object)| serde_json::from_value(object.clone()).unwrap())
                .collect(),
        )
    }

    fn single(&self, kind: Kind) -> Observed<Option<Value>> {
        self.typed::<Value>(kind).map(|objects| objects.into_iter().next().map(validate::content))
    }

    /// What the operator's shell does before it decides.
    pub(crate) fn observe(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            now: self.now,
            freshness: Freshness::Cached,
            options: self.options.clone(),
            configs: self.typed(Kind::KataConfig).known().unwrap().clone(),
            nodes: self
                .typed::<Node>(Kind::Node)
                .map(|nodes| nodes.iter().map(|node| Arc::new(NodeFacts::from(node))).collect()),
            pools: self.typed(Kind::MachineConfigPool),
            machine_configs: BTreeMap::new(),
            unreadable: self
                .broken
                .iter()
                .filter_map(|(kind, name)| {
                    let object = self.get(*kind, name)?;
                    let metadata = &object["metadata"];
                    Some(UnreadableObject {
                        object: ObjectRef::new(*kind, name, metadata["uid"].as_str()),
                        created: metadata["creationTimestamp"].as_str()?.parse().ok(),
                        error: "missing field `spec`".to_owned(),
                    })
                })
                .collect(),
            feature_gates: self.config_map("osc-feature-gates"),
            image_mode: self.config_map("layered-image-deploy-cm"),
            container_runtime_configs: self.typed(Kind::ContainerRuntimeConfig),
            runtime_classes: self.typed(Kind::RuntimeClass),
            kata_nodes: self
                .typed::<KataNode>(Kind::KataNode)
                .map(|list| list.into_iter().map(Arc::new).collect()),
            monitor: MonitorObjects {
                daemon_set: self.single(Kind::DaemonSet),
                constraints: self
                    .constraints_served
                    .then(|| self.single(Kind::SecurityContextConstraints)),
            },
            jobs: JobObjects {
                jobs: self
                    .typed::<Job>(Kind::Job)
                    .map(|jobs| jobs.iter().filter_map(validate::node_job).collect()),
                pods: self
                    .typed::<Pod>(Kind::Pod)
                    .map(|pods| pods.iter().filter_map(validate::job_pod).collect()),
            },
            pods: BTreeMap::new(),
            drain_blockers: BTreeMap::new(),
        };
        for round in 0.. {
            assert!(round < 8, "needs never end: {:?}", needs(&snapshot));
            let wanted = needs(&snapshot);
            if wanted.is_empty() {
                break;
            }
            for need in wanted {
                self.read(need, &mut snapshot);
            }
        }
        snapshot
    }

    /// The data of a ConfigMap in the operator's namespace.
    fn config_map(&self, name: &str) -> Observed<Option<BTreeMap<String, String>>> {
        if self.unreadable.contains(name) {
            return Observed::unknown(name, "the server is currently unable");
        }
        let name = format!("openshift-sandboxed-containers-operator/{name}");
        Observed::Known(
            self.get(Kind::ConfigMap, &name)
                .map(|object| serde_json::from_value(object["data"].clone()).unwrap()),
        )
    }

    fn read(&self, need: Need, snapshot: &mut Snapshot) {
        match need {
            Need::Objects | Need::Quorum => {
                snapshot.freshness = match need {
                    Need::Objects => Freshness::Objects,
                    _ => Freshness::Quorum,
                };
                snapshot.pods.clear();
                snapshot.drain_blockers.clear();
            }
            Need::MachineConfig { name } => {
                let read = if self.unreadable.contains(&name) {
                    Observed::unknown(format!("MachineConfig {name}"), "timeout")
                } else {
                    Observed::Known(
                        self.get(Kind::MachineConfig, &name)
                            .map(|object| serde_json::from_value(object.clone()).unwrap()),
                    )
                };
                snapshot.machine_configs.insert(name, read);
            }
            Need::Pods { scope, classes } => {
                let read = self.typed::<Pod>(Kind::Pod).map(|pods| {
                    pods.iter()
                        .filter_map(validate::sandboxed_pod)
                        .filter(|pod| classes.contains(&pod.runtime_class))
                        .filter(|pod| match &scope {
                            PodScope::Cluster => true,
                            PodScope::Node(node) => pod.node.as_ref() == Some(node),
                        })
                        .collect()
                });
                snapshot.pods.insert(scope, read);
            }
            Need::DrainBlockers { node } => {
                let read = self.typed::<Pod>(Kind::Pod).map(|pods| {
                    let there: Vec<Pod> = pods
                        .into_iter()
                        .filter(|pod| {
                            pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref())
                                == Some(&node)
                        })
                        .collect();
                    let budgets = self.typed(Kind::PodDisruptionBudget);
                    validate::drain_blockers(&there, budgets.known().unwrap())
                });
                snapshot.drain_blockers.insert(node, read);
            }
        }
    }

    /// A pass that is killed after so many of its writes, and before it writes any status.
    pub(crate) fn crashing_pass(&mut self, writes: usize) {
        let decision = decide(&self.observe());
        for step in decision.plan.steps.iter().take(writes) {
            self.execute(&step.action.request());
        }
    }

    /// One pass of the operator.
    pub(crate) fn pass(&mut self) -> Decision {
        let snapshot = self.observe();
        let decision = decide(&snapshot);
        assert_eq!(decision, decide(&reversed(&snapshot)), "the order of lists matters");
        let violations = kata_plan::invariants::check(&snapshot, &decision);
        assert!(violations.is_empty(), "{violations:#?}\n{}", crate::render::decision(&decision));
        for status in decision.report.status.iter().chain(&decision.report.other_configs) {
            crate::kstatus::check(status, &snapshot);
        }
        for event in &decision.report.events {
            crate::kstatus::named(event);
        }
        for step in &decision.plan.steps {
            self.execute(&step.action.request());
        }
        for status in decision.report.status.iter().chain(&decision.report.other_configs) {
            if let Some(patch) = &status.patch
                && self.get(Kind::KataConfig, &status.config.name).is_some()
            {
                self.edit(Kind::KataConfig, &status.config.name, patch);
            }
        }
        decision
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
                self.create(body.clone());
            }
        }
    }

    /// The ContainerRuntimeConfig controller: a file in a MachineConfig for each pool.
    pub(crate) fn container_runtime(&mut self) {
        for name in self.names(Kind::ContainerRuntimeConfig) {
            let config = self.get(Kind::ContainerRuntimeConfig, &name).unwrap().clone();
            let selector = &config["spec"]["machineConfigPoolSelector"]["matchLabels"];
            let Some(level) = config["spec"]["containerRuntimeConfig"]["logLevel"].as_str() else {
                continue;
            };
            for pool in self.names(Kind::MachineConfigPool) {
                let key = format!("pools.operator.machineconfiguration.openshift.io/{pool}");
                let generated = format!("99-{pool}-generated-containerruntime");
                let has_label = self.pool(&pool)["metadata"]["labels"][&key].is_string();
                if selector[&key].is_null() || !has_label {
                    continue;
                }
                let toml = format!("[crio.runtime]\n    log_level = \"{level}\"\n");
                let toml = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, toml);
                let source = format!("data:text/plain;charset=utf-8;base64,{toml}");
                let spec = json!({"config": {"storage": {"files": [{
                    "path": "/etc/crio/crio.conf.d/01-ctrcfg-logLevel",
                    "contents": {"source": source},
                }]}}});
                if self.get(Kind::MachineConfig, &generated).is_some() {
                    self.edit(Kind::MachineConfig, &generated, &json!({"spec": spec}));
                } else {
                    // The owner is the garbage collector's business here, and a finalizer's there.
                    self.create(json!({
                        "kind": "MachineConfig",
                        "metadata": {
                            "name": generated,
                            "labels": {format!("{PREFIX}role"): pool},
                            "ownerReferences": [{"uid": config["metadata"]["uid"]}],
                        },
                        "spec": spec,
                    }));
                }
            }
        }
    }

    /// The render controller.
    pub(crate) fn render(&mut self) {
        for pool in self.names(Kind::MachineConfigPool) {
            let selector = self.pool(&pool)["spec"]["machineConfigSelector"].clone();
            let role_key = format!("{PREFIX}role");
            let roles: Vec<String> = match selector["matchLabels"][&role_key].as_str() {
                Some(role) => vec![role.to_owned()],
                None => serde_json::from_value(selector["matchExpressions"][0]["values"].clone())
                    .unwrap(),
            };
            let mut sources = Vec::new();
            let mut extensions = Vec::new();
            let (mut image, mut arguments, mut files) = (json!("rhcos"), Vec::new(), json!([]));
            for ((kind, name), config) in &self.objects {
                let role = config["metadata"]["labels"][&role_key].as_str().unwrap_or_default();
                if *kind == Kind::MachineConfig
                    && !name.starts_with("rendered-")
                    && roles.iter().any(|wanted| wanted == role)
                {
                    sources.push(json!({"name": name}));
                    let spec = &config["spec"];
                    extensions.extend(spec["extensions"].as_array().into_iter().flatten().cloned());
                    let more = spec["kernelArguments"].as_array().into_iter().flatten();
                    arguments.extend(more.cloned());
                    if spec["osImageURL"].is_string() {
                        image = spec["osImageURL"].clone();
                    }
                    if spec["config"]["storage"]["files"].is_array() {
                        files = spec["config"]["storage"]["files"].clone();
                    }
                }
            }
            let base = self.objects.keys().filter(|(kind, name)| {
                *kind == Kind::MachineConfig && !name.starts_with("rendered-")
            });
            let generated = |name: &str| name.contains("-generated-");
            let bases = base.filter(|(_, name)| name.starts_with('9') && !generated(name)).count();
            let mut name = format!("rendered-{pool}-{}x{bases}", extensions.len());
            if image != "rhcos" || !arguments.is_empty() {
                name.push_str(&format!("{}{}", image.as_str().unwrap(), arguments.len()));
            }
            if files != json!([]) {
                let sum: u64 = files.to_string().bytes().map(u64::from).sum();
                name.push_str(&format!("x{sum}"));
            }
            if self.get(Kind::MachineConfig, &name).is_none() {
                self.create(json!({"kind": "MachineConfig", "metadata": {"name": name},
                    "spec": {"extensions": extensions, "osImageURL": image, "kernelArguments": arguments,
                        "config": {"storage": {"files": files}}}}));
            }
            let patch = json!({"spec": {"configuration": {"name": name, "source": sources}}});
            self.edit(Kind::MachineConfigPool, &pool, &patch);
        }
    }

    fn primary_pool(&self, node: &str) -> Option<&'static str> {
        let facts = self.node(node);
        let has = |key: &str| facts.labels.contains_key(key);
        if has("node-role.kubernetes.io/master") {
            Some("master")
        } else if has(KATA) && self.get(Kind::MachineConfigPool, "kata-oc").is_some() {
            Some("kata-oc")
        } else if has("node-role.kubernetes.io/worker") {
            Some("worker")
        } else {
            None
        }
    }

    /// The node controller, with maxUnavailable 1.
    pub(crate) fn target(&mut self) {
        for pool in self.names(Kind::MachineConfigPool) {
            let spec = self.pool(&pool)["spec"].clone();
            let Some(target) = spec["configuration"]["name"].as_str() else { continue };
            if spec["paused"] == json!(true) {
                continue;
            }
            let members: Vec<String> = self
                .names(Kind::Node)
                .into_iter()
                .filter(|node| self.primary_pool(node) == Some(pool.as_str()))
                .collect();
            let annotation = |world: &Self, node: &str, key: &str| {
                world
                    .node(node)
                    .annotations
                    .get(&format!("{PREFIX}{key}"))
                    .cloned()
                    .unwrap_or_default()
            };
            // A Ready node whose daemon gave up is not unavailable: it can be sent elsewhere. Only one
            // that fails on the target itself counts against the others.
            let holds_up = |world: &Self, node: &str| {
                let facts = world.node(node);
                let desired = annotation(world, node, "desiredConfig");
                facts.ready.status != Some(true)
                    || facts.unschedulable
                    || match annotation(world, node, "state").as_str() {
                        "Degraded" => desired == target,
                        state => {
                            state != "Done" || annotation(world, node, "currentConfig") != desired
                        }
                    }
            };
            if members.iter().any(|node| holds_up(self, node)) {
                continue;
            }
            let next =
                members.iter().find(|node| annotation(self, node, "desiredConfig") != target);
            if let Some(node) = next {
                let node = node.clone();
                self.annotate(&node, "desiredConfig", target);
            }
        }
    }

    /// One step of a node's machine-config daemon and of the drain controller.
    pub(crate) fn daemon(&mut self, node: &str) {
        let facts = self.node(node);
        let get = |key: &str| {
            facts.annotations.get(&format!("{PREFIX}{key}")).cloned().unwrap_or_default()
        };
        let (current, desired) = (get("currentConfig"), get("desiredConfig"));
        // The daemon needs both; a pool's configurations go with the pool.
        for name in [&current, &desired] {
            if self.get(Kind::MachineConfig, name).is_none() {
                self.annotate(node, "state", "Degraded");
                self.annotate(node, "reason", &format!("machineconfig {name:?} not found"));
                return;
            }
        }
        if current == desired && get("state") == "Done" {
            return;
        }
        let config = self.get(Kind::MachineConfig, &desired).unwrap().clone();
        let spec = &config["spec"];
        let has_kata = spec["extensions"].as_array().is_some_and(|list| !list.is_empty())
            || spec["osImageURL"].as_str().is_some_and(|image| image.contains("kata"));
        let (drain, uncordon) = (format!("drain-{desired}"), format!("uncordon-{desired}"));
        if get("state") == "Done" || (get("state") == "Degraded" && !self.failing.contains(node)) {
            self.annotate(node, "state", "Working");
        } else if get("desiredDrain") == uncordon {
            if get("lastAppliedDrain") == uncordon {
                self.annotate(node, "currentConfig", &desired);
                self.annotate(node, "state", "Done");
            } else {
                self.cordon(node, false);
                self.annotate(node, "lastAppliedDrain", &uncordon);
            }
        } else if get("desiredDrain") != drain {
            self.annotate(node, "desiredDrain", &drain);
            self.cordon(node, true);
        } else if get("lastAppliedDrain") != drain {
            if !self.undrainable.contains(node) {
                self.objects.retain(|(kind, _), pod| {
                    *kind != Kind::Pod || pod["spec"]["nodeName"].as_str() != Some(node)
                });
                self.annotate(node, "lastAppliedDrain", &drain);
            }
        } else if self.failing.contains(node) {
            self.annotate(node, "state", "Degraded");
            self.annotate(node, "reason", "package kata-containers not found");
        } else if get("postConfigAction").is_empty() && get("post-config-action").is_empty() {
            self.annotate(node, "post-config-action", "Rebooting");
            self.set_ready(node, false);
        } else if facts.ready.status != Some(true) {
            self.set_ready(node, true);
        } else {
            let handlers = if has_kata {
                json!([{"name": "runc"}, {"name": "kata"}])
            } else {
                json!([{"name": "runc"}])
            };
            self.edit(Kind::Node, node, &json!({"status": {"runtimeHandlers": handlers}}));
            self.annotate(node, "post-config-action", "");
            self.annotate(node, "desiredDrain", &uncordon);
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

    /// Operator and world in turns until nothing is done and nothing moves.
    pub(crate) fn settle(&mut self) -> Decision {
        for _ in 0..600 {
            let before = self.objects.clone();
            let decision = self.pass();
            self.tick();
            if decision.plan.steps.is_empty() && self.objects == before {
                return decision;
            }
        }
        panic!("does not settle:\n{}", crate::render::decision(&self.pass()));
    }
}

/// The same snapshot with every list turned round.
fn reversed(snapshot: &Snapshot) -> Snapshot {
    fn turn<T>(observed: Observed<Vec<T>>) -> Observed<Vec<T>> {
        observed.map(|mut list| {
            list.reverse();
            list
        })
    }
    let mut snapshot = snapshot.clone();
    snapshot.configs.reverse();
    snapshot.nodes = turn(snapshot.nodes);
    snapshot.pools = turn(snapshot.pools);
    snapshot.container_runtime_configs = turn(snapshot.container_runtime_configs);
    snapshot.runtime_classes = turn(snapshot.runtime_classes);
    snapshot.kata_nodes = turn(snapshot.kata_nodes);
    snapshot.jobs.jobs = turn(snapshot.jobs.jobs);
    snapshot.jobs.pods = turn(snapshot.jobs.pods);
    snapshot.pods = snapshot.pods.into_iter().map(|(scope, pods)| (scope, turn(pods))).collect();
    snapshot
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
