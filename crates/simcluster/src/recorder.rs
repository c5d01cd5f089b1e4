//! What controllers and kubelets tell whoever looks at an object: Events, conditions, times.
//!
//! It must not decide what is worth telling.
//!
//! Equal Events of one object are counted in one, as the recorder of client-go does.

use std::ops::Bound;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::server::Writer;
use crate::api::{ApiError, ApiServer};
use crate::resource::EVENTS;

/// Something worth telling about an object.
#[derive(Debug, Clone, Copy)]
pub struct Occurrence<'a> {
    /// The object, with kind, apiVersion and metadata.
    pub object: &'a Value,
    /// Whether something is wrong.
    pub warning: bool,
    /// One word in camel case.
    pub reason: &'a str,
    /// A sentence.
    pub message: &'a str,
    /// Who tells, such as `kubelet`.
    pub component: &'a str,
    /// The node of the teller; empty if it has none.
    pub host: &'a str,
}

/// Writes an Event, or counts it if it was written before.
///
/// Events of cluster-scoped objects go to the namespace `default`.
pub fn record(api: &mut ApiServer, now: Timestamp, occurrence: &Occurrence<'_>) {
    let namespace = occurrence.object["metadata"]["namespace"].as_str().unwrap_or("default");
    record_in(api, now, namespace, occurrence);
}

/// Like [`record`], in a namespace of the teller's choice.
pub fn record_in(
    api: &mut ApiServer,
    now: Timestamp,
    namespace: &str,
    occurrence: &Occurrence<'_>,
) {
    let Occurrence { object, warning, reason, message, component, host } = *occurrence;
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let writer = Writer { manager: component, now };
    let stamp = time(now);
    let result = match earlier(api, namespace, occurrence) {
        Some((event_name, count)) => {
            let count = count.saturating_add(1);
            let patch = json!({"count": count, "lastTimestamp": stamp});
            api.merge(writer, &EVENTS, namespace, &event_name, &patch)
        }
        None => {
            let mut source = json!({"component": component});
            if !host.is_empty() {
                source["host"] = json!(host);
            }
            let mut involved = json!({
                "kind": object["kind"], "apiVersion": object["apiVersion"],
                "name": name, "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
            });
            if let Some(namespace) = metadata["namespace"].as_str() {
                involved["namespace"] = json!(namespace);
            }
            // Names in the order of time, as client-go's, because `kubectl describe` keeps the order of
            // names within a second. The revision tells apart what happens at the same moment.
            let moment = now.as_nanosecond().saturating_add(api.store.revision().into());
            let event_name = format!("{name}.{moment:016x}");
            let event = json!({
                "apiVersion": "v1", "kind": "Event",
                "metadata": {"name": event_name, "namespace": namespace},
                "involvedObject": involved, "reason": reason, "message": message,
                "source": source, "firstTimestamp": stamp, "lastTimestamp": stamp, "count": 1,
                "type": if warning { "Warning" } else { "Normal" },
                "eventTime": null, "reportingComponent": component, "reportingInstance": host,
            });
            api.create(writer, &EVENTS, namespace, event)
        }
    };
    note("event", result);
}

/// The name and the count of an equal Event that was written before.
fn earlier(api: &ApiServer, namespace: &str, occurrence: &Occurrence<'_>) -> Option<(String, i64)> {
    let metadata = &occurrence.object["metadata"];
    let prefix = format!("{}.", metadata["name"].as_str().unwrap_or_default());
    let from = Bound::Included((namespace.to_owned(), prefix.clone()));
    api.store
        .range(&EVENTS, from)
        .take_while(|((place, name), _)| place == namespace && name.starts_with(&prefix))
        .find(|(_, event)| {
            event["involvedObject"]["uid"] == metadata["uid"]
                && event["reason"] == occurrence.reason
                && event["message"] == occurrence.message
                && event["reportingComponent"] == occurrence.component
        })
        .map(|((_, name), event)| (name.clone(), event["count"].as_i64().unwrap_or(1)))
}

/// Logs a refused write of a controller: its object is gone or has changed, and that change brings
/// the controller back.
pub fn note<T>(what: &str, result: Result<T, ApiError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            tracing::debug!(%error, what, "a controller's write was refused");
            None
        }
    }
}

/// A time as objects carry it, in whole seconds.
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Sets a condition; its `lastTransitionTime` moves only with its status.
///
/// Returns whether anything changed.
pub fn set_condition(
    conditions: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> bool {
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return false };
    let mut new = json!({"type": kind, "status": status, "lastTransitionTime": time(now)});
    if !reason.is_empty() {
        new["reason"] = json!(reason);
    }
    if !message.is_empty() {
        new["message"] = json!(message);
    }
    match list.iter_mut().find(|condition| condition["type"] == kind) {
        Some(old) => {
            let same = |field: &str| old[field] == new[field];
            if same("status") && same("reason") && same("message") {
                return false;
            }
            if same("status") {
                new["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            for field in ["lastProbeTime", "lastHeartbeatTime"] {
                if !old[field].is_null() {
                    new[field] = old[field].clone();
                }
            }
            *old = new;
        }
        None => list.push(new),
    }
    true
}

/// The status of a condition: `True`, `False`, `Unknown`, or nothing if there is none.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == kind)
        .and_then(|condition| condition["status"].as_str())
        .unwrap_or_default()
}
