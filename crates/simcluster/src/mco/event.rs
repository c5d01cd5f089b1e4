//! Events that the Machine Config Operator's components record on pools and nodes.

use jiff::Timestamp;
use md5::{Digest, Md5};
use serde_json::{Value, json};

use super::names::NAMESPACE;
use crate::resource::EVENTS;
use crate::{Context, api::ApiError};

/// Component of the machine-config daemons.
pub(super) const DAEMON: &str = "machineconfigdaemon";
/// Component of the node controller.
pub(super) const NODE_CONTROLLER: &str = "machineconfigcontroller-nodecontroller";
/// Component of the render controller.
pub(super) const RENDER_CONTROLLER: &str = "machineconfigcontroller-rendercontroller";

/// Records an Event; a repetition raises the count of the first.
pub(super) fn record(
    cx: &mut Context<'_>,
    component: &str,
    object: &Value,
    warning: bool,
    reason: &str,
    message: &str,
) {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let digest = hex(format!("{component}\n{}\n{reason}\n{message}", object["kind"]).as_bytes());
    let event = format!("{name}.{}", digest.get(..16).unwrap_or_default());
    let now = timestamp(cx.now);
    let writer = cx.writer();
    let result = if let Some(known) = cx.api.get(&EVENTS, NAMESPACE, &event) {
        let count = known["count"].as_i64().unwrap_or(1) + 1;
        let patch = json!({"count": count, "lastTimestamp": now});
        cx.api.merge(writer, &EVENTS, NAMESPACE, &event, &patch)
    } else {
        let body = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": event, "namespace": NAMESPACE},
            "involvedObject": {
                "apiVersion": object["apiVersion"], "kind": object["kind"], "name": name,
                "uid": object["metadata"]["uid"],
            },
            "type": if warning { "Warning" } else { "Normal" },
            "reason": reason, "message": message, "count": 1,
            "firstTimestamp": now, "lastTimestamp": now,
            "source": {"component": component}, "reportingComponent": component,
        });
        cx.api.create(writer, &EVENTS, NAMESPACE, body)
    };
    log(result, "record an Event");
}

/// Notes a write that failed; the object is gone, and its deletion is an event of its own.
pub(super) fn log<T>(result: Result<T, ApiError>, what: &str) -> Option<T> {
    result.map_err(|error| tracing::debug!(%error, "cannot {what}")).ok()
}

/// A time as the API shows it: whole seconds.
pub(super) fn timestamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The MD5 digest in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    Md5::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
