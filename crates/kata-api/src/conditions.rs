//! Condition types and reasons of KataConfig, old and new, as constants.
//!
//! Which of them hold is decided in kata-plan; how they are written, in the operator.

/// The only condition of the OpenShift operator; kept, with its reasons and messages, for scripts.
pub const IN_PROGRESS: &str = "InProgress";
/// Every selected node can run sandboxed pods, and the RuntimeClasses exist.
pub const READY: &str = "Ready";
/// kstatus: the operator is working towards the spec; absent otherwise.
pub const RECONCILING: &str = "Reconciling";
/// kstatus: the operator cannot go on without help; absent otherwise.
pub const STALLED: &str = "Stalled";
/// Something is broken, though it may not stop the rest.
pub const DEGRADED: &str = "Degraded";
/// The KataConfig is being deleted, and something must go first.
pub const DELETION_BLOCKED: &str = "DeletionBlocked";

/// All of ours, in the order in which they are written.
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
    /// Reason when nothing is going on. The OpenShift operator left it empty, which a condition must not.
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
    /// All is as it should be.
    pub const AS_EXPECTED: &str = "AsExpected";
    /// Every selected node can run sandboxed pods.
    pub const ALL_NODES_READY: &str = "AllNodesReady";
    /// Nodes are being changed, or wait for their turn.
    pub const ROLLING_OUT: &str = "RollingOut";
    /// Nodes that have Kata cannot run sandboxed pods now.
    pub const NODES_NOT_READY: &str = "NodesNotReady";
    /// A RuntimeClass does not exist yet.
    pub const RUNTIME_CLASS_MISSING: &str = "RuntimeClassMissing";
    /// Sandboxed pods are gone, and nothing else blocks the deletion.
    pub const NOT_BLOCKED: &str = "NotBlocked";
}

/// Every type of a condition of KataConfig and what its being True means, in the order in which they are
/// written.
pub const TYPES: [(&str, &str); 6] = [
    (
        IN_PROGRESS,
        "Nodes are being changed. The condition of the OpenShift sandboxed containers operator, kept for scripts.",
    ),
    (READY, "Every selected node can run sandboxed pods, and the RuntimeClasses exist."),
    (RECONCILING, "The operator works towards the spec. Absent when there is nothing to do."),
    (STALLED, "The operator cannot go on without a person. Absent otherwise."),
    (DEGRADED, "Something has failed, though it may not stop the rest. The message lists it."),
    (
        DELETION_BLOCKED,
        "The KataConfig is being deleted, and something has to be done first: pods that use it must go, or what the message names must be mended. Absent unless it is being deleted.",
    ),
];

/// Every reason that is not the reason of a finding, and what it means.
pub const REASONS: [(&str, &str); 11] = [
    (in_progress::INSTALLING, "The first installation runs."),
    (in_progress::UPDATING, "Nodes join or leave, or get another version."),
    (in_progress::UNINSTALLING, "The KataConfig is being deleted, and nodes lose Kata."),
    (in_progress::FAILED, "A node failed; the message names it."),
    (in_progress::BLOCKED_BY_EXISTING_KATA_PODS, "Sandboxed pods hold the deletion up."),
    (reasons::AS_EXPECTED, "All is as it should be."),
    (reasons::ALL_NODES_READY, "Every selected node can run sandboxed pods."),
    (reasons::ROLLING_OUT, "Nodes are being changed, or wait for their turn."),
    (reasons::NODES_NOT_READY, "Nodes that have Kata cannot run sandboxed pods now."),
    (reasons::RUNTIME_CLASS_MISSING, "A RuntimeClass does not exist yet."),
    (reasons::NOT_BLOCKED, "Nothing holds the deletion up any more."),
];
