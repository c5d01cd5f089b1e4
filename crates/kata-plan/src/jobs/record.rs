//! The record of a node: its KataNode, and the results of the Jobs since that was written.
//!
//! Each Job's result counts once, and is in the KataNode before the Job is deleted. So a pass that is
//! repeated after a crash, or by another replica, has the same result.

mod job_result;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use job_result::{EndedJob, not_started, record_end, record_start, started_job};
pub(super) use job_result::{IMAGE_CODES, change_key, fit_key, is_need_of_sandboxes, refusal_code};
use kata_api::kata_node::{HostJob, HostStatus, JobOutcome};
use kata_api::node_task::NodeAction;
use kata_api::{Code, KataNode, names};

use crate::ownership::is_owned_by;
use crate::snapshot::{Freshness, JobPod, NodeFacts, NodeJob};

/// The back-off after the first failure; it doubles with each failure.
const FIRST_BACK_OFF: SignedDuration = SignedDuration::from_secs(30);
/// The longest back-off.
const MAX_BACK_OFF: SignedDuration = SignedDuration::from_hours(1);
/// The longest back-off after a Job that sandboxes blocked, that waits for a restart by another program, or that did
/// not start because of an image or a quota: no watch event reports that the cause is gone.
const MAX_BLOCKED_BACK_OFF: SignedDuration = SignedDuration::from_mins(5);
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
    pub(crate) status: Arc<HostStatus>,
    /// The Job that has not ended, or whose pod has not, and its pod.
    pub(crate) running: Option<(&'a NodeJob, Option<&'a JobPod>)>,
    /// An unfinished pod whose Job is gone or is being deleted.
    pub(crate) orphaned_pod: Option<&'a JobPod>,
    /// Whether a read past the cache has to confirm the state of a Job.
    pub(crate) needs_fresh_read: bool,
    /// Jobs that can be deleted.
    pub(crate) deletable_jobs: Vec<&'a NodeJob>,
    /// Whether the result of a finished Job was added that the KataNode does not have yet.
    pub(crate) has_new_result: bool,
    /// A Job that has not ended for an earlier node of the same name: its pod could still be scheduled to
    /// this node.
    pub(crate) job_of_earlier_node: Option<&'a NodeJob>,
    /// Whether this version of the operator understands the KataNode and all Jobs of the node. If not, the node gets no Job, and
    /// neither its labels nor its record change.
    pub(crate) is_understood: bool,
}

/// Reconstructs the record of a node. A KataNode of an earlier node of the same name does not count. `is_readable`:
/// neither the KataNode nor a Job of the node is one that cannot be parsed.
pub(super) fn reconstruct<'a>(
    freshness: Freshness,
    is_readable: bool,
    node: &NodeFacts,
    previous: Option<&KataNode>,
    found: Option<&JobsOfNode<'a>>,
    now: Timestamp,
) -> NodeRecord<'a> {
    let written = previous
        .filter(|previous| is_owned_by(previous, &node.uid))
        .and_then(|previous| previous.status.as_ref()?.host.as_ref());
    let recorded = written.and_then(|status| status.job.as_ref());
    let mut record = NodeRecord {
        status: written.cloned().unwrap_or_default(),
        running: None,
        orphaned_pod: None,
        needs_fresh_read: false,
        deletable_jobs: Vec::new(),
        has_new_result: false,
        job_of_earlier_node: None,
        is_understood: is_readable,
    };
    record.is_understood &= record.status.unknown_values.is_empty();
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
    if let Some(last) = recorded.filter(|last| last.outcome.is_none())
        && jobs.iter().all(|job| job.name != last.name)
    {
        if freshness == Freshness::Cached {
            record.needs_fresh_read = true;
        } else {
            let message = format!("Job {} is gone", last.name);
            record_end(
                Arc::make_mut(&mut record.status),
                &EndedJob::vanished(last.clone(), message, now),
            );
        }
    }
    for job in &jobs {
        let pod = found.pod(&job.name);
        let is_new = is_new(&record.status, job, pod);
        // Jobs and pods come from two watches, and one may lag.
        let is_seen = pod.is_some_and(|pod| pod.finished);
        if job.end.is_some() && is_new && !is_seen && freshness == Freshness::Cached {
            record.needs_fresh_read = true;
            record.running = Some((job, pod));
            continue;
        }
        match &job.end {
            Some(_) if pod.is_none_or(|pod| pod.finished) => {
                if is_new {
                    record_end(Arc::make_mut(&mut record.status), &EndedJob::of(job, pod, now));
                    record.has_new_result = true;
                }
            }
            None if job.deleting => {}
            // The pod of a Job that exceeded its deadline may still change the node until it ends.
            Some(_) | None => {
                record.running = Some((job, pod));
                if is_new {
                    record_start(Arc::make_mut(&mut record.status), job, now);
                }
            }
        }
    }
    record.orphaned_pod = found
        .pods
        .iter()
        .find(|pod| !pod.finished && jobs.iter().all(|job| job.name != pod.job || job.deleting))
        .copied();
    record.deletable_jobs.extend(deletable_jobs(&jobs, recorded));
    record.deletable_jobs.sort_by_key(|job| (job.number, &job.name));
    record
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

    /// Whether a pod without a Job of this node may still change it, for example one for an earlier node of its name.
    pub(super) fn has_orphaned_change(&self) -> bool {
        self.orphaned_pod.is_some_and(|pod| pod.may_change_node)
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
            let ended = EndedJob { job, payload_image: None, report: None };
            record_end(Arc::make_mut(&mut self.status), &ended);
        } else {
            self.deletable_jobs.push(job);
        }
    }
}

/// Whether a Job has not started within [`START_GRACE`]: its pod is not scheduled, a container waits, for
/// example for its image, or the Job has no pod, for example because of a quota.
pub(super) fn cannot_start(job: &NodeJob, pod: Option<&JobPod>, now: Timestamp) -> bool {
    // A suspended Job may have begun before, and its deadline does not run; that of one whose pod has gates does.
    let waits = job.held.is_none() && pod.is_none_or(|pod| !pod.started && !pod.finished);
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

/// Whether the result of a Job is unknown.
pub(super) fn is_lost(job: &HostJob) -> bool {
    let unknown = [JobOutcome::TimedOut, JobOutcome::NoReport, JobOutcome::Vanished];
    job.outcome.is_some_and(|outcome| unknown.contains(&outcome))
}

/// When the back-off after the node's last failed Job ends; `None` if there is no back-off.
pub(super) fn back_off_until<'a>(
    status: &HostStatus,
    actions: &[NodeAction],
    facts: impl FnOnce() -> &'a str,
) -> Option<Timestamp> {
    let last = status.job.as_ref()?;
    let failed = last.failures > 0 && last.outcome.is_some();
    if !failed || !actions.contains(&last.action) || last.node_facts_digest != facts() {
        return None;
    }
    let doubling = u32::try_from(last.failures.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    let most = match last.outcome {
        Some(JobOutcome::Blocked | JobOutcome::NotStarted) => MAX_BLOCKED_BACK_OFF,
        Some(JobOutcome::Refused) if waits_for_restart(last) => MAX_BLOCKED_BACK_OFF,
        _ => MAX_BACK_OFF,
    };
    let pause = FIRST_BACK_OFF.checked_mul(1 << doubling).unwrap_or(most).min(most);
    last.time.checked_add(pause).ok()
}

/// Whether a Job was refused because the container runtime must be restarted by another program first.
pub(super) fn waits_for_restart(job: &HostJob) -> bool {
    job.outcome == Some(JobOutcome::Refused)
        && job.code.as_deref().and_then(Code::parse) == Some(Code::ForeignChangePending)
}

/// The annotation by which an admin requests a retry of a change that was given up.
pub(super) fn retry_annotation(previous: Option<&KataNode>) -> Option<&str> {
    let annotations = previous?.metadata.annotations.as_ref()?;
    annotations.get(names::RETRY_ANNOTATION).map(String::as_str)
}
