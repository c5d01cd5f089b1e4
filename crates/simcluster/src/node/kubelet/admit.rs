//! Which pods a kubelet admits to its node: each pod once when it is bound, and every pod again when the
//! kubelet starts.
//!
//! The predicates are those of the real kubelet (`pkg/kubelet/lifecycle/predicate.go` and the admission of its
//! eviction manager). They read the pod and the Node object, never the host.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Kubelets, STOP, Stage, key_of, tell, write_status};
use crate::node::PodKey;
use crate::node::lifecycle::tolerates;
use crate::node::request::{Request, allocatable, request};
use crate::recorder::{condition, time};
use crate::resource::NODES;
use crate::selector;
use crate::simulation::Context;

/// The lowest priority of the pods that a node needs itself.
const SYSTEM_CRITICAL: i64 = 2_000_000_000;

/// The conditions of a pod that its kubelet owns.
const KUBELET_CONDITIONS: [&str; 5] =
    ["PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"];

/// Why a kubelet does not admit a pod.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    reason: &'static str,
    message: String,
}

impl Refusal {
    fn new(reason: &'static str, message: impl Into<String>) -> Option<Self> {
        Some(Self { reason, message: message.into() })
    }
}

/// When a pod is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The pod was bound to the node.
    Binding,
    /// The kubelet starts, and the pod was bound before.
    KubeletStart,
}

/// Why a pod is not admitted beside those that use so much of the node.
fn refusal(pod: &Value, node: &Value, used: &Request, occasion: Occasion) -> Option<Refusal> {
    // A static pod is judged by its file; its mirror in the API is not.
    if pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string() {
        return None;
    }
    // A kubelet that starts has not measured its disk yet.
    if occasion == Occasion::Binding
        && condition(node, "DiskPressure") == "True"
        && pod["spec"]["priority"].as_i64().unwrap_or(0) < SYSTEM_CRITICAL
    {
        return Refusal::new("Evicted", "The node had condition: [DiskPressure]. ");
    }
    let (spec, labels) = (&pod["spec"], &node["metadata"]["labels"]);
    let name = node["metadata"]["name"].as_str().unwrap_or_default();
    if let Some(refusal) = out_of(&request(pod), &allocatable(node), used) {
        return Some(refusal);
    }
    if !selector::pod_chooses_node(spec, labels, name) {
        let message =
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        return Refusal::new("NodeAffinity", message);
    }
    let tolerated = |taint: &Value| {
        spec["tolerations"].as_array().into_iter().flatten().any(|it| tolerates(it, taint))
    };
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    if taints.any(|taint| taint["effect"] == "NoExecute" && !tolerated(taint)) {
        let message =
            "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate";
        return Refusal::new("TaintToleration", message);
    }
    None
}

/// What a node has too little of.
fn out_of(wanted: &Request, all: &Request, used: &Request) -> Option<Refusal> {
    let found = [
        ("OutOfpods", "pods", wanted.pods, used.pods, all.pods),
        ("OutOfcpu", "cpu", wanted.cpu, used.cpu, all.cpu),
        ("OutOfmemory", "memory", wanted.memory / 1000, used.memory / 1000, all.memory / 1000),
    ]
    .into_iter()
    .find(|(_, _, wanted, used, all)| *wanted > 0 && used.saturating_add(*wanted) > *all);
    found.and_then(|(reason, resource, wanted, used, all)| {
        Refusal::new(
            reason,
            format!(
                "Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, \
                 capacity: {all}"
            ),
        )
    })
}

/// The status of a pod that was refused: what the kubelet reported of its containers is gone.
fn refused(pod: &Value, refusal: &Refusal, now: Timestamp) -> Value {
    let old = &pod["status"];
    let conditions = old["conditions"].as_array().into_iter().flatten();
    let foreign = conditions.filter(|it| !KUBELET_CONDITIONS.iter().any(|own| it["type"] == *own));
    let mut status = json!({
        "phase": "Failed", "reason": refusal.reason,
        "message": format!("Pod was rejected: {}", refusal.message),
        "conditions": foreign.collect::<Vec<_>>(),
        "startTime": old["startTime"].as_str().map_or_else(|| time(now), str::to_owned),
    });
    if !old["qosClass"].is_null() {
        status["qosClass"] = old["qosClass"].clone();
    }
    status
}

impl Kubelets {
    /// Admits a pod beside those that use so much of the node, or fails it and stops what runs of it; returns
    /// whether it was admitted.
    pub(super) fn admit(
        &mut self,
        key: &PodKey,
        pod: &Value,
        used: &Request,
        occasion: Occasion,
        cx: &mut Context<'_>,
    ) -> bool {
        let name = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let Some(node) = cx.api.get(&NODES, "", name) else { return true };
        let Some(refusal) = refusal(pod, &node, used, occasion) else { return true };
        tell(cx, pod, true, refusal.reason, &refusal.message, name);
        write_status(cx, pod, refused(pod, &refusal, cx.now));
        if let Some(run) = self.runs.get_mut(key) {
            run.stage = Stage::Running;
        }
        cx.after(key_of("stop", key), STOP);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(spec: &Value, disk_pressure: &str) -> Value {
        json!({
            "metadata": {"name": "worker-0", "labels": {"has-kata": "true"}},
            "spec": spec,
            "status": {
                "conditions": [{"type": "DiskPressure", "status": disk_pressure}],
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            },
        })
    }

    #[test]
    fn the_predicates_are_those_of_the_real_kubelet() {
        let selects = |key: &str| json!({"spec": {"nodeSelector": {(key): "true"}}});
        let requires = |key: &str| {
            json!({"spec": {"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": key, "operator": "Exists"}]}]}}}}})
        };
        let tainted = |effect: &str| {
            node(&json!({"taints": [{"key": "leaving", "effect": effect}]}), "False")
        };
        let tolerant = json!({"spec": {"tolerations": [
            {"key": "leaving", "operator": "Exists", "tolerationSeconds": 5}]}});
        let mut mirror = selects("other");
        mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("hash");
        let critical = json!({"spec": {"priority": SYSTEM_CRITICAL}});
        let (sound, full) = (node(&json!({}), "False"), node(&json!({}), "True"));
        let takes = |cpu: &str| json!({"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]}});
        let used = Request { cpu: 2_000, memory: 0, pods: 1 };
        let cordoned = node(&json!({"unschedulable": true}), "Unknown");
        use Occasion::{Binding, KubeletStart};
        for (pod, node, occasion, expected) in [
            (selects("has-kata"), &sound, Binding, ""),
            (selects("other"), &sound, Binding, "NodeAffinity"),
            (selects("other"), &sound, KubeletStart, "NodeAffinity"),
            (requires("has-kata"), &sound, KubeletStart, ""),
            (requires("other"), &sound, KubeletStart, "NodeAffinity"),
            (mirror, &sound, KubeletStart, ""),
            (json!({}), &cordoned, KubeletStart, ""),
            (json!({}), &tainted("NoSchedule"), Binding, ""),
            (json!({}), &tainted("NoExecute"), KubeletStart, "TaintToleration"),
            (tolerant, &tainted("NoExecute"), KubeletStart, ""),
            (json!({}), &full, Binding, "Evicted"),
            (json!({}), &full, KubeletStart, ""),
            (critical, &full, Binding, ""),
            (takes("2"), &sound, KubeletStart, ""),
            (takes("2001m"), &sound, KubeletStart, "OutOfcpu"),
            (takes("2001m"), &sound, Binding, "OutOfcpu"),
        ] {
            let found = refusal(&pod, node, &used, occasion).map_or("", |refusal| refusal.reason);
            assert_eq!(found, expected, "{pod} {node} {occasion:?}");
        }
    }
}
