//! The objects that kata-monitor needs besides the DaemonSet and the SecurityContextConstraints, which the
//! operator manages. They never change and do nothing without the pods of kata-monitor, so the operator needs
//! no permission for them.

use serde_json::{Value, json};

use kata_api::names;

use super::metadata::metadata;
use super::rule::rule;

const PORT: u16 = 8090;

/// The rules to remove the two objects: an operator without kata-monitor looks whether an earlier one left them.
pub(super) fn removal_rules() -> (Value, Value) {
    rules(&["list", "delete"])
}

/// The rules to manage the two objects.
pub(super) fn manage_rules() -> (Value, Value) {
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
            // kata-monitor sends no requests to the API server.
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
