//! Pods, with no more than what this program looks at: a list of 20,000 is read often.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;

use crate::human::quantity;

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Pod {
    #[serde(default)]
    pub(crate) metadata: Metadata,
    #[serde(default)]
    pub(crate) spec: Spec,
    #[serde(default)]
    pub(crate) status: Status,
}

/// Metadata of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(default)]
    pub(crate) creation_timestamp: Option<Timestamp>,
    #[serde(default)]
    pub(crate) deletion_timestamp: Option<Timestamp>,
    #[serde(default)]
    pub(crate) owner_references: Vec<Owner>,
}

/// What an object belongs to.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Owner {
    #[serde(default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) controller: Option<bool>,
}

/// What a pod wants.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Spec {
    #[serde(default)]
    pub(crate) node_name: Option<String>,
    #[serde(default)]
    pub(crate) runtime_class_name: Option<String>,
    #[serde(default)]
    pub(crate) overhead: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) containers: Vec<Container>,
    #[serde(default)]
    pub(crate) init_containers: Vec<Container>,
}

/// A container.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Container {
    #[serde(default)]
    pub(crate) resources: Resources,
}

/// What a container asks for.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Resources {
    #[serde(default)]
    pub(crate) requests: BTreeMap<String, Amount>,
    #[serde(default)]
    pub(crate) limits: BTreeMap<String, Amount>,
}

/// A quantity, which may be written as a number.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Amount {
    Text(String),
    Number(f64),
}

impl Amount {
    /// In thousandths.
    fn milli(&self) -> Option<i128> {
        match self {
            Self::Text(text) => quantity(text),
            Self::Number(number) => quantity(&number.to_string()),
        }
    }
}

/// What the kubelet says of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    #[serde(default)]
    pub(crate) phase: String,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) container_statuses: Vec<ContainerStatus>,
}

/// What the kubelet says of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerStatus {
    #[serde(default)]
    pub(crate) ready: bool,
    #[serde(default)]
    pub(crate) restart_count: i64,
    #[serde(default)]
    pub(crate) state: BTreeMap<String, State>,
}

/// A state of a container.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct State {
    #[serde(default)]
    pub(crate) reason: String,
}

impl Pod {
    /// Its RuntimeClass.
    pub(crate) fn class(&self) -> Option<&str> {
        self.spec.runtime_class_name.as_deref().filter(|class| !class.is_empty())
    }

    /// The node that it is bound to.
    pub(crate) fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref().filter(|node| !node.is_empty())
    }

    /// Whether nothing of it runs any more.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Containers that are ready.
    pub(crate) fn ready(&self) -> usize {
        self.status.container_statuses.iter().filter(|status| status.ready).count()
    }

    /// The status as kubectl shows it.
    pub(crate) fn shown_status(&self) -> String {
        if self.metadata.deletion_timestamp.is_some() {
            return "Terminating".to_owned();
        }
        let reason = self
            .status
            .container_statuses
            .iter()
            .flat_map(|status| &status.state)
            .find(|(state, detail)| state.as_str() != "running" && !detail.reason.is_empty())
            .map(|(_, detail)| detail.reason.clone());
        let fallback = [&self.status.reason, &self.status.phase]
            .into_iter()
            .find(|text| !text.is_empty())
            .cloned()
            .unwrap_or_default();
        reason.unwrap_or(fallback)
    }

    /// Its controller, such as `ReplicaSet/web-5d4`.
    pub(crate) fn owner(&self) -> Option<String> {
        self.metadata
            .owner_references
            .iter()
            .find(|owner| owner.controller == Some(true))
            .map(|owner| format!("{}/{}", owner.kind, owner.name))
    }

    /// What it takes of a node, in thousandths, its sandbox included: the sum of its containers, or the
    /// largest of those before them, and the overhead.
    pub(crate) fn takes(&self, resource: &str) -> i128 {
        let of = |container: &Container| {
            let Resources { requests, limits } = &container.resources;
            requests.get(resource).or_else(|| limits.get(resource)).and_then(Amount::milli)
        };
        let sum: i128 = self.spec.containers.iter().filter_map(of).sum();
        let first = self.spec.init_containers.iter().filter_map(of).max().unwrap_or(0);
        let overhead = self.spec.overhead.get(resource).and_then(|text| quantity(text));
        sum.max(first) + overhead.unwrap_or(0)
    }
}
