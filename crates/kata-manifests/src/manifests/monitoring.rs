//! What Prometheus scrapes and when it alerts. The kinds belong to the Prometheus operator, which every
//! OpenShift cluster has.
//!
//! Alerts use only metrics that the operator has; `docs/runbooks` has a page for each.

use kata_api::conditions::{self, ALERTS};
use serde_json::{Value, json};

use super::metadata::{NAME, metadata, selector};

/// Where each alert is explained.
const RUNBOOKS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/runbooks");

/// Permits the platform's Prometheus to find the pods that the ServiceMonitors of the namespace select: those
/// of the operator and of kata-monitor.
pub(super) fn prometheus_access(namespace: &str) -> Vec<Value> {
    let prometheus = "prometheus-k8s";
    vec![
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": metadata(prometheus, Some(namespace)),
            "rules": [{
                "apiGroups": [""],
                "resources": ["services", "endpoints", "pods"],
                "verbs": ["get", "list", "watch"],
            }],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata(prometheus, Some(namespace)),
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": prometheus,
            },
            "subjects": [{
                "kind": "ServiceAccount", "name": prometheus, "namespace": "openshift-monitoring",
            }],
        }),
    ]
}

/// ServiceMonitor and PrometheusRule.
pub(super) fn objects(namespace: &str) -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": metadata(NAME, Some(namespace)),
            "spec": {
                "selector": {"matchLabels": selector()},
                "endpoints": [{"port": "metrics", "path": "/metrics", "interval": "30s"}],
            },
        }),
        json!({
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": metadata(NAME, Some(namespace)),
            "spec": {"groups": [{"name": NAME, "rules": alerts(namespace)}]},
        }),
    ]
}

/// An alert: its name, severity, how long its expression holds before it fires, expression, summary,
/// description.
type Alert = (&'static str, &'static str, &'static str, String, &'static str, &'static str);

fn alerts(namespace: &str) -> Vec<Value> {
    let condition = |of: &conditions::Alert| {
        let conditions::Alert { condition, status, .. } = of;
        format!(
            "max by (name) (kata_operator_config_condition\
             {{namespace=\"{namespace}\",type=\"{condition}\",status=\"{status}\"}}) == 1"
        )
    };
    let [unreadable, stalled, degraded, deletion_blocked] = ALERTS;
    let alerts: [Alert; 7] = [
        (
            "KataOperatorDown",
            "warning",
            "15m",
            format!("absent(kata_operator_leader{{namespace=\"{namespace}\"}} == 1)"),
            "No kata-operator is at work.",
            "No kata-operator has held the lease for 15 minutes: KataConfigs are not acted upon. \
             Running pods are not affected.",
        ),
        (
            "KataOperatorForbidden",
            "warning",
            "15m",
            format!(
                "sum by (verb, kind) (increase(kata_operator_api_request_errors_total\
                 {{namespace=\"{namespace}\",category=\"forbidden\"}}[15m])) > 0"
            ),
            "kata-operator lacks a permission.",
            "The API server refuses to {{ $labels.verb }} {{ $labels.kind }}. \
             The log and the conditions of the KataConfig name the permission.",
        ),
        (
            unreadable.alert,
            "warning",
            unreadable.lasts,
            condition(&unreadable),
            "kata-operator cannot read what KataConfig {{ $labels.name }} needs.",
            "For 15 minutes kata-operator could not read KataConfig {{ $labels.name }}, or something that it needs: \
             nothing is installed, checked or removed. Running pods are not affected.",
        ),
        (
            stalled.alert,
            "warning",
            stalled.lasts,
            condition(&stalled),
            "KataConfig {{ $labels.name }} needs manual action.",
            "KataConfig {{ $labels.name }} has been Stalled for an hour: without a change by an \
             administrator it will not become Ready. Its conditions say what is wrong.",
        ),
        (
            degraded.alert,
            "warning",
            degraded.lasts,
            condition(&degraded),
            "KataConfig {{ $labels.name }} is degraded.",
            "Something of KataConfig {{ $labels.name }} has failed for 30 minutes. \
             Its conditions name the object and the fix.",
        ),
        (
            "KataNodeDegraded",
            "warning",
            "30m",
            format!(
                "sum by (phase) (kata_operator_nodes{{namespace=\"{namespace}\",phase=\"Failed\"}}) > 0"
            ),
            "{{ $value }} nodes fail to install or remove Kata Containers.",
            "{{ $value }} nodes have been Failed for 30 minutes. `kubectl get katanodes` names them \
             and the reason.",
        ),
        (
            deletion_blocked.alert,
            "info",
            deletion_blocked.lasts,
            condition(&deletion_blocked),
            "The deletion of KataConfig {{ $labels.name }} is blocked.",
            "The deletion of KataConfig {{ $labels.name }} has been blocked for an hour, by pods that use \
             Kata Containers or by a problem. Its condition DeletionBlocked names them.",
        ),
    ];
    alerts
        .into_iter()
        .map(|(name, severity, lasts, expression, summary, description)| {
            json!({
                "alert": name,
                "expr": expression,
                "for": lasts,
                "labels": {"severity": severity, "namespace": namespace},
                "annotations": {
                    "summary": summary,
                    "description": description,
                    "runbook_url": format!("{RUNBOOKS}/{name}.md"),
                },
            })
        })
        .collect()
}
