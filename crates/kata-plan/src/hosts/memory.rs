//! What is known of a node: what its KataNode says, and what came of the Jobs since.
//!
//! A Job's result counts once, and is in the KataNode before the Job goes. So a pass that is repeated
//! after a crash, or by another operator, comes to the same.

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_node::{HostJob, HostStatus, JobOutcome};
use kata_api::node_task::{NODE_TASK_VERSION, NodeAction, NodeReport};
use kata_api::{Code, KataNode, names};

use crate::snapshot::{Freshness, JobPod, NodeFacts, NodeJob, Snapshot};
use crate::text;

/// Most bytes of a Job's message in a KataNode.
const MESSAGE: usize = 768;
/// The first pause after a failure; it doubles with each.
const PAUSE: SignedDuration = SignedDuration::from_secs(30);
/// The longest pause.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_hours(1);
/// The longest pause when sandboxes are in the way, which end without a word.
const LONGEST_BLOCK: SignedDuration = SignedDuration::from_mins(5);
/// What stands for the digest of what is installed, if that was found to differ and runs sandboxes all the same.
const DRIFTED: &str = "drifted";
/// How many failed Jobs of a node are kept.
const KEPT: usize = 3;

/// The Jobs of one node with their pods, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct JobsOfNode<'a> {
    pub(super) jobs: Vec<&'a NodeJob>,
    pub(super) pods: Vec<&'a JobPod>,
}

impl<'a> JobsOfNode<'a> {
    /// The pod of a Job: the last one.
    fn pod(&self, job: &str) -> Option<&'a JobPod> {
        let pods = self.pods.iter().filter(|pod| pod.job == job);
        pods.max_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name))).copied()
    }
}

/// What is known of a node.
#[derive(Clone, Debug)]
pub(crate) struct Known<'a> {
    /// What its KataNode says, or will say.
    pub(crate) status: HostStatus,
    /// The Job that runs on it, or is over before its pod, and its pod.
    pub(crate) running: Option<(&'a NodeJob, Option<&'a JobPod>)>,
    /// A pod of a Job that is gone, and that may still change the node.
    pub(crate) lingering: Option<&'a JobPod>,
    /// Whether a Job seems to be gone, which a look past the cache has to confirm.
    pub(crate) unsure: bool,
    /// Jobs that can be deleted.
    pub(crate) spent: Vec<&'a NodeJob>,
    /// A Job for an earlier node of the same name that is not over: a pod of it would come to this one.
    pub(crate) earlier: Option<&'a NodeJob>,
}

/// What is known of a node. What a KataNode says of an earlier node of the same name does not count.
pub(super) fn recall<'a>(
    snapshot: &Snapshot,
    node: &NodeFacts,
    previous: Option<&KataNode>,
    found: Option<&JobsOfNode<'a>>,
    now: Timestamp,
) -> Known<'a> {
    let written = previous
        .filter(|previous| owner_is(previous, &node.uid))
        .and_then(|previous| previous.status.as_ref()?.host.clone());
    let recorded = written.as_ref().and_then(|status| status.job.clone());
    let mut known = Known {
        status: written.unwrap_or_default(),
        running: None,
        lingering: None,
        unsure: false,
        spent: Vec::new(),
        earlier: None,
    };
    let none = JobsOfNode::default();
    let found = found.unwrap_or(&none);
    let mut jobs: Vec<&NodeJob> =
        found.jobs.iter().filter(|job| job.node_uid == node.uid).copied().collect();
    jobs.sort_by_key(|job| (job.number, &job.name));
    let earlier = || found.jobs.iter().filter(|job| job.node_uid != node.uid).copied();
    known.earlier = earlier().find(|job| job.end.is_none());
    known.spent.extend(earlier());
    if let Some(last) = recorded.as_ref().filter(|last| last.outcome.is_none())
        && jobs.iter().all(|job| job.name != last.name)
    {
        if snapshot.freshness == Freshness::Cached {
            known.unsure = true;
        } else {
            let message = format!("Job {} is gone", last.name);
            record(&mut known.status, &Ended::vanished(last.clone(), message, now));
        }
    }
    for job in &jobs {
        let pod = found.pod(&job.name);
        let is_new = is_new(&known.status, job, pod);
        // Jobs and pods come by two watches, of which one may be behind.
        let is_seen = pod.is_some_and(|pod| pod.finished);
        if job.end.is_some() && is_new && !is_seen && snapshot.freshness == Freshness::Cached {
            known.unsure = true;
            known.running = Some((job, pod));
            continue;
        }
        match &job.end {
            Some(_) if pod.is_none_or(|pod| pod.finished) => {
                if is_new {
                    record(&mut known.status, &Ended::of(job, pod, now));
                }
            }
            None if job.deleting => {}
            // One that ended late has a pod that was told to end, and may still do what it was made for.
            Some(_) | None => {
                known.running = Some((job, pod));
                if is_new {
                    begin(&mut known.status, job, now);
                }
            }
        }
    }
    known.lingering = found
        .pods
        .iter()
        .find(|pod| !pod.finished && jobs.iter().all(|job| job.name != pod.job || job.deleting))
        .copied();
    known.spent.extend(spent(&jobs, recorded.as_ref()));
    known.spent.sort_by_key(|job| (job.number, &job.name));
    known
}

pub(super) fn owner_is(kata_node: &KataNode, uid: &str) -> bool {
    kata_node.metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid)
}

/// Whether a Job says something that is not recorded yet.
fn is_new(status: &HostStatus, job: &NodeJob, pod: Option<&JobPod>) -> bool {
    status.job.as_ref().is_none_or(|last| {
        let open = match last.outcome {
            None => true,
            // It was given up, and began all the same before it was deleted.
            Some(JobOutcome::NotStarted) => pod.is_some_and(|pod| pod.started),
            Some(_) => false,
        };
        job.number > last.number || (job.number == last.number && open)
    })
}

impl Known<'_> {
    /// Whether no Job is, or may come to be, on the node.
    pub(super) fn is_free(&self) -> bool {
        self.running.is_none() && self.lingering.is_none() && self.earlier.is_none()
    }

    /// Gives up a Job that cannot start, once something else is wanted: it has changed nothing, and would
    /// stand in the way until its deadline. That is recorded before it goes.
    pub(super) fn give_up(&mut self, wanted: Option<&str>, freshness: Freshness, now: Timestamp) {
        let Some((job, Some(pod))) = self.running else { return };
        let outdated = match job.action {
            NodeAction::Remove => wanted.is_some(),
            NodeAction::Preflight | NodeAction::Install | NodeAction::Inspect => {
                wanted != Some(job.state.as_str())
            }
        };
        if job.end.is_some() || !pod.is_waiting() || !outdated {
            return;
        }
        if freshness == Freshness::Cached {
            // It may have started by now.
            self.unsure = true;
        } else if is_new(&self.status, job, Some(pod)) {
            let (outcome, message) = without_report(job, Some(pod));
            let job = HostJob { outcome: Some(outcome), message, at: now, ..begun(job, now) };
            record(&mut self.status, &Ended { job, report: None });
        } else {
            self.spent.push(job);
        }
    }
}

/// Jobs that are over and recorded: those before the last success, and of the others all but the last few.
fn spent<'a>(jobs: &[&'a NodeJob], recorded: Option<&HostJob>) -> Vec<&'a NodeJob> {
    let Some(last) = recorded.filter(|last| last.outcome.is_some()) else { return Vec::new() };
    let older: Vec<&NodeJob> =
        jobs.iter().filter(|job| job.number < last.number && job.end.is_some()).copied().collect();
    let kept = if last.outcome == Some(JobOutcome::Done) { 0 } else { KEPT };
    older.iter().rev().skip(kept).copied().collect()
}

fn begin(status: &mut HostStatus, job: &NodeJob, now: Timestamp) {
    status.touched |= matches!(job.action, NodeAction::Install | NodeAction::Remove);
    let already = status.job.as_ref().filter(|last| last.number == job.number).map(|last| last.at);
    let failures = earlier_failures(status, job.action, &job.state, &job.facts);
    let at = already.or(job.created).unwrap_or(now);
    // Until it ends, what the one before it failed with is what there is to say.
    // One that began after it was given up is not an earlier one.
    let earlier = |last: &HostJob| last.number != job.number || last.outcome.is_none();
    let failed = status.job.take().filter(|last| failures > 0 && earlier(last));
    let before = failed.as_ref().and_then(|last| last.outcome.or(last.before));
    let code = failed.as_ref().and_then(|last| last.code.clone());
    let message = failed.map(|last| last.message).unwrap_or_default();
    status.job = Some(HostJob { failures, before, message, code, ..begun(job, at) });
}

fn begun(job: &NodeJob, at: Timestamp) -> HostJob {
    HostJob {
        name: job.name.clone(),
        number: job.number,
        action: job.action,
        state: job.state.clone(),
        facts: job.facts.clone(),
        outcome: None,
        before: None,
        at,
        failures: 0,
        message: String::new(),
        code: None,
    }
}

/// How many Jobs for the same failed in a row.
fn earlier_failures(status: &HostStatus, action: NodeAction, state: &str, facts: &str) -> i64 {
    status
        .job
        .as_ref()
        .filter(|last| last.action == action && last.state == state && last.facts == facts)
        .map_or(0, |last| last.failures)
}

/// A Job that is over.
struct Ended<'a> {
    job: HostJob,
    report: Option<&'a NodeReport>,
}

impl<'a> Ended<'a> {
    fn vanished(last: HostJob, message: String, now: Timestamp) -> Self {
        let outcome = Some(JobOutcome::Vanished);
        let job = HostJob { outcome, message, at: now, before: None, code: None, ..last };
        Self { job, report: None }
    }

    fn of(job: &NodeJob, pod: Option<&'a JobPod>, now: Timestamp) -> Self {
        let report = pod.and_then(|pod| pod.report.as_ref());
        let mut code = None;
        let (outcome, message, report) = match report {
            Some(Ok(report))
                if report.action == job.action && report.version <= NODE_TASK_VERSION =>
            {
                code = report.checks.first().map(|check| check.code.clone());
                // One from before the agent was started tells of the image, and nothing of the node.
                let seen = pod.is_some_and(|pod| pod.started);
                (report.outcome.into(), said(report), Some(report).filter(|_| seen))
            }
            Some(Ok(report)) => {
                let message = format!(
                    "its report is about {} in version {}",
                    report.action.as_str(),
                    report.version
                );
                (JobOutcome::NoReport, message, None)
            }
            Some(Err(error)) => {
                (JobOutcome::NoReport, format!("its report cannot be read: {error}"), None)
            }
            None => {
                let (outcome, message) = without_report(job, pod);
                (outcome, message, None)
            }
        };
        let at = job.end.as_ref().and_then(|end| end.at).unwrap_or(now);
        Self {
            job: HostJob {
                outcome: Some(outcome),
                message: text::cut(message.trim().trim_end_matches('.'), MESSAGE),
                code,
                ..begun(job, at)
            },
            report,
        }
    }
}

/// What a report has to say: its sentence, else its first check, and the sandboxes in the way.
fn said(report: &NodeReport) -> String {
    let mut message = match report.checks.first() {
        Some(check) if report.message.is_empty() => format!("{}: {}", check.code, check.message),
        // By the code the fix is found.
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

/// How a Job ended that left no report.
fn without_report(job: &NodeJob, pod: Option<&JobPod>) -> (JobOutcome, String) {
    let late = job.end.as_ref().and_then(|end| end.failed.as_deref()) == Some("DeadlineExceeded");
    let why = |pod: &JobPod| match (&pod.unschedulable, &pod.stuck) {
        (Some(message), _) => format!("its pod was not scheduled: {message}"),
        (None, Some(stuck)) => {
            format!("container {} did not start: {}", stuck.container, stuck.reason)
        }
        (None, None) if !pod.failures.is_empty() => pod.failures.join("; "),
        (None, None) => "its pod did not start".to_owned(),
    };
    match pod {
        Some(pod) if !pod.started => (JobOutcome::NotStarted, why(pod)),
        Some(pod) if !late => {
            let how = if pod.failures.is_empty() {
                "its pod ended".to_owned()
            } else {
                pod.failures.join("; ")
            };
            (JobOutcome::NoReport, format!("{how}, without a report"))
        }
        _ if late => (JobOutcome::TimedOut, "it did not end in time".to_owned()),
        _ => {
            let end = job.end.as_ref().map(|end| end.message.trim()).unwrap_or_default();
            let end = if end.is_empty() { "it ended" } else { end };
            (JobOutcome::NoReport, format!("{end}, and its pod is gone"))
        }
    }
}

/// Draws the conclusions from a Job that is over.
fn record(status: &mut HostStatus, ended: &Ended<'_>) {
    let job = &ended.job;
    let outcome = job.outcome.unwrap_or(JobOutcome::NoReport);
    let failures = earlier_failures(status, job.action, &job.state, &job.facts);
    let changes = matches!(job.action, NodeAction::Install | NodeAction::Remove);
    status.touched |= changes;
    if let Some(report) = ended.report {
        if !report.runtime.is_empty() {
            status.runtime = Some(report.runtime.clone());
        }
        if let Some(handlers) = &report.handlers {
            status.handlers.clone_from(handlers);
        }
        status.restarts += i64::from(report.restarted);
        if job.action != NodeAction::Preflight {
            status.payload_digest.clone_from(&report.payload_digest);
            status.kata_version.clone_from(&report.kata_version);
        }
    }
    if matches!(job.action, NodeAction::Preflight | NodeAction::Install) && is_of_payload(job) {
        // It would be refused again.
        status.bad = Some(bad_key(job));
    }
    match (outcome, job.action) {
        (JobOutcome::Done, NodeAction::Preflight) => status.fit_for = Some(key(job)),
        (JobOutcome::Done, NodeAction::Install) => {
            status.installed = Some(job.state.clone());
            status.inspected = Some(job.at);
            status.bad = None;
        }
        (JobOutcome::Done, NodeAction::Inspect) => {
            status.inspected = Some(job.at);
            // Nothing is known any more of why another state could not be reached.
            status.bad = None;
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
            let serves = ended.report.is_some_and(serves);
            status.installed = serves.then(|| DRIFTED.to_owned());
            status.drifts += 1;
            // It was fit, and still is as far as anybody knows.
            status.fit_for = Some(key(job));
        }
        (JobOutcome::RolledBack, _) => {
            status.bad = Some(bad_key(job));
            status.rollbacks += 1;
        }
        (JobOutcome::Unsafe, _) => {
            status.bad = Some(bad_key(job));
            status.installed = None;
        }
        (JobOutcome::TimedOut | JobOutcome::NoReport | JobOutcome::Vanished, _) if changes => {
            status.installed = None;
        }
        // Whatever is installed, no sandbox can be started: it is no node for new pods until it is found fit.
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

/// Whether a Job left no word of what it did.
pub(super) fn is_lost(job: &HostJob) -> bool {
    let unknown = [JobOutcome::TimedOut, JobOutcome::NoReport, JobOutcome::Vanished];
    job.outcome.is_some_and(|outcome| unknown.contains(&outcome))
}

/// Whether a Job was refused for what is wrong with the payload, or with what is wanted of it, and not with
/// the node.
pub(super) fn is_of_payload(job: &HostJob) -> bool {
    let codes = [Code::ShimMissing, Code::ShimConfigurationInvalid, Code::PayloadUnusable];
    let code = job.code.as_deref().and_then(Code::parse);
    job.outcome == Some(JobOutcome::Refused) && code.is_some_and(|code| codes.contains(&code))
}

/// Whether a node has lost what every sandbox needs of it. Whatever else a Job is refused for keeps the node
/// from being changed, and not from running sandboxes with what it has.
fn cannot_run(report: &NodeReport) -> bool {
    let needs = [Code::KvmUnusable, Code::VsockMissing].map(|code| code.entry().code);
    report.checks.iter().any(|check| check.fatal && needs.contains(&check.code.as_str()))
}

/// Whether a node that differs runs sandboxes as before: what differs are files that its container runtime
/// reads when it starts. It is repaired like a node that gets another version, and not all at once.
fn serves(report: &NodeReport) -> bool {
    let has = |code: Code| report.checks.iter().any(|check| check.code == code.entry().code);
    let others = [Code::ChangeInterrupted, Code::PayloadDrifted, Code::HandlersDrifted];
    // Whatever else it found are warnings, which do not keep a node from being installed either.
    report.more_checks == 0 && has(Code::ConfigDrifted) && !others.into_iter().any(has)
}

fn key(job: &HostJob) -> String {
    fit(&job.state, &job.facts)
}

/// The key of a state to which a node with these facts can be brought, as [`HostStatus::fit_for`] has it.
pub(super) fn fit(state: &str, facts: &str) -> String {
    format!("{state}.{facts}")
}

/// The key of a change that was undone; a removal is another change than an installation.
fn bad_key(job: &HostJob) -> String {
    bad(job.action, &job.state, &job.facts)
}

/// The key of a change of a node with these facts, as [`HostStatus::bad`] has it.
pub(super) fn bad(action: NodeAction, state: &str, facts: &str) -> String {
    if action == NodeAction::Remove {
        format!("remove.{facts}")
    } else {
        format!("{state}.{facts}")
    }
}

/// Until when a node is left alone after its last Job failed; `None` if it is not.
pub(super) fn pause(status: &HostStatus, actions: &[NodeAction], facts: &str) -> Option<Timestamp> {
    let last = status.job.as_ref()?;
    let failed = last.failures > 0 && last.outcome.is_some();
    if !failed || !actions.contains(&last.action) || last.facts != facts {
        return None;
    }
    let doubling = u32::try_from(last.failures.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    let most = match last.outcome {
        Some(JobOutcome::Blocked) => LONGEST_BLOCK,
        _ => LONGEST_PAUSE,
    };
    let pause = PAUSE.checked_mul(1 << doubling).unwrap_or(most).min(most);
    last.at.checked_add(pause).ok()
}

/// What an admin wrote to have a change tried again that was given up.
pub(super) fn retry(previous: Option<&KataNode>) -> Option<&str> {
    let annotations = previous?.metadata.annotations.as_ref()?;
    annotations.get(names::RETRY_ANNOTATION).map(String::as_str)
}
