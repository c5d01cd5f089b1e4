//! Groups of machines that an autoscaler makes for pods that wait, from zero on: their template, and what each autoscaler
//! makes of its taints.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::world::{NodeFault, Runtime, System};

/// The autoscaler whose rules a group follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AutoscalerKind {
    /// Karpenter 1: the group is a NodePool. Its `startupTaints` go by themselves, its `taints` do not.
    Karpenter,
    /// The Cluster Autoscaler 1.34: a taint goes by itself if its key has one of three prefixes.
    ClusterAutoscaler,
}

impl AutoscalerKind {
    /// Whether the autoscaler expects that a taint of new nodes goes by itself. `is_startup`: the template says so.
    pub fn is_temporary(self, key: &str, is_startup: bool) -> bool {
        const PREFIXES: [&str; 3] = [
            "startup-taint.cluster-autoscaler.kubernetes.io/",
            "status-taint.cluster-autoscaler.kubernetes.io/",
            "ignore-taint.cluster-autoscaler.kubernetes.io/",
        ];
        match self {
            Self::Karpenter => is_startup,
            Self::ClusterAutoscaler => PREFIXES.iter().any(|prefix| key.starts_with(prefix)),
        }
    }

    /// For how long a pod waits for a node that is not ready, until another node is made for it.
    pub fn patience(self) -> Option<Duration> {
        match self {
            Self::Karpenter => None,
            Self::ClusterAutoscaler => Some(Duration::from_mins(15)),
        }
    }
}

/// A group of machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeGroup {
    /// Its name, with which those of its nodes begin.
    pub name: String,
    /// Whose rules it follows.
    pub autoscaler: AutoscalerKind,
    /// The labels of its nodes.
    pub labels: BTreeMap<String, String>,
    /// Keys and effects of the taints of its nodes.
    pub taints: Vec<(String, String)>,
    /// Keys and effects of its nodes' taints of which the template says that they go by themselves.
    pub startup_taints: Vec<(String, String)>,
    /// The container runtime of its nodes; `None` for that of the kind of cluster.
    pub runtime: Option<Runtime>,
    /// The operating system of its nodes.
    pub system: Option<System>,
    /// What is wrong with its machines.
    pub fault: Option<NodeFault>,
    /// The most nodes.
    pub most: usize,
}
