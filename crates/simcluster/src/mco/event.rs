//! Events that the Machine Config Operator's components record on pools and nodes.

use jiff::Timestamp;
use md5::{Digest, Md5};
use serde_json::Value;

use super::names::NAMESPACE;
use crate::recorder::{Occurrence, record_in};
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
    let occurrence = Occurrence { object, warning, reason, message, component, host: "" };
    record_in(cx.api, cx.now, NAMESPACE, &occurrence);
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
