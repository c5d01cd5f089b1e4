//! The node lifecycle controller: it taints nodes that are cordoned, not ready or short of something, declares
//! silent ones unknown, and evicts and collects their pods.
//!
//! Silence is read from the host's power, not from Leases: idle nodes write none.

use std::time::Duration;

use serde_json::{Value, json};

use super::{PodIndex, pod};
use crate::api::server::DeleteOptions;
use crate::api::{Event, EventKind};
use crate::recorder::{self, Occurrence, condition, note, record, set_condition};
use crate::resource::{NODES, PODS};
use crate::simulation::{Context, Controller};
use crate::world::Host;

/// How long a kubelet may be silent (`--node-monitor-grace-period`, OpenShift's default).
pub const MONITOR_GRACE: Duration = Duration::from_secs(40);
/// How long the pods of a deleted node stay.
const COLLECT: Duration = Duration::from_secs(20);

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// What keeps new pods away while it is `True`: the condition and the key of its taint.
const SHORTAGES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
];

/// The node lifecycle controller.
#[derive(Debug, Default)]
pub struct NodeLifecycle {
    pods: PodIndex,
}

impl Controller for NodeLifecycle {
    fn name(&self) -> &'static str {
        "node-controller"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        self.pods.observe(event);
        if event.resource == PODS && event.kind == EventKind::Added {
            let node = event.current["spec"]["nodeName"].as_str().unwrap_or_default();
            if !node.is_empty() && cx.api.get(&NODES, "", node).is_none() {
                cx.after(format!("collect/{node}"), COLLECT);
            }
        }
        if event.resource != NODES {
            return;
        }
        let name = &event.name;
        if event.kind == EventKind::Deleted {
            cx.after(format!("collect/{name}"), COLLECT);
        } else if wanted_taints(&event.current, "").is_some()
            || event.kind == EventKind::Added && drives_away(&event.current)
            || event.previous.as_ref().is_some_and(|old| {
                condition(old, "Ready") != condition(&event.current, "Ready")
                    || old["spec"]["taints"] != event.current["spec"]["taints"]
            })
        {
            cx.after(format!("taint/{name}"), Duration::ZERO);
        }
    }

    fn host_changed(&mut self, host: &str, cx: &mut Context<'_>) {
        if cx.world.hosts.get(host).is_some_and(Host::is_up) {
            cx.cancel(&format!("monitor/{host}"));
        } else {
            cx.after(format!("monitor/{host}"), MONITOR_GRACE);
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let mut parts = key.splitn(3, '/');
        let verb = parts.next().unwrap_or_default();
        let name = parts.next().unwrap_or_default();
        match verb {
            "taint" => self.taint(name, cx),
            "monitor" => declare_unknown(name, cx),
            "collect" if cx.api.get(&NODES, "", name).is_none() => {
                let now = DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() };
                for (namespace, pod) in self.pods.on(name) {
                    note("pod", cx.api.delete(cx.writer(), &PODS, &namespace, &pod, &now));
                }
            }
            "evict" => evict(name, parts.next().unwrap_or_default(), cx),
            _ => {}
        }
    }
}

impl NodeLifecycle {
    fn taint(&mut self, name: &str, cx: &mut Context<'_>) {
        let Some(mut node) = cx.api.get(&NODES, "", name) else { return };
        if let Some(taints) = wanted_taints(&node, &recorder::time(cx.now)) {
            let patch = json!({"spec": {"taints": taints}});
            if let Some(new) = note("node", cx.api.merge(cx.writer(), &NODES, "", name, &patch)) {
                node = new;
            }
        }
        let ready = condition(&node, "Ready") == "True";
        for (namespace, pod_name) in self.pods.on(name) {
            let evict = format!("evict/{namespace}/{pod_name}");
            let Some(pod) = cx.api.get(&PODS, &namespace, &pod_name) else { continue };
            match patience(&pod, &node) {
                Patience::Unlimited => cx.cancel(&evict),
                Patience::Limited(wait) => cx.after(evict, wait),
            }
            if !ready && pod::is_ready(&pod) {
                let mut new = (*pod).clone();
                set_condition(&mut new["status"]["conditions"], "Ready", "False", "", "", cx.now);
                note("pod", cx.api.update_status(cx.writer(), &PODS, &namespace, new));
                let occurrence = Occurrence {
                    object: &pod,
                    warning: true,
                    reason: "NodeNotReady",
                    message: "Node is not ready",
                    component: "node-controller",
                    host: "",
                };
                record(cx.api, cx.now, &occurrence);
            }
        }
    }
}

/// The taints that the node should have; `None` if it has them.
fn wanted_taints(node: &Value, now: &str) -> Option<Vec<Value>> {
    let old: Vec<Value> = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let mut wanted = Vec::new();
    match condition(node, "Ready") {
        "True" => {}
        "False" => wanted.extend([(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
        _ => wanted.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
    }
    if node["spec"]["unschedulable"] == true {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let short = SHORTAGES.iter().filter(|(kind, _)| condition(node, kind) == "True");
    wanted.extend(short.map(|(_, key)| (*key, "NoSchedule")));
    let is = |taint: &Value, (key, effect): (&str, &str)| {
        taint["key"] == key && taint["effect"] == effect
    };
    let ours = |taint: &Value| {
        let shortages = SHORTAGES.iter().map(|(_, key)| *key);
        [NOT_READY, UNREACHABLE, UNSCHEDULABLE]
            .into_iter()
            .chain(shortages)
            .any(|key| taint["key"] == key)
    };
    let mut new: Vec<Value> = old
        .iter()
        .filter(|taint| !ours(taint) || wanted.iter().any(|want| is(taint, *want)))
        .cloned()
        .collect();
    for want in wanted {
        if !new.iter().any(|taint| is(taint, want)) {
            new.push(json!({"key": want.0, "effect": want.1, "timeAdded": now}));
        }
    }
    (new != old).then_some(new)
}

/// Whether the node has taints that pods must leave for.
fn drives_away(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.into_iter().flatten().any(|taint| taint["effect"] == "NoExecute")
}

enum Patience {
    Unlimited,
    Limited(Duration),
}

/// How long the pod may stay on the node under its `NoExecute` taints.
fn patience(pod: &Value, node: &Value) -> Patience {
    let mut patience = Patience::Unlimited;
    for taint in node["spec"]["taints"].as_array().into_iter().flatten() {
        if taint["effect"] != "NoExecute" {
            continue;
        }
        let tolerations = pod["spec"]["tolerations"].as_array();
        let mut tolerating =
            tolerations.into_iter().flatten().filter(|t| tolerates(t, taint)).peekable();
        if tolerating.peek().is_none() {
            return Patience::Limited(Duration::ZERO);
        }
        let seconds = tolerating.filter_map(|t| t["tolerationSeconds"].as_u64()).min();
        if let Some(seconds) = seconds.map(Duration::from_secs) {
            patience = match patience {
                Patience::Limited(old) if old <= seconds => Patience::Limited(old),
                _ => Patience::Limited(seconds),
            };
        }
    }
    patience
}

/// Whether a toleration covers a taint.
pub fn tolerates(toleration: &Value, taint: &Value) -> bool {
    fn text<'a>(object: &'a Value, field: &str) -> &'a str {
        object[field].as_str().unwrap_or_default()
    }
    let (effect, key) = (text(toleration, "effect"), text(toleration, "key"));
    let exists = toleration["operator"] == "Exists";
    (effect.is_empty() || text(taint, "effect") == effect)
        && (if key.is_empty() { exists } else { text(taint, "key") == key })
        && (exists || text(toleration, "value") == text(taint, "value"))
}

fn declare_unknown(name: &str, cx: &mut Context<'_>) {
    if cx.world.hosts.get(name).is_some_and(Host::is_up) {
        return;
    }
    let Some(node) = cx.api.get(&NODES, "", name) else { return };
    let mut new = (*node).clone();
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"] {
        let message = "Kubelet stopped posting node status.";
        let conditions = &mut new["status"]["conditions"];
        set_condition(conditions, kind, "Unknown", "NodeStatusUnknown", message, cx.now);
    }
    note("node", cx.api.update_status(cx.writer(), &NODES, "", new));
}

fn evict(namespace: &str, name: &str, cx: &mut Context<'_>) {
    let Some(pod) = cx.api.get(&PODS, namespace, name) else { return };
    if pod::is_deleting(&pod) {
        return;
    }
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let Some(node) = cx.api.get(&NODES, "", node) else { return };
    if matches!(patience(&pod, &node), Patience::Limited(_)) {
        let occurrence = Occurrence {
            object: &pod,
            warning: false,
            reason: "TaintManagerEviction",
            message: &format!("Marking for deletion Pod {namespace}/{name}"),
            component: "taint-eviction-controller",
            host: "",
        };
        record(cx.api, cx.now, &occurrence);
        note("pod", cx.api.delete(cx.writer(), &PODS, namespace, name, &DeleteOptions::default()));
    }
}
