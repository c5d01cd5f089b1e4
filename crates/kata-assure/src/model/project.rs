//! From the model's cluster to the snapshot that the real decision is made about.
//!
//! Every object is the real type with the content that the real operator and the Machine Config Operator
//! give it. A content that the operator would write otherwise shows as a plan that never gets empty.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::machine_config::ConfigReference;
use kata_api::{
    ContainerRuntimeConfig, KataConfig, KataConfigStatus, KataNode, MachineConfig,
    MachineConfigPool, names,
};
use kata_plan::snapshot::Readiness;
use kata_plan::{
    Freshness, JobObjects, MonitorObjects, Need, NodeFacts, Observed, Options, PodScope,
    SandboxedPod, Snapshot,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::world::{Config, Life, Node, Phase, World};

const CONFIG_NAME: &str = "cluster-kataconfig";
const RENDERED_WORKER: &str = "rendered-worker-1";
const RENDERED_WITHOUT: &str = "rendered-kata-oc-0";
const RENDERED_WITH: &str = "rendered-kata-oc-1";
/// When everything happens.
const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);
/// Long before.
const BEFORE: Timestamp = Timestamp::constant(1_767_139_200, 0);

/// A read that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unread {
    /// The nodes.
    Nodes,
    /// The pools.
    Pools,
    /// Our MachineConfig.
    MachineConfig,
    /// The rendered MachineConfigs of the pool.
    Rendered,
    /// The ContainerRuntimeConfigs.
    LogLevel,
    /// The RuntimeClasses.
    Classes,
    /// The KataNodes.
    Records,
    /// The pods.
    Pods,
}

impl Unread {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Nodes,
        Self::Pools,
        Self::MachineConfig,
        Self::Rendered,
        Self::LogLevel,
        Self::Classes,
        Self::Records,
        Self::Pods,
    ];
}

/// The name of a configuration.
pub fn rendered_name(config: Config) -> &'static str {
    match config {
        Config::Worker => RENDERED_WORKER,
        Config::Without => RENDERED_WITHOUT,
        Config::With => RENDERED_WITH,
    }
}

/// The index of a node by its name.
pub fn index(name: &str) -> Option<u8> {
    name.strip_prefix("worker-")?.parse().ok()
}

/// A uid as the model counts them.
pub fn parse_uid(uid: &str) -> Option<u8> {
    uid.strip_prefix("uid-")?.parse().ok()
}

fn uid(number: u8) -> String {
    format!("uid-{number}")
}

/// An object from its manifest. What is no manifest is an object without content, which shows as a
/// plan that never gets empty.
fn object<T: DeserializeOwned>(manifest: Value) -> Option<T> {
    serde_json::from_value(manifest).ok()
}

fn labels(more: &Value) -> Value {
    let mut labels = json!({
        "app": CONFIG_NAME,
        "app.kubernetes.io/managed-by": "kata-operator",
        "app.kubernetes.io/part-of": "kata-operator",
    });
    if let (Some(labels), Some(more)) = (labels.as_object_mut(), more.as_object()) {
        labels.extend(more.clone());
    }
    labels
}

static CONFIG: LazyLock<Option<KataConfig>> = LazyLock::new(|| {
    object(json!({
        "apiVersion": "kataconfiguration.openshift.io/v1",
        "kind": "KataConfig",
        "metadata": {"name": CONFIG_NAME, "generation": 1, "creationTimestamp": "2025-12-31T00:00:00Z"},
        "spec": {
            "kataConfigPoolSelector": {"matchLabels": {"kata": "true"}},
            // No time passes in the model.
            "rollout": {"leaveDelay": "0s"},
        },
    }))
});

static WORKER_POOL: LazyLock<Option<MachineConfigPool>> = LazyLock::new(|| {
    object(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": "worker", "uid": "uid-w", "labels":
            {"pools.operator.machineconfiguration.openshift.io/worker": ""}},
        "spec": {
            "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
            "configuration": {"name": RENDERED_WORKER, "source": [{"name": "00-worker"}]},
        },
        "status": {"machineCount": 1},
    }))
});

static POOL: LazyLock<Option<MachineConfigPool>> = LazyLock::new(|| {
    object(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": "kata-oc", "labels": labels(&json!(
            {"pools.operator.machineconfiguration.openshift.io/kata-oc": ""}))},
        "spec": {
            "machineConfigSelector": {"matchExpressions": [{
                "key": "machineconfiguration.openshift.io/role",
                "operator": "In",
                "values": ["kata-oc", "worker"],
            }]},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/kata-oc": ""}},
        },
        "status": {},
    }))
});

static MACHINE_CONFIG: LazyLock<Option<MachineConfig>> = LazyLock::new(|| {
    object(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": names::MACHINE_CONFIG, "labels": labels(&json!(
            {"machineconfiguration.openshift.io/role": "kata-oc"}))},
        "spec": {
            "config": {"ignition": {"version": "3.2.0"}},
            "extensions": ["sandboxed-containers"],
        },
    }))
});

static LOG_LEVEL: LazyLock<Option<ContainerRuntimeConfig>> = LazyLock::new(|| {
    object(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "ContainerRuntimeConfig",
        "metadata": {"name": names::CONTAINER_RUNTIME_CONFIG, "labels": labels(&json!({}))},
        "spec": {
            "machineConfigPoolSelector": {"matchLabels":
                {"pools.operator.machineconfiguration.openshift.io/kata-oc": ""}},
            "containerRuntimeConfig": {"logLevel": "debug"},
        },
    }))
});

static CLASS: LazyLock<Option<RuntimeClass>> = LazyLock::new(|| {
    object(json!({
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "kata", "labels": labels(&json!({})), "ownerReferences": [{
            "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
            "name": CONFIG_NAME, "uid": "",
        }]},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "350Mi"}},
        "scheduling": {
            "nodeSelector": {
                "node-role.kubernetes.io/kata-oc": "", "katacontainers.io/kata-runtime": "true",
                "kata.node-restriction.kubernetes.io/kata": "true",
            },
            "tolerations": [],
        },
    }))
});

static RECORD: LazyLock<Option<KataNode>> = LazyLock::new(|| {
    object(json!({
        "apiVersion": "kata-operator.dev/v1alpha1",
        "kind": "KataNode",
        "metadata": {"name": "", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": "", "uid": ""}]},
        "spec": {"nodeName": "", "kataConfig": CONFIG_NAME},
    }))
});

/// Deletion is seen as a time of deletion.
macro_rules! mark {
    ($object:expr, $owned:expr) => {
        $object.metadata.uid = Some(uid($owned.uid));
        if $owned.life == Life::Deleting {
            $object.metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
        }
    };
}

/// The lists of the snapshot, before any need is met.
pub fn snapshot(world: &World, freshness: Freshness, unread: Option<Unread>) -> Snapshot {
    fn list<T>(unread: bool, what: &str, list: Vec<T>) -> Observed<Vec<T>> {
        if unread { Observed::unknown(what, "timed out") } else { Observed::Known(list) }
    }
    let failed = |read: Unread| unread == Some(read);
    let numbered = || (0u8..).zip(world.nodes());
    let machine_config = if failed(Unread::MachineConfig) {
        Observed::unknown("our MachineConfig", "timed out")
    } else {
        Observed::Known(machine_config(world))
    };
    let records = numbered()
        .filter(|(_, node)| node.record)
        .filter_map(|(i, _)| record(i))
        .map(Arc::new)
        .collect();
    Snapshot {
        now: NOW,
        server_ahead: jiff::SignedDuration::ZERO,
        freshness,
        options: Options::default(),
        configs: kata_config(world).into_iter().collect(),
        unreadable: Vec::new(),
        nodes: list(
            failed(Unread::Nodes),
            "nodes",
            numbered().map(|(i, node)| Arc::new(facts(world, i, node))).collect(),
        ),
        pools: list(
            failed(Unread::Pools),
            "pools",
            WORKER_POOL.clone().into_iter().chain(pool(world)).collect(),
        ),
        machine_configs: BTreeMap::from([(names::MACHINE_CONFIG.to_owned(), machine_config)]),
        feature_gates: Observed::Known(None),
        image_mode: Observed::Known(None),
        container_runtime_configs: list(
            failed(Unread::LogLevel),
            "ContainerRuntimeConfigs",
            log_level(world).into_iter().collect(),
        ),
        runtime_classes: list(
            failed(Unread::Classes),
            "RuntimeClasses",
            class(world).into_iter().collect(),
        ),
        kata_nodes: list(failed(Unread::Records), "KataNodes", records),
        monitor: MonitorObjects::absent(),
        jobs: JobObjects::absent(),
        pods: BTreeMap::new(),
        drain_blockers: BTreeMap::new(),
        namespaces: BTreeMap::new(),
    }
}

/// Meets a need; reads of all lists are the caller's.
pub fn meet(world: &World, need: Need, unread: Option<Unread>, snapshot: &mut Snapshot) {
    match need {
        Need::Objects | Need::Quorum => {}
        Need::MachineConfig { name } => {
            let found = [Config::Worker, Config::Without, Config::With]
                .into_iter()
                .find(|config| rendered_name(*config) == name);
            let read = match (found, unread) {
                (Some(Config::With | Config::Without), Some(Unread::Rendered)) => {
                    Observed::unknown(format!("MachineConfig {name}"), "timed out")
                }
                (Some(config), _) if world.has_rendered(config) => {
                    Observed::Known(Some(rendered(config)))
                }
                _ => Observed::Known(None),
            };
            snapshot.machine_configs.insert(name, read);
        }
        Need::Pods { scope, classes } => {
            let read = if unread == Some(Unread::Pods) {
                Observed::unknown("pods", "timed out")
            } else {
                Observed::Known(pods(world, &scope, &classes))
            };
            snapshot.pods.insert(scope, read);
        }
        Need::DrainBlockers { node } => {
            snapshot.drain_blockers.insert(node, Observed::Known(Vec::new()));
        }
        Need::Namespace { name } => {
            snapshot.namespaces.insert(name, Observed::Known(true));
        }
    }
}

fn pods(world: &World, scope: &PodScope, classes: &BTreeSet<String>) -> Vec<SandboxedPod> {
    (0u8..)
        .zip(world.nodes())
        .filter(|(_, node)| node.pod)
        .map(|(i, _)| format!("worker-{i}"))
        .filter(|node| match scope {
            PodScope::Cluster => true,
            PodScope::Node(name) => name == node,
        })
        .filter(|_| classes.contains(names::RUNTIME_CLASS))
        .map(|node| SandboxedPod {
            namespace: "default".to_owned(),
            name: format!("pod-on-{node}"),
            uid: format!("pod-on-{node}"),
            runtime_class: names::RUNTIME_CLASS.to_owned(),
            node: Some(node),
            owner: None,
            finished: false,
            deleting: false,
        })
        .collect()
}

fn facts(world: &World, index: u8, node: &Node) -> NodeFacts {
    let mut labels = BTreeMap::from([
        (names::WORKER_ROLE_LABEL.to_owned(), String::new()),
        (names::OS_LABEL.to_owned(), "linux".to_owned()),
    ]);
    if node.wanted {
        labels.insert("kata".to_owned(), "true".to_owned());
    }
    if node.role {
        labels.insert(names::KATA_ROLE_LABEL.to_owned(), String::new());
    }
    if node.verified {
        labels.insert(names::RUNTIME_LABEL.to_owned(), names::RUNTIME_LABEL_VERIFIED.to_owned());
        let class = names::class_label(names::RUNTIME_CLASS);
        labels.insert(class, names::CLASS_LABEL_SERVED.to_owned());
    }
    let (current, desired) = (rendered_name(node.current), rendered_name(node.desired));
    let drain = format!("drain-{desired}");
    let (asked, drained) = match node.phase {
        Phase::Done => (format!("uncordon-{current}"), format!("uncordon-{current}")),
        Phase::Draining => (drain, format!("uncordon-{current}")),
        Phase::Applying | Phase::Rebooting | Phase::Degraded => (drain.clone(), drain),
    };
    let state = match node.phase {
        Phase::Degraded => "Degraded",
        _ if world.is_stuck(node) => "Degraded",
        Phase::Done => "Done",
        Phase::Draining | Phase::Applying | Phase::Rebooting => "Working",
    };
    let action = if node.phase == Phase::Rebooting { "Rebooting" } else { "" };
    let annotations = [
        (names::mco::CURRENT_CONFIG, current),
        (names::mco::DESIRED_CONFIG, desired),
        (names::mco::STATE, state),
        (names::mco::DESIRED_DRAIN, &asked),
        (names::mco::LAST_APPLIED_DRAIN, &drained),
        (names::mco::POST_CONFIG_ACTION, action),
    ];
    let away = node.away || node.phase == Phase::Rebooting;
    let mut handlers = BTreeSet::from(["runc".to_owned()]);
    if node.current == Config::With {
        handlers.insert("kata".to_owned());
    }
    NodeFacts {
        name: format!("worker-{index}"),
        uid: uid(index),
        resource_version: node.version().to_string(),
        labels,
        annotations: annotations
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        unschedulable: node.cordoned || node.phase != Phase::Done,
        ready: Readiness {
            status: (!away).then_some(true),
            since: Some(if node.away { BEFORE } else { NOW }),
            ..Readiness::default()
        },
        runtime_handlers: Some(handlers),
        operating_system: "linux".to_owned(),
        created: Some(BEFORE),
        ..NodeFacts::default()
    }
}

fn kata_config(world: &World) -> Option<KataConfig> {
    let facts = world.config;
    let mut config = CONFIG.clone().filter(|_| facts.exists)?;
    config.metadata.uid = Some(uid(facts.uid));
    config.metadata.resource_version = Some(facts.version().to_string());
    if facts.deleting {
        config.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(NOW));
    }
    if facts.finalizer {
        config.metadata.finalizers = Some(vec![names::FINALIZER.to_owned()]);
        let claim = (names::OPERATOR_NAMESPACE_ANNOTATION, names::NAMESPACE);
        let claim = (claim.0.to_owned(), claim.1.to_owned());
        config.metadata.annotations = Some(BTreeMap::from([claim]));
    }
    if facts.debug {
        "debug".clone_into(&mut config.spec.log_level);
    }
    if facts.offered {
        config.status = Some(KataConfigStatus {
            runtime_classes: vec![names::RUNTIME_CLASS.to_owned()],
            ..KataConfigStatus::default()
        });
    }
    Some(config)
}

fn machine_config(world: &World) -> Option<MachineConfig> {
    let mut config = MACHINE_CONFIG.clone().filter(|_| world.machine_config.exists())?;
    mark!(config, world.machine_config);
    Some(config)
}

fn log_level(world: &World) -> Option<ContainerRuntimeConfig> {
    let mut config = LOG_LEVEL.clone().filter(|_| world.log_level.exists())?;
    mark!(config, world.log_level);
    Some(config)
}

fn class(world: &World) -> Option<RuntimeClass> {
    let mut class = CLASS.clone().filter(|_| world.class.exists())?;
    mark!(class, world.class);
    for owner in class.metadata.owner_references.iter_mut().flatten() {
        owner.uid = uid(world.class_owner);
    }
    if let Some(scheduling) = class.scheduling.as_mut().filter(|_| world.class_closed) {
        let closed = (names::CLOSED_LABEL.to_owned(), "true".to_owned());
        scheduling.node_selector = Some(BTreeMap::from([closed]));
    }
    Some(class)
}

fn record(index: u8) -> Option<KataNode> {
    let mut record = RECORD.clone()?;
    let name = format!("worker-{index}");
    record.metadata.name = Some(name.clone());
    record.metadata.uid = Some(format!("record-{index}"));
    for owner in record.metadata.owner_references.iter_mut().flatten() {
        owner.name.clone_from(&name);
        owner.uid = uid(index);
    }
    record.spec.node_name = name;
    Some(record)
}

fn pool(world: &World) -> Option<MachineConfigPool> {
    let facts = world.pool;
    let mut pool = POOL.clone().filter(|_| facts.object.exists())?;
    mark!(pool, facts.object);
    pool.spec.paused = facts.paused;
    let sources: &[&str] = match facts.rendered {
        Config::Worker => return with_count(pool, world),
        Config::Without => &["00-worker"],
        Config::With => &["00-worker", names::MACHINE_CONFIG],
    };
    rendered_name(facts.rendered).clone_into(&mut pool.spec.configuration.name);
    pool.spec.configuration.source =
        sources.iter().map(|name| ConfigReference { name: (*name).to_owned() }).collect();
    with_count(pool, world)
}

#[expect(clippy::unnecessary_wraps, reason = "the tail of a function that returns an Option")]
fn with_count(mut pool: MachineConfigPool, world: &World) -> Option<MachineConfigPool> {
    if let Some(status) = &mut pool.status {
        status.machine_count = i64::from(world.counted());
    }
    Some(pool)
}

fn rendered(config: Config) -> MachineConfig {
    let mut object = MACHINE_CONFIG.clone().unwrap_or_else(|| MachineConfig {
        metadata: Default::default(),
        spec: Default::default(),
    });
    object.metadata.name = Some(rendered_name(config).to_owned());
    object.metadata.labels = None;
    if config != Config::With {
        object.spec.extensions.clear();
    }
    // The model does not follow which node has which log level: of a file that cannot be understood the
    // decision says nothing either.
    let file = serde_json::json!({"path": names::LOG_LEVEL_FILE});
    object.spec.config = Some(serde_json::json!({"storage": {"files": [file]}}));
    object
}
