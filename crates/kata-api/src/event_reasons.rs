//! Reasons of Events that are not those of a condition or of a finding, as constants.
//!
//! Which Events there are is decided in kata-plan; how they are written, in the operator.

/// Pods can name the RuntimeClass.
pub const RUNTIME_CLASS_CREATED: &str = "RuntimeClassCreated";
/// Pods cannot name the RuntimeClass any more.
pub const RUNTIME_CLASS_REMOVED: &str = "RuntimeClassRemoved";
/// Nodes are being changed to run sandboxed pods.
pub const KATA_INSTALLING: &str = "KataInstalling";
/// Nodes can run sandboxed pods.
pub const KATA_RUNTIME_INSTALLED: &str = "KataRuntimeInstalled";
/// Nodes that have Kata are being brought to another version or configuration of it.
pub const KATA_UPDATING: &str = "KataUpdating";
/// Nodes that had Kata can run sandboxed pods again.
pub const KATA_NODE_READY: &str = "KataNodeReady";
/// Kata is being removed from nodes.
pub const KATA_REMOVING: &str = "KataRemoving";
/// Nodes are clear of Kata.
pub const KATA_REMOVED: &str = "KataRemoved";
/// A node with Kata does not exist any more.
pub const NODE_GONE: &str = "NodeGone";

/// Every reason, and what it means.
pub const ALL: [(&str, &str); 9] = [
    (RUNTIME_CLASS_CREATED, "A RuntimeClass exists, and pods can name it."),
    (RUNTIME_CLASS_REMOVED, "A RuntimeClass is gone, and pods cannot name it any more."),
    (KATA_INSTALLING, "Nodes are being changed to run sandboxed pods."),
    (KATA_RUNTIME_INSTALLED, "Nodes can run sandboxed pods."),
    (
        KATA_UPDATING,
        "Nodes that have Kata are being brought to another version or configuration of it.",
    ),
    (KATA_NODE_READY, "Nodes that had Kata all the time can run sandboxed pods again."),
    (KATA_REMOVING, "Kata is being removed from nodes."),
    (KATA_REMOVED, "Nodes are clear of Kata."),
    (NODE_GONE, "A node with Kata does not exist any more."),
];
