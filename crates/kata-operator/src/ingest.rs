//! From an object's JSON text to what a cache keeps of it.
//!
//! A node is up to twenty kilobytes of which the decision needs one; what is not needed is skipped while
//! the text is read and never takes memory. Nothing is judged here.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Taint};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kata_api::{
    ContainerRuntimeConfig, KataConfig, KataNode, MachineConfig, MachineConfigPool, names,
};
use kata_plan::snapshot::Readiness;
use kata_plan::validate::MCO_PREFIX;
use kata_plan::{NodeFacts, validate};
use kube::Resource;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// What identifies a version of an object.
#[derive(Debug, Default)]
pub struct Head {
    /// The object's name.
    pub name: String,
    /// Its resourceVersion.
    pub version: String,
}

/// A value that a cache keeps.
pub trait Cached: Clone + fmt::Debug + Send + Sync + 'static {
    /// As much of the JSON as is read.
    type Wire: DeserializeOwned;

    /// Trims what was read.
    fn take(wire: Self::Wire) -> (Head, Self);

    /// Whether both mean the same, so that nobody need look again.
    fn same(&self, other: &Self) -> bool;
}

impl Head {
    /// That of an object.
    pub fn of(object: &impl Resource) -> Self {
        let metadata = object.meta();
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            version: metadata.resource_version.clone().unwrap_or_default(),
        }
    }
}

/// Kinds that are kept whole besides their managed fields.
macro_rules! whole {
    ($($kind:ty)*) => {$(
        impl Cached for $kind {
            type Wire = Self;

            fn take(mut wire: Self) -> (Head, Self) {
                wire.meta_mut().managed_fields = None;
                (Head::of(&wire), wire)
            }

            fn same(&self, other: &Self) -> bool {
                self == other
            }
        }
    )*};
}

whole!(KataConfig MachineConfig ContainerRuntimeConfig RuntimeClass);

impl Cached for MachineConfigPool {
    type Wire = Self;

    /// Without what other managers own. Which fields of the pool we own says which ones leaving them
    /// out takes back.
    fn take(mut wire: Self) -> (Head, Self) {
        if let Some(entries) = &mut wire.meta_mut().managed_fields {
            entries.retain(|entry| entry.manager.as_deref() == Some(names::FIELD_MANAGER));
        }
        (Head::of(&wire), wire)
    }

    fn same(&self, other: &Self) -> bool {
        self == other
    }
}

/// The data of a ConfigMap.
impl Cached for BTreeMap<String, String> {
    type Wire = ConfigMap;

    fn take(wire: ConfigMap) -> (Head, Self) {
        (Head::of(&wire), wire.data.unwrap_or_default())
    }

    fn same(&self, other: &Self) -> bool {
        self == other
    }
}

/// An object of kata-monitor, compared field by field with what it shall be.
impl Cached for Value {
    type Wire = Self;

    fn take(wire: Self) -> (Head, Self) {
        let text = |key: &str| wire["metadata"][key].as_str().unwrap_or_default().to_owned();
        let head = Head { name: text("name"), version: text("resourceVersion") };
        (head, validate::content(wire))
    }

    fn same(&self, other: &Self) -> bool {
        self == other
    }
}

impl Cached for Arc<KataNode> {
    type Wire = KataNode;

    fn take(mut wire: KataNode) -> (Head, Self) {
        wire.metadata.managed_fields = None;
        (Head::of(&wire), Self::new(wire))
    }

    fn same(&self, other: &Self) -> bool {
        self == other
    }
}

impl Cached for Arc<NodeFacts> {
    type Wire = NodeWire;

    fn take(wire: NodeWire) -> (Head, Self) {
        let facts = facts(wire);
        let head = Head { name: facts.name.clone(), version: facts.resource_version.clone() };
        (head, Self::new(facts))
    }

    fn same(&self, other: &Self) -> bool {
        self.same_facts(other)
    }
}

/// As much of a node as [`NodeFacts`] are made of.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeWire {
    metadata: NodeMetadata,
    spec: Option<NodeSpec>,
    status: Option<NodeStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeMetadata {
    name: String,
    uid: String,
    resource_version: String,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<McoAnnotations>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    unschedulable: Option<bool>,
    taints: Option<Vec<Taint>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeStatus {
    conditions: Option<Vec<NodeCondition>>,
    node_info: Option<NodeInfo>,
    runtime_handlers: Option<Vec<RuntimeHandler>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
    last_transition_time: Option<Time>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RuntimeHandler {
    name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeInfo {
    #[serde(rename = "operatingSystem")]
    operating_system: String,
    #[serde(rename = "containerRuntimeVersion")]
    container_runtime_version: String,
    #[serde(rename = "kernelVersion")]
    kernel_version: String,
    #[serde(rename = "bootID")]
    boot_id: String,
}

/// The annotations of the Machine Config Operator.
#[derive(Debug, Default)]
struct McoAnnotations(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for McoAnnotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keep;
        impl<'de> Visitor<'de> for Keep {
            type Value = McoAnnotations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut kept = BTreeMap::new();
                while let Some(key) = map.next_key::<String>()? {
                    if key.starts_with(MCO_PREFIX) {
                        kept.insert(key, map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(McoAnnotations(kept))
            }
        }
        deserializer.deserialize_map(Keep)
    }
}

fn facts(wire: NodeWire) -> NodeFacts {
    let NodeWire { metadata, spec, status } = wire;
    let (spec, status) = (spec.unwrap_or_default(), status.unwrap_or_default());
    let info = status.node_info.unwrap_or_default();
    let handlers: std::collections::BTreeSet<String> =
        status.runtime_handlers.into_iter().flatten().filter_map(|handler| handler.name).collect();
    let ready = status.conditions.into_iter().flatten().find(|it| it.type_ == "Ready");
    NodeFacts {
        name: metadata.name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        labels: metadata.labels.unwrap_or_default(),
        annotations: metadata.annotations.unwrap_or_default().0,
        unschedulable: spec.unschedulable.unwrap_or_default(),
        taints: spec.taints.unwrap_or_default(),
        ready: ready.map_or_else(Readiness::default, |ready| Readiness {
            status: match ready.status.as_str() {
                "True" => Some(true),
                "False" => Some(false),
                _ => None,
            },
            reason: ready.reason.unwrap_or_default(),
            message: ready.message.unwrap_or_default(),
            since: ready.last_transition_time.map(|time| time.0),
        }),
        // The default handler is listed as "", so a list that names nothing says nothing either.
        runtime_handlers: handlers.iter().any(|name| !name.is_empty()).then_some(handlers),
        operating_system: info.operating_system,
        container_runtime_version: info.container_runtime_version,
        kernel_version: info.kernel_version,
        boot_id: info.boot_id,
        created: metadata.creation_timestamp.map(|time| time.0),
        deleting: metadata.deletion_timestamp.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    use super::*;

    fn full() -> Value {
        json!({
            "metadata": {
                "name": "worker-0", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-02T00:00:00Z",
                "labels": {"a": "b"},
                "annotations": {
                    "machineconfiguration.openshift.io/state": "Done", "other": "x",
                },
                "managedFields": [{"manager": "kubelet"}],
            },
            "spec": {
                "unschedulable": true,
                "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
            },
            "status": {
                "conditions": [
                    {"type": "DiskPressure", "status": "False"},
                    {"type": "Ready", "status": "True", "reason": "r", "message": "m",
                     "lastTransitionTime": "2026-01-01T00:00:00Z"},
                ],
                "images": [{"names": ["x"], "sizeBytes": 1}],
                "nodeInfo": {"architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "c",
                    "kernelVersion": "k", "kubeProxyVersion": "", "kubeletVersion": "v",
                    "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": ""},
                "runtimeHandlers": [{"name": "", "features": {}}, {"name": "kata"}],
            },
        })
    }

    /// What is read here is what the decision's own reading of a whole node gives.
    #[test]
    fn a_trimmed_node_has_the_facts_of_the_whole() {
        let mut bare = full();
        bare["metadata"] = json!({"name": "n", "labels": null, "annotations": null});
        bare["spec"] = json!({});
        let mut silent = full();
        silent["status"] = json!({"conditions": [{"type": "Ready", "status": "Unknown"}], "runtimeHandlers": [{"name": ""}]});
        for node in [full(), bare, silent, json!({"metadata": {"name": "n"}, "status": null})] {
            let text = node.to_string();
            let (head, facts) = Arc::<NodeFacts>::take(serde_json::from_str(&text).unwrap());
            let whole: Node = serde_json::from_str(&text).unwrap();
            assert_eq!(*facts, NodeFacts::from(&whole), "{text}");
            assert_eq!(head.name, facts.name);
        }
    }

    #[test]
    fn a_heartbeat_changes_no_fact_and_anything_else_does() {
        let read = |node: &Value| {
            Arc::<NodeFacts>::take(serde_json::from_str(&node.to_string()).unwrap()).1
        };
        let before = read(&full());
        let mut beat = full();
        beat["metadata"]["resourceVersion"] = json!("8");
        beat["status"]["conditions"][1]["lastHeartbeatTime"] = json!("2026-01-01T00:05:00Z");
        beat["status"]["images"] = json!([]);
        assert!(before.same(&read(&beat)));
        for (pointer, value) in [
            ("/metadata/labels/a", json!("c")),
            ("/metadata/annotations/machineconfiguration.openshift.io~1state", json!("Working")),
            ("/spec/unschedulable", json!(false)),
            ("/status/conditions/1/status", json!("False")),
            ("/status/nodeInfo/bootID", json!("c")),
            ("/status/runtimeHandlers/1/name", json!("other")),
        ] {
            let mut changed = full();
            *changed.pointer_mut(pointer).unwrap() = value;
            assert!(!before.same(&read(&changed)), "{pointer}");
        }
    }
}
