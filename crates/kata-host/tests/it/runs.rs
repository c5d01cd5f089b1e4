//! The tasks that most tests are about.

use kata_api::node_task::{NodeAction, NodeReport, NodeTask, Outcome};

use crate::node::{Node, task};

pub(crate) fn install() -> NodeTask {
    task(NodeAction::Install, "a")
}

pub(crate) fn remove() -> NodeTask {
    task(NodeAction::Remove, "")
}

/// Runs a task that must succeed.
#[track_caller]
pub(crate) fn done(node: &mut Node, task: &NodeTask) -> NodeReport {
    let report = kata_host::run(node, task);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}\n{:#?}", node.log);
    report
}
