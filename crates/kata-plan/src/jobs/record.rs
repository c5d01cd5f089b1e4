//! The record of a node: its KataNode, and the results of the Jobs since that was written.
//!
//! Each Job's result counts once, and is in the KataNode before the Job is deleted. So a pass that is
//! repeated after a crash, or by another replica, has the same result.

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_node::{CheckWarning, HostJob, HostStatus, JobOutcome, PayloadImage};
use kata_api::node_task::{NodeAction, NodeReport};
use kata_api::{Code, KataNode, names};

use crate::object::Kind;
use crate::snapshot::{Freshness, JobPod, NodeFacts, NodeJob, Snapshot, StuckContainer};
use crate::text;

/// Most bytes of a Job's message in a KataNode.
const MESSAGE: usize = 768;
/// The back-off after the first failure; it doubles with each failure.
const FIRST_BACK_OFF: SignedDuration = SignedDuration::from_secs(30);
/// The longest back-off.
const MAX_BACK_OFF: SignedDuration = SignedDuration::from_hours(1);
/// The longest back-off after a Job that sandboxes blocked, or that did not start because of an image or a
/// quota: no watch event reports that the cause is gone.
const MAX_BLOCKED_BACK_OFF: SignedDuration = SignedDuration::from_mins(5);
/// The value of `installed` if an inspection found a difference, but sandboxes still run.
const DRIFTED: &str = "drifted";
/// How many earlier Jobs of a node are kept after a failure.
const KEPT_JOBS: usize = 3;
/// How long each container of a Job's pod may take to start, including its image pull. Its run time does
/// not count.
pub(crate) const START_GRACE: SignedDuration = SignedDuration::from_mins(5);

/// The Jobs of one node with their pods, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobsOfNode<'a> {
    pub(crate) jobs: Vec<&'a NodeJob>,
    pub(crate) pods: Vec<&'a JobPod>,
}

impl<'a> JobsOfNode<'a> {
    /// The latest pod of a Job.
    fn pod(&self, job: &str) -> Option<&'a JobPod> {
        let pods = self.pods.iter().filter(|pod| pod.job == job);
        pods.max_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name))).copied()
    }
}

/// The record of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeRecord<'a> {
    /// The record in its KataNode, with the results that are still to be written.
    pub(crate) status: HostStatus,
    /// The Job that has not ended, or whose pod has not, and its pod.
    pub(crate) running: Option<(&'a NodeJob, Option<&'a JobPod>)>,
    /// An unfinished pod whose Job is gone or is being deleted.
    pub(crate) orphaned_pod: Option<&'a JobPod>,
    /// Whether a read past the cache has to confirm the state of a Job.
    pub(crate) needs_fresh_read: bool,
    /// Jobs that can be deleted.
    pub(crate) deletable_jobs: Vec<&'a NodeJob>,
    /// A Job that has not ended for an earlier node of the same name: its pod could still be scheduled to
    /// this node.
    pub(crate) job_of_earlier_node: Option<&'a NodeJob>,
    /// Whether this version of the operator understands the KataNode and all Jobs of the node. If not, the node gets no Job, and
    /// neither its labels nor its record change.
    pub(crate) is_understood: bool,
}

/// Reconstructs the record of a node. A KataNode of an earlier node of the same name does not count.
pub(super) fn reconstruct<'a>(
    snapshot: &Snapshot,
    node: &NodeFacts,
    previous: Option<&KataNode>,
    found: Option<&JobsOfNode<'a>>,
    now: Timestamp,
) -> NodeRecord<'a> {
    let written = previous
        .filter(|previous| owner_is(previous, &node.uid))
        .and_then(|previous| previous.status.as_ref()?.host.clone());
    let recorded = written.as_ref().and_then(|status| status.job.clone());
    let mut record = NodeRecord {
        status: written.unwrap_or_default(),
        running: None,
        orphaned_pod: None,
        needs_fresh_read: false,
        deletable_jobs: Vec::new(),
        job_of_earlier_node: None,
        is_understood: !snapshot.is_unreadable(Kind::KataNode, &node.name),
    };
    record.is_understood &= record.status.unknown_values.is_empty();
    record.is_understood &= snapshot.jobs.unreadable.iter().all(|job| job.node != node.name);
    if !record.is_understood {
        // The results of Jobs cannot be added to a record that is not understood.
        return record;
    }
    let none = JobsOfNode::default();
    let found = found.unwrap_or(&none);
    let mut jobs: Vec<&NodeJob> =
        found.jobs.iter().filter(|job| job.node_uid == node.uid).copied().collect();
    jobs.sort_by_key(|job| (job.number, &job.name));
    let earlier = || found.jobs.iter().filter(|job| job.node_uid != node.uid).copied();
    record.job_of_earlier_node = earlier().find(|job| job.end.is_none());
    record.deletable_jobs.extend(earlier());
    if let Some(last) = recorded.as_ref().filter(|last| last.outcome.is_none())
        && jobs.iter().all(|job| job.name != last.name)
    {
        if snapshot.freshness == Freshness::Cached {
            record.needs_fresh_read = true;
        } else {
            let message = format!("Job {} is gone", last.name);
            record_end(&mut record.status, &EndedJob::vanished(last.clone(), message, now));
        }
    }
    for job in &jobs {
        let pod = found.pod(&job.name);
        let is_new = is_new(&record.status, job, pod);
        // Jobs and pods come from two watches, and one may lag.
        let is_seen = pod.is_some_and(|pod| pod.finished);
        if job.end.is_some() && is_new && !is_seen && snapshot.freshness == Freshness::Cached {
            record.needs_fresh_read = true;
            record.running = Some((job, pod));
            continue;
        }
        match &job.end {
            Some(_) if pod.is_none_or(|pod| pod.finished) => {
                if is_new {
                    record_end(&mut record.status, &EndedJob::of(job, pod, now));
                }
            }
            None if job.deleting => {}
            // The pod of a Job that exceeded its deadline may still change the node until it ends.
            Some(_) | None => {
                record.running = Some((job, pod));
                if is_new {
                    record_start(&mut record.status, job, now);
                }
            }
        }
    }
    record.orphaned_pod = found
        .pods
        .iter()
        .find(|pod| !pod.finished && jobs.iter().all(|job| job.name != pod.job || job.deleting))
        .copied();
    record.deletable_jobs.extend(deletable_jobs(&jobs, recorded.as_ref()));
    record.deletable_jobs.sort_by_key(|job| (job.number, &job.name));
    record
}

pub(super) fn owner_is(kata_node: &KataNode, uid: &str) -> bool {
    kata_node.metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid)
}

/// Whether a Job has a result or a start that is not recorded yet.
fn is_new(status: &HostStatus, job: &NodeJob, pod: Option<&JobPod>) -> bool {
    status.job.as_ref().is_none_or(|last| {
        let open = match last.outcome {
            None => true,
            // It was given up, but started before it was deleted.
            Some(JobOutcome::NotStarted) => pod.is_some_and(|pod| pod.started),
            Some(_) => false,
        };
        job.number > last.number || (job.number == last.number && open)
    })
}

impl NodeRecord<'_> {
    /// Whether no Job runs on the node or may still come to it.
    pub(super) fn has_no_job(&self) -> bool {
        self.running.is_none() && self.orphaned_pod.is_none() && self.job_of_earlier_node.is_none()
    }

    /// Gives up a Job that has not started if the desired state has changed, or if other nodes wait for it
    /// (`others_wait`). Such a Job has changed nothing. Its end is recorded before it is deleted.
    pub(super) fn give_up_unstarted(
        &mut self,
        wanted: Option<&str>,
        others_wait: bool,
        freshness: Freshness,
        now: Timestamp,
    ) {
        let Some((job, pod)) = self.running else { return };
        let outdated = match job.action {
            NodeAction::Remove => wanted.is_some(),
            NodeAction::Preflight | NodeAction::Install | NodeAction::Inspect => {
                wanted != Some(job.desired_state_digest.as_str())
            }
        };
        let waits = pod.is_some_and(JobPod::is_waiting);
        let given_up = (outdated && waits) || (others_wait && cannot_start(job, pod, now));
        if job.end.is_some() || !given_up {
            return;
        }
        if freshness == Freshness::Cached {
            // It may have started by now.
            self.needs_fresh_read = true;
        } else if is_new(&self.status, job, pod) {
            let (code, message) = not_started(pod);
            let job = HostJob {
                outcome: Some(JobOutcome::NotStarted),
                code: Some(code.to_string()),
                message,
                ..started_job(job, now)
            };
            record_end(&mut self.status, &EndedJob { job, payload_image: None, report: None });
        } else {
            self.deletable_jobs.push(job);
        }
    }
}

/// Whether a Job has not started within [`START_GRACE`]: its pod is not scheduled, a container waits, for
/// example for its image, or the Job has no pod, for example because of a quota.
pub(super) fn cannot_start(job: &NodeJob, pod: Option<&JobPod>, now: Timestamp) -> bool {
    let waits = pod.is_none_or(|pod| !pod.started && !pod.finished);
    let since = job.created.is_some_and(|created| now.duration_since(created) >= START_GRACE);
    job.end.is_none()
        && waits
        && since
        && pod.is_none_or(|pod| {
            pod.is_waiting()
                || pod.waits_since.is_some_and(|since| now.duration_since(since) >= START_GRACE)
        })
}

/// The recorded Jobs that can be deleted: if the last Job succeeded, all earlier ones; otherwise all
/// earlier ones but the latest few.
fn deletable_jobs<'a>(jobs: &[&'a NodeJob], recorded: Option<&HostJob>) -> Vec<&'a NodeJob> {
    let Some(last) = recorded.filter(|last| last.outcome.is_some()) else { return Vec::new() };
    let older: Vec<&NodeJob> =
        jobs.iter().filter(|job| job.number < last.number && job.end.is_some()).copied().collect();
    let kept = if last.outcome == Some(JobOutcome::Done) { 0 } else { KEPT_JOBS };
    older.iter().rev().skip(kept).copied().collect()
}

fn record_start(status: &mut HostStatus, job: &NodeJob, now: Timestamp) {
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

fn started_job(job: &NodeJob, at: Timestamp) -> HostJob {
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
struct EndedJob<'a> {
    job: HostJob,
    /// The image from which it staged a payload, if its digest is known.
    payload_image: Option<PayloadImage>,
    report: Option<&'a NodeReport>,
}

impl<'a> EndedJob<'a> {
    fn vanished(last: HostJob, message: String, now: Timestamp) -> Self {
        let outcome = Some(JobOutcome::Vanished);
        let job =
            HostJob { outcome, message, time: now, previous_outcome: None, code: None, ..last };
        Self { job, payload_image: None, report: None }
    }

    fn of(job: &NodeJob, pod: Option<&'a JobPod>, now: Timestamp) -> Self {
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
        let at = job.end.as_ref().and_then(|end| end.time).unwrap_or(now);
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
fn not_started(pod: Option<&JobPod>) -> (Code, String) {
    match pod {
        None => (Code::NodeJobWithoutPod, "it got no pod".to_owned()),
        Some(JobPod { unschedulable: Some(message), .. }) => {
            (Code::NodeJobUnschedulable, format!("its pod was not scheduled: {message}"))
        }
        Some(JobPod { stuck: Some(stuck), .. }) if stuck.is_pull() => {
            let StuckContainer { image, reason, .. } = stuck;
            (
                Code::NodeJobImage,
                format!("image {image} cannot be pulled: {reason}{}", stuck.detail()),
            )
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
fn record_end(status: &mut HostStatus, ended: &EndedJob<'_>) {
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
const WARNINGS: [Code; 2] = [Code::GuestPullMissing, Code::SettingUnknown];

fn warnings(report: &NodeReport) -> Vec<CheckWarning> {
    let is_warning = |code: &str| Code::parse(code).is_some_and(|code| WARNINGS.contains(&code));
    let checks = report.checks.iter().filter(|check| is_warning(&check.code));
    checks
        .map(|check| CheckWarning { code: check.code.clone(), message: check.message.clone() })
        .collect()
}

/// Whether the result of a Job is unknown.
pub(super) fn is_lost(job: &HostJob) -> bool {
    let unknown = [JobOutcome::TimedOut, JobOutcome::NoReport, JobOutcome::Vanished];
    job.outcome.is_some_and(|outcome| unknown.contains(&outcome))
}

/// The codes of refusals whose reason is the payload's image.
pub(super) const IMAGE_CODES: [Code; 3] =
    [Code::ShimMissing, Code::ShimConfigurationInvalid, Code::PayloadUnusable];

/// The code of a Job that was refused because of the desired state, and not because of the node: of its image, or of
/// settings that do not fit the image.
pub(super) fn refusal_code(job: &HostJob) -> Option<Code> {
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
pub(super) fn is_need_of_sandboxes(code: Code) -> bool {
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
pub(super) fn fit_key(state: &str, facts: &str) -> String {
    format!("{state}.{facts}")
}

/// The value of [`HostStatus::failed_for`] for the change of a Job.
fn change_key_of_job(job: &HostJob) -> String {
    change_key(job.action, &job.desired_state_digest, &job.node_facts_digest)
}

/// The value of [`HostStatus::failed_for`] for a change of a node with these facts.
pub(super) fn change_key(action: NodeAction, state: &str, facts: &str) -> String {
    if action == NodeAction::Remove {
        format!("remove.{facts}")
    } else {
        format!("{state}.{facts}")
    }
}

/// When the back-off after the node's last failed Job ends; `None` if there is no back-off.
pub(super) fn back_off_until(
    status: &HostStatus,
    actions: &[NodeAction],
    facts: &str,
) -> Option<Timestamp> {
    let last = status.job.as_ref()?;
    let failed = last.failures > 0 && last.outcome.is_some();
    if !failed || !actions.contains(&last.action) || last.node_facts_digest != facts {
        return None;
    }
    let doubling = u32::try_from(last.failures.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    let most = match last.outcome {
        Some(JobOutcome::Blocked | JobOutcome::NotStarted) => MAX_BLOCKED_BACK_OFF,
        _ => MAX_BACK_OFF,
    };
    let pause = FIRST_BACK_OFF.checked_mul(1 << doubling).unwrap_or(most).min(most);
    last.time.checked_add(pause).ok()
}

/// The annotation by which an admin requests a retry of a change that was given up.
pub(super) fn retry_annotation(previous: Option<&KataNode>) -> Option<&str> {
    let annotations = previous?.metadata.annotations.as_ref()?;
    annotations.get(names::RETRY_ANNOTATION).map(String::as_str)
}
