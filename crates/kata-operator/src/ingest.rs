//! Converts an object's JSON text to the value that a cache keeps.
//!
//! A node is up to twenty kilobytes of JSON, of which the decision needs one. The rest is skipped during
//! parsing and never takes memory. This module decides nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Taint};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
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
use serde_json::value::RawValue;

/// The name and the version of an object.
#[derive(Debug, Default)]
pub struct VersionedName {
    pub name: String,
    /// Its resourceVersion.
    pub version: String,
}

/// A value that a cache keeps of an object.
pub trait CachedValue: Clone + fmt::Debug + Send + Sync + 'static {
    /// The parts of the object's JSON that are parsed.
    type Wire: DeserializeOwned;

    /// Whether any JSON object parses as [`CachedValue::Wire`], so that only [`CachedValue::trim`] can fail.
    /// Otherwise the JSON of an object is parsed twice, which matters for nodes: the kubelet writes their
    /// status all the time.
    const WIRE_ACCEPTS_ANY_OBJECT: bool = false;

    /// Keeps what the decision needs.
    ///
    /// # Errors
    /// If the object cannot be read.
    fn trim(wire: Self::Wire) -> Result<(VersionedName, Self), TrimError>;

    /// Whether both values lead to the same decision, so that no pass is needed.
    fn is_equivalent(&self, other: &Self) -> bool;

    /// Whether this value shows only progress since `old`, so that the next pass may wait for a moment.
    fn is_progress_since(&self, _old: &Self) -> bool {
        false
    }
}

/// A part of an object that cannot be read.
#[derive(Debug)]
pub struct TrimError {
    /// The JSON of the object's metadata.
    pub metadata: Option<Box<RawValue>>,
    /// Why.
    pub error: serde_json::Error,
}

impl VersionedName {
    /// The name and version of an object.
    pub fn of(object: &impl Resource) -> Self {
        let metadata = object.meta();
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            version: metadata.resource_version.clone().unwrap_or_default(),
        }
    }
}

/// Kinds that are kept whole, except for their managed fields.
macro_rules! cache_whole {
    ($($kind:ty)*) => {$(
        impl CachedValue for $kind {
            type Wire = Self;

            fn trim(mut wire: Self) -> Result<(VersionedName, Self), TrimError> {
                wire.meta_mut().managed_fields = None;
                Ok((VersionedName::of(&wire), wire))
            }

            fn is_equivalent(&self, other: &Self) -> bool {
                self == other
            }
        }
    )*};
}

cache_whole!(KataConfig MachineConfig ContainerRuntimeConfig RuntimeClass);

impl CachedValue for MachineConfigPool {
    type Wire = Self;

    /// Drops the field managers of other clients. The operator's own entry stays: it lists the fields that an
    /// apply removes if it leaves them out.
    fn trim(mut wire: Self) -> Result<(VersionedName, Self), TrimError> {
        if let Some(entries) = &mut wire.meta_mut().managed_fields {
            entries.retain(|entry| entry.manager.as_deref() == Some(names::FIELD_MANAGER));
        }
        Ok((VersionedName::of(&wire), wire))
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        self == other
    }
}

/// The data of a ConfigMap.
impl CachedValue for BTreeMap<String, String> {
    type Wire = ConfigMap;

    fn trim(wire: ConfigMap) -> Result<(VersionedName, Self), TrimError> {
        Ok((VersionedName::of(&wire), wire.data.unwrap_or_default()))
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        self == other
    }
}

/// An object of kata-monitor, compared field by field with the desired one.
impl CachedValue for Value {
    type Wire = Self;

    fn trim(wire: Self) -> Result<(VersionedName, Self), TrimError> {
        let text = |key: &str| wire["metadata"][key].as_str().unwrap_or_default().to_owned();
        let id = VersionedName { name: text("name"), version: text("resourceVersion") };
        Ok((id, validate::strip_server_fields(wire)))
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        self == other
    }
}

impl CachedValue for Arc<KataNode> {
    type Wire = KataNode;

    fn trim(mut wire: KataNode) -> Result<(VersionedName, Self), TrimError> {
        wire.metadata.managed_fields = None;
        Ok((VersionedName::of(&wire), Self::new(wire)))
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        self == other
    }
}

impl CachedValue for Arc<NodeFacts> {
    type Wire = NodeParts;

    const WIRE_ACCEPTS_ANY_OBJECT: bool = true;

    fn trim(parts: NodeParts) -> Result<(VersionedName, Self), TrimError> {
        let facts = match parts.parse() {
            Ok(node) => node_facts(node),
            Err(error) => return Err(TrimError { metadata: parts.metadata, error }),
        };
        let id =
            VersionedName { name: facts.name.clone(), version: facts.resource_version.clone() };
        Ok((id, Self::new(facts)))
    }

    fn is_equivalent(&self, other: &Self) -> bool {
        self.same_facts(other)
    }

    fn is_progress_since(&self, old: &Self) -> bool {
        NodeFacts::is_progress_since(self, old)
    }
}

/// The parts of a node that [`NodeFacts`] are made of. The others, such as its images, are skipped.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeParts {
    metadata: Part,
    spec: Part,
    status: Option<NodeStatusParts>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeStatusParts {
    allocatable: Part,
    conditions: Part,
    node_info: Part,
    runtime_handlers: Part,
}

type Part = Option<Box<RawValue>>;

impl NodeParts {
    fn parse(&self) -> Result<NodeWire, serde_json::Error> {
        fn read<T: DeserializeOwned + Default>(
            part: Option<&Part>,
        ) -> Result<T, serde_json::Error> {
            match part {
                Some(Some(part)) => serde_json::from_str(part.get()),
                Some(None) | None => Ok(T::default()),
            }
        }
        let status = self.status.as_ref();
        Ok(NodeWire {
            metadata: read(Some(&self.metadata))?,
            spec: read(Some(&self.spec))?,
            allocatable: read(status.map(|status| &status.allocatable))?,
            conditions: read(status.map(|status| &status.conditions))?,
            node_info: read(status.map(|status| &status.node_info))?,
            runtime_handlers: read(status.map(|status| &status.runtime_handlers))?,
        })
    }
}

/// The parsed parts of a node.
#[derive(Debug)]
struct NodeWire {
    metadata: NodeMetadata,
    spec: NodeSpec,
    allocatable: BTreeMap<String, Quantity>,
    conditions: Vec<NodeCondition>,
    node_info: NodeInfo,
    runtime_handlers: Vec<RuntimeHandler>,
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
    #[serde(rename = "osImage")]
    os_image: String,
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

fn node_facts(wire: NodeWire) -> NodeFacts {
    let NodeWire { metadata, spec, allocatable, conditions, node_info: info, runtime_handlers } =
        wire;
    let handlers: std::collections::BTreeSet<String> =
        runtime_handlers.into_iter().filter_map(|handler| handler.name).collect();
    let failing = conditions.iter().filter(|it| validate::is_failing(&it.type_, &it.status));
    let failing_conditions = failing.map(|it| it.type_.clone()).collect();
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    NodeFacts {
        name: metadata.name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        labels: metadata.labels.unwrap_or_default(),
        annotations: metadata.annotations.unwrap_or_default().0,
        unschedulable: spec.unschedulable.unwrap_or_default(),
        taints: validate::kept_taints(spec.taints.unwrap_or_default()),
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
        failing_conditions,
        // The default handler is listed as "": a list without another name counts as not reported.
        runtime_handlers: handlers.iter().any(|name| !name.is_empty()).then_some(handlers),
        operating_system: info.operating_system,
        container_runtime_version: info.container_runtime_version,
        kernel_version: info.kernel_version,
        os_image: info.os_image,
        allocatable: validate::allocatable(|key| Some(allocatable.get(key)?.0.as_str())),
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
                "allocatable": {"cpu": "3500m", "memory": "15Gi", "pods": "250"},
                "conditions": [
                    {"type": "DiskPressure", "status": "False"},
                    {"type": "Ready", "status": "True", "reason": "r", "message": "m",
                     "lastTransitionTime": "2026-01-01T00:00:00Z"},
                ],
                "images": [{"names": ["x"], "sizeBytes": 1}],
                "nodeInfo": {"architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "c",
                    "kernelVersion": "k", "kubeProxyVersion": "", "kubeletVersion": "v",
                    "machineID": "", "operatingSystem": "linux", "osImage": "o", "systemUUID": ""},
                "runtimeHandlers": [{"name": "", "features": {}}, {"name": "kata"}],
            },
        })
    }

    /// The parts give the same facts as [`NodeFacts::from`] gives for a whole node.
    #[test]
    fn a_trimmed_node_has_the_facts_of_the_whole() {
        let mut bare = full();
        bare["metadata"] = json!({"name": "n", "labels": null, "annotations": null});
        bare["spec"] = json!({});
        let mut without_handlers = full();
        without_handlers["status"] = json!({"conditions": [{"type": "Ready", "status": "Unknown"}], "runtimeHandlers": [{"name": ""}]});
        for node in
            [full(), bare, without_handlers, json!({"metadata": {"name": "n"}, "status": null})]
        {
            let text = node.to_string();
            let parts = serde_json::from_str(&text).unwrap();
            let (id, facts) = Arc::<NodeFacts>::trim(parts).unwrap();
            let whole: Node = serde_json::from_str(&text).unwrap();
            assert_eq!(*facts, NodeFacts::from(&whole), "{text}");
            assert_eq!(id.name, facts.name);
        }
    }

    #[test]
    fn a_heartbeat_changes_no_fact_and_anything_else_does() {
        let read = |node: &Value| {
            Arc::<NodeFacts>::trim(serde_json::from_str(&node.to_string()).unwrap()).unwrap().1
        };
        let before = read(&full());
        let mut heartbeat = full();
        heartbeat["metadata"]["resourceVersion"] = json!("8");
        heartbeat["status"]["conditions"][1]["lastHeartbeatTime"] = json!("2026-01-01T00:05:00Z");
        heartbeat["status"]["images"] = json!([]);
        assert!(before.is_equivalent(&read(&heartbeat)));
        // Nothing is decided on most taints of others.
        let taint = json!({"key": "UpdateInProgress", "effect": "PreferNoSchedule"});
        heartbeat["spec"]["taints"] = json!([taint]);
        assert!(before.is_equivalent(&read(&heartbeat)));
        for (pointer, value) in [
            ("/metadata/labels/a", json!("c")),
            ("/metadata/annotations/machineconfiguration.openshift.io~1state", json!("Working")),
            ("/spec/unschedulable", json!(false)),
            ("/status/conditions/0/status", json!("True")),
            ("/status/conditions/1/status", json!("False")),
            ("/status/nodeInfo/bootID", json!("c")),
            ("/status/nodeInfo/osImage", json!("p")),
            ("/status/allocatable/cpu", json!("3")),
            ("/status/runtimeHandlers/1/name", json!("other")),
        ] {
            let mut changed = full();
            *changed.pointer_mut(pointer).unwrap() = value;
            assert!(!before.is_equivalent(&read(&changed)), "{pointer}");
        }
    }
}
