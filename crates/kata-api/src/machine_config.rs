//! The Machine Config Operator's kinds, with the fields that kata-operator reads.
//!
//! For reading only: a typed value lacks all other fields, so writing it back would delete them. Writes are
//! server-side apply of kata-operator's own fields.
//! Facts: the CRDs of openshift/api; lists may be null.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The Machine Config Operator's API group.
pub const GROUP: &str = "machineconfiguration.openshift.io";

/// Null, as Go writes empty lists, reads as the default.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The desired configuration of nodes. A rendered MachineConfig is the merge of all that a pool selects.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "MachineConfig",
    plural = "machineconfigs",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigSpec {
    /// The Ignition configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
    /// RHCOS extensions.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// Kernel arguments.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub kernel_arguments: Vec<String>,
    /// The operating system's image.
    #[serde(
        default,
        rename = "osImageURL",
        deserialize_with = "null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub os_image_url: String,
}

/// A group of nodes with the same configuration.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "MachineConfigPool",
    plural = "machineconfigpools",
    status = "MachineConfigPoolStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigPoolSpec {
    /// Which MachineConfigs are merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_config_selector: Option<LabelSelector>,
    /// Which nodes belong to the pool; absent or empty selects none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// Whether an admin stopped the pool.
    #[serde(default, deserialize_with = "null_as_default")]
    pub paused: bool,
    /// How many nodes may be unavailable; absent means 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// The desired configuration of the pool's nodes, as the render controller computed it.
    #[serde(default, deserialize_with = "null_as_default")]
    pub configuration: PoolConfiguration,
}

/// A rendered MachineConfig and what it was merged from.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct PoolConfiguration {
    /// Name of the rendered MachineConfig; empty before the first rendering.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub name: String,
    /// The MachineConfigs that were merged, in order.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<ConfigReference>,
}

/// A reference to a MachineConfig.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ConfigReference {
    /// The name of the MachineConfig.
    #[serde(default)]
    pub name: String,
}

/// What the node controller observed; up to five seconds older than the nodes.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigPoolStatus {
    /// The generation that the node controller last saw; absent before its first sync.
    #[serde(default)]
    pub observed_generation: Option<i64>,
    /// The configuration that the whole pool reached last.
    #[serde(default, deserialize_with = "null_as_default")]
    pub configuration: PoolConfiguration,
    /// Number of nodes.
    #[serde(default, deserialize_with = "null_as_default")]
    pub machine_count: i64,
    /// Nodes on the pool's configuration.
    #[serde(default, deserialize_with = "null_as_default")]
    pub updated_machine_count: i64,
    /// Nodes on the pool's configuration, Ready and schedulable.
    #[serde(default, deserialize_with = "null_as_default")]
    pub ready_machine_count: i64,
    /// Nodes that count against `maxUnavailable`.
    #[serde(default, deserialize_with = "null_as_default")]
    pub unavailable_machine_count: i64,
    /// Nodes whose daemon reports a failure.
    #[serde(default, deserialize_with = "null_as_default")]
    pub degraded_machine_count: i64,
    /// Conditions, in no particular order.
    #[serde(default, deserialize_with = "null_as_default")]
    pub conditions: Vec<McoCondition>,
}

/// A condition as the Machine Config Operator writes it: reason and message may be empty.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct McoCondition {
    /// The type.
    #[serde(rename = "type", default)]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// The reason.
    #[serde(default, deserialize_with = "null_as_default")]
    pub reason: String,
    /// The message.
    #[serde(default, deserialize_with = "null_as_default")]
    pub message: String,
    /// When the status changed last.
    #[serde(default)]
    pub last_transition_time: Option<jiff::Timestamp>,
}

/// Settings of CRI-O on the nodes of the pools that it selects.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "machineconfiguration.openshift.io",
    version = "v1",
    kind = "ContainerRuntimeConfig",
    plural = "containerruntimeconfigs",
    status = "ContainerRuntimeConfigStatus",
    schema = "disabled",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRuntimeConfigSpec {
    /// Selects pools by their labels; absent or empty selects none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_config_pool_selector: Option<LabelSelector>,
    /// The settings.
    #[serde(default, deserialize_with = "null_as_default")]
    pub container_runtime_config: ContainerRuntimeSettings,
}

/// The settings of CRI-O that kata-operator reads.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRuntimeSettings {
    /// The log level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,
}

/// The outcome. Conditions are a history; only the last one is current.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRuntimeConfigStatus {
    /// The generation that the controller last saw.
    #[serde(default)]
    pub observed_generation: Option<i64>,
    /// The history.
    #[serde(default, deserialize_with = "null_as_default")]
    pub conditions: Vec<McoCondition>,
}

impl MachineConfigPoolStatus {
    /// Whether a condition is `True`; `None` if it is absent or `Unknown`.
    pub fn condition(&self, type_: &str) -> Option<bool> {
        let condition = self.conditions.iter().find(|condition| condition.type_ == type_)?;
        match condition.status.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        }
    }
}
