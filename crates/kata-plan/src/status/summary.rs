//! The sentence about a KataConfig's progress, with which most condition messages begin.

use std::collections::BTreeSet;

use kata_api::Code;
use kata_api::kata_node::Phase;

use super::NAMES;
use super::lists::{has_kata, may_have_kata};
use crate::assessment::{Assessment, NodeAssessment};
use crate::draft::Draft;
use crate::object::Kind;
use crate::report::{Finding, Report, Waiting};
use crate::text;

/// `1 of 3 nodes has Kata; worker-1 draining (2/6); worker-2 waiting: the first node must succeed first`.
pub(super) fn summary(
    cluster: &Assessment,
    draft: &Draft,
    report: &Report,
    is_held_up: bool,
) -> String {
    // The wait of all nodes, while no node is being changed.
    let awaited = report.waiting_on.iter().find(|waiting| {
        // The deletion of one node's objects does not explain why other nodes wait.
        let is_of_one = matches!(waiting.subject.kind, Kind::KataNode | Kind::Job);
        matches!(waiting.what, Waiting::Render | Waiting::Deletion)
            && !(is_of_one && draft.queue.is_some())
    });
    let is_idle = !is_held_up && !cluster.nodes.iter().any(NodeAssessment::in_flight);
    let mut tail = match (awaited, &draft.queue) {
        (Some(awaited), _) if is_idle => {
            format!("{}; waiting for {}", briefs(cluster, &BTreeSet::new()), awaited.message)
        }
        (_, Some(queue)) => {
            let (names, reason) = (text::list(&queue.nodes, NAMES), &queue.reason);
            let queue: BTreeSet<&str> = queue.nodes.iter().map(String::as_str).collect();
            let stays = |node: &NodeAssessment| {
                (node.wanted || cluster.deleting) && queue.contains(node.facts.name.as_str())
            };
            let leaving = if cluster.nodes.iter().any(stays) { "" } else { " leaving," };
            format!("{}; {names}{leaving} waiting: {reason}", briefs(cluster, &queue))
        }
        (_, None) => briefs(cluster, &BTreeSet::new()),
    };
    tail.push_str(&excluded(report));
    let verb = |have: usize, all: usize| if have == 1 || all == 1 { "has" } else { "have" };
    if cluster.deleting {
        let all = cluster.selected.max(cluster.nodes.len());
        return match cluster.nodes.iter().filter(|node| may_have_kata(node)).count() {
            0 if cluster.nodes.is_empty() => format!("removing: no node has Kata any more{tail}"),
            0 => format!("removing: no node has Kata{tail}"),
            left => {
                let (verb, all) = (verb(left, all), text::count(all, "node"));
                format!("removing: {left} of {all} still {verb} Kata{tail}")
            }
        };
    }
    let wanted = cluster.nodes.iter().filter(|node| node.wanted);
    let count = wanted.clone().count();
    let have = wanted.clone().filter(|node| has_kata(node)).count();
    let behind = wanted.filter(|node| node.behind).count();
    // Nodes that wait for an update have Kata, too.
    let current = match behind {
        0 => String::new(),
        _ => format!(", {} up to date", count.saturating_sub(behind)),
    };
    format!("{have} of {} {} Kata{current}{tail}", text::count(count, "node"), verb(have, count))
}

/// `; KATA2110: node worker-1 is excluded: it runs Windows`: the selected nodes that cannot have Kata. Several are
/// counted, with the reason of the first. If no node is selected, the finding of that names them.
fn excluded(report: &Report) -> String {
    if report.findings.iter().any(|it| it.code == Code::NoNodesSelected) {
        return String::new();
    }
    let findings = report.findings.iter().filter(|it| it.code == Code::UnsupportedNode);
    let findings: Vec<&Finding> = findings.collect();
    let code = Code::UnsupportedNode.entry().code;
    match findings.as_slice() {
        [] => String::new(),
        [finding] => format!("; {code}: {}", finding.message),
        [first, ..] => {
            let names: Vec<&str> = findings.iter().map(|it| it.subject.name.as_str()).collect();
            let count = text::count(findings.len(), "node");
            let names = text::list(&names, NAMES);
            format!("; {code}: {count} are excluded: {names}; {}", first.message)
        }
    }
}

/// `; worker-1 draining (2/6), worker-2 waiting`: the nodes that are not in the desired state, without those of the
/// queue that the message names with their reason.
fn briefs(cluster: &Assessment, queue: &BTreeSet<&str>) -> String {
    let is_queued = |node: &NodeAssessment| {
        let is_waiting = match node.phase {
            Phase::Waiting | Phase::WaitingToRemove => !node.has_earlier_change,
            Phase::Ready => node.behind && node.has_runtime_label,
            _ => false,
        };
        is_waiting && node.step.is_none() && queue.contains(node.facts.name.as_str())
    };
    let is_settled = |node: &NodeAssessment| {
        node.wanted && node.phase == Phase::Ready && node.has_runtime_label && !node.behind
    };
    let mut others: Vec<&NodeAssessment> =
        cluster.nodes.iter().filter(|node| !is_settled(node) && !is_queued(node)).collect();
    // Failed nodes first, then nodes that are being changed.
    others.sort_by_key(|node| (node.phase != Phase::Failed, !node.in_flight()));
    let briefs: Vec<String> = others
        .iter()
        .map(|node| {
            if cluster.deleting || node.wanted {
                node.brief()
            } else {
                format!("{} leaving: {}", node.facts.name, node.state())
            }
        })
        .collect();
    if briefs.is_empty() { String::new() } else { format!("; {}", text::list(&briefs, NAMES)) }
}
