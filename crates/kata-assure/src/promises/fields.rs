//! S9: which fields of which objects are ours to write. Everything else belongs to others.

use kata_api::names;
use serde_json::Value;
use simcluster::api::{Event, EventKind};
use simcluster::resource::{
    CONTAINERRUNTIMECONFIGS, JOBS, KATACONFIGS, MACHINECONFIGPOOLS, MACHINECONFIGS, NODES,
    RUNTIMECLASSES,
};

use crate::ledger::Page;
use crate::world::KATANODES;

/// The paths at which two objects differ, without what every write changes.
pub(super) fn differing(before: &Value, after: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    compare(before, after, &mut String::new(), &mut paths);
    paths
}

/// Changed by the API server at every write.
const BOOKKEEPING: [&str; 5] = [
    "/metadata/managedFields",
    "/metadata/resourceVersion",
    "/metadata/generation",
    "/metadata/deletionTimestamp",
    "/metadata/deletionGracePeriodSeconds",
];

fn compare(before: &Value, after: &Value, path: &mut String, paths: &mut Vec<String>) {
    if before == after
        || (is_empty(before) && is_empty(after))
        || BOOKKEEPING.contains(&path.as_str())
    {
        return;
    }
    let (Some(one), Some(two)) = (before.as_object(), after.as_object()) else {
        // Down to the fields of an object that is new or gone.
        let whole = one_side(before, after);
        match whole {
            Some(fields) if !fields.is_empty() && path.len() < 30 => {
                for (key, value) in fields {
                    let length = path.len();
                    path.push('/');
                    path.push_str(key);
                    compare(&Value::Null, value, path, paths);
                    path.truncate(length);
                }
            }
            _ => paths.push(path.clone()),
        }
        return;
    };
    for key in one.keys().chain(two.keys().filter(|key| !one.contains_key(*key))) {
        let length = path.len();
        path.push('/');
        path.push_str(key);
        let null = Value::Null;
        compare(one.get(key).unwrap_or(&null), two.get(key).unwrap_or(&null), path, paths);
        path.truncate(length);
    }
}

/// Whether a value says no more than its absence.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn one_side<'a>(before: &'a Value, after: &'a Value) -> Option<&'a serde_json::Map<String, Value>> {
    match (before, after) {
        (Value::Null, Value::Object(fields)) | (Value::Object(fields), Value::Null) => Some(fields),
        _ => None,
    }
}

/// Whether the newest entry of the managed fields is an operator's. The order of entries is by time.
pub(super) fn last_writer_is_ours(event: &Event) -> bool {
    let entries = event.current["metadata"]["managedFields"].as_array();
    let before = event
        .previous
        .as_ref()
        .and_then(|previous| previous["metadata"]["managedFields"].as_array());
    let ours = |entries: Option<&Vec<Value>>| -> Vec<Value> {
        let entries = entries.into_iter().flatten();
        entries.filter(|entry| entry["manager"] == names::FIELD_MANAGER).cloned().collect()
    };
    let others = |entries: Option<&Vec<Value>>| -> Vec<Value> {
        let entries = entries.into_iter().flatten();
        let without_time = |entry: &Value| {
            let mut entry = entry.clone();
            if let Some(entry) = entry.as_object_mut() {
                entry.remove("time");
            }
            entry
        };
        entries.filter(|entry| entry["manager"] != names::FIELD_MANAGER).map(without_time).collect()
    };
    // A merge that takes away what it owns leaves no entry; then no other's grew.
    ours(entries) != ours(before) || others(entries).len() <= others(before).len()
}

/// The labels of the classes that a node serves.
const CLASS_LABELS: &str = "/metadata/labels/kata.node-restriction.kubernetes.io/";

/// The paths that an operator may change in an object of a kind.
fn table(event: &Event) -> Option<&'static [&'static str]> {
    let resource = &event.resource;
    let name = event.name.as_str();
    Some(match resource {
        // The promise about taints checks which taint it is.
        resource if *resource == NODES => &["/spec/taints", CLASS_LABELS],
        // Made once, and never changed.
        resource if *resource == JOBS && crate::plain::is_agents(&event.current) => &[],
        resource if *resource == KATACONFIGS => &[
            "/metadata/finalizers",
            "/metadata/annotations/kata-operator.dev/operator-namespace",
            "/status",
        ],
        resource if *resource == KATANODES => {
            &["/metadata", "/spec", "/status", "/apiVersion", "/kind"]
        }
        resource if *resource == RUNTIMECLASSES => &[
            "/metadata/labels/app",
            "/metadata/annotations/kata-operator.dev/",
            "/metadata/ownerReferences",
            "/overhead",
            "/scheduling",
        ],
        resource if *resource == MACHINECONFIGS && name == names::MACHINE_CONFIG => {
            &["/metadata/labels/", "/spec/extensions", "/spec/config"]
        }
        resource if *resource == MACHINECONFIGPOOLS && name == names::POOL => &[
            "/metadata/labels/",
            "/spec/machineConfigSelector",
            "/spec/nodeSelector",
            "/spec/paused",
            "/spec/maxUnavailable",
        ],
        resource
            if *resource == CONTAINERRUNTIMECONFIGS && name == names::CONTAINER_RUNTIME_CONFIG =>
        {
            &[
                "/metadata/labels/",
                "/spec/containerRuntimeConfig",
                "/spec/machineConfigPoolSelector",
            ]
        }
        _ => return None,
    })
}

/// Notes fields that were written and are not ours.
pub(super) fn check(event: &Event, page: &mut Page) {
    let what = format!("{} {}", event.resource, event.name);
    let Some(allowed) = table(event) else {
        page.broke("S9", format!("{what} is not ours to write"));
        return;
    };
    let Some(before) = event.previous.as_ref().filter(|_| event.kind == EventKind::Modified) else {
        return;
    };
    let labels = [
        format!("/metadata/labels/{}", names::CLAIM_LABEL),
        format!("/metadata/labels/{}", names::RUNTIME_LABEL),
        format!("/metadata/labels/{}", names::KATA_ROLE_LABEL),
        format!("/metadata/labels/{}", names::MANAGED_BY),
        format!("/metadata/labels/{}", names::PART_OF),
    ];
    for path in differing(before, &event.current) {
        let ours = allowed.iter().any(|allowed| path.starts_with(allowed))
            || labels.contains(&path)
            || (event.resource == NODES && path == "/metadata/labels");
        if !ours {
            page.broke("S9", format!("{path} of {what} was written"));
        }
    }
}
