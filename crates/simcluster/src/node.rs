//! Nodes as the API shows them: registration, kubelets, and the controller that watches over both.
//!
//! Hosts change in [`crate::world`]; here is what kubelets report of them and do on them.

pub mod agent;
pub mod command;
pub mod exec;
pub mod kubelet;
pub mod lifecycle;
pub mod pod;
pub mod registration;
pub mod request;

use std::collections::{BTreeMap, BTreeSet};

use crate::api::{Event, EventKind};
use crate::resource::PODS;

/// Namespace and name of a pod.
pub type PodKey = (String, String);

/// The pods that are bound to each node.
#[derive(Debug, Default)]
pub struct PodIndex {
    nodes: BTreeMap<String, BTreeSet<PodKey>>,
}

impl PodIndex {
    /// Takes a change in.
    pub fn observe(&mut self, event: &Event) {
        if event.resource != PODS {
            return;
        }
        let Some(node) = event.current["spec"]["nodeName"].as_str().filter(|n| !n.is_empty())
        else {
            return;
        };
        let key = (event.namespace.clone(), event.name.clone());
        if event.kind == EventKind::Deleted {
            if let Some(pods) = self.nodes.get_mut(node) {
                pods.remove(&key);
            }
        } else {
            self.nodes.entry(node.to_owned()).or_default().insert(key);
        }
    }

    /// The pods of a node.
    pub fn on(&self, node: &str) -> Vec<PodKey> {
        self.nodes.get(node).into_iter().flatten().cloned().collect()
    }
}
