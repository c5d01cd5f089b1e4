//! The ReplicaSet controller: as many pods as wanted.

use std::time::Duration;

use serde_json::{Value, json};

use super::owned::{BURST, Maker, Owned, split, write_status};
use crate::api::Event;
use crate::node::pod;
use crate::resource::{PODS, REPLICASETS};
use crate::simulation::{Context, Controller};

/// The ReplicaSet controller.
#[derive(Debug)]
pub struct ReplicaSets {
    pods: Owned,
}

impl Default for ReplicaSets {
    fn default() -> Self {
        Self { pods: Owned::by("ReplicaSet") }
    }
}

impl Controller for ReplicaSets {
    fn name(&self) -> &'static str {
        "replicaset-controller"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource == REPLICASETS {
            cx.after(format!("{}/{}", event.namespace, event.name), Duration::ZERO);
        } else if event.resource == PODS
            && let Some((namespace, name)) = self.pods.observe(event)
        {
            cx.after(format!("{namespace}/{name}"), Duration::ZERO);
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let (namespace, name) = split(key);
        let Some(set) = cx.api.get(&REPLICASETS, namespace, name) else { return };
        if !set["metadata"]["deletionTimestamp"].is_null() {
            return;
        }
        let maker = Maker {
            owner: &set,
            api_version: "apps/v1",
            kind: "ReplicaSet",
            component: "replicaset-controller",
        };
        let wanted = usize::try_from(set["spec"]["replicas"].as_u64().unwrap_or(1)).unwrap_or(0);
        let mut pods = self.pods.pods(&set, cx);
        pods.retain(|pod| !pod::is_finished(pod) && !pod::is_deleting(pod));
        if pods.len() > wanted {
            // Those that serve least go first.
            pods.sort_by_key(|pod| (pod::is_ready(pod), pod["status"]["phase"] == "Running"));
            for pod in pods.drain(..pods.len() - wanted) {
                maker.delete(&pod, cx);
            }
        }
        for attempt in pods.len()..wanted.min(pods.len() + BURST) {
            let Some(created) = maker.create(&attempt.to_string(), cx, |_| ()) else {
                cx.after(key, Duration::from_secs(15));
                break;
            };
            pods.push(created);
        }
        let ready = pods.iter().filter(|pod| pod::is_ready(pod)).count();
        write_status(cx, &REPLICASETS, &set, status(&set, pods.len(), ready));
    }
}

fn status(set: &Value, replicas: usize, ready: usize) -> Value {
    json!({
        "replicas": replicas, "fullyLabeledReplicas": replicas, "readyReplicas": ready,
        "availableReplicas": ready, "observedGeneration": set["metadata"]["generation"],
    })
}
