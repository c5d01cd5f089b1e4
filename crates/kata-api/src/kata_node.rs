//! `KataNode`, one small object per selected node with all that does not fit into a KataConfig's status.
//!
//! It is owned by its Node and vanishes with it. Users read it; only the operator writes it.

#![expect(clippy::duplicated_attributes, reason = "columns of the same type are no mistake")]

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which node it is.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[kube(
    group = "kata-operator.dev",
    version = "v1alpha1",
    kind = "KataNode",
    plural = "katanodes",
    status = "KataNodeStatus",
    shortname = "kn",
    category = "kata",
    derive = "PartialEq",
    doc = "KataNode tells how far a node is with Kata: phase, step, reason, versions. The operator writes it.",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Step", type_ = "string", json_path = ".status.step"),
    printcolumn(name = "Handler", type_ = "string", json_path = ".status.handlers[*]"),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.since"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    selectable = ".spec.nodeName",
    selectable = ".status.phase"
)]
#[serde(rename_all = "camelCase")]
pub struct KataNodeSpec {
    /// Name of the Node.
    #[schemars(length(min = 1, max = 253))]
    pub node_name: String,
    /// Name of the KataConfig that selects the node, or that still has to remove Kata from it.
    #[schemars(length(min = 1, max = 253))]
    pub kata_config: String,
}

/// How far a node is.
#[derive(
    Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, JsonSchema,
)]
pub enum Phase {
    /// It cannot be told what the node runs.
    #[default]
    Unknown,
    /// The node will get Kata and waits for its turn.
    Waiting,
    /// The node is being changed to get Kata.
    Installing,
    /// The node can run sandboxed pods.
    Ready,
    /// The node has Kata but cannot run sandboxed pods now.
    NotReady,
    /// The node has Kata and is being changed for another reason.
    Updating,
    /// The node will lose Kata and waits for its turn, or for its sandboxed pods to go.
    WaitingToRemove,
    /// Kata is being removed from the node.
    Removing,
    /// The change of the node failed.
    Failed,
}

impl Phase {
    /// Every phase.
    pub const ALL: &[Self] = &[
        Self::Unknown,
        Self::Waiting,
        Self::Installing,
        Self::Ready,
        Self::NotReady,
        Self::Updating,
        Self::WaitingToRemove,
        Self::Removing,
        Self::Failed,
    ];

    /// The name as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Waiting => "Waiting",
            Self::Installing => "Installing",
            Self::Ready => "Ready",
            Self::NotReady => "NotReady",
            Self::Updating => "Updating",
            Self::WaitingToRemove => "WaitingToRemove",
            Self::Removing => "Removing",
            Self::Failed => "Failed",
        }
    }
}

/// What happens on a node that is being changed, in order.
#[derive(
    Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema,
)]
pub enum NodeStep {
    /// The node was told what to run and has not begun.
    Targeted,
    /// Its pods are being evicted.
    Draining,
    /// Its operating system is being changed.
    Applying,
    /// It is rebooting.
    Rebooting,
    /// It is back and is being opened to pods again.
    Finishing,
    /// It is checked whether it advertises the handler.
    Verifying,
}

impl NodeStep {
    /// How many steps there are.
    pub const COUNT: usize = 6;

    /// The step's place in the order, from 1.
    pub fn number(self) -> usize {
        match self {
            Self::Targeted => 1,
            Self::Draining => 2,
            Self::Applying => 3,
            Self::Rebooting => 4,
            Self::Finishing => 5,
            Self::Verifying => 6,
        }
    }

    /// The name as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Targeted => "Targeted",
            Self::Draining => "Draining",
            Self::Applying => "Applying",
            Self::Rebooting => "Rebooting",
            Self::Finishing => "Finishing",
            Self::Verifying => "Verifying",
        }
    }
}

fn unknown() -> String {
    "Unknown".to_owned()
}

/// What the operator sees of the node.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KataNodeStatus {
    /// True, False or Unknown: whether the node can run sandboxed pods now.
    #[serde(default = "unknown")]
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub ready: String,
    /// How far the node is.
    #[serde(default)]
    pub phase: Phase,
    /// What happens on the node, as n/6 and a name; empty if nothing does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// When the phase and step began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>")]
    pub since: Option<Timestamp>,
    /// The KATA code of what holds the node up, if anything does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// A sentence on what is going on or holds the node up.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Our handlers that the node's container runtime advertises.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<String>,
    /// The rendered MachineConfig that the node runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_config: Option<String>,
    /// The rendered MachineConfig that the node shall run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_config: Option<String>,
    /// The container runtime and its version, as the kubelet reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_runtime_version: Option<String>,
    /// The kernel's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_version: Option<String>,
    /// The node's boot ID when it was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
}
