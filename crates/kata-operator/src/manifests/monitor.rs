//! What kata-monitor needs besides the DaemonSet and the SecurityContextConstraints, which the operator
//! keeps itself: objects that never change, that do nothing without its pods, and that therefore need
//! no permission of the operator.

use serde_json::{Value, json};

use kata_api::names;

use super::access::rule;
use super::metadata;

/// The number of the Service's port.
const PORT: u16 = 8090;

/// Looks for what an earlier operator left, and no more: every operator does so once.
pub(super) fn look() -> (Value, Value) {
    rules(&["list"])
}

/// All that it takes to keep the two objects.
pub(super) fn keep() -> (Value, Value) {
    rules(&["list", "watch", "create", "patch", "delete"])
}

/// A rule in the operator's namespace, and one for the cluster. Both name their only object, which the
/// operator's lists and watches name too.
fn rules(verbs: &[&str]) -> (Value, Value) {
    (
        rule("apps", &["daemonsets"], verbs, &[names::MONITOR]),
        rule(
            "security.openshift.io",
            &["securitycontextconstraints"],
            verbs,
            &[names::MONITOR_CONSTRAINTS],
        ),
    )
}

/// ServiceAccount, Service and ServiceMonitor.
pub(super) fn objects(namespace: &str) -> Vec<Value> {
    let labelled = |name: &str| {
        let mut metadata = metadata(name, Some(namespace));
        metadata["labels"]["app.kubernetes.io/component"] = json!("monitor");
        metadata["labels"]["name"] = json!(names::MONITOR);
        metadata
    };
    let selector = json!({"name": names::MONITOR});
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": labelled(names::MONITOR_ACCOUNT),
            // It asks nothing of the API server.
            "automountServiceAccountToken": false,
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": labelled(names::MONITOR_SERVICE),
            "spec": {
                "selector": selector,
                "ports": [
                    {"name": "metrics", "port": PORT, "targetPort": "metrics", "protocol": "TCP"},
                ],
            },
        }),
        json!({
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": labelled(names::MONITOR),
            "spec": {
                "selector": {"matchLabels": selector},
                "endpoints": [{"port": "metrics", "path": "/metrics", "interval": "30s"}],
            },
        }),
    ]
}
