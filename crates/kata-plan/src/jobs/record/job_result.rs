//! What the start and the result of a Job change in the record of its node. It does not look at other Jobs or at the
//! cluster.

use jiff::Timestamp;
use kata_api::Code;
use kata_api::kata_node::{CheckWarning, HostJob, HostStatus, JobOutcome, PayloadImage};
use kata_api::node_task::{NodeAction, NodeReport};

use crate::snapshot::{JobPod, NodeJob, StuckContainer};
use crate::text;

/// Most bytes of a Job's message in a KataNode.
const MESSAGE: usize = 768;
/// The value of `installed` if an inspection found a difference, but sandboxes still run.
const DRIFTED: &str = "drifted";

pub(super) fn record_start(status: &mut HostStatus, job: &NodeJob, now: Timestamp) {
    status.may_have_artifacts |= matches!(job.action, NodeAction::Install | NodeAction::Remove);
    let already =
        status.job.as_ref().filter(|last| last.number == job.number).map(|last| last.time);
    let failures =
        earlier_failures(status, job.action, &job.desired_state_digest, &job.node_facts_digest);
    let at = already.or(job.created).unwrap_or(now);
    // Until the Job ends, the failure of the Job before it stays in the record. A Job that was given up and
    // then started does not count as its own predecessor.
    let earlier = |last: &HostJob| last.number != job.number || last.outcome.is_none();
    let failed = status.job.take().filter(|last| failures > 0 && earlier(last));
    let previous_outcome = failed.as_ref().and_then(|last| last.outcome.or(last.previous_outcome));
    let code = failed.as_ref().and_then(|last| last.code.clone());
    let message = failed.map(|last| last.message).unwrap_or_default();
    status.job =
        Some(HostJob { failures, previous_outcome, message, code, ..started_job(job, at) });
}

pub(super) fn started_job(job: &NodeJob, at: Timestamp) -> HostJob {
    HostJob {
        name: job.name.clone(),
        number: job.number,
        action: job.action,
        desired_state_digest: job.desired_state_digest.clone(),
        node_facts_digest: job.node_facts_digest.clone(),
        outcome: None,
        previous_outcome: None,
        time: at,
        failures: 0,
        message: String::new(),
        code: None,
    }
}

/// How many Jobs for the same change failed in a row.
fn earlier_failures(status: &HostStatus, action: NodeAction, state: &str, facts: &str) -> i64 {
    status
        .job
        .as_ref()
        .filter(|last| {
            last.action == action
                && last.desired_state_digest == state
                && last.node_facts_digest == facts
        })
        .map_or(0, |last| last.failures)
}

/// A Job that has ended.
pub(super) struct EndedJob<'a> {
    pub(super) job: HostJob,
    /// The image from which it staged a payload, if its digest is known.
    pub(super) payload_image: Option<PayloadImage>,
    pub(super) report: Option<&'a NodeReport>,
}

impl<'a> EndedJob<'a> {
    pub(super) fn vanished(last: HostJob, message: String, now: Timestamp) -> Self {
        let outcome = Some(JobOutcome::Vanished);
        let job =
            HostJob { outcome, message, time: now, previous_outcome: None, code: None, ..last };
        Self { job, payload_image: None, report: None }
    }

    pub(super) fn of(job: &NodeJob, pod: Option<&'a JobPod>, now: Timestamp) -> Self {
        let report = pod.and_then(|pod| pod.report.as_ref());
        let mut code = None;
        let (outcome, message, report) = match report {
            Some(Ok(report)) if report.action == job.action => {
                code = report.checks.first().map(|check| check.code.clone());
                // A report of the staging container is about the image and not about the node.
                let seen = pod.is_some_and(|pod| pod.started);
                (report.outcome.into(), job_message(report), Some(report).filter(|_| seen))
            }
            Some(Ok(report)) => {
                let message = format!("its report is for the action {}", report.action.as_str());
                (JobOutcome::NoReport, message, None)
            }
            Some(Err(error)) => {
                (JobOutcome::NoReport, format!("its report cannot be read: {error}"), None)
            }
            None => {
                let (outcome, found, message) = without_report(job, pod);
                code = found.map(|code| code.to_string());
                (outcome, message, None)
            }
        };
        let at = job.ended_at(now).unwrap_or(now);
        let payload_image = job.payload_image.clone().zip(pod.and_then(|pod| pod.staged.clone()));
        Self {
            payload_image: payload_image.map(|(image, digest)| PayloadImage { image, digest }),
            job: HostJob {
                outcome: Some(outcome),
                message: text::cut(message.trim().trim_end_matches('.'), MESSAGE),
                code,
                ..started_job(job, at)
            },
            report,
        }
    }
}

/// The message of a report: its text or else its first check, and the sandboxes that block the Job.
fn job_message(report: &NodeReport) -> String {
    let mut message = match report.checks.first() {
        Some(check) if report.message.is_empty() => format!("{}: {}", check.code, check.message),
        // The code selects the fix.
        Some(check) => format!("{}: {}", check.code, report.message),
        None => report.message.clone(),
    };
    if !report.sandboxes.is_empty() && !message.contains(&report.sandboxes[0].pod) {
        let names: Vec<String> =
            report.sandboxes.iter().map(|it| format!("{}/{}", it.namespace, it.pod)).collect();
        let separator = if message.is_empty() { "" } else { ": " };
        message = format!("{}{separator}{}", message.trim_end_matches('.'), names.join(", "));
    }
    message
}

/// Why a Job did not start.
pub(super) fn not_started(pod: Option<&JobPod>) -> (Code, String) {
    match pod {
        None => (Code::NodeJobWithoutPod, "it got no pod".to_owned()),
        Some(JobPod { held: Some(held), .. }) => (Code::NodeJobHeld, format!("its pod {held}")),
        Some(JobPod { unschedulable: Some(message), .. }) => {
            (Code::NodeJobUnschedulable, format!("its pod was not scheduled: {message}"))
        }
        Some(JobPod { stuck: Some(stuck), .. }) if stuck.is_pull() => {
            (Code::NodeJobImage, stuck.pull())
        }
        Some(JobPod { stuck: Some(stuck), .. }) => {
            let StuckContainer { container, reason, .. } = stuck;
            let message = format!("container {container} waits: {reason}{}", stuck.detail());
            (Code::NodeJobNotStarted, message)
        }
        Some(pod) if !pod.failures.is_empty() => (Code::NodeJobFailed, pod.failures.join("; ")),
        Some(_) => (Code::NodeJobNotStarted, "its pod did not start".to_owned()),
    }
}

/// The outcome of a Job that left no report.
fn without_report(job: &NodeJob, pod: Option<&JobPod>) -> (JobOutcome, Option<Code>, String) {
    let late = job.end.as_ref().and_then(|end| end.failed.as_deref()) == Some("DeadlineExceeded");
    let is_check = matches!(job.action, NodeAction::Preflight | NodeAction::Inspect);
    let had_pod = job.end.as_ref().is_some_and(|end| end.had_pod);
    match pod {
        Some(pod) if !pod.started => {
            let (code, message) = not_started(Some(pod));
            (JobOutcome::NotStarted, Some(code), message)
        }
        Some(pod) if !late => {
            let how = if pod.failures.is_empty() {
                "its pod ended".to_owned()
            } else {
                pod.failures.join("; ")
            };
            (JobOutcome::NoReport, None, format!("{how}, without a report"))
        }
        // For checks only: a change may have begun although no pod was counted.
        None if late && is_check && !had_pod => {
            let (code, message) = not_started(None);
            (JobOutcome::NotStarted, Some(code), message)
        }
        _ if late => (JobOutcome::TimedOut, None, "it did not end in time".to_owned()),
        _ => {
            let end = job.end.as_ref().map(|end| end.message.trim()).unwrap_or_default();
            let end = if end.is_empty() { "it ended" } else { end };
            (JobOutcome::NoReport, None, format!("{end}, and its pod is gone"))
        }
    }
}

/// Records a Job that has ended.
pub(super) fn record_end(status: &mut HostStatus, ended: &EndedJob<'_>) {
    let job = &ended.job;
    let outcome = job.outcome.unwrap_or(JobOutcome::NoReport);
    let failures =
        earlier_failures(status, job.action, &job.desired_state_digest, &job.node_facts_digest);
    let changes = matches!(job.action, NodeAction::Install | NodeAction::Remove);
    status.may_have_artifacts |= changes;
    if let Some(report) = ended.report {
        if !report.runtime.is_empty() {
            status.runtime = Some(report.runtime.clone());
        }
        if let Some(handlers) = &report.handlers {
            status.handlers.clone_from(handlers);
        }
        status.restarts += i64::from(report.restarted);
        if outcome == JobOutcome::Done {
            status.warnings = warnings(report);
        }
        if job.action != NodeAction::Preflight {
            if status.payload_digest != report.payload_digest {
                status.payload_image = None;
            }
            status.payload_digest.clone_from(&report.payload_digest);
            status.kata_version.clone_from(&report.kata_version);
            // Without an answer of the container runtime it is not known. A report that is too long loses its handlers.
            if !report.runtime.is_empty() {
                status.earlier.clone_from(&report.earlier);
            }
        }
    }
    if matches!(job.action, NodeAction::Preflight | NodeAction::Install)
        && refusal_code(job).is_some()
    {
        // A retry would be refused, too.
        status.failed_for = Some(change_key_of_job(job));
    }
    match (outcome, job.action) {
        (JobOutcome::Done, NodeAction::Preflight) => status.fit_for = Some(fit_key_of_job(job)),
        (JobOutcome::Done, NodeAction::Install) => {
            status.installed = Some(job.desired_state_digest.clone());
            status.payload_image.clone_from(&ended.payload_image);
            status.inspected = Some(job.time);
            status.failed_for = None;
        }
        (JobOutcome::Done, NodeAction::Inspect) => {
            status.inspected = Some(job.time);
            // The reason why another state could not be installed may not hold any more.
            status.failed_for = None;
        }
        (JobOutcome::Done, NodeAction::Remove) => {
            *status = HostStatus {
                restarts: status.restarts,
                rollbacks: status.rollbacks,
                drifts: status.drifts,
                ..HostStatus::default()
            };
        }
        (JobOutcome::Drifted, _) => {
            let serves = ended.report.is_some_and(still_serves);
            status.installed = serves.then(|| DRIFTED.to_owned());
            status.drifts += 1;
            // The node was fit, and the inspection found no reason against that.
            status.fit_for = Some(fit_key_of_job(job));
        }
        (JobOutcome::RolledBack, _) => {
            status.failed_for = Some(change_key_of_job(job));
            status.rollbacks += 1;
        }
        (JobOutcome::Unsafe, _) => {
            status.failed_for = Some(change_key_of_job(job));
            status.installed = None;
        }
        (JobOutcome::TimedOut | JobOutcome::NoReport | JobOutcome::Vanished, _) if changes => {
            status.installed = None;
        }
        // No sandbox can start there: the node loses the runtime label until a check finds it fit.
        (
            JobOutcome::Refused,
            NodeAction::Preflight | NodeAction::Install | NodeAction::Inspect,
        ) if ended.report.is_some_and(cannot_run) => {
            status.installed = None;
            status.fit_for = None;
        }
        // The handler is gone, and the payload is still in use.
        (JobOutcome::Blocked, NodeAction::Remove)
            if ended.report.is_some_and(|report| report.changed) =>
        {
            status.installed = None;
        }
        (
            JobOutcome::Refused
            | JobOutcome::Blocked
            | JobOutcome::Failed
            | JobOutcome::NotStarted
            | JobOutcome::TimedOut
            | JobOutcome::NoReport
            | JobOutcome::Vanished,
            _,
        ) => {}
    }
    let failed = !matches!(outcome, JobOutcome::Done | JobOutcome::Drifted);
    let failures = if failed { failures.saturating_add(1) } else { 0 };
    status.job = Some(HostJob { failures, ..job.clone() });
}

/// What the checks of a node warn of although Kata is installed there.
const WARNINGS: [Code; 4] = [
    Code::GuestPullMissing,
    Code::SettingUnknown,
    Code::ForeignChangeOnRestart,
    Code::LostAtReboot,
];

fn warnings(report: &NodeReport) -> Vec<CheckWarning> {
    let is_warning = |code: &str| Code::parse(code).is_some_and(|code| WARNINGS.contains(&code));
    let checks = report.checks.iter().filter(|check| is_warning(&check.code));
    checks
        .map(|check| CheckWarning { code: check.code.clone(), message: check.message.clone() })
        .collect()
}

/// The codes of refusals whose reason is the payload's image.
pub(crate) const IMAGE_CODES: [Code; 3] =
    [Code::ShimMissing, Code::ShimConfigurationInvalid, Code::PayloadUnusable];

/// The code of a Job that was refused because of the desired state, and not because of the node: of its image, or of
/// settings that do not fit the image.
pub(crate) fn refusal_code(job: &HostJob) -> Option<Code> {
    let code = job.code.as_deref().and_then(Code::parse)?;
    let is_of_state = IMAGE_CODES.contains(&code) || code == Code::SettingsMisfit;
    (job.outcome == Some(JobOutcome::Refused) && is_of_state).then_some(code)
}

/// Whether a node lacks what every sandbox needs. A Job that is refused for another reason does not change
/// the node, which keeps running sandboxes.
fn cannot_run(report: &NodeReport) -> bool {
    let found = report.checks.iter().filter(|check| check.fatal);
    found.filter_map(|check| Code::parse(&check.code)).any(is_need_of_sandboxes)
}

/// Whether a check is about KVM or vsock, which every sandbox needs.
pub(crate) fn is_need_of_sandboxes(code: Code) -> bool {
    matches!(code, Code::KvmUnusable | Code::VsockMissing)
}

/// Whether a node that drifted still runs sandboxes: only files differ that its container runtime reads
/// when it starts. Such a node is repaired under the limits of the rollout, like a node that gets another
/// version.
fn still_serves(report: &NodeReport) -> bool {
    let has = |code: Code| report.checks.iter().any(|check| check.code == code.entry().code);
    let others = [Code::ChangeInterrupted, Code::PayloadDrifted, Code::HandlersDrifted];
    // All other checks are warnings, which do not block an installation either.
    report.more_checks == 0 && has(Code::ConfigDrifted) && !others.into_iter().any(has)
}

fn fit_key_of_job(job: &HostJob) -> String {
    fit_key(&job.desired_state_digest, &job.node_facts_digest)
}

/// The value of [`HostStatus::fit_for`] for a desired state and a node with these facts.
pub(crate) fn fit_key(state: &str, facts: &str) -> String {
    format!("{state}.{facts}")
}

/// The value of [`HostStatus::failed_for`] for the change of a Job.
fn change_key_of_job(job: &HostJob) -> String {
    change_key(job.action, &job.desired_state_digest, &job.node_facts_digest)
}

/// The value of [`HostStatus::failed_for`] for a change of a node with these facts.
pub(crate) fn change_key(action: NodeAction, state: &str, facts: &str) -> String {
    if action == NodeAction::Remove {
        format!("remove.{facts}")
    } else {
        format!("{state}.{facts}")
    }
}
