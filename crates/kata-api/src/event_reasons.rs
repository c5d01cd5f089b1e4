//! Reasons of Events that are not those of a condition or of a finding, as constants.
//!
//! kata-plan decides which Events to publish; the operator publishes them.

/// Pods can name the RuntimeClass.
pub const RUNTIME_CLASS_CREATED: &str = "RuntimeClassCreated";
/// Pods can no longer name the RuntimeClass.
pub const RUNTIME_CLASS_REMOVED: &str = "RuntimeClassRemoved";
/// Kata is being installed on nodes.
pub const KATA_INSTALLING: &str = "KataInstalling";
/// Nodes can run sandboxed pods.
pub const KATA_RUNTIME_INSTALLED: &str = "KataRuntimeInstalled";
/// Kata is being updated on nodes, to another version or configuration.
pub const KATA_UPDATING: &str = "KataUpdating";
/// Nodes that had Kata can run sandboxed pods again.
pub const KATA_NODE_READY: &str = "KataNodeReady";
/// Kata is being removed from nodes.
pub const KATA_REMOVING: &str = "KataRemoving";
/// Kata has been removed from nodes.
pub const KATA_REMOVED: &str = "KataRemoved";
/// A node with Kata no longer exists.
pub const NODE_GONE: &str = "NodeGone";

/// Every reason, and what it means.
pub const ALL: [(&str, &str); 9] = [
    (RUNTIME_CLASS_CREATED, "A RuntimeClass exists, and pods can name it."),
    (RUNTIME_CLASS_REMOVED, "A RuntimeClass was deleted, and pods can no longer name it."),
    (KATA_INSTALLING, "Kata is being installed on nodes."),
    (KATA_RUNTIME_INSTALLED, "Nodes can run sandboxed pods."),
    (KATA_UPDATING, "Kata is being updated on nodes, to another version or configuration."),
    (KATA_NODE_READY, "Nodes that already had Kata can run sandboxed pods again."),
    (KATA_REMOVING, "Kata is being removed from nodes."),
    (KATA_REMOVED, "Kata has been removed from nodes."),
    (NODE_GONE, "A node with Kata no longer exists."),
];
