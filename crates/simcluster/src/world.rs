//! What exists outside the API: the hosts behind the Node objects.
//!
//! Nothing here is visible to the operator except through what kubelets and daemons report.

pub mod agent;
pub mod containerd;
pub mod crio;
pub mod fault;
pub mod foreign;
pub mod group;
pub mod host;
pub mod identity;
pub mod sandbox;
pub mod system;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use fault::{FAULT_NAMES, NodeFault};
pub use group::{AutoscalerKind, NodeGroup};
pub use host::{Container, Host, HostSpec, Power, Process};
pub use sandbox::{Sandbox, VirtualMachine};
pub use system::System;

use crate::api::ApiServer;
use crate::node::PodKey;
use crate::node::agent::Ending;
use crate::openshift::lifecycle::Catalog;
use crate::simulation::Context;

/// The kind of cluster that the hosts make up.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Platform {
    /// OpenShift: hosts run RHCOS and CRI-O, and the Machine Config Operator changes them.
    #[default]
    OpenShift,
    /// Any other Kubernetes.
    Kubernetes,
}

impl Platform {
    /// As options and messages have it.
    pub fn option(self) -> &'static str {
        match self {
            Self::OpenShift => "openshift",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// A container runtime that hosts can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Runtime {
    /// CRI-O.
    Crio,
    /// containerd 1.7: a drop-in replaces a plugin's whole section, and CRI lists no handlers.
    Containerd1,
    /// containerd 2.
    Containerd2,
    /// The containerd 2 of k3s. It is one unit with the kubelet, which restarts with it.
    K3s,
}

impl std::str::FromStr for Runtime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "crio" => Ok(Self::Crio),
            "containerd-1.7" => Ok(Self::Containerd1),
            "containerd-2" => Ok(Self::Containerd2),
            "k3s" => Ok(Self::K3s),
            _ => Err(format!(
                "unknown container runtime {text:?}: give crio, containerd-1.7, containerd-2 or k3s"
            )),
        }
    }
}

impl std::str::FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "openshift" => Ok(Self::OpenShift),
            "kubernetes" => Ok(Self::Kubernetes),
            _ => Err(format!("unknown platform {text:?}: give openshift or kubernetes")),
        }
    }
}

/// What the process of a container comes to when it starts, if it is a program that ends by itself: given
/// the cluster's API as it is then, the pod and the container.
pub type Program = fn(&ApiServer, &Value, &Value) -> Option<Ending>;

/// The hosts by node name, and the settings of the simulated site.
#[derive(Debug, Default)]
pub struct World {
    /// The hosts by node name.
    pub hosts: BTreeMap<String, Host>,
    /// The kind of the cluster.
    pub platform: Platform,
    /// The groups of machines that an autoscaler makes.
    pub groups: Vec<NodeGroup>,
    /// Programs that containers may run besides the few that every host knows.
    pub programs: Vec<Program>,
    /// What the images of CatalogSources offer; without it, nothing.
    pub catalog: Option<Catalog>,
    /// The cluster's time, for what hosts answer by themselves; the simulation sets it.
    pub now: Timestamp,
    changed: BTreeSet<String>,
    changes: u64,
    exits: Vec<Exit>,
}

/// A container that was ended by its input.
#[derive(Debug)]
pub(crate) struct Exit {
    /// The node.
    pub(crate) node: String,
    /// The pod's namespace and name.
    pub(crate) pod: PodKey,
    /// The container's name in the pod.
    pub(crate) container: String,
    /// Its exit code.
    pub(crate) code: i32,
}

impl World {
    /// A world without hosts.
    pub fn starting_at(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }

    /// Tells the controllers that the host changed outside the API; they see it in
    /// [`crate::Controller::host_changed`].
    pub fn touch(&mut self, host: &str) {
        self.changes += 1;
        self.changed.insert(host.to_owned());
    }

    /// Ends a container.
    pub(crate) fn end_container(&mut self, exit: Exit) {
        self.touch(&exit.node);
        self.exits.push(exit);
    }

    /// The containers of a node that have ended since the last call.
    pub(crate) fn take_exits(&mut self, node: &str) -> Vec<Exit> {
        self.exits.extract_if(.., |exit| exit.node == node).collect()
    }

    /// How many changes [`World::touch`] told of.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The hosts that changed since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }
}

impl Context<'_> {
    /// Reboots a host that is down for `takes` of cluster time; a slow host takes longer, a faulty
    /// one stays down. The node's kubelet starts it again and reports both.
    pub fn reboot_host(&mut self, host: &str, takes: Duration) {
        let Some(factor) = self.world.hosts.get(host).map(Host::slowness) else { return };
        let until = self.deadline(takes.saturating_mul(factor));
        if let Some(found) = self.world.hosts.get_mut(host) {
            found.reboot(until);
        }
        self.world.touch(host);
    }
}
