//! The conditions of a KataConfig: their types and reasons, and the alerts that follow from them, as constants.
//!
//! [`crate::situations`] defines when a condition is True.

/// The only condition of the OpenShift operator; kept, with its reasons and messages, for scripts.
pub const IN_PROGRESS: &str = "InProgress";
/// Every selected node has Kata as the spec asks, and the RuntimeClasses exist.
pub const READY: &str = "Ready";
/// kstatus: the operator is working towards the spec; absent otherwise.
pub const RECONCILING: &str = "Reconciling";
/// kstatus: the operator makes no progress, and manual action is required; absent otherwise.
pub const STALLED: &str = "Stalled";
/// Something has failed; everything else may continue.
pub const DEGRADED: &str = "Degraded";
/// The KataConfig is being deleted, and something blocks the deletion.
pub const DELETION_BLOCKED: &str = "DeletionBlocked";

/// All types, in the order in which they are written.
pub const ALL: [&str; 6] = [IN_PROGRESS, READY, RECONCILING, STALLED, DEGRADED, DELETION_BLOCKED];

/// Reasons and messages of [`IN_PROGRESS`], byte for byte those of the OpenShift operator.
pub mod in_progress {
    /// Reason while the first installation runs.
    pub const INSTALLING: &str = "Installing";
    /// Message of [`INSTALLING`].
    pub const INSTALLING_MESSAGE: &str = "Performing initial installation of kata on cluster";
    /// Reason while nodes join or leave.
    pub const UPDATING: &str = "Updating";
    /// Message of [`UPDATING`].
    pub const UPDATING_MESSAGE: &str = "Adding and/or removing kata-enabled nodes";
    /// Reason while the KataConfig is being deleted.
    pub const UNINSTALLING: &str = "Uninstalling";
    /// Message of [`UNINSTALLING`].
    pub const UNINSTALLING_MESSAGE: &str = "Removing kata from cluster";
    /// Reason when a node failed; the message is from [`failed_message`].
    pub const FAILED: &str = "Failed";
    /// Reason when sandboxed pods block the deletion; the status is `False`.
    pub const BLOCKED_BY_EXISTING_KATA_PODS: &str = "BlockedByExistingKataPods";
    /// Reason when nothing is in progress. The OpenShift operator left it empty, which is invalid in a condition.
    pub const AS_EXPECTED: &str = "AsExpected";

    /// Message of [`FAILED`].
    pub fn failed_message(node: &str, reason: &str) -> String {
        format!("Node {node} Degraded: {reason}")
    }

    /// Message of [`BLOCKED_BY_EXISTING_KATA_PODS`].
    pub fn blocked_message(runtime_class: &str) -> String {
        format!(
            "existing pods using \"{runtime_class}\" RuntimeClass found. Please delete the pods manually for \
             KataConfig deletion to proceed"
        )
    }
}

/// Reasons of [`READY`], [`RECONCILING`], [`DEGRADED`] and [`DELETION_BLOCKED`] that are not the reason of a finding.
pub mod reasons {
    /// There is no problem.
    pub const AS_EXPECTED: &str = "AsExpected";
    /// Every selected node has Kata.
    pub const ALL_NODES_READY: &str = "AllNodesReady";
    /// Nodes are being changed, or wait to be changed.
    pub const ROLLING_OUT: &str = "RollingOut";
    /// Selected nodes do not have Kata as the spec asks.
    pub const NODES_NOT_READY: &str = "NodesNotReady";
    /// A RuntimeClass does not exist yet.
    pub const RUNTIME_CLASS_MISSING: &str = "RuntimeClassMissing";
    /// Nothing blocks the deletion any more.
    pub const NOT_BLOCKED: &str = "NotBlocked";
}

/// An alert that fires when a condition keeps a status.
#[derive(Clone, Copy, Debug)]
pub struct Alert {
    /// The type of the condition.
    pub condition: &'static str,
    /// The status that the condition keeps.
    pub status: &'static str,
    /// The name of the alert.
    pub alert: &'static str,
    /// How long the condition must have this status, as Prometheus writes durations.
    pub lasts: &'static str,
}

/// The alerts that follow from conditions.
pub const ALERTS: [Alert; 4] = [
    Alert { condition: READY, status: "Unknown", alert: "KataConfigUnreadable", lasts: "15m" },
    Alert { condition: STALLED, status: "True", alert: "KataRolloutStalled", lasts: "60m" },
    Alert { condition: DEGRADED, status: "True", alert: "KataConfigDegraded", lasts: "30m" },
    Alert {
        condition: DELETION_BLOCKED,
        status: "True",
        alert: "KataDeletionBlocked",
        lasts: "60m",
    },
];

/// Every type of condition of a KataConfig and its meaning when True, in the order in which they are written.
pub const TYPES: [(&str, &str); 6] = [
    (
        IN_PROGRESS,
        "Nodes are being changed. The condition of the OpenShift sandboxed containers operator, kept for scripts.",
    ),
    (
        READY,
        "Every selected node has Kata, and the RuntimeClasses exist. A node that is cordoned, not Ready or being changed for another reason still has Kata; the message names the node.",
    ),
    (RECONCILING, "The operator is working towards the spec. Absent otherwise."),
    (
        STALLED,
        "The operator makes no progress, and manual action is required. It stays True until a node makes progress; a retry alone does not clear it. Absent otherwise.",
    ),
    (
        DEGRADED,
        "Something has failed; everything else may continue. The message lists the failures.",
    ),
    (
        DELETION_BLOCKED,
        "Something blocks the deletion of the KataConfig: pods that use it, or a problem that the message names. Absent unless the KataConfig is being deleted.",
    ),
];

/// Every reason that is not the reason of a finding, and what it means.
pub const REASONS: [(&str, &str); 11] = [
    (in_progress::INSTALLING, "Kata is being installed for the first time."),
    (in_progress::UPDATING, "Nodes join, leave or get another version of Kata."),
    (
        in_progress::UNINSTALLING,
        "The KataConfig is being deleted, and Kata is being removed from nodes.",
    ),
    (in_progress::FAILED, "A node failed; the message names the node."),
    (in_progress::BLOCKED_BY_EXISTING_KATA_PODS, "Sandboxed pods block the deletion."),
    (reasons::AS_EXPECTED, "There is no problem."),
    (reasons::ALL_NODES_READY, "Every selected node has Kata."),
    (reasons::ROLLING_OUT, "Nodes are being changed, or wait to be changed."),
    (reasons::NODES_NOT_READY, "Selected nodes do not have Kata as the spec asks."),
    (reasons::RUNTIME_CLASS_MISSING, "A RuntimeClass does not exist yet."),
    (reasons::NOT_BLOCKED, "Nothing blocks the deletion any more."),
];
