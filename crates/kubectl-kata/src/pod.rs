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
    pub(crate) uid: String,
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
#[serde(rename_all = "camelCase")]
pub(crate) struct Container {
    #[serde(default)]
    pub(crate) name: String,
    /// `Always` makes a sidecar of an init container.
    #[serde(default)]
    pub(crate) restart_policy: String,
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

impl Container {
    /// Whether an init container runs as long as the pod.
    fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }
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
    pub(crate) conditions: Vec<Condition>,
    #[serde(default)]
    pub(crate) init_container_statuses: Vec<ContainerStatus>,
    #[serde(default)]
    pub(crate) container_statuses: Vec<ContainerStatus>,
}

/// A condition of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Condition {
    #[serde(default, rename = "type")]
    pub(crate) type_: String,
    #[serde(default)]
    pub(crate) status: String,
}

/// What the kubelet says of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ContainerStatus {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) ready: bool,
    #[serde(default)]
    pub(crate) started: bool,
    #[serde(default)]
    pub(crate) restart_count: i64,
    #[serde(default)]
    pub(crate) state: BTreeMap<String, State>,
}

/// A state of a container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct State {
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) exit_code: i64,
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
        if let Some(init) = self.shown_init() {
            return format!("Init:{init}");
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

    /// The first init container that is not done, as kubectl shows it: `CrashLoopBackOff` or `1/2`.
    fn shown_init(&self) -> Option<String> {
        let is_initialized = self
            .status
            .conditions
            .iter()
            .any(|it| it.type_ == "Initialized" && it.status == "True");
        if is_initialized || self.is_finished() {
            return None;
        }
        let all = &self.status.init_container_statuses;
        let is_sidecar = |name: &str| {
            let specs = &self.spec.init_containers;
            specs.iter().any(|spec| spec.name == name && spec.is_sidecar())
        };
        let is_done = |status: &ContainerStatus| {
            let ended = status.state.get("terminated");
            ended.is_some_and(|it| it.exit_code == 0)
                || (status.started && is_sidecar(&status.name))
        };
        let (at, status) = all.iter().enumerate().find(|(_, status)| !is_done(status))?;
        let reason = status.state.values().map(|detail| detail.reason.as_str()).find(|reason| {
            !reason.is_empty() && *reason != "PodInitializing" && *reason != "ContainerCreating"
        });
        Some(reason.map_or_else(|| format!("{at}/{}", all.len()), str::to_owned))
    }

    /// Its controller, such as `ReplicaSet/web-5d4`.
    pub(crate) fn owner(&self) -> Option<String> {
        self.metadata
            .owner_references
            .iter()
            .find(|owner| owner.controller == Some(true))
            .map(|owner| format!("{}/{}", owner.kind, owner.name))
    }

    /// What it takes of a node, in thousandths, its sandbox included: the sum of its containers and sidecars, or the
    /// largest sum while its init containers run, and the overhead.
    pub(crate) fn takes(&self, resource: &str) -> i128 {
        let of = |container: &Container| {
            let Resources { requests, limits } = &container.resources;
            requests.get(resource).or_else(|| limits.get(resource)).and_then(Amount::milli)
        };
        let (mut sidecars, mut first) = (0, 0);
        for container in &self.spec.init_containers {
            let takes = of(container).unwrap_or(0);
            first = first.max(sidecars + takes);
            if container.is_sidecar() {
                sidecars += takes;
            }
        }
        let sum = sidecars + self.spec.containers.iter().filter_map(of).sum::<i128>();
        let overhead = self.spec.overhead.get(resource).and_then(|text| quantity(text));
        sum.max(first) + overhead.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn init_containers_and_sidecars_are_shown_and_counted_as_kubectl_and_the_scheduler_do() {
        let with = |name: &str, memory: &str| json!({"name": name, "resources": {"requests": {"memory": memory}}});
        let mut log = with("log", "2Gi");
        log["restartPolicy"] = json!("Always");
        let mut pod = json!({
            "spec": {
                "initContainers": [with("a", "3Gi"), log, with("b", "4Gi")],
                "containers": [with("app", "1Gi")], "overhead": {"memory": "1Gi"},
            },
            "status": {"phase": "Pending"},
        });
        let of = |pod: &serde_json::Value| serde_json::from_value::<Pod>(pod.clone()).unwrap();
        // b beside the sidecar, and the sandbox.
        assert_eq!(of(&pod).takes("memory"), quantity("7Gi").unwrap());
        let ended = |code: i64| json!({"terminated": {"exitCode": code, "reason": "Error"}});
        let waits = json!({"waiting": {"reason": "PodInitializing"}});
        for (log, b, shown) in [
            (waits.clone(), waits.clone(), "Init:1/3"),
            (json!({"running": {}}), ended(3), "Init:Error"),
            (json!({"running": {}}), ended(0), "Pending"),
        ] {
            let started = log["running"].is_object();
            pod["status"]["initContainerStatuses"] = json!([
                {"name": "a", "state": ended(0)},
                {"name": "log", "started": started, "state": log},
                {"name": "b", "state": b},
            ]);
            assert_eq!(of(&pod).shown_status(), shown);
        }
    }
}
