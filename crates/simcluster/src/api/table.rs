//! Server-side printing: the columns and cells that kubectl shows.
//!
//! Pure: an object in, cells out. Odd objects give odd cells, never an error.

mod core;
mod duration;
mod pod;
mod row;
mod workload;

use jiff::Timestamp;
use serde_json::{Value, json};

use self::row::{Printer, Row};
use super::jsonpath;
use super::registry::{CustomDef, ResourceDef};

/// The `columnDefinitions` of a kind.
pub fn columns(def: &ResourceDef) -> Vec<Value> {
    if let Some(custom) = &def.custom {
        return custom_columns(custom);
    }
    printer(def)
        .columns
        .iter()
        .map(|(name, kind, priority)| {
            let format = if *name == "Name" { "name" } else { "" };
            column(name, kind, format, "", i64::from(*priority))
        })
        .collect()
}

/// The cells of an object, in the order of [`columns`].
pub fn cells(def: &ResourceDef, object: &Value, now: Timestamp) -> Vec<Value> {
    let row = Row { object, now };
    match &def.custom {
        Some(custom) => custom_cells(custom, &row),
        None => (printer(def).cells)(&row),
    }
}

fn column(name: &str, kind: &str, format: &str, description: &str, priority: i64) -> Value {
    json!({
        "name": name, "type": kind, "format": format, "description": description,
        "priority": priority,
    })
}

/// How built-in kinds are printed; by default with name and age.
fn printer(def: &ResourceDef) -> &'static Printer {
    match (&*def.resource.group, &*def.kind) {
        ("", "Pod") => &pod::POD,
        ("", "Node") => &core::NODE,
        ("" | "events.k8s.io", "Event") => &core::EVENT,
        ("", "Service") => &core::SERVICE,
        ("", "Namespace") => &core::NAMESPACE,
        ("", "ConfigMap") => &core::CONFIG_MAP,
        ("", "Secret") => &core::SECRET,
        ("", "ServiceAccount") => &core::SERVICE_ACCOUNT,
        ("", "ReplicationController") | ("apps", "ReplicaSet") => &workload::REPLICA_SET,
        ("apps", "Deployment") => &workload::DEPLOYMENT,
        ("apps", "DaemonSet") => &workload::DAEMON_SET,
        ("apps", "StatefulSet") => &workload::STATEFUL_SET,
        ("batch", "Job") => &workload::JOB,
        ("batch", "CronJob") => &workload::CRON_JOB,
        ("node.k8s.io", "RuntimeClass") => &core::RUNTIME_CLASS,
        ("coordination.k8s.io", "Lease") => &core::LEASE,
        ("policy", "PodDisruptionBudget") => &workload::POD_DISRUPTION_BUDGET,
        ("scheduling.k8s.io", "PriorityClass") => &core::PRIORITY_CLASS,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => &core::CREATED_AT,
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => &core::CREATED_AT,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &core::ROLE_BINDING,
        _ => &core::NAME_AND_AGE,
    }
}

/// What a CRD without columns prints besides the name.
fn age_column() -> Value {
    json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
}

fn custom_columns(custom: &CustomDef) -> Vec<Value> {
    let mut columns = vec![column("Name", "string", "name", "", 0)];
    if custom.columns.is_empty() {
        columns.push(column("Age", "date", "", "", 0));
    }
    columns.extend(custom.columns.iter().map(|given| {
        let text = |key: &str| given[key].as_str().unwrap_or_default();
        let description = match text("description") {
            "" => format!(
                "Custom resource definition column (in JSONPath format): {}",
                text("jsonPath")
            ),
            description => description.to_owned(),
        };
        let priority = given["priority"].as_i64().unwrap_or(0);
        column(text("name"), text("type"), text("format"), &description, priority)
    }));
    columns
}

fn custom_cells(custom: &CustomDef, row: &Row<'_>) -> Vec<Value> {
    let mut cells = vec![row.name()];
    if custom.columns.is_empty() {
        cells.push(custom_cell(&age_column(), row));
    }
    cells.extend(custom.columns.iter().map(|column| custom_cell(column, row)));
    cells
}

/// The cell of a CRD's column: null, which kubectl shows as `<none>`, where the value is missing or
/// not of the column's type.
fn custom_cell(column: &Value, row: &Row<'_>) -> Value {
    let path = column["jsonPath"].as_str().unwrap_or_default();
    let Some(value) = jsonpath::first(path, row.object).filter(|value| !value.is_null()) else {
        return Value::Null;
    };
    match column["type"].as_str().unwrap_or_default() {
        "string" => match value {
            Value::String(_) => value.clone(),
            other => json!(other.to_string()),
        },
        "integer" => {
            let whole = |number: f64| format!("{:.0}", number.trunc()).parse().ok();
            match value.as_i64().or_else(|| value.as_f64().and_then(whole)) {
                Some(number) => json!(number),
                None => Value::Null,
            }
        }
        "number" => value.as_f64().map_or(Value::Null, |number| json!(number)),
        "boolean" => value.as_bool().map_or(Value::Null, |flag| json!(flag)),
        "date" => match value.as_str().map(str::parse::<Timestamp>) {
            Some(Ok(time)) => json!(duration::between(time, row.now)),
            Some(Err(_)) => json!("<invalid>"),
            None => Value::Null,
        },
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests;
