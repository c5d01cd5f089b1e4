//! Tracks the Jobs on nodes from one report to the next.
//!
//! Only Jobs that end while this process observes them are counted. The previous process counted earlier
//! ones.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kata_api::kata_node::{HostStatus, JobOutcome};
use kata_api::node_task::NodeAction;
use kata_plan::NodeReport;

/// A Job that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FinishedJob {
    pub(super) action: NodeAction,
    pub(super) outcome: JobOutcome,
    /// How long it took, if this process observed its beginning.
    pub(super) took: Option<Duration>,
}

/// The changes since the last report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobChanges {
    pub(super) finished: Vec<FinishedJob>,
    /// Restarts of container runtimes.
    pub(super) restarts: u64,
}

/// The nodes of the last report, by uid.
#[derive(Debug, Default)]
pub(super) struct JobTracker {
    /// `None` before the first report.
    nodes: Option<BTreeMap<String, Seen>>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    number: i64,
    is_over: bool,
    began: Option<Timestamp>,
    restarts: i64,
}

impl JobTracker {
    /// Compares a report with the last one.
    pub(super) fn update(&mut self, nodes: &[NodeReport]) -> JobChanges {
        let before = self.nodes.take();
        let mut changes = JobChanges::default();
        let mut after = BTreeMap::new();
        for node in nodes {
            let Some(host) = &node.host else { continue };
            let known = before.as_ref().map(|known| known.get(&node.uid));
            let seen = seen(host, known.flatten());
            if let Some(known) = known {
                compare(host, known, &seen, &mut changes);
            }
            after.insert(node.uid.clone(), seen);
        }
        self.nodes = Some(after);
        changes
    }
}

fn seen(host: &HostStatus, before: Option<&Seen>) -> Seen {
    let job = host.job.as_ref();
    let is_over = job.is_some_and(|job| job.outcome.is_some());
    let number = job.map_or(0, |job| job.number);
    let began = match before {
        Some(before) if before.number == number => before.began,
        // Until the Job ends, this is its creation time.
        Some(_) | None => job.filter(|_| !is_over).map(|job| job.time),
    };
    Seen { number, is_over, began, restarts: host.restarts }
}

fn compare(host: &HostStatus, before: Option<&Seen>, seen: &Seen, changes: &mut JobChanges) {
    let restarts = host.restarts.saturating_sub(before.map_or(0, |before| before.restarts));
    changes.restarts = changes.restarts.saturating_add(u64::try_from(restarts).unwrap_or(0));
    let is_counted = before.is_some_and(|before| before.number == seen.number && before.is_over);
    if is_counted {
        return;
    }
    let Some(job) = &host.job else { return };
    let Some(outcome) = job.outcome else { return };
    let took = seen.began.and_then(|began| Duration::try_from(job.time.duration_since(began)).ok());
    changes.finished.push(FinishedJob { action: job.action, outcome, took });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kata_api::kata_node::{HostJob, Phase};

    use super::*;

    fn node(number: i64, at: i64, outcome: Option<JobOutcome>, restarts: i64) -> NodeReport {
        let job = HostJob {
            name: format!("job-{number}"),
            number,
            action: NodeAction::Install,
            desired_state_digest: String::new(),
            node_facts_digest: String::new(),
            outcome,
            previous_outcome: None,
            time: Timestamp::from_second(at).unwrap(),
            failures: 0,
            message: String::new(),
            code: None,
        };
        NodeReport {
            node: "a".to_owned(),
            uid: "a".to_owned(),
            wanted: true,
            provided: false,
            behind: false,
            phase: Phase::Installing,
            step: None,
            since: None,
            created: None,
            code: None,
            message: String::new(),
            host: Some(Arc::new(HostStatus { job: Some(job), restarts, ..HostStatus::default() })),
        }
    }

    #[test]
    fn each_job_that_ends_is_counted_once_and_earlier_jobs_are_not() {
        let mut jobs = JobTracker::default();
        let done = Some(JobOutcome::Done);
        assert_eq!(jobs.update(&[node(1, 10, done, 7)]), JobChanges::default());
        assert_eq!(jobs.update(&[node(2, 20, None, 7)]), JobChanges::default());
        let finished = |outcome, took: Option<u64>| FinishedJob {
            action: NodeAction::Install,
            outcome,
            took: took.map(Duration::from_secs),
        };
        let back = Some(JobOutcome::RolledBack);
        let changes = jobs.update(&[node(2, 50, back, 9)]);
        assert_eq!(
            changes,
            JobChanges { finished: vec![finished(JobOutcome::RolledBack, Some(30))], restarts: 2 }
        );
        assert_eq!(jobs.update(&[node(2, 50, back, 9)]), JobChanges::default());
        // This Job began and ended between two reports.
        let changes = jobs.update(&[node(3, 60, done, 10)]);
        assert_eq!(
            changes,
            JobChanges { finished: vec![finished(JobOutcome::Done, None)], restarts: 1 }
        );
    }
}
