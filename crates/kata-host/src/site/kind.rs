//! The kinds of container runtime, and where one of a node has its things.

use serde::{Deserialize, Serialize};

/// The kinds of container runtime that we know how to configure.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distribution {
    /// containerd as its own project or a Linux distribution ships it.
    Containerd,
    /// The containerd of k3s.
    K3s,
    /// The containerd of RKE2.
    Rke2,
    /// The containerd of k0s.
    K0s,
    /// The containerd of MicroK8s.
    Microk8s,
    /// CRI-O.
    Crio,
}

/// A container runtime on a node.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its kind.
    pub distribution: Distribution,
    /// The unit to restart; `None` if the runtime reads changes by itself.
    pub unit: Option<String>,
    /// Its CRI socket.
    pub socket: String,
    /// The configuration file that it is started with.
    pub main: String,
    /// The file to which an import may be added; `None` if the import must be there already.
    pub editable: Option<String>,
    /// The folder for a drop-in if the configuration imports none.
    pub drop_ins: String,
    /// The program that prints the merged configuration, if there is one.
    pub program: Option<String>,
}

impl Distribution {
    /// Whether it is a container runtime by itself, and not a part of a distribution of Kubernetes.
    pub(crate) fn is_plain(self) -> bool {
        matches!(self, Self::Containerd | Self::Crio)
    }
}

impl Site {
    /// Whether a drop-in replaces the whole section of a plugin: containerd before 2.0 does that, and k0s
    /// merges drop-ins key by key before its containerd reads them.
    pub(crate) fn replaces_sections(&self, version: (u32, u32)) -> bool {
        version.0 < 2 && !matches!(self.distribution, Distribution::Crio | Distribution::K0s)
    }
}
