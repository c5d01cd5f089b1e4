//! What a step that creates a Job would do: to which node, and whether it changes it.

use std::collections::BTreeSet;

use kata_api::names::node_job;
use kata_api::node_task::{NodeAction, NodeTask};
use serde_json::Value;

use crate::object::{Kind, ObjectRef};

/// Whether a Job with this action changes its node.
pub(super) fn changes(action: NodeAction) -> bool {
    matches!(action, NodeAction::Install | NodeAction::Remove)
}

/// The node and the action of a Job.
pub(super) fn task_of(body: &Value) -> Option<(&str, NodeAction)> {
    let annotation = |key: &str| body["metadata"]["annotations"][key].as_str();
    Some((annotation(node_job::NODE)?, annotation(node_job::ACTION).and_then(NodeAction::parse)?))
}

/// The handlers that a Job's node has after the Job.
pub(super) fn handlers_of(body: &Value) -> Option<BTreeSet<String>> {
    let command = body["spec"]["template"]["spec"]["containers"][0]["command"].as_array()?;
    let at = command.iter().position(|word| word == "--task")?;
    let task: NodeTask = serde_json::from_str(command.get(at + 1)?.as_str()?).ok()?;
    Some(task.handlers.into_iter().map(|handler| handler.name).collect())
}

/// If an applied object is a Job: its node, and whether it changes the node.
pub(super) fn node_of<'a>(object: &ObjectRef, body: &'a Value) -> Option<(&'a str, bool)> {
    let task = (object.kind == Kind::Job).then(|| task_of(body)).flatten();
    task.map(|(node, action)| (node, changes(action)))
}
