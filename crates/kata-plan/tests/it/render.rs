//! Decisions as text, for comparison and for reading.

use std::fmt::Write as _;

use kata_plan::Decision;

pub(crate) fn decision(decision: &Decision) -> String {
    let mut text = String::new();
    let report = &decision.report;
    writeln!(text, "PLAN").unwrap();
    for step in &decision.plan.steps {
        writeln!(text, "  {step} [{:?}]", step.on_failure).unwrap();
    }
    writeln!(text, "FINDINGS").unwrap();
    for finding in &report.findings {
        writeln!(text, "  {finding}").unwrap();
    }
    writeln!(text, "WAITING").unwrap();
    for waiting in &report.waiting_on {
        writeln!(text, "  {:?} {}: {}", waiting.what, waiting.subject, waiting.message).unwrap();
    }
    writeln!(text, "NODES").unwrap();
    for node in &report.nodes {
        let step = node.step.map_or_else(String::new, |step| format!(" {}", step.as_str()));
        writeln!(text, "  {} {}{step}", node.node, node.phase.as_str()).unwrap();
    }
    for status in report.status.iter().chain(&report.other_configs) {
        writeln!(text, "STATUS {}", status.config).unwrap();
        let nodes = &status.status.kata_nodes;
        writeln!(
            text,
            "  {}/{} classes={:?} installed={:?} installing={:?} waiting={:?} failed={:?} uninstalling={:?} \
             waitingToUninstall={:?} failedToUninstall={:?}",
            nodes.ready_node_count,
            nodes.node_count,
            status.status.runtime_classes,
            nodes.installed,
            nodes.installing,
            nodes.waiting_to_install,
            nodes.failed_to_install,
            nodes.uninstalling,
            nodes.waiting_to_uninstall,
            nodes.failed_to_uninstall
        )
        .unwrap();
        for condition in &status.status.conditions {
            writeln!(
                text,
                "  {}={} {}: {}",
                condition.type_, condition.status, condition.reason, condition.message
            )
            .unwrap();
        }
    }
    writeln!(text, "EVENTS").unwrap();
    for event in &report.events {
        let kind = if event.warning { "Warning" } else { "Normal" };
        writeln!(text, "  {kind} {} {}: {}", event.reason, event.regarding, event.note).unwrap();
    }
    text
}
