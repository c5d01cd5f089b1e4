//! What a Job asks of the node agent, and what the node agent answers.
//!
//! The operator writes a [`NodeTask`] into the arguments of a Job, and reads a [`NodeReport`] out of the
//! termination message of its pod, so that a pod that may change a node needs no API token.
//! This is data only: how a node is changed is the business of `kata-host`, when is that of `kata-plan`.

use serde::{Deserialize, Serialize};

/// The version of both types that this build writes and understands.
/// Within a version fields are only added; an agent refuses a task of a newer one.
pub const NODE_TASK_VERSION: u32 = 1;

/// The most bytes that a termination message may have
/// (kubelet: `MaxContainerTerminationMessageLength`, 4,096).
pub const REPORT_BYTES: usize = 4096;

impl NodeAction {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Preflight, Self::Install, Self::Inspect, Self::Remove];

    /// The name as in a task.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Preflight => "Preflight",
            Self::Install => "Install",
            Self::Inspect => "Inspect",
            Self::Remove => "Remove",
        }
    }

    /// The action of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == name)
    }
}

/// What is asked for.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeAction {
    /// Look whether the node can run Kata; change nothing.
    Preflight,
    /// Bring the node to what the task says: install, upgrade, repair.
    Install,
    /// Compare the node with what the task says; change nothing.
    Inspect,
    /// Take everything that is ours off the node.
    Remove,
}

/// One job for the node agent. Two tasks that are equal ask for the same state of the node.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct NodeTask {
    /// [`NODE_TASK_VERSION`] of the writer.
    pub version: u32,
    /// Name of the Node; goes into messages only.
    pub node: String,
    /// What to do.
    pub action: NodeAction,
    /// The handlers that the container runtime shall offer, sorted by name. Empty for a removal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<TaskHandler>,
    /// Image that the payload was taken from: the identity of the payload as far as the operator knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_image: Option<String>,
    /// `status.nodeInfo.containerRuntimeVersion` of the Node, for example `containerd://2.1.4`;
    /// decides which runtime is meant if a node has two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_runtime: Option<String>,
    /// Log level of the Kata runtime: `debug`, `info`, `warn` or `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,
    /// Whether every file of the payload is read and compared, as [`NodeAction::Inspect`] does it anyway.
    /// Without it a file is believed to be intact as long as its mode, size, times and inode say so.
    /// For a node whose payload is known or suspected to be damaged.
    #[serde(default, skip_serializing_if = "is_false")]
    pub verify: bool,
}

/// Says what is left out of the JSON; serde hands over a reference.
fn is_false(value: &bool) -> bool {
    !value
}

/// A handler of the container runtime.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[serde(rename_all = "camelCase")]
pub struct TaskHandler {
    /// The handler's name in the container runtime, for example `kata`.
    pub name: String,
    /// The shim of the payload that serves it, for example `qemu` or `clh`.
    pub shim: String,
}

/// How a task ended.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The node is as the task says; [`NodeReport::changed`] tells whether it was so before.
    Done,
    /// A preflight check is fatal; nothing was changed.
    Refused,
    /// Sandboxes run that the change would harm; what they need is still there.
    Blocked,
    /// The node differs from what the task says (only [`NodeAction::Inspect`]).
    Drifted,
    /// The change failed and was undone; the container runtime is as it was before.
    RolledBack,
    /// The change failed and so did the way back; somebody must look at the node.
    Unsafe,
    /// The task could not be carried out; the node is as before, or the next run goes on.
    Failed,
}

/// What came of a task. It fits into a termination message: at most [`REPORT_BYTES`] bytes of JSON.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// [`NODE_TASK_VERSION`] of the writer.
    pub version: u32,
    /// What was asked for.
    pub action: NodeAction,
    /// How it ended.
    pub outcome: Outcome,
    /// Whether anything on the node was written.
    #[serde(default)]
    pub changed: bool,
    /// Whether the container runtime was restarted.
    #[serde(default)]
    pub restarted: bool,
    /// The container runtime as CRI tells it, for example `containerd 2.1.4`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub runtime: String,
    /// The handlers that the container runtime offers now, sorted; `None` if it could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handlers: Option<Vec<String>>,
    /// Digest of the payload in use (`sha256:…` of its manifest), if any is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_digest: Option<String>,
    /// Version of Kata in use, if the payload tells one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kata_version: Option<String>,
    /// Checks that did not pass: first the one that the message is about, then the worst first; capped, see [`NodeReport::more_checks`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<FailedCheck>,
    /// How many more checks did not pass than are listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_checks: u32,
    /// Sandboxes in the way, at most ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandboxes: Vec<SandboxInTheWay>,
    /// How many sandboxes are in the way.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sandbox_count: u32,
    /// One sentence for the admin: what happened, why, and what to do. Empty if there is nothing to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A check that did not pass.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FailedCheck {
    /// Code of the catalogue, for example `KATA3001`.
    pub code: String,
    /// Whether the node cannot be used because of it.
    pub fatal: bool,
    /// What is wrong and what to do.
    pub message: String,
}

/// A sandbox that a change would harm.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SandboxInTheWay {
    /// Namespace of its pod.
    pub namespace: String,
    /// Name of its pod.
    pub pod: String,
    /// Its handler.
    pub handler: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}
