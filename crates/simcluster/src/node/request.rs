//! What a pod takes of a node, and what a node has for pods.

use serde_json::Value;

use super::pod;
use crate::quantity;

/// What a pod takes of a node: CPU and memory in thousandths of their units, and places for pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Request {
    /// Thousandths of a CPU.
    pub cpu: i64,
    /// Thousandths of a byte.
    pub memory: i64,
    /// Pods.
    pub pods: i64,
}

impl Request {
    /// Adds what another one takes.
    pub fn add(&mut self, other: &Self) {
        self.cpu = self.cpu.saturating_add(other.cpu);
        self.memory = self.memory.saturating_add(other.memory);
        self.pods += other.pods;
    }

    /// Takes away what another one takes.
    pub fn remove(&mut self, other: &Self) {
        self.cpu = self.cpu.saturating_sub(other.cpu);
        self.memory = self.memory.saturating_sub(other.memory);
        self.pods -= other.pods;
    }
}

/// What a pod takes: the sum of its containers or the largest of those before them, and the
/// overhead of its class.
pub fn request(pod: &Value) -> Request {
    let of = |container: &Value, resource: &str| {
        let amount = |field: &str| {
            container["resources"][field][resource].as_str().and_then(quantity::milli)
        };
        amount("requests").or_else(|| amount("limits")).unwrap_or(0)
    };
    let total = |resource: &str| {
        let sum = pod::containers(pod).map(|c| of(c, resource)).fold(0, i64::saturating_add);
        let first = pod::init_containers(pod).map(|c| of(c, resource)).max().unwrap_or(0);
        let overhead =
            pod["spec"]["overhead"][resource].as_str().and_then(quantity::milli).unwrap_or(0);
        sum.max(first).saturating_add(overhead)
    };
    Request { cpu: total("cpu"), memory: total("memory"), pods: 1 }
}

/// What pods may take of a node.
pub fn allocatable(node: &Value) -> Request {
    let amount = |resource: &str| {
        let value = &node["status"]["allocatable"][resource];
        value.as_str().and_then(quantity::milli).unwrap_or(0)
    };
    Request { cpu: amount("cpu"), memory: amount("memory"), pods: amount("pods") / 1000 }
}
