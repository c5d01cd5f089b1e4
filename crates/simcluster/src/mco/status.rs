//! What the node controller concludes from a pool's nodes: counts and conditions.
//!
//! Pure functions of objects; when they run, and how old the objects are, is the controller's
//! business.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::event::timestamp;
use super::names::{CURRENT_CONFIG, DESIRED_CONFIG, REASON, STATE};
use super::pool::{annotation, name};

/// The condition of that type.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Sets a condition of a pool. One that changes moves to the end of the list; its transition time
/// follows the status only.
pub(super) fn set_condition(
    status: &mut Value,
    kind: &str,
    value: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let mut time = json!(timestamp(now));
    if let Some(index) = conditions.iter().position(|condition| condition["type"] == kind) {
        let known = &conditions[index];
        if known["status"] == value {
            if known["reason"] == reason && known["message"] == message {
                return;
            }
            time = known["lastTransitionTime"].clone();
        }
        conditions.remove(index);
    }
    conditions.push(json!({
        "type": kind, "status": value, "reason": reason, "message": message,
        "lastTransitionTime": time,
    }));
    status["conditions"] = Value::Array(conditions);
}

/// Whether the node can run pods.
pub(super) fn is_ready(node: &Value) -> bool {
    let status = |kind: &str| condition(node, kind).and_then(|known| known["status"].as_str());
    status("Ready") == Some("True")
        && status("DiskPressure").is_none_or(|value| value == "False")
        && status("NetworkUnavailable").is_none_or(|value| value == "False")
        && node["spec"]["unschedulable"] != true
}

fn is_done(node: &Value) -> bool {
    let current = annotation(node, CURRENT_CONFIG);
    !current.is_empty()
        && current == annotation(node, DESIRED_CONFIG)
        && annotation(node, STATE) == "Done"
}

/// Whether the daemon reported a failure.
pub(super) fn is_degraded(node: &Value) -> bool {
    matches!(annotation(node, STATE), "Degraded" | "Unreconcilable")
}

/// Whether the daemon failed on its way to another configuration.
pub(super) fn is_failing(node: &Value) -> bool {
    is_degraded(node) && annotation(node, CURRENT_CONFIG) != annotation(node, DESIRED_CONFIG)
}

/// Whether the node counts against `maxUnavailable`.
pub(super) fn is_unavailable(node: &Value) -> bool {
    !is_ready(node) || (!is_done(node) && !is_failing(node))
}

/// How many nodes may be unavailable, for a pool of `nodes` nodes; `None` if it cannot be read.
pub(super) fn max_unavailable(pool: &Value, nodes: usize) -> Option<usize> {
    let number = match &pool["spec"]["maxUnavailable"] {
        Value::Null => 1,
        Value::Number(number) => usize::try_from(number.as_u64()?).ok()?,
        Value::String(text) => {
            let percent: usize = text.strip_suffix('%')?.parse().ok()?;
            percent.checked_mul(nodes)? / 100
        }
        _ => return None,
    };
    Some(number.max(1))
}

/// The nodes to change next, and how the pool's limit chose them.
pub(super) fn candidates<'a>(
    pool: &Value,
    nodes: &'a [Arc<Value>],
    max_unavailable: usize,
) -> Vec<&'a Arc<Value>> {
    let target = target(pool);
    let unavailable = nodes.iter().filter(|node| is_unavailable(node)).count();
    let failing = nodes
        .iter()
        .filter(|node| annotation(node, DESIRED_CONFIG) == target && is_failing(node))
        .count();
    let capacity = max_unavailable.saturating_sub(unavailable).saturating_sub(failing);
    let mut chosen: Vec<_> = nodes
        .iter()
        .filter(|node| annotation(node, DESIRED_CONFIG) != target && is_ready(node))
        .collect();
    if chosen.len() > capacity {
        chosen.sort_by_key(|node| {
            let zone = node["metadata"]["labels"]["topology.kubernetes.io/zone"].as_str();
            let created = node["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
            (zone.is_none(), zone.unwrap_or_default(), created, name(node))
        });
        chosen.truncate(capacity);
    }
    chosen
}

/// The configuration that the pool's nodes shall run; empty before the first render.
pub(super) fn target(pool: &Value) -> &str {
    pool["spec"]["configuration"]["name"].as_str().unwrap_or_default()
}

/// The pool's status, from its nodes and from the failures that their daemons have on record.
///
/// `Degraded` follows `RenderDegraded` as the pool shows it, one sync late.
pub(super) fn compute<'a>(
    pool: &Value,
    nodes: &[Arc<Value>],
    failure: impl Fn(&str) -> Option<&'a str>,
    now: Timestamp,
) -> Value {
    let target = target(pool);
    let count = |of: &dyn Fn(&Value) -> bool| nodes.iter().filter(|node| of(node)).count();
    let updated = |node: &Value| is_done(node) && annotation(node, DESIRED_CONFIG) == target;
    let machines = nodes.len();
    let updated_machines = count(&updated);
    let ready = count(&|node| updated(node) && is_ready(node));
    let unavailable = count(&is_unavailable);
    let degraded = count(&is_degraded);
    let all_updated = updated_machines == machines && ready == machines && unavailable == 0;

    let mut status = pool["status"].clone();
    if !status.is_object() {
        status = json!({"configuration": {}});
    }
    status["observedGeneration"] = pool["metadata"]["generation"].clone();
    status["machineCount"] = json!(machines);
    status["updatedMachineCount"] = json!(updated_machines);
    status["readyMachineCount"] = json!(ready);
    status["unavailableMachineCount"] = json!(unavailable);
    status["degradedMachineCount"] = json!(degraded);
    status["certExpirys"] = json!([]);
    status["poolSynchronizersStatus"] = json!([{
        "poolSynchronizerType": "PinnedImageSets", "machineCount": machines,
        "updatedMachineCount": machines, "readyMachineCount": ready,
        "unavailableMachineCount": unavailable,
        "availableMachineCount": machines.saturating_sub(unavailable),
    }]);
    if all_updated {
        status["configuration"] = pool["spec"]["configuration"].clone();
        let message = format!("All nodes are updated with MachineConfig {target}");
        set_condition(&mut status, "Updated", "True", "", &message, now);
        set_condition(&mut status, "Updating", "False", "", "", now);
    } else {
        set_condition(&mut status, "Updated", "False", "", "", now);
        if pool["spec"]["paused"] == true {
            let message = format!("Pool is paused; will not update to MachineConfig {target}");
            set_condition(&mut status, "Updating", "False", "", &message, now);
        } else {
            let message = format!("All nodes are updating to MachineConfig {target}");
            set_condition(&mut status, "Updating", "True", "", &message, now);
        }
    }
    degraded_conditions(pool, &mut status, nodes, degraded, failure, now);
    status
}

fn degraded_conditions<'a>(
    pool: &Value,
    status: &mut Value,
    nodes: &[Arc<Value>],
    degraded: usize,
    failure: impl Fn(&str) -> Option<&'a str>,
    now: Timestamp,
) {
    let failures: Vec<_> =
        nodes.iter().filter_map(|node| Some((node, failure(name(node))?))).collect();
    let mut message = String::new();
    if degraded > 0 {
        // Each node is named twice: once as the daemon records failures, once as it annotates them.
        let recorded = failures.iter().map(|(node, failure)| {
            (name(node), format!("Node {} upgrade failure. {failure}", name(node)))
        });
        let annotated =
            failures.iter().map(|(node, _)| (name(node), annotation(node, REASON).to_owned()));
        let texts: Vec<_> = recorded
            .chain(annotated)
            .map(|(node, text)| format!("Node {node} is reporting: {text:?}"))
            .collect();
        message = texts.join(", ");
        let reason = format!("{} nodes are reporting degraded status on sync", failures.len());
        set_condition(status, "NodeDegraded", "True", &reason, &message, now);
    } else {
        set_condition(status, "NodeDegraded", "False", "", "", now);
    }
    let render = condition(pool, "RenderDegraded").is_some_and(|known| known["status"] == "True");
    let value = if degraded > 0 || render { "True" } else { "False" };
    set_condition(status, "Degraded", value, "", &message, now);
}
