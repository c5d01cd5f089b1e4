//! The conditions of a KataConfig: their status, reason and message follow from [`super::situation`].
//! Conditions of other clients are unchanged.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kata_api::conditions::{self, in_progress, reasons};
use kata_api::kata_node::Phase;
use kata_api::situations::Situation;
use kata_api::{Code, KataConfigStatus, Severity};

use super::findings::worst;
use super::lists::{NAMES, existing_classes, has_kata, runtimes_without_class};
use super::situation::{ConfigState, TroubledNodes};
use super::summary::summary;
use crate::assessment::Assessment;
use crate::draft::Draft;
use crate::report::{Finding, Report};
use crate::text;

/// Most bytes of a condition's message; the API allows 32,768.
const MESSAGE: usize = 4_096;

/// A condition without its times.
pub(super) struct NewCondition {
    pub(super) type_: &'static str,
    status: &'static str,
    reason: String,
    message: String,
}

impl NewCondition {
    pub(super) fn new(
        type_: &'static str,
        status: &'static str,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { type_, status, reason: reason.into(), message: message.into() }
    }
}

/// The conditions of the active KataConfig.
pub(super) fn of_active(
    cluster: &Assessment,
    draft: &Draft,
    report: &Report,
    state: &ConfigState<'_>,
) -> Vec<NewCondition> {
    let row = state.situation.row();
    let summary = summary(cluster, draft, report, state.worst.is_some());
    let mut wanted =
        vec![in_progress(cluster, draft, state, &summary), ready(cluster, state, report, &summary)];
    if let Some(finding) = state.stalled_by {
        let reason = finding.code.entry().reason;
        wanted.push(NewCondition::new(conditions::STALLED, "True", reason, with_fix(finding)));
    } else if row.reconciling {
        let reason =
            if cluster.deleting { in_progress::UNINSTALLING } else { reasons::ROLLING_OUT };
        wanted.push(NewCondition::new(conditions::RECONCILING, "True", reason, summary));
    }
    let troubled = TroubledNodes::of(cluster);
    wanted.push(degraded(report, |finding| troubled.is_failure(finding)));
    wanted
        .extend(row.deletion_blocked.map(|is_blocked| deletion_blocked(report, state, is_blocked)));
    wanted
}

/// The condition Ready. Its message ends with all other warnings.
fn ready(
    cluster: &Assessment,
    state: &ConfigState<'_>,
    report: &Report,
    summary: &str,
) -> NewCondition {
    let (mut wanted, first) = readiness(cluster, state, report, summary);
    for other in warnings(cluster, report).filter(|other| Some(*other) != first) {
        let other = format!("; {}: {}", other.code, other.message);
        if wanted.message.len() + other.len() <= MESSAGE {
            wanted.message.push_str(&other);
        }
    }
    wanted
}

/// The warnings that are reported nowhere else: errors are in `Degraded`, and problems of a node are in its
/// KataNode. `NoNodesSelected` is left out, because it is obvious if another finding is worse.
fn warnings<'a>(cluster: &'a Assessment, report: &'a Report) -> impl Iterator<Item = &'a Finding> {
    report.findings.iter().filter(|finding| {
        finding.code.entry().severity == Severity::Warning
            && finding.code != Code::NoNodesSelected
            && !finding.subject.kind.is_auxiliary()
            && !cluster.is_about_node(finding)
    })
}

/// The condition Ready with the worst finding, and that finding.
fn readiness<'a>(
    cluster: &Assessment,
    state: &ConfigState<'a>,
    report: &'a Report,
    summary: &str,
) -> (NewCondition, Option<&'a Finding>) {
    let ready = |status, reason: &str, message: String| {
        NewCondition::new(conditions::READY, status, reason, message)
    };
    let with_finding = |finding: Option<&Finding>| match finding {
        Some(finding) => format!("{summary}; {}: {}", finding.code, finding.message),
        None => summary.to_owned(),
    };
    let first = state.worst;
    if state.is_ready {
        // A leaving node may still be blocked, and an excluded node may be missed.
        let worst = first.or_else(|| worst(report)).or_else(|| other_rollout(report));
        return (ready("True", reasons::ALL_NODES_READY, with_finding(worst)), worst);
    }
    if cluster.deleting {
        return (ready("False", in_progress::UNINSTALLING, with_finding(first)), first);
    }
    let all_have_kata = cluster.nodes.iter().all(|node| !node.wanted || has_kata(node));
    let is_at_work = state.situation.row().reconciling && state.has_work;
    let unfinished = if is_at_work { reasons::ROLLING_OUT } else { reasons::NODES_NOT_READY };
    let wanted = match first {
        // It does not block the installation on the selected nodes; something else does.
        Some(finding) if finding.code == Code::PodsOnLeavingNode && !all_have_kata => {
            ready("False", unfinished, with_finding(first))
        }
        Some(finding) => ready("False", finding.code.entry().reason, with_finding(first)),
        None if all_have_kata && !state.classes_exist => ready(
            "False",
            reasons::RUNTIME_CLASS_MISSING,
            format!("{summary}; {} yet", missing_classes(cluster)),
        ),
        None => ready("False", unfinished, with_finding(other_rollout(report))),
    };
    (wanted, first)
}

fn other_rollout(report: &Report) -> Option<&Finding> {
    report.findings.iter().find(|finding| finding.code == Code::OtherRollout)
}

fn in_progress(
    cluster: &Assessment,
    draft: &Draft,
    state: &ConfigState<'_>,
    summary: &str,
) -> NewCondition {
    let wanted = |status, reason: &str, message: String| {
        NewCondition::new(conditions::IN_PROGRESS, status, reason, message)
    };
    if cluster.deleting {
        return match draft.blocked_by.first() {
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
    if let Some(node) = cluster.nodes.iter().find(|node| node.phase == Phase::Failed) {
        let message = in_progress::failed_message(&node.facts.name, &node.failure);
        return wanted("True", in_progress::FAILED, message);
    }
    if cluster.nodes.is_empty() {
        let reason = Code::NoNodesSelected.entry().reason;
        let cause = Code::NoNodesSelected.entry().cause;
        let message = state.worst.map_or(cause, |finding| finding.message.as_str());
        return wanted("False", reason, message.to_owned());
    }
    let row = state.situation.row();
    let is_paused = state.situation == Situation::Paused && state.is_ready;
    if !(state.has_work || row.reconciling) || is_paused {
        let reason = match (state.is_ready, state.worst) {
            (false, Some(finding)) => finding.code.entry().reason,
            _ => in_progress::AS_EXPECTED,
        };
        return wanted("False", reason, summary.to_owned());
    }
    let before = cluster
        .config
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .find(|condition| condition.type_ == conditions::IN_PROGRESS)
        .map(|condition| condition.reason.as_str());
    let initial = before == Some(in_progress::INSTALLING)
        || (existing_classes(cluster).is_empty()
            && cluster
                .config
                .status
                .as_ref()
                .is_none_or(|status| status.runtime_classes.is_empty()));
    if initial {
        wanted("True", in_progress::INSTALLING, in_progress::INSTALLING_MESSAGE.to_owned())
    } else {
        wanted("True", in_progress::UPDATING, in_progress::UPDATING_MESSAGE.to_owned())
    }
}

/// The condition Degraded, with all failures.
pub(super) fn degraded(report: &Report, is_failure: impl Fn(&Finding) -> bool) -> NewCondition {
    let failures: Vec<&Finding> =
        report.findings.iter().filter(|finding| is_failure(finding)).collect();
    let Some(first) = failures.first() else {
        let message = "no failures detected";
        return NewCondition::new(conditions::DEGRADED, "False", reasons::AS_EXPECTED, message);
    };
    let messages: Vec<String> =
        failures.iter().map(|finding| format!("{}: {}", finding.code, finding.message)).collect();
    let message = text::list(&messages, NAMES);
    NewCondition::new(conditions::DEGRADED, "True", first.code.entry().reason, message)
}

fn deletion_blocked(report: &Report, state: &ConfigState<'_>, is_blocked: bool) -> NewCondition {
    let pods = report.findings.iter().find(|finding| finding.code == Code::PodsStillRunning);
    match pods.or(state.stalled_by).or(state.worst).filter(|_| is_blocked) {
        Some(finding) => NewCondition::new(
            conditions::DELETION_BLOCKED,
            "True",
            finding.code.entry().reason,
            with_fix(finding),
        ),
        None => NewCondition::new(
            conditions::DELETION_BLOCKED,
            "False",
            reasons::NOT_BLOCKED,
            "nothing blocks the deletion",
        ),
    }
}

/// `RuntimeClass kata does not exist`.
fn missing_classes(cluster: &Assessment) -> String {
    let missing = runtimes_without_class(cluster);
    let names = text::list(&missing, NAMES);
    if missing.len() == 1 {
        format!("RuntimeClass {names} does not exist")
    } else {
        format!("the RuntimeClasses {names} do not exist")
    }
}

/// `KATA4001: 1 sandboxed pod still runs: a/b (Delete it)`.
pub(super) fn with_fix(finding: &Finding) -> String {
    let Finding { code, message, fix, .. } = finding;
    format!("{code}: {message} ({})", fix.trim_end_matches('.'))
}

pub(super) fn conditions(
    now: Timestamp,
    previous: Option<&KataConfigStatus>,
    generation: Option<i64>,
    wanted: Vec<NewCondition>,
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
