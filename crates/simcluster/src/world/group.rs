//! Groups of machines that an autoscaler makes for pods that wait, from zero on: their template, and which taints each
//! autoscaler takes for temporary.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::world::{NodeFault, Runtime, System};

/// The autoscaler whose rules a group follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AutoscalerKind {
    /// Karpenter 1: the group is a NodePool. Its `startupTaints` are temporary, its `taints` are not.
    Karpenter,
    /// The Cluster Autoscaler 1.34: a taint is temporary if its key has one of three prefixes.
    ClusterAutoscaler,
}

impl AutoscalerKind {
    /// Whether a taint of new nodes is temporary for the autoscaler. `is_startup`: it is a startup taint of the template.
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

    /// How long a pod waits for a node with a temporary taint until another node is made for it; `None` for ever.
    pub fn not_ready_timeout(self) -> Option<Duration> {
        match self {
            Self::Karpenter => None,
            Self::ClusterAutoscaler => Some(Duration::from_mins(15)),
        }
    }
}

/// A group of machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeGroup {
    /// The prefix of its nodes' names.
    pub name: String,
    /// Whose rules it follows.
    pub autoscaler: AutoscalerKind,
    /// The labels of its nodes.
    pub labels: BTreeMap<String, String>,
    /// Keys and effects of the taints of its nodes.
    pub taints: Vec<(String, String)>,
    /// Keys and effects of the startup taints of the template.
    pub startup_taints: Vec<(String, String)>,
    /// The container runtime of its nodes; `None` for that of the kind of cluster.
    pub runtime: Option<Runtime>,
    /// The operating system of its nodes.
    pub system: Option<System>,
    /// What is wrong with its machines.
    pub fault: Option<NodeFault>,
    /// The maximum number of nodes.
    pub max_nodes: usize,
}
