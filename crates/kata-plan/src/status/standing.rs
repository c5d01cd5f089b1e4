//! Where the KataConfig stands: whether all is ready, whether work of our own is pending, and what keeps it
//! from being done.
//!
//! Here it is judged once; how the conditions tell it is in [`super::condition`].

use kata_api::kata_node::Phase;
use kata_api::{Code, Severity};

use super::{NAMES, existing_classes, is_ready};
use crate::plan::Step;
use crate::report::{Finding, Report, Waiting};
use crate::steps::Steps;
use crate::text;
use crate::view::{NodeView, View};

/// Where the KataConfig stands, in terms of its conditions.
pub(super) struct Standing<'a> {
    pub(super) ready: bool,
    /// Something of our own is still to be done.
    pub(super) pending: bool,
    /// What keeps the pending from being done, if nothing moves.
    pub(super) stalled_by: Option<&'a Finding>,
    pub(super) summary: String,
    /// The worst finding that has to do with readiness.
    pub(super) worst: Option<&'a Finding>,
    pub(super) classes_exist: bool,
}

pub(super) fn standing<'a>(
    view: &View<'_>,
    steps: &Steps,
    report: &'a Report,
    planned: &[Step],
) -> Standing<'a> {
    let wanted = view.nodes.iter().filter(|node| node.wanted).count();
    let all_ready = wanted > 0 && view.nodes.iter().all(|node| !node.wanted || is_ready(node));
    let existing = existing_classes(view);
    // With another handler it takes pods to another runtime than the spec asks for.
    let differs = |name: &str| {
        report
            .findings
            .iter()
            .any(|finding| finding.code == Code::HandlerImmutable && finding.subject.name == name)
    };
    let classes_exist = view
        .runtimes
        .iter()
        .all(|runtime| existing.contains(&runtime.name) && !differs(&runtime.name));
    // With a selector that cannot be evaluated the spec is not acted on, whatever the nodes are.
    let understood = report.findings.iter().all(|finding| finding.code != Code::InvalidSelector);
    let behind = view.nodes.iter().any(|node| node.behind);
    let ready = !view.deleting && all_ready && classes_exist && understood && !behind;
    let ours = |node: &NodeView<'_>| {
        !node.wanted
            || matches!(node.phase, Phase::Waiting | Phase::Installing | Phase::Failed)
            || (node.phase == Phase::Ready && !node.verified && node.joins())
    };
    // What stands in the way of a class is not work that is going on.
    let foreign = |name: &str| {
        report.findings.iter().any(|finding| {
            finding.code == Code::ForeignRuntimeClass && finding.subject.name == name
        })
    };
    let classes_to_come = view
        .runtimes
        .iter()
        .any(|runtime| !existing.contains(&runtime.name) && !foreign(&runtime.name));
    let pending =
        view.deleting || behind || view.nodes.iter().any(ours) || (all_ready && classes_to_come);
    let moving = view.nodes.iter().any(|node| node.in_flight() && node.finding.is_none())
        || planned.iter().any(|step| !step.action.object().kind.is_beside());
    let mut concerning = report.findings.iter().filter(|finding| {
        finding.code.entry().severity >= Severity::Warning && concerns_readiness(finding)
    });
    // That nothing is selected is plain while nodes leave; what holds them up is not.
    let first = concerning.next();
    let worst = match first {
        Some(finding) if finding.code == Code::NoNodesSelected => concerning.next().or(first),
        first => first,
    };
    let nothing_selected = wanted == 0 && !view.deleting;
    let stalled_by = worst.filter(|finding| {
        let by_itself = matches!(
            finding.code,
            Code::PodsStillRunning
                    | Code::PodsOnLeavingNode
                    | Code::NodeNotReady
                    | Code::NodeStateUnknown
                    | Code::ReadFailed
                    | Code::WriteFailed
                    // These are tried again by themselves.
                    | Code::NodeJobFailed
                    | Code::NodeJobVanished
                    | Code::NodeJobTimedOut
                    | Code::NodeJobNoReport
                    | Code::NodeJobNotStarted
                    | Code::SandboxesOnNode
                    | Code::NodeDrifted
        );
        (pending || nothing_selected || !ready)
            && !moving
            && (finding.code != Code::NoNodesSelected || view.nodes.is_empty())
            && (!by_itself || has_failed(view, finding))
    });
    Standing {
        ready,
        pending,
        stalled_by,
        summary: summary(view, steps, wanted, report, worst.is_some()),
        worst,
        classes_exist,
    }
}

/// Whether a finding is of a node that failed so often that nobody expects it to succeed by itself any more,
/// though it goes on being tried.
pub(super) fn has_failed(view: &View<'_>, finding: &Finding) -> bool {
    let of_failed = |node: &NodeView<'_>| node.host.as_ref().is_some_and(|host| host.failed);
    view.nodes.iter().any(|node| of_failed(node) && node.object() == finding.subject)
}

/// Whether a finding can keep selected nodes from being ready, or leaving ones from leaving.
pub(super) fn concerns_readiness(finding: &Finding) -> bool {
    // Neither a KataNode that is out of date nor the lack of kata-monitor keeps a node from anything.
    !finding.subject.kind.is_beside()
        && !matches!(
            finding.code,
            Code::PeerPodsUnsupported
                | Code::SelectorIgnored
                | Code::WorkersNotCovered
                | Code::NodeInOtherPool
                | Code::UnsupportedNode
                | Code::InvalidLogLevel
                | Code::RuntimeClassInUse
                | Code::RolloutNotHonoured
                | Code::ForeignRuntimeLabel
                | Code::AdoptedOverhead
                | Code::OtherInstaller
        )
}

pub(super) fn worst(report: &Report) -> Option<&Finding> {
    report.findings.iter().find(|finding| finding.code.entry().severity >= Severity::Warning)
}

/// `1 of 3 nodes ready; worker-1 draining (2/6), worker-2 waiting`.
fn summary(
    view: &View<'_>,
    steps: &Steps,
    wanted: usize,
    report: &Report,
    held_up: bool,
) -> String {
    let mut others: Vec<&NodeView<'_>> =
        view.nodes.iter().filter(|node| !node.wanted || !is_ready(node) || node.behind).collect();
    // Those that need help first, then those that move.
    others.sort_by_key(|node| (node.phase != Phase::Failed, !node.in_flight()));
    let briefs: Vec<String> = others
        .iter()
        .map(|node| {
            if view.deleting || node.wanted {
                node.brief()
            } else {
                format!("{} leaving: {}", node.facts.name, node.state())
            }
        })
        .collect();
    let mut tail =
        if briefs.is_empty() { String::new() } else { format!("; {}", text::list(&briefs, NAMES)) };
    // What all of them wait for, as long as none moves.
    let awaited = report
        .waiting_on
        .iter()
        .find(|waiting| matches!(waiting.what, Waiting::Render | Waiting::Deletion));
    if let Some(awaited) = awaited
        && !held_up
        && !view.nodes.iter().any(NodeView::in_flight)
    {
        tail.push_str(&format!("; waiting for {}", awaited.message));
    }
    if let Some(queue) = &steps.queue {
        tail.push_str(&format!("; waiting: {queue}"));
    }
    if view.deleting {
        return match view.nodes.len() {
            0 => format!("removing: no node has Kata any more{tail}"),
            left => {
                let all = text::count(view.selected.max(left), "node");
                let have = if left == 1 { "still has" } else { "still have" };
                format!("removing: {left} of {all} {have} Kata{tail}")
            }
        };
    }
    let ready = view.nodes.iter().filter(|node| node.wanted && is_ready(node)).count();
    let behind = view.nodes.iter().filter(|node| node.wanted && node.behind).count();
    // Nodes that wait for another version are ready all the same.
    let current = match behind {
        0 => String::new(),
        _ => format!(", {} up to date", wanted.saturating_sub(behind)),
    };
    format!("{ready} of {} ready{current}{tail}", text::count(wanted, "node"))
}
