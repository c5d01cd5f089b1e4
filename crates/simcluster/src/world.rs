//! What exists outside the API: the hosts behind the Node objects.
//!
//! Nothing here is visible to the operator except through what kubelets and daemons report.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

/// The hosts by node name, and the settings of the simulated site.
#[derive(Debug, Default)]
pub struct World {
    /// The hosts by node name.
    pub hosts: BTreeMap<String, Host>,
}

/// Whether a host runs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// It runs.
    #[default]
    On,
    /// It is down until the given time of the cluster, then it starts.
    Rebooting {
        /// When it is up again; [`Timestamp::MAX`] means never.
        until: Timestamp,
    },
    /// It is down and stays down.
    Off,
}

/// Something that goes wrong on a host while its operating system is changed.
///
/// A fault lasts until it is removed from [`Host::faults`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeFault {
    /// Pods on the node cannot be evicted, whatever the budgets say.
    FailDrain,
    /// The daemon refuses the change before it drains, with this reason.
    Unreconcilable(String),
    /// The change of the operating system fails after the drain, with this reason.
    InstallFails(String),
    /// The host stays at the point before its reboot.
    HoldReboot,
    /// The host does not come back from its reboot.
    RebootHang,
    /// After the reboot the daemon finds the host not as it should be, for this reason.
    BootFails(String),
    /// The node is not uncordoned at the end.
    FailUncordon,
    /// A file is not as the configuration says, for this reason.
    Drift(String),
}

/// A host: what a node's operating system has, in memory.
#[derive(Debug, Default, Clone)]
pub struct Host {
    /// Files by absolute path.
    pub files: BTreeMap<String, String>,
    /// Changes with every boot; what `/proc/sys/kernel/random/boot_id` shows.
    pub boot_id: String,
    /// Whether the host runs.
    pub power: Power,
    /// The operating system's extensions that are installed and booted.
    pub extensions: BTreeSet<String>,
    /// The extensions that the next boot brings, if it changes them.
    pub staged_extensions: Option<BTreeSet<String>>,
    /// What goes wrong.
    pub faults: BTreeSet<NodeFault>,
    /// The last failure that the machine-config daemon recorded, until it succeeds.
    pub daemon_failure: Option<String>,
}

impl Host {
    /// Stages the installation of an extension for the next boot.
    pub fn install_extension(&mut self, name: &str) {
        self.staged_extensions
            .get_or_insert_with(|| self.extensions.clone())
            .insert(name.to_owned());
    }

    /// Stages the removal of an extension for the next boot.
    pub fn uninstall_extension(&mut self, name: &str) {
        self.staged_extensions.get_or_insert_with(|| self.extensions.clone()).remove(name);
    }

    /// Takes the host down until `until`; a faulty host stays down.
    pub fn reboot(&mut self, until: Timestamp) {
        let until =
            if self.faults.contains(&NodeFault::RebootHang) { Timestamp::MAX } else { until };
        self.power = Power::Rebooting { until };
    }

    /// Starts the host: what was staged is installed now.
    pub fn boot(&mut self, boot_id: impl Into<String>) {
        if let Some(staged) = self.staged_extensions.take() {
            self.extensions = staged;
        }
        self.boot_id = boot_id.into();
        self.power = Power::On;
    }
}
