//! What the node controller concludes from a pool's nodes: counts and conditions.
//!
//! Pure functions of objects; when they run, and how old the objects are, is the controller's
//! business.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::names::{CURRENT_CONFIG, DESIRED_CONFIG, REASON, STATE};
use super::pool::{annotation, name};
use crate::recorder::time;

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
    let mut since = json!(time(now));
    if let Some(index) = conditions.iter().position(|condition| condition["type"] == kind) {
        let known = &conditions[index];
        if known["status"] == value {
            if known["reason"] == reason && known["message"] == message {
                return;
            }
            since = known["lastTransitionTime"].clone();
        }
        conditions.remove(index);
    }
    conditions.push(json!({
        "type": kind, "status": value, "reason": reason, "message": message,
        "lastTransitionTime": since,
    }));
    status["conditions"] = Value::Array(conditions);
}

/// Whether the node can run pods (`CheckNodeReady` of the real controller, which asks for no condition to be
/// there).
pub(super) fn is_ready(node: &Value) -> bool {
    let is = |kind: &str, wanted: &str| {
        condition(node, kind).is_none_or(|known| known["status"] == wanted)
    };
    is("Ready", "True")
        && is("DiskPressure", "False")
        && is("NetworkUnavailable", "False")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00.7Z".parse().unwrap()
    }

    fn node(current: &str, desired: &str, state: &str, ready: bool, cordoned: bool) -> Value {
        json!({
            "metadata": {"name": "n", "annotations": {
                (CURRENT_CONFIG): current, (DESIRED_CONFIG): desired, (STATE): state}},
            "spec": {"unschedulable": cordoned},
            "status": {"conditions": [
                {"type": "Ready", "status": if ready { "True" } else { "False" }}]},
        })
    }

    /// Rule 5: whole seconds, the end of the list, and a time that follows the status only.
    #[test]
    fn a_condition_that_changes_moves_to_the_end() {
        let mut status = json!({});
        let kinds = |status: &Value| -> Vec<String> {
            status["conditions"].as_array().unwrap().iter().map(|c| c["type"].to_string()).collect()
        };
        set_condition(&mut status, "A", "True", "", "", now());
        set_condition(&mut status, "B", "True", "", "", now());
        assert_eq!(status["conditions"][0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        let later = now() + jiff::SignedDuration::from_secs(9);
        set_condition(&mut status, "A", "True", "", "", later);
        assert_eq!(kinds(&status), ["\"A\"", "\"B\""], "nothing changed");
        set_condition(&mut status, "A", "True", "", "new", later);
        assert_eq!(kinds(&status), ["\"B\"", "\"A\""]);
        assert_eq!(status["conditions"][1]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        set_condition(&mut status, "A", "False", "", "new", later);
        assert_eq!(status["conditions"][1]["lastTransitionTime"], "2026-01-01T00:00:09Z");
    }

    /// Rule 9, for one node of a pool whose configuration is `b`: updated, ready, unavailable,
    /// degraded.
    #[test]
    fn each_state_of_a_node_is_counted_in_its_way() {
        let pool = json!({"spec": {"configuration": {"name": "b"}}});
        for (state, expected) in [
            (("b", "b", "Done", true, false), [1, 1, 0, 0]),
            (("b", "b", "Done", false, false), [1, 0, 1, 0]),
            (("b", "b", "Done", true, true), [1, 0, 1, 0]),
            (("a", "a", "Done", true, false), [0, 0, 0, 0]),
            (("a", "b", "Done", true, false), [0, 0, 1, 0]),
            (("a", "b", "Working", true, false), [0, 0, 1, 0]),
            (("a", "b", "Degraded", true, false), [0, 0, 0, 1]),
            (("a", "b", "Degraded", true, true), [0, 0, 1, 1]),
            (("a", "b", "Unreconcilable", true, false), [0, 0, 0, 1]),
            (("b", "b", "Degraded", true, false), [0, 0, 1, 1]),
            (("", "", "", false, false), [0, 0, 1, 0]),
        ] {
            let (current, desired, word, ready, cordoned) = state;
            let nodes = [Arc::new(node(current, desired, word, ready, cordoned))];
            let status = compute(&pool, &nodes, |_| None, now());
            let counts = ["updated", "ready", "unavailable", "degraded"]
                .map(|count| status[format!("{count}MachineCount")].as_u64().unwrap());
            assert_eq!(counts, expected, "{state:?}");
            let updated =
                condition(&json!({"status": status}), "Updated").unwrap()["status"] == "True";
            assert_eq!(updated, expected == [1, 1, 0, 0], "{state:?}");
        }
    }

    /// Rule 7: a pool without nodes is updated.
    #[test]
    fn no_node_is_all_nodes() {
        let pool = json!({"metadata": {"generation": 3}, "spec": {"configuration": {"name": "b"}}});
        let status = compute(&pool, &[], |_| None, now());
        assert_eq!(status["configuration"]["name"], "b");
        assert_eq!(status["conditions"][0]["status"], "True");
        assert_eq!(status["observedGeneration"], 3);
    }

    #[test]
    fn limits_are_numbers_or_percentages() {
        for (value, nodes, expected) in [
            (Value::Null, 9, Some(1)),
            (json!(3), 9, Some(3)),
            (json!(0), 9, Some(1)),
            (json!("30%"), 10, Some(3)),
            (json!("33%"), 10, Some(3)),
            (json!("10%"), 3, Some(1)),
            (json!("100%"), 3, Some(3)),
            (json!("3"), 9, None),
            (json!("x%"), 9, None),
            (json!(-1), 9, None),
        ] {
            let pool = json!({"spec": {"maxUnavailable": value}});
            assert_eq!(max_unavailable(&pool, nodes), expected, "{value}");
        }
    }

    /// Rule 14: what is unavailable or failing uses the capacity up, and a cordoned node waits.
    #[test]
    fn capacity_limits_the_candidates() {
        let pool = json!({"spec": {"configuration": {"name": "b"}}});
        let waiting = || node("a", "a", "Done", true, false);
        for (others, capacity, expected) in [
            (vec![], 1, 1),
            (vec![], 2, 2),
            (vec![node("a", "b", "Working", true, false)], 1, 0),
            (vec![node("b", "b", "Done", false, false)], 1, 0),
            (vec![node("a", "b", "Degraded", true, false)], 1, 0),
            (vec![node("a", "b", "Degraded", true, true)], 2, 0),
            (vec![node("a", "b", "Degraded", true, true)], 3, 1),
            (vec![node("a", "c", "Degraded", true, true)], 1, 0),
            (vec![node("a", "c", "Degraded", true, false)], 3, 3),
            (vec![node("b", "b", "Done", true, false)], 1, 1),
        ] {
            let case = format!("{others:?} {capacity}");
            let nodes: Vec<_> =
                others.into_iter().chain([waiting(), waiting()]).map(Arc::new).collect();
            assert_eq!(candidates(&pool, &nodes, capacity).len(), expected, "{case}");
        }
    }
}
