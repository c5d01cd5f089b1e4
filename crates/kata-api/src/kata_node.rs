//! `KataNode`, one small object per selected node with all that does not fit into a KataConfig's status.
//!
//! It is owned by its Node and vanishes with it. Users read it; only the operator writes it.

#![expect(clippy::duplicated_attributes, reason = "columns of the same type are no mistake")]

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::node_task::{NodeAction, Outcome};

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
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.host.kataVersion",
        priority = 1
    ),
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
    /// Without the Machine Config Operator: a Job looks whether the node can run Kata.
    Preflight,
    /// Without the Machine Config Operator: a Job gets ready and takes the runtime's files to the node.
    Staging,
    /// Without the Machine Config Operator: a Job changes the node.
    Changing,
    /// Without the Machine Config Operator: the kubelet is to report the handler.
    Confirming,
}

impl NodeStep {
    /// How many steps there are where the Machine Config Operator changes the nodes.
    pub const COUNT: usize = 6;
    /// How many steps there are where Jobs change the nodes.
    pub const JOB_COUNT: usize = 4;

    /// How many steps the way has that this step is on.
    pub fn count(self) -> usize {
        match self {
            Self::Preflight | Self::Staging | Self::Changing | Self::Confirming => Self::JOB_COUNT,
            Self::Targeted
            | Self::Draining
            | Self::Applying
            | Self::Rebooting
            | Self::Finishing
            | Self::Verifying => Self::COUNT,
        }
    }

    /// The step's place in the order, from 1.
    pub fn number(self) -> usize {
        match self {
            Self::Targeted | Self::Preflight => 1,
            Self::Draining | Self::Staging => 2,
            Self::Applying | Self::Changing => 3,
            Self::Rebooting | Self::Confirming => 4,
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
            Self::Preflight => "Preflight",
            Self::Staging => "Staging",
            Self::Changing => "Changing",
            Self::Confirming => "Confirming",
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
    /// What happens on the node, as n/6 (n/4 without the Machine Config Operator) and a name; empty if nothing does.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// When the phase and step began. A step of a change is written once it has lasted half a minute, so that it may
    /// have begun up to so much earlier.
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
    /// What the Jobs of the node agent found and did, on clusters without the Machine Config Operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostStatus>,
}

/// What the Jobs of the node agent found and did on a node. The operator remembers nothing else of them.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostStatus {
    /// Digest of the state that is installed and verified, or `drifted` if it was found to differ and runs
    /// sandboxes as before; absent if none is, or if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed: Option<String>,
    /// Digest of state and node facts for which the node was found fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit_for: Option<String>,
    /// Digest of state and node facts for which a change was undone, and is not tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bad: Option<String>,
    /// Whether something of ours may be on the node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub touched: bool,
    /// The handlers that the container runtime offered when it was asked last, ours and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<String>,
    /// Digest of the payload in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_digest: Option<String>,
    /// Version of Kata in use, if the payload tells one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kata_version: Option<String>,
    /// The container runtime as it tells itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// When the node was last compared with what is installed, or changed to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>")]
    pub inspected: Option<Timestamp>,
    /// How often the container runtime was restarted for us.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub restarts: i64,
    /// How often a change was undone.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub rollbacks: i64,
    /// How often the node was found to differ from what was installed.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub drifts: i64,
    /// The last Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<HostJob>,
}

/// A Job of the node agent.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostJob {
    /// Its name.
    pub name: String,
    /// Its number on the node, from 1.
    pub number: i64,
    /// What it was to do.
    #[schemars(with = "String")]
    pub action: NodeAction,
    /// Digest of the wanted state that it was made for.
    pub state: String,
    /// Digest of the facts of the node that it was made for.
    pub facts: String,
    /// How it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<JobOutcome>,
    /// How the one before it ended, while it runs, if that was for the same and failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<JobOutcome>,
    /// When it ended, or since when it is known to run.
    #[schemars(with = "k8s_openapi::apimachinery::pkg::apis::meta::v1::Time")]
    pub at: Timestamp,
    /// How many Jobs for the same state and facts failed in a row, this one included.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub failures: i64,
    /// What it had to say; a sentence. While a Job runs, what the one before it failed with, if it was for the
    /// same.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Code of the check that the message is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// How a Job of the node agent ended.
#[derive(
    Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema,
)]
pub enum JobOutcome {
    /// The node is as it was asked for.
    Done,
    /// A check is fatal; nothing was changed.
    Refused,
    /// Sandboxes run that the change would harm; what they need was not changed.
    Blocked,
    /// The node differs from what is installed.
    Drifted,
    /// The change failed and was undone.
    RolledBack,
    /// The change failed and so did the way back.
    Unsafe,
    /// The task could not be carried out; the node is as before, or the next Job goes on.
    Failed,
    /// It did not begin in time, so the node is as before.
    NotStarted,
    /// It did not end in time, so the state of the node is not known.
    TimedOut,
    /// It ended without a report that can be read, so the state of the node is not known.
    NoReport,
    /// It was deleted before its report was read, so the state of the node is not known.
    Vanished,
}

impl JobOutcome {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Done,
        Self::Refused,
        Self::Blocked,
        Self::Drifted,
        Self::RolledBack,
        Self::Unsafe,
        Self::Failed,
        Self::NotStarted,
        Self::TimedOut,
        Self::NoReport,
        Self::Vanished,
    ];

    /// The name as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "Done",
            Self::Refused => "Refused",
            Self::Blocked => "Blocked",
            Self::Drifted => "Drifted",
            Self::RolledBack => "RolledBack",
            Self::Unsafe => "Unsafe",
            Self::Failed => "Failed",
            Self::NotStarted => "NotStarted",
            Self::TimedOut => "TimedOut",
            Self::NoReport => "NoReport",
            Self::Vanished => "Vanished",
        }
    }
}

impl From<Outcome> for JobOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::Refused => Self::Refused,
            Outcome::Blocked => Self::Blocked,
            Outcome::Drifted => Self::Drifted,
            Outcome::RolledBack => Self::RolledBack,
            Outcome::Unsafe => Self::Unsafe,
            Outcome::Failed => Self::Failed,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &i64) -> bool {
    *count == 0
}
