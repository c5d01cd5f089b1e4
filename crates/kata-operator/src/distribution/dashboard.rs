//! The Grafana dashboard. Each panel uses metrics that docs/metrics.md names; a test holds them together.

use serde_json::{Value, json};

use super::DistributionError;

/// The dashboard as Grafana imports it.
///
/// # Errors
/// If JSON cannot express it, which would be a bug.
pub fn dashboard() -> Result<String, DistributionError> {
    let mut text = serde_json::to_string_pretty(&content()).map_err(DistributionError::Json)?;
    text.push('\n');
    Ok(text)
}

/// A panel: its kind, title, what it tells, unit, queries with legends, and columns of 24 that it takes.
struct Panel {
    kind: &'static str,
    title: &'static str,
    tells: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
    width: u32,
}

const PANELS: &[Panel] = &[
    Panel {
        kind: "stat",
        title: "Ready nodes",
        tells: "Nodes that can run sandboxed pods now.",
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
        tells: "Nodes whose change failed; kubectl get katanodes names them.",
        unit: "none",
        queries: &[(
            "sum(kata_operator_nodes{phase=\"Failed\",namespace=~\"$namespace\"})",
            "Failed",
        )],
        width: 4,
    },
    Panel {
        kind: "stat",
        title: "Operators at work",
        tells: "Should be 1: the holder of the lease.",
        unit: "none",
        queries: &[("sum(kata_operator_leader{namespace=~\"$namespace\"})", "leaders")],
        width: 4,
    },
    Panel {
        kind: "table",
        title: "Conditions that hold",
        tells: "What each KataConfig says of itself.",
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
        tells: "A roll-out moves nodes from Waiting over Installing to Ready.",
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
        tells: "What the operator finds wrong or noteworthy, by code.",
        unit: "none",
        queries: &[(
            "sum by (code, severity) (kata_operator_findings{namespace=~\"$namespace\"}) > 0",
            "{{code}} {{severity}}",
        )],
        width: 12,
    },
    Panel {
        kind: "timeseries",
        title: "Time of a node in a phase (median, 95 %)",
        tells: "How long nodes take.",
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
        tells: "How often the operator decides, and how that ends.",
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
        tells: "What the operator asks of the API server.",
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
        tells: "Nothing, in a healthy cluster.",
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
            "description": panel.tells,
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
