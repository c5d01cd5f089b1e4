//! The Grafana dashboard. Each panel uses metrics that docs/metrics.md names; a test checks that.

use serde_json::{Value, json};

use crate::RenderError;

/// The dashboard as Grafana imports it.
///
/// # Errors
/// If JSON cannot express it, which would be a bug.
pub fn dashboard() -> Result<String, RenderError> {
    let mut text = serde_json::to_string_pretty(&content())?;
    text.push('\n');
    Ok(text)
}

/// A panel: its kind, title, description, unit, queries with legends, and width in columns of 24.
struct Panel {
    kind: &'static str,
    title: &'static str,
    description: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
    width: u32,
}

const PANELS: &[Panel] = &[
    Panel {
        kind: "stat",
        title: "Ready nodes",
        description: "Nodes that can run sandboxed pods now.",
        unit: "none",
        queries: &[(
            "sum(kata_operator_nodes{phase=\"Ready\",namespace=~\"$namespace\"})",
            "Ready",
        )],
        width: 4,
    },
    Panel {
        kind: "stat",
        title: "Failed nodes",
        description: "Nodes whose change failed; kubectl get katanodes names them.",
        unit: "none",
        queries: &[(
            "sum(kata_operator_nodes{phase=\"Failed\",namespace=~\"$namespace\"})",
            "Failed",
        )],
        width: 4,
    },
    Panel {
        kind: "stat",
        title: "Leaders",
        description: "Should be 1: only the holder of the lease works.",
        unit: "none",
        queries: &[("sum(kata_operator_leader{namespace=~\"$namespace\"})", "leaders")],
        width: 4,
    },
    Panel {
        kind: "table",
        title: "Conditions that are True",
        description: "The conditions of each KataConfig.",
        unit: "none",
        queries: &[(
            "max by (name, type) (kata_operator_config_condition{status=\"True\",namespace=~\"$namespace\"}) == 1",
            "{{name}} {{type}}",
        )],
        width: 12,
    },
    Panel {
        kind: "timeseries",
        title: "Nodes by phase",
        description: "A roll-out moves nodes from Waiting through Installing to Ready.",
        unit: "none",
        queries: &[(
            "sum by (phase) (kata_operator_nodes{namespace=~\"$namespace\"})",
            "{{phase}}",
        )],
        width: 12,
    },
    Panel {
        kind: "timeseries",
        title: "Findings",
        description: "The current findings, by code.",
        unit: "none",
        queries: &[(
            "sum by (code, severity) (kata_operator_findings{namespace=~\"$namespace\"}) > 0",
            "{{code}} {{severity}}",
        )],
        width: 12,
    },
    Panel {
        kind: "timeseries",
        title: "Sandboxed pods by class, and those on an earlier Kata",
        description: "Pods by RuntimeClass as kube-state-metrics counts them, and sandboxes that began before the last upgrade.",
        unit: "none",
        queries: &[
            (
                "count by (runtimeclass_name) (kube_pod_runtimeclass_name_info)",
                "{{runtimeclass_name}}",
            ),
            (
                "sum by (kata_version) (kata_operator_earlier_sandboxes{namespace=~\"$namespace\"})",
                "still on Kata {{kata_version}}",
            ),
        ],
        width: 12,
    },
    Panel {
        kind: "timeseries",
        title: "Time of a node in a phase (median, 95 %)",
        description: "How long nodes stay in a phase.",
        unit: "s",
        queries: &[
            (
                "histogram_quantile(0.5, sum by (le, phase) (rate(kata_operator_node_phase_duration_seconds_bucket{namespace=~\"$namespace\"}[1h])))",
                "{{phase}} median",
            ),
            (
                "histogram_quantile(0.95, sum by (le, phase) (rate(kata_operator_node_phase_duration_seconds_bucket{namespace=~\"$namespace\"}[1h])))",
                "{{phase}} 95 %",
            ),
        ],
        width: 12,
    },
    Panel {
        kind: "timeseries",
        title: "Passes of the loop",
        description: "How often the operator runs a pass, by result.",
        unit: "ops",
        queries: &[(
            "sum by (result) (rate(kata_operator_reconciles_total{namespace=~\"$namespace\"}[5m]))",
            "{{result}}",
        )],
        width: 12,
    },
    Panel {
        kind: "timeseries",
        title: "API requests",
        description: "The requests of the operator to the API server.",
        unit: "reqps",
        queries: &[(
            "sum by (verb, kind) (rate(kata_operator_api_requests_total{namespace=~\"$namespace\"}[5m]))",
            "{{verb}} {{kind}}",
        )],
        width: 12,
    },
    Panel {
        kind: "timeseries",
        title: "Failed API requests and restarted watches",
        description: "Empty in a healthy cluster.",
        unit: "reqps",
        queries: &[
            (
                "sum by (verb, kind, category) (rate(kata_operator_api_request_errors_total{namespace=~\"$namespace\"}[5m]))",
                "{{verb}} {{kind}} {{category}}",
            ),
            (
                "sum by (kind, reason) (rate(kata_operator_watch_restarts_total{namespace=~\"$namespace\"}[5m]))",
                "watch {{kind}} {{reason}}",
            ),
        ],
        width: 12,
    },
];

fn content() -> Value {
    let source = json!({"type": "prometheus", "uid": "${datasource}"});
    let (mut x, mut y, mut height) = (0, 0, 0);
    let mut panels = Vec::new();
    for (id, panel) in (1_u32..).zip(PANELS) {
        if x + panel.width > 24 {
            (x, y) = (0, y + height);
        }
        height = if panel.kind == "stat" || (y == 0 && panel.kind == "table") { 5 } else { 8 };
        let targets: Vec<Value> = panel
            .queries
            .iter()
            .zip('A'..)
            .map(|((query, legend), name)| {
                let table = panel.kind == "table";
                json!({
                    "refId": name.to_string(),
                    "datasource": source,
                    "expr": query,
                    "legendFormat": legend,
                    "instant": table,
                    "format": if table { "table" } else { "time_series" },
                })
            })
            .collect();
        panels.push(json!({
            "id": id,
            "type": panel.kind,
            "title": panel.title,
            "description": panel.description,
            "datasource": source,
            "gridPos": {"x": x, "y": y, "w": panel.width, "h": height},
            "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
            "targets": targets,
        }));
        x += panel.width;
    }
    json!({
        "title": "Kata operator",
        "uid": "kata-operator",
        "tags": ["kata", "kubernetes"],
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
            {
                "name": "namespace", "type": "query", "label": "Namespace", "datasource": source,
                "query": "label_values(kata_operator_build_info, namespace)",
                "includeAll": true, "multi": true, "allValue": ".*", "refresh": 2,
            },
        ]},
        "panels": panels,
    })
}
