//! The situation of a KataConfig, which is a row of the table [`situations::SITUATIONS`], and the finding
//! that causes it. [`super::condition`] derives the conditions from it.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_node::Phase;
use kata_api::situations::{self, Effect, Readiness, Situation};
use kata_api::{Code, KataConfig, Severity, conditions};

use super::lists::{has_kata, runtimes_without_class};
use crate::assessment::{Assessment, NodeAssessment};
use crate::object::{Kind, ObjectRef};
use crate::plan::Step;
use crate::report::{Finding, Report, StepFailure};

/// How long a read may fail until it counts as a fault that an admin has to remove.
const UNREADABLE_FOR_LONG: SignedDuration = SignedDuration::from_mins(10);

/// The state of a KataConfig from which its conditions follow.
pub(super) struct ConfigState<'a> {
    pub(super) situation: Situation,
    pub(super) is_ready: bool,
    /// Whether the operator still has to change nodes or RuntimeClasses.
    pub(super) has_work: bool,
    /// Whether every RuntimeClass exists with its handler.
    pub(super) classes_exist: bool,
    /// The worst finding that blocks or delays the work.
    pub(super) worst: Option<&'a Finding>,
    /// The finding that an admin has to fix, if the situation is stalled.
    pub(super) stalled_by: Option<&'a Finding>,
}

pub(super) fn config_state<'a>(
    cluster: &Assessment,
    report: &'a Report,
    planned: &[Step],
    failures: &[StepFailure],
) -> ConfigState<'a> {
    let wanted = || cluster.nodes.iter().filter(|node| node.wanted);
    let all_have_kata = wanted().next().is_some() && wanted().all(has_kata);
    let classes_exist = classes_exist(cluster, report);
    // If the selector cannot be evaluated, the spec is not applied, so the KataConfig is not Ready.
    let is_understood = report.findings.iter().all(|finding| finding.code != Code::InvalidSelector);
    let is_installed = !cluster.deleting && all_have_kata && classes_exist && is_understood;
    let is_current = is_installed && wanted().all(|node| !node.behind);
    let has_work = has_work(cluster, report, all_have_kata);
    let worst = worst_hold_up(report);
    let troubled = TroubledNodes::of(cluster);
    let stuck_by = report.findings.iter().find(|it| troubled.needs_admin(cluster, it));
    let is_moving = is_moving(cluster, planned, failures, has_work);
    let is_paused = report.findings.iter().any(|it| effect(it) == Effect::Pauses);
    let blocks_deletion = |code| matches!(code, Code::PodsStillRunning | Code::ReadFailed);
    let is_held = report.findings.iter().any(|it| blocks_deletion(it.code));
    let situation = match stuck_by {
        _ if cluster.deleting && is_held => Situation::DeletionHeld,
        _ if cluster.deleting && is_moving => Situation::Deleting,
        _ if cluster.deleting && is_paused => Situation::DeletionHeld,
        Some(_) if cluster.deleting => Situation::DeletionStuck,
        None if cluster.deleting => Situation::Deleting,
        _ if cluster.nodes.is_empty() => Situation::NothingSelected,
        _ if is_current && !has_work => Situation::Serving,
        _ if is_moving => Situation::RollingOut,
        _ if is_paused => Situation::Paused,
        Some(finding) if troubled.is_failure(finding) => Situation::Failed,
        Some(_) => Situation::Held,
        None if has_work => Situation::Waiting,
        None => Situation::NotServing,
    };
    let row = situation.row();
    let is_ready = match row.ready {
        Readiness::True => true,
        Readiness::IfCurrent => is_current,
        Readiness::IfInstalled => is_installed,
        Readiness::False | Readiness::Unknown => false,
    };
    let stalled_by = stuck_by.or(worst).filter(|_| row.stalled);
    ConfigState { situation, is_ready, has_work, classes_exist, worst, stalled_by }
}

/// The situation of a KataConfig whose cluster could not be assessed because of this finding.
pub(super) fn unreadable(now: Timestamp, config: &KataConfig, finding: &Finding) -> Situation {
    let mut before = config.status.iter().flat_map(|status| &status.conditions);
    let unknown = before.find(|it| it.type_ == conditions::READY && it.status == "Unknown");
    let is_overdue = unknown
        .is_some_and(|it| now.duration_since(it.last_transition_time.0) >= UNREADABLE_FOR_LONG);
    let is_long = is_overdue || situations::effect(finding.code) == Effect::Holds;
    match (config.metadata.deletion_timestamp.is_some(), is_long) {
        (true, true) => Situation::DeletionUnreadableForLong,
        (true, false) => Situation::DeletionUnreadable,
        (false, true) => Situation::UnreadableForLong,
        (false, false) => Situation::Unreadable,
    }
}

/// The effect of a finding on the remaining work. A problem of a KataNode or of kata-monitor has no effect, except
/// that a KataNode that cannot be read holds up its node and every deletion.
fn effect(finding: &Finding) -> Effect {
    let kind = finding.subject.kind;
    let holds = kind == Kind::KataNode && finding.code == Code::ReadFailed;
    let is_auxiliary = kind.is_auxiliary() && !holds;
    if is_auxiliary || finding.code.entry().severity < Severity::Warning {
        Effect::Nothing
    } else {
        situations::effect(finding.code)
    }
}

/// The worst finding that affects the remaining work. `NoNodesSelected` comes last, because it is obvious
/// while nodes leave.
fn worst_hold_up(report: &Report) -> Option<&Finding> {
    let mut all = report.findings.iter().filter(|finding| effect(finding) != Effect::Nothing);
    let first = all.next();
    let is_obvious = first.is_some_and(|finding| finding.code == Code::NoNodesSelected);
    if is_obvious { all.next().or(first) } else { first }
}

/// Whether the code of a finding means a failure.
pub(super) fn is_error(finding: &Finding) -> bool {
    finding.code.entry().severity == Severity::Error
        && !matches!(finding.code, Code::PodsStillRunning | Code::ReadFailed)
}

/// The nodes that need an admin.
pub(super) struct TroubledNodes {
    failed: BTreeSet<ObjectRef>,
    /// The nodes that failed, or whose finding has lasted for too long.
    stuck: BTreeSet<ObjectRef>,
}

impl TroubledNodes {
    pub(super) fn of(cluster: &Assessment) -> Self {
        let nodes = |keep: fn(&NodeAssessment) -> bool| {
            cluster.nodes.iter().filter(|node| keep(node)).map(NodeAssessment::object).collect()
        };
        // A stalled KataConfig stays stalled while a failed change is retried.
        let is_stuck: fn(&NodeAssessment) -> bool = if was_stalled(cluster) {
            |node| node.has_failed || node.is_overdue || node.is_tried_again
        } else {
            |node| node.has_failed || node.is_overdue
        };
        Self { failed: nodes(|node| node.has_failed), stuck: nodes(is_stuck) }
    }

    /// Whether a finding is a failure: it is an error, or it is about a node that is not expected to
    /// succeed without an admin.
    pub(super) fn is_failure(&self, finding: &Finding) -> bool {
        is_error(finding) || self.failed.contains(&finding.subject)
    }

    /// Whether the work that a finding affects needs an admin to continue.
    fn needs_admin(&self, cluster: &Assessment, finding: &Finding) -> bool {
        match effect(finding) {
            Effect::Nothing | Effect::Pauses => false,
            Effect::Waits => self.stuck.contains(&finding.subject),
            Effect::Holds => finding.code != Code::NoNodesSelected || cluster.nodes.is_empty(),
        }
    }
}

fn was_stalled(cluster: &Assessment) -> bool {
    let mut before = cluster.config.status.iter().flat_map(|status| &status.conditions);
    // Nodes do not move while they cannot be read.
    let unread = Code::ReadFailed.entry().reason;
    before.any(|it| it.type_ == conditions::STALLED && it.status == "True" && it.reason != unread)
}

/// Whether the work makes progress. For a stalled KataConfig only the change of a node counts, and not a
/// step that the operator retries.
fn is_moving(
    cluster: &Assessment,
    planned: &[Step],
    failures: &[StepFailure],
    has_work: bool,
) -> bool {
    let progresses = |node: &NodeAssessment| {
        node.step.is_some() && node.finding.is_none() && node.phase != Phase::Failed
    };
    if cluster.nodes.iter().any(progresses) {
        return true;
    }
    let failed: BTreeSet<&ObjectRef> = failures.iter().map(|failure| &failure.object).collect();
    let succeeds = |step: &Step| {
        let object = step.action.object();
        !object.kind.is_auxiliary() && !failed.contains(object)
    };
    has_work && !was_stalled(cluster) && planned.iter().any(succeeds)
}

/// Whether the operator still has to change nodes or RuntimeClasses.
fn has_work(cluster: &Assessment, report: &Report, all_have_kata: bool) -> bool {
    let is_left = |node: &NodeAssessment| {
        !node.wanted
            || node.behind
            || matches!(node.phase, Phase::Waiting | Phase::Installing | Phase::Failed)
            || (node.phase == Phase::Ready && !node.has_runtime_label && node.was_installing())
    };
    // A class that is blocked by a foreign one is not work in progress.
    let is_work = |name: &String| !is_found(report, Code::ForeignRuntimeClass, name);
    cluster.deleting
        || cluster.nodes.iter().any(is_left)
        || (all_have_kata && runtimes_without_class(cluster).iter().any(is_work))
}

/// Whether every RuntimeClass with nodes exists with the handler of the spec.
fn classes_exist(cluster: &Assessment, report: &Report) -> bool {
    let is_replaced = |name: &str| is_found(report, Code::HandlerImmutable, name);
    runtimes_without_class(cluster).is_empty()
        && !cluster.runtimes_with_nodes().any(|runtime| is_replaced(&runtime.name))
}

fn is_found(report: &Report, code: Code, name: &str) -> bool {
    report.findings.iter().any(|it| it.code == code && it.subject.name == name)
}
