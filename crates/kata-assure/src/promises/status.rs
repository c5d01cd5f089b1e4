//! O-status and S11: what a KataConfig says is well formed, and never speaks of a generation that was
//! not acted upon.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use simcluster::api::{Event, EventKind};

use crate::ledger::{Call, Page};
use crate::world::{is_true, word};

/// Notes what is wrong with a status that was written.
pub(super) fn check(
    event: &Event,
    by_operator: bool,
    observed: &mut BTreeMap<String, i64>,
    page: &mut Page,
) {
    let config = &event.current;
    if event.kind == EventKind::Deleted || !by_operator {
        return;
    }
    let name = event.name.as_str();
    let generation = config["metadata"]["generation"].as_i64().unwrap_or_default();
    if let Some(seen) = config["status"]["observedGeneration"].as_i64() {
        let last = observed.entry(word(config, "/metadata/uid").to_owned()).or_insert(seen);
        if seen < *last {
            page.broke("S11", format!("{name}: observedGeneration went from {last} to {seen}"));
        }
        *last = seen;
        if seen > generation {
            page.broke("S11", format!("{name}: generation {seen} observed, {generation} exists"));
        }
    }
    let mut types = BTreeSet::new();
    for condition in config["status"]["conditions"].as_array().into_iter().flatten() {
        let type_ = word(condition, "/type");
        let reason = word(condition, "/reason");
        let status = word(condition, "/status");
        let well_formed = types.insert(type_)
            && !reason.is_empty()
            && reason.chars().all(|c| c.is_ascii_alphanumeric())
            && ["True", "False", "Unknown"].contains(&status)
            && !word(condition, "/lastTransitionTime").is_empty();
        if !well_formed {
            page.broke("O-status", format!("{name}: malformed condition {condition}"));
        }
        transition(event, condition, page);
    }
    let (ready, moving, stalled) =
        (is_true(config, "Ready"), is_true(config, "Reconciling"), is_true(config, "Stalled"));
    if moving && stalled {
        page.broke("O-status", format!("{name} is Reconciling and Stalled"));
    }
    // A deletion is a generation: who speaks of the one before has not seen it yet, and says so.
    let seen = config["status"]["observedGeneration"] == config["metadata"]["generation"];
    let deleting = seen && !config["metadata"]["deletionTimestamp"].is_null();
    if ready && deleting && config["status"] != previous(event)["status"] {
        page.broke("O-status", format!("{name} is being deleted and said to be Ready"));
    }
}

fn previous(event: &Event) -> &Value {
    event.previous.as_ref().map_or(&Value::Null, |previous| previous.as_ref())
}

/// The time of a condition changes only with its status. The exception: the operator's status write before was answered
/// with 409 although it was stored, which the operator learns from the watch alone.
fn transition(event: &Event, condition: &Value, page: &mut Page) {
    let is_status = |call: &&Call| {
        call.is_write() && call.path.contains("/kataconfigs/") && call.path.contains("/status")
    };
    let mut writes = page.calls.iter().rev().filter(is_status);
    if let Some(this) = writes.next()
        && writes.find(|it| it.operator == this.operator).is_some_and(|it| it.code == Some(409))
    {
        return;
    }
    let before = previous(event)["status"]["conditions"].as_array().into_iter().flatten();
    let Some(before) = before.into_iter().find(|before| before["type"] == condition["type"]) else {
        return;
    };
    let moved = before["lastTransitionTime"] != condition["lastTransitionTime"];
    if moved && before["status"] == condition["status"] {
        page.broke(
            "O-status",
            format!(
                "{}: the time of {} changed, and its status did not",
                event.name, condition["type"]
            ),
        );
    }
}
