//! The DaemonSet controller: one pod on every node that the template admits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::owned::{Maker, Owned, split, write_status};
use crate::api::{Event, EventKind};
use crate::node::lifecycle::tolerates;
use crate::node::pod;
use crate::resource::{DAEMONSETS, NODES, PODS};
use crate::selector;
use crate::simulation::{Context, Controller};
use crate::world::identity;

const HASH: &str = "controller-revision-hash";

/// The DaemonSet controller.
#[derive(Debug)]
pub struct DaemonSets {
    pods: Owned,
}

impl Default for DaemonSets {
    fn default() -> Self {
        Self { pods: Owned::by("DaemonSet") }
    }
}

impl Controller for DaemonSets {
    fn name(&self) -> &'static str {
        "daemonset-controller"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource == DAEMONSETS {
            cx.after(format!("{}/{}", event.namespace, event.name), Duration::ZERO);
        } else if event.resource == PODS {
            if let Some((namespace, name)) = self.pods.observe(event) {
                cx.after(format!("{namespace}/{name}"), Duration::ZERO);
            }
        } else if event.resource == NODES {
            let moved = event.kind != EventKind::Modified
                || event.previous.as_ref().is_none_or(|old| {
                    old["metadata"]["labels"] != event.current["metadata"]["labels"]
                        || old["spec"]["taints"] != event.current["spec"]["taints"]
                });
            if moved {
                for set in cx.api.list(&DAEMONSETS) {
                    let text = |field: &str| set["metadata"][field].as_str().unwrap_or_default();
                    cx.after(format!("{}/{}", text("namespace"), text("name")), Duration::ZERO);
                }
            }
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let (namespace, name) = split(key);
        let Some(set) = cx.api.get(&DAEMONSETS, namespace, name) else { return };
        if !set["metadata"]["deletionTimestamp"].is_null() {
            return;
        }
        let maker = Maker {
            owner: &set,
            api_version: "apps/v1",
            kind: "DaemonSet",
            component: "daemonset-controller",
        };
        let hash = identity::suffix(&set["spec"]["template"].to_string(), 10);
        let mut by_node: BTreeMap<String, Vec<Arc<Value>>> = BTreeMap::new();
        for pod in self.pods.pods(&set, cx) {
            by_node.entry(target(&pod)).or_default().push(pod);
        }
        let mut tally = Tally::default();
        for node in cx.api.list(&NODES) {
            let node_name = node["metadata"]["name"].as_str().unwrap_or_default();
            let pods = by_node.remove(node_name).unwrap_or_default();
            let (runs, stays) = placement(&set["spec"]["template"]["spec"], &node);
            let alive: Vec<_> = pods
                .iter()
                .filter(|pod| !pod::is_finished(pod) && !pod::is_deleting(pod))
                .collect();
            for pod in pods.iter().filter(|pod| pod::is_finished(pod)) {
                maker.delete(pod, cx);
            }
            if !stays {
                tally.misscheduled += alive.len();
                alive.iter().for_each(|pod| maker.delete(pod, cx));
                continue;
            }
            tally.count(runs, alive.first().map(|pod| &***pod), &hash);
            if alive.is_empty() && runs {
                let created = maker.create(node_name, cx, |pod| pin(pod, node_name, &hash));
                if created.is_none() {
                    cx.after(key, Duration::from_secs(15));
                    break;
                }
            }
            alive.iter().skip(1).for_each(|pod| maker.delete(pod, cx));
        }
        // Pods of nodes that are gone.
        by_node.values().flatten().for_each(|pod| maker.delete(pod, cx));
        if set["spec"]["updateStrategy"]["type"] != "OnDelete" {
            self.roll(&maker, &set, &hash, cx);
        }
        write_status(cx, &DAEMONSETS, &set, tally.status(&set));
    }
}

impl DaemonSets {
    /// Replaces one pod of an older template after the other.
    fn roll(&self, maker: &Maker<'_>, set: &Value, hash: &str, cx: &mut Context<'_>) {
        let pods = self.pods.pods(set, cx);
        let limit =
            limit(&set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"], pods.len());
        let down = pods.iter().filter(|pod| !pod::is_ready(pod)).count();
        let stale = |pod: &&Arc<Value>| pod["metadata"]["labels"][HASH] != hash;
        let (ready, broken): (Vec<_>, Vec<_>) =
            pods.iter().filter(stale).partition(|pod| pod::is_ready(pod));
        broken.iter().for_each(|pod| maker.delete(pod, cx));
        for pod in ready.iter().take(limit.saturating_sub(down)) {
            maker.delete(pod, cx);
        }
    }
}

/// How many of so many pods may be down: a number, or a percentage that is rounded up.
fn limit(value: &Value, pods: usize) -> usize {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<usize>().ok());
    let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
    percent.map(|percent| (pods * percent).div_ceil(100)).or(number).unwrap_or(1)
}

/// The node for which a pod of a DaemonSet was made.
fn target(pod: &Value) -> String {
    let term = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"][0];
    pod["spec"]["nodeName"]
        .as_str()
        .filter(|name| !name.is_empty())
        .or_else(|| term["matchFields"][0]["values"][0].as_str())
        .unwrap_or_default()
        .to_owned()
}

/// Binds a pod to one node by affinity, and lets it endure what happens to nodes.
fn pin(pod: &mut Value, node: &str, hash: &str) {
    pod["metadata"]["labels"][HASH] = json!(hash);
    pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
        ],
    });
    let mut tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    tolerations.extend(standard_tolerations());
    pod["spec"]["tolerations"] = Value::Array(tolerations);
}

/// What every pod of a DaemonSet tolerates.
fn standard_tolerations() -> impl Iterator<Item = Value> {
    let endured = [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ];
    endured.into_iter().map(|(key, effect)| {
        json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": effect})
    })
}

/// Whether a pod should be made on the node, and whether one that is there may stay.
fn placement(spec: &Value, node: &Value) -> (bool, bool) {
    let labels = &node["metadata"]["labels"];
    let name = node["metadata"]["name"].as_str().unwrap_or_default();
    if !selector::pod_chooses_node(spec, labels, name) {
        return (false, false);
    }
    let standard: Vec<Value> = standard_tolerations().collect();
    let tolerated = |taint: &Value| {
        spec["tolerations"]
            .as_array()
            .into_iter()
            .flatten()
            .chain(&standard)
            .any(|toleration| tolerates(toleration, taint))
    };
    let repelled = |effects: &[&str]| {
        node["spec"]["taints"].as_array().into_iter().flatten().any(|taint| {
            effects.iter().any(|effect| taint["effect"] == *effect) && !tolerated(taint)
        })
    };
    (!repelled(&["NoSchedule", "NoExecute"]), !repelled(&["NoExecute"]))
}

#[derive(Default)]
struct Tally {
    desired: usize,
    current: usize,
    ready: usize,
    updated: usize,
    misscheduled: usize,
}

impl Tally {
    fn count(&mut self, runs: bool, pod: Option<&Value>, hash: &str) {
        self.desired += usize::from(runs);
        let Some(pod) = pod else { return };
        if !runs {
            self.misscheduled += 1;
            return;
        }
        self.current += 1;
        self.ready += usize::from(pod::is_ready(pod));
        self.updated += usize::from(pod["metadata"]["labels"][HASH] == hash);
    }

    fn status(&self, set: &Value) -> Value {
        json!({
            "observedGeneration": set["metadata"]["generation"],
            "desiredNumberScheduled": self.desired, "currentNumberScheduled": self.current,
            "numberReady": self.ready, "numberAvailable": self.ready,
            "numberUnavailable": self.desired.saturating_sub(self.ready),
            "updatedNumberScheduled": self.updated, "numberMisscheduled": self.misscheduled,
        })
    }
}
