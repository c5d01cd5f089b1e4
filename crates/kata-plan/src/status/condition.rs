//! The conditions: which reason and message each of ours has, and how they replace those that are there.
//!
//! They tell what [`super::standing`] found; conditions of other people stay as they are.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kata_api::conditions::{self, in_progress, reasons};
use kata_api::kata_node::Phase;
use kata_api::{Code, KataConfigStatus, Severity};

use super::standing::{Standing, concerns_readiness, worst};
use super::{NAMES, existing_classes, is_ready};
use crate::report::{Finding, Report};
use crate::steps::Steps;
use crate::text;
use crate::view::View;

/// Most bytes of a condition's message; the API allows 32,768.
const MESSAGE: usize = 4_096;

/// A condition without its times.
pub(super) struct Wanted {
    pub(super) type_: &'static str,
    status: &'static str,
    reason: String,
    message: String,
}

impl Wanted {
    pub(super) fn new(
        type_: &'static str,
        status: &'static str,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { type_, status, reason: reason.into(), message: message.into() }
    }
}

/// Whether all is ready, and, after what keeps it from that, whatever else is to be warned of.
pub(super) fn ready(view: &View<'_>, standing: &Standing<'_>, report: &Report) -> Wanted {
    let (mut wanted, first) = readiness(view, standing, report);
    for other in warnings(view, report).filter(|other| Some(*other) != first) {
        let other = format!("; {}: {}", other.code, other.message);
        if wanted.message.len() + other.len() <= MESSAGE {
            wanted.message.push_str(&other);
        }
    }
    wanted
}

/// What nothing else tells: errors are in `Degraded`, and what is wrong with a node is in its KataNode. That
/// nothing is selected is plain if it is not the worst.
fn warnings<'a>(view: &'a View<'_>, report: &'a Report) -> impl Iterator<Item = &'a Finding> {
    report.findings.iter().filter(|finding| {
        finding.code.entry().severity == Severity::Warning
            && finding.code != Code::NoNodesSelected
            && !finding.subject.kind.is_beside()
            && !view.nodes.iter().any(|node| node.object() == finding.subject)
    })
}

/// The condition with the worst that there is, and what that is.
fn readiness<'a>(
    view: &View<'_>,
    standing: &Standing<'a>,
    report: &'a Report,
) -> (Wanted, Option<&'a Finding>) {
    let summary = &standing.summary;
    if standing.ready {
        // Whoever leaves may be held up all the same, and whoever is left out may be missed.
        let worst = standing.worst.or_else(|| worst(report));
        let message = match worst {
            Some(finding) => format!("{summary}; {}: {}", finding.code, finding.message),
            None => summary.clone(),
        };
        let wanted = Wanted::new(conditions::READY, "True", reasons::ALL_NODES_READY, message);
        return (wanted, worst);
    }
    let first = standing.worst;
    let worst = standing.worst.map(|finding| {
        (finding.code.entry().reason, format!("{summary}; {}: {}", finding.code, finding.message))
    });
    if view.deleting {
        let message = worst.map_or_else(|| summary.clone(), |(_, message)| message);
        let wanted = Wanted::new(conditions::READY, "False", in_progress::UNINSTALLING, message);
        return (wanted, first);
    }
    let all_ready = view.nodes.iter().all(|node| !node.wanted || is_ready(node));
    let (reason, message) = match worst {
        // It keeps no selected node from being ready: something else does.
        Some((_, message))
            if !all_ready && first.is_some_and(|it| it.code == Code::PodsOnLeavingNode) =>
        {
            let reason =
                if standing.pending { reasons::ROLLING_OUT } else { reasons::NODES_NOT_READY };
            (reason, message)
        }
        Some(worst) => worst,
        None if all_ready && !standing.classes_exist && !view.nodes.is_empty() => {
            (reasons::RUNTIME_CLASS_MISSING, format!("{summary}; {} yet", missing_classes(view)))
        }
        None => {
            let other = report.findings.iter().find(|finding| finding.code == Code::OtherRollout);
            match other {
                Some(finding) if !standing.pending => (
                    finding.code.entry().reason,
                    format!("{summary}; {}: {}", finding.code, finding.message),
                ),
                _ if standing.pending => (reasons::ROLLING_OUT, summary.clone()),
                _ => (reasons::NODES_NOT_READY, summary.clone()),
            }
        }
    };
    (Wanted::new(conditions::READY, "False", reason, message), first)
}

pub(super) fn in_progress(view: &View<'_>, steps: &Steps, standing: &Standing<'_>) -> Wanted {
    let wanted = |status, reason: &str, message: String| {
        Wanted::new(conditions::IN_PROGRESS, status, reason, message)
    };
    if view.deleting {
        return match steps.blocked_by.first() {
            Some(class) => wanted(
                "False",
                in_progress::BLOCKED_BY_EXISTING_KATA_PODS,
                in_progress::blocked_message(class),
            ),
            None => wanted(
                "True",
                in_progress::UNINSTALLING,
                in_progress::UNINSTALLING_MESSAGE.to_owned(),
            ),
        };
    }
    if let Some(node) = view.nodes.iter().find(|node| node.phase == Phase::Failed) {
        let message = in_progress::failed_message(&node.facts.name, node.failure());
        return wanted("True", in_progress::FAILED, message);
    }
    if view.nodes.is_empty() {
        let reason = Code::NoNodesSelected.entry().reason;
        let cause = Code::NoNodesSelected.entry().cause;
        let message = standing.worst.map_or(cause, |finding| finding.message.as_str());
        return wanted("False", reason, message.to_owned());
    }
    if !standing.pending {
        let reason = match (standing.ready, standing.worst) {
            (false, Some(finding)) => finding.code.entry().reason,
            _ => in_progress::AS_EXPECTED,
        };
        return wanted("False", reason, standing.summary.clone());
    }
    let before = view
        .config
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .find(|condition| condition.type_ == conditions::IN_PROGRESS)
        .map(|condition| condition.reason.as_str());
    let initial = before == Some(in_progress::INSTALLING)
        || (existing_classes(view).is_empty()
            && view.config.status.as_ref().is_none_or(|status| status.runtime_classes.is_empty()));
    if initial {
        wanted("True", in_progress::INSTALLING, in_progress::INSTALLING_MESSAGE.to_owned())
    } else {
        wanted("True", in_progress::UPDATING, in_progress::UPDATING_MESSAGE.to_owned())
    }
}

/// What has failed: every error, and what nodes failed with that goes on being tried.
pub(super) fn degraded(report: &Report, has_failed: impl Fn(&Finding) -> bool) -> Wanted {
    let errors: Vec<&Finding> = report
        .findings
        .iter()
        .filter(|finding| {
            (finding.code.entry().severity == Severity::Error || has_failed(finding))
                && !matches!(finding.code, Code::PodsStillRunning | Code::ReadFailed)
        })
        .collect();
    match errors.first() {
        Some(first) => {
            let messages: Vec<String> = errors
                .iter()
                .map(|finding| format!("{}: {}", finding.code, finding.message))
                .collect();
            Wanted::new(
                conditions::DEGRADED,
                "True",
                first.code.entry().reason,
                text::list(&messages, NAMES),
            )
        }
        None => Wanted::new(
            conditions::DEGRADED,
            "False",
            reasons::AS_EXPECTED,
            "nothing is known to be broken",
        ),
    }
}

pub(super) fn deletion_blocked(report: &Report) -> Wanted {
    let blocking = report
        .findings
        .iter()
        .find(|finding| finding.code == Code::PodsStillRunning)
        .or_else(|| worst(report).filter(|finding| concerns_readiness(finding)));
    match blocking {
        Some(finding) => Wanted::new(
            conditions::DELETION_BLOCKED,
            "True",
            finding.code.entry().reason,
            format!("{}: {} {}", finding.code, finding.message, fix(finding)),
        ),
        None => Wanted::new(
            conditions::DELETION_BLOCKED,
            "False",
            reasons::NOT_BLOCKED,
            "nothing blocks the deletion",
        ),
    }
}

/// `RuntimeClass kata does not exist`.
fn missing_classes(view: &View<'_>) -> String {
    let existing = existing_classes(view);
    let missing: Vec<String> = view
        .runtimes
        .iter()
        .filter(|runtime| !existing.contains(&runtime.name))
        .map(|runtime| runtime.name.clone())
        .collect();
    let names = text::list(&missing, NAMES);
    if missing.len() == 1 {
        format!("RuntimeClass {names} does not exist")
    } else {
        format!("the RuntimeClasses {names} do not exist")
    }
}

pub(super) fn fix(finding: &Finding) -> String {
    format!("({})", finding.fix.trim_end_matches('.'))
}

pub(super) fn conditions(
    now: Timestamp,
    previous: Option<&KataConfigStatus>,
    generation: Option<i64>,
    wanted: Vec<Wanted>,
) -> Vec<Condition> {
    let before = |type_: &str| {
        previous.into_iter().flat_map(|status| &status.conditions).find(|c| c.type_ == type_)
    };
    let mut conditions: Vec<Condition> = wanted
        .into_iter()
        .map(|wanted| Condition {
            last_transition_time: before(wanted.type_)
                .filter(|condition| condition.status == wanted.status)
                .map_or(Time(now), |condition| condition.last_transition_time.clone()),
            message: text::cut(&wanted.message, MESSAGE),
            observed_generation: generation,
            reason: wanted.reason,
            status: wanted.status.to_owned(),
            type_: wanted.type_.to_owned(),
        })
        .collect();
    // Conditions of other people stay.
    conditions.extend(
        previous
            .into_iter()
            .flat_map(|status| &status.conditions)
            .filter(|condition| !conditions::ALL.contains(&condition.type_.as_str()))
            .cloned(),
    );
    sort(&mut conditions);
    conditions
}

pub(super) fn sort(conditions: &mut [Condition]) {
    let place = |condition: &Condition| {
        conditions::ALL
            .iter()
            .position(|type_| *type_ == condition.type_)
            .unwrap_or(conditions::ALL.len())
    };
    conditions.sort_by_key(place);
}
