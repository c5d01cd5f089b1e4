//! What exists outside the API: the hosts behind the Node objects.
//!
//! Nothing here is visible to the operator except through what kubelets and daemons report.

use std::collections::BTreeMap;

/// The hosts by node name, and the settings of the simulated site.
#[derive(Debug, Default)]
pub struct World {
    /// The hosts by node name.
    pub hosts: BTreeMap<String, Host>,
}

/// A host: what a node's operating system has, in memory.
#[derive(Debug, Default, Clone)]
pub struct Host {
    /// Files by absolute path.
    pub files: BTreeMap<String, String>,
    /// Changes with every boot; what `/proc/sys/kernel/random/boot_id` shows.
    pub boot_id: String,
}
