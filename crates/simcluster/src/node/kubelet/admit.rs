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
    message: &'static str,
}

/// When a pod is admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The pod was bound to the node.
    Binding,
    /// The kubelet starts, and the pod was bound before.
    KubeletStart,
}

fn refusal(pod: &Value, node: &Value, occasion: Occasion) -> Option<Refusal> {
    // A static pod is judged by its file; its mirror in the API is not.
    if pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string() {
        return None;
    }
    // A kubelet that starts has not measured its disk yet.
    if occasion == Occasion::Binding
        && condition(node, "DiskPressure") == "True"
        && pod["spec"]["priority"].as_i64().unwrap_or(0) < SYSTEM_CRITICAL
    {
        let message = "The node had condition: [DiskPressure]. ";
        return Some(Refusal { reason: "Evicted", message });
    }
    let (spec, labels) = (&pod["spec"], &node["metadata"]["labels"]);
    let name = node["metadata"]["name"].as_str().unwrap_or_default();
    if !selector::pod_chooses_node(spec, labels, name) {
        let message =
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
        return Some(Refusal { reason: "NodeAffinity", message });
    }
    let tolerated = |taint: &Value| {
        spec["tolerations"].as_array().into_iter().flatten().any(|it| tolerates(it, taint))
    };
    let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.any(|taint| taint["effect"] == "NoExecute" && !tolerated(taint)).then_some(Refusal {
        reason: "TaintToleration",
        message: "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
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
    /// Admits a pod, or fails it and stops what runs of it; returns whether it was admitted.
    pub(super) fn admit(
        &mut self,
        key: &PodKey,
        pod: &Value,
        occasion: Occasion,
        cx: &mut Context<'_>,
    ) -> bool {
        let name = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let Some(node) = cx.api.get(&NODES, "", name) else { return true };
        let Some(refusal) = refusal(pod, &node, occasion) else { return true };
        tell(cx, pod, true, refusal.reason, refusal.message, name);
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
            "status": {"conditions": [{"type": "DiskPressure", "status": disk_pressure}]},
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
        ] {
            let found = refusal(&pod, node, occasion).map_or("", |refusal| refusal.reason);
            assert_eq!(found, expected, "{pod} {node} {occasion:?}");
        }
    }
}
