//! The sentence about a KataConfig's progress, with which most condition messages begin.

use std::collections::BTreeSet;

use kata_api::Code;
use kata_api::kata_node::Phase;

use super::lists::{NAMES, has_kata, may_have_kata};
use crate::assessment::{Assessment, NodeAssessment};
use crate::draft::{Draft, Queue};
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
            format!("{}; waiting for {}", briefs(cluster, None), awaited.message)
        }
        (_, queue) => briefs(cluster, queue.as_ref()),
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

/// `; worker-1 draining (2/6); worker-2, worker-3 waiting: the first node must succeed first`: the nodes that are not
/// in the desired state, those of the queue with its reason.
fn briefs(cluster: &Assessment, queue: Option<&Queue>) -> String {
    let names: BTreeSet<&str> =
        queue.into_iter().flat_map(|queue| &queue.nodes).map(String::as_str).collect();
    let is_settled = |node: &NodeAssessment| {
        node.wanted && node.phase == Phase::Ready && node.has_runtime_label && !node.behind
    };
    // Such a node does nothing but wait; others of the queue have more to say.
    let only_waits = |node: &NodeAssessment| {
        let has_phase = match node.phase {
            Phase::Waiting | Phase::WaitingToRemove => true,
            Phase::Ready => node.behind && node.has_runtime_label,
            _ => false,
        };
        has_phase && node.step.is_none() && names.contains(node.facts.name.as_str())
    };
    let stays = |node: &NodeAssessment| node.wanted || cluster.deleting;
    let is_named_below = |node: &NodeAssessment| stays(node) && only_waits(node);
    let mut others: Vec<&NodeAssessment> =
        cluster.nodes.iter().filter(|node| !is_settled(node) && !is_named_below(node)).collect();
    // Failed nodes first, then nodes that are being changed.
    others.sort_by_key(|node| (node.phase != Phase::Failed, !node.in_flight()));
    let brief = |node: &&NodeAssessment| match queue {
        _ if stays(node) => node.brief(),
        Some(queue) if only_waits(node) => format!("{} leaving: {}", node.facts.name, queue.reason),
        _ => format!("{} leaving: {}", node.facts.name, node.state()),
    };
    let briefs: Vec<String> = others.iter().take(NAMES).map(brief).collect();
    let mut text = match briefs.as_slice() {
        [] => String::new(),
        shown => format!("; {}", text::list_of(shown, others.len())),
    };
    if let Some(Queue { reason, .. }) = queue {
        let waiting = || cluster.nodes.iter().filter(|node| only_waits(node));
        let staying: Vec<&str> =
            waiting().filter(|node| stays(node)).map(|node| node.facts.name.as_str()).collect();
        if !staying.is_empty() {
            text.push_str(&format!("; {} waiting: {reason}", text::list(&staying, NAMES)));
        } else if waiting().next().is_none() {
            text.push_str(&format!("; waiting: {reason}"));
        }
    }
    text
}
