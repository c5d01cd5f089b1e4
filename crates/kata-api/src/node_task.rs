//! The task that a Job gives the node agent, and the report of the node agent.
//!
//! The operator writes a [`NodeTask`] into the arguments of a Job, and reads a [`NodeReport`] out of the
//! termination message of its pod, so that a pod that may change a node needs no API token.
//! Data only: `kata-host` knows how to change a node, `kata-plan` decides when.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of both types that this build writes and understands.
/// Within a version fields are only added; an agent refuses a task of a newer one.
pub const NODE_TASK_VERSION: u32 = 1;

/// The most bytes that a termination message may have
/// (kubelet: `MaxContainerTerminationMessageLength`, 4,096).
pub const REPORT_BYTES: usize = 4096;

impl NodeAction {
    /// Every action.
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

/// The action of a task.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeAction {
    /// Check whether the node can run Kata; change nothing.
    Preflight,
    /// Change the node to the state in the task: install, upgrade, repair.
    Install,
    /// Compare the node with the state in the task; change nothing.
    Inspect,
    /// Remove everything that kata-operator installed on the node.
    Remove,
}

/// One job for the node agent. Two tasks that are equal ask for the same state of the node.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase")]
pub struct NodeTask {
    /// [`NODE_TASK_VERSION`] of the writer.
    pub version: u32,
    /// Name of the Node, for messages.
    pub node: String,
    /// The action.
    pub action: NodeAction,
    /// The handlers that the container runtime is to have, sorted by name. Empty for a removal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<TaskHandler>,
    /// Image that contains the payload. It identifies the payload for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_image: Option<String>,
    /// `status.nodeInfo.containerRuntimeVersion` of the Node, for example `containerd://2.1.4`;
    /// selects the runtime if a node has two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_runtime: Option<String>,
    /// Log level of the Kata runtime: `debug`, `info`, `warn` or `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,
    /// What to do about changes of other programs that a restart of the container runtime would bring into effect.
    #[serde(default, skip_serializing_if = "ForeignChanges::waits")]
    pub foreign_changes: ForeignChanges,
    /// Whether what kata-deploy installed is taken over, and kept for the way back. A removal gives it back. If it is
    /// false, what was kept goes once no sandbox uses it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub take_over: bool,
    /// Whether to read and compare every file of the payload, as [`NodeAction::Inspect`] always does: for a node whose
    /// payload may be damaged. Otherwise a file counts as intact if its mode, size, times and inode are unchanged.
    #[serde(default, skip_serializing_if = "is_false")]
    pub verify: bool,
}

/// What to do about changes of other programs in the container runtime's configuration that are not in effect yet.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ForeignChanges {
    /// The node waits until the container runtime was restarted by another program.
    #[default]
    Wait,
    /// The restart for Kata may bring them into effect, but never a configuration with which there would be no CRI.
    Activate,
}

impl ForeignChanges {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    pub(crate) fn waits(&self) -> bool {
        *self == Self::Wait
    }
}

/// For `skip_serializing_if`, which passes a reference.
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
    /// Settings, as TOML: they are merged into the payload's configuration of the shim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

/// How a task ended.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The node has the state in the task; [`NodeReport::changed`] is false if it already had that state.
    Done,
    /// A preflight check is fatal; nothing was changed.
    Refused,
    /// Sandboxes run that the change would harm; nothing that they need was changed.
    Blocked,
    /// The node differs from the state in the task (only [`NodeAction::Inspect`]).
    Drifted,
    /// The change failed and was rolled back; the container runtime is as before.
    RolledBack,
    /// The change failed, and so did the rollback; an admin must examine the node.
    Unsafe,
    /// The task could not be completed; the node is unchanged, or the next run continues.
    Failed,
}

/// An earlier release of Kata that sandboxes still run on: a change leaves running sandboxes as they are.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EarlierRelease {
    /// Its version of Kata, if its payload contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kata_version: Option<String>,
    /// The first eight characters of the UIDs of the pods, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<String>,
    /// The number of pods that are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub more_pods: i64,
    /// Whether kata-deploy installed it, whose node was taken over.
    #[serde(default, skip_serializing_if = "is_false")]
    pub of_kata_deploy: bool,
}

impl EarlierRelease {
    /// How a pod with this UID is listed.
    pub fn listed(uid: &str) -> &str {
        uid.get(..8).unwrap_or(uid)
    }
}

/// The result of a task. It fits into a termination message: at most [`REPORT_BYTES`] bytes of JSON.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// [`NODE_TASK_VERSION`] of the writer.
    pub version: u32,
    /// The action of the task.
    pub action: NodeAction,
    /// How the task ended.
    pub outcome: Outcome,
    /// Whether anything on the node was written.
    #[serde(default)]
    pub changed: bool,
    /// Whether the container runtime was restarted.
    #[serde(default)]
    pub restarted: bool,
    /// The container runtime as CRI reports it, for example `containerd 2.1.4`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub runtime: String,
    /// The handlers that the container runtime reports now, sorted; `None` if it does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handlers: Option<Vec<String>>,
    /// Digest of the payload in use (`sha256:…` of its manifest), if any is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_digest: Option<String>,
    /// Version of Kata in use, if the payload contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kata_version: Option<String>,
    /// The earlier releases that sandboxes still run on. Truncated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<EarlierRelease>,
    /// Checks that did not pass: first the one that the message describes, then by severity. Truncated; see
    /// [`NodeReport::more_checks`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<FailedCheck>,
    /// The number of checks that did not pass and are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_checks: u32,
    /// Sandboxes that the change would harm, at most ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandboxes: Vec<SandboxInTheWay>,
    /// The number of sandboxes that the change would harm.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sandbox_count: u32,
    /// One sentence for the admin: what happened, why, and what to do; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl NodeReport {
    /// Reads the report in a termination message.
    ///
    /// # Errors
    /// If the message is not a report, or a report of a newer version, which may contain unknown outcomes.
    pub fn parse(message: &str) -> Result<Self, ReportError> {
        #[derive(Deserialize)]
        struct Header {
            version: u32,
        }
        let Header { version } = serde_json::from_str(message).map_err(ReportError::Parse)?;
        if version > NODE_TASK_VERSION {
            return Err(ReportError::Newer { version });
        }
        serde_json::from_str(message).map_err(ReportError::Parse)
    }
}

/// Why a report cannot be read.
#[derive(Debug)]
pub enum ReportError {
    /// The message is not a report in JSON.
    Parse(serde_json::Error),
    /// The node agent is newer than this program.
    Newer {
        /// The version of the report.
        version: u32,
    },
}

impl std::fmt::Display for ReportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Parse(error) => error.fmt(f),
            Self::Newer { version } => write!(
                f,
                "it has version {version}, and this operator reads versions up to {NODE_TASK_VERSION}"
            ),
        }
    }
}

impl std::error::Error for ReportError {}

/// A check that did not pass.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FailedCheck {
    /// Code of the catalogue, for example `KATA3001`.
    pub code: String,
    /// Whether the node cannot run Kata because of it.
    pub fatal: bool,
    /// The problem and its fix.
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

fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}
