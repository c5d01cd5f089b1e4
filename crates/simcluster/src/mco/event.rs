//! Events that the Machine Config Operator's components record on pools and nodes.
//!
//! Who records, and where; how an Event is written is the recorder's business.

use serde_json::Value;

use super::NAMESPACE;
use crate::Context;
use crate::recorder::{self, Occurrence};

/// Component of the machine-config daemons.
pub(super) const DAEMON: &str = "machineconfigdaemon";
/// Component of the node controller.
pub(super) const NODE_CONTROLLER: &str = "machineconfigcontroller-nodecontroller";
/// Component of the render controller.
pub(super) const RENDER_CONTROLLER: &str = "machineconfigcontroller-rendercontroller";

/// Records an Event in the operator's namespace; a repetition raises the count of the first.
pub(super) fn record(
    cx: &mut Context<'_>,
    component: &str,
    object: &Value,
    warning: bool,
    reason: &str,
    message: &str,
) {
    let occurrence = Occurrence { object, warning, reason, message, component, host: "" };
    recorder::record_in(cx.api, cx.now, NAMESPACE, &occurrence);
}
