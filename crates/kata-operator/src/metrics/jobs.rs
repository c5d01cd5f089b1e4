//! What Jobs did on nodes, from one report to the next.
//!
//! Only what ended while this process was watching is told: what a KataNode says of the time before was
//! told by the process before.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kata_api::kata_node::{HostStatus, JobOutcome};
use kata_api::node_task::NodeAction;
use kata_plan::NodeReport;

/// A Job that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Over {
    pub(super) action: NodeAction,
    pub(super) outcome: JobOutcome,
    /// How long it took, if it was seen to begin.
    pub(super) took: Option<Duration>,
}

/// What is new since the last report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct News {
    pub(super) over: Vec<Over>,
    /// Restarts of container runtimes.
    pub(super) restarts: u64,
}

/// The nodes of the last report, by uid.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    /// `None` before the first report.
    nodes: Option<BTreeMap<String, Seen>>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    number: i64,
    over: bool,
    began: Option<Timestamp>,
    restarts: i64,
}

impl Jobs {
    /// Takes a report.
    pub(super) fn take(&mut self, nodes: &[NodeReport]) -> News {
        let before = self.nodes.take();
        let mut news = News::default();
        let mut after = BTreeMap::new();
        for node in nodes {
            let Some(host) = &node.host else { continue };
            let known = before.as_ref().map(|known| known.get(&node.uid));
            let seen = seen(host, known.flatten());
            if let Some(known) = known {
                compare(host, known, &seen, &mut news);
            }
            after.insert(node.uid.clone(), seen);
        }
        self.nodes = Some(after);
        news
    }
}

fn seen(host: &HostStatus, before: Option<&Seen>) -> Seen {
    let job = host.job.as_ref();
    let over = job.is_some_and(|job| job.outcome.is_some());
    let number = job.map_or(0, |job| job.number);
    let began = match before {
        Some(before) if before.number == number => before.began,
        // Until it is over this is when it was made.
        Some(_) | None => job.filter(|_| !over).map(|job| job.at),
    };
    Seen { number, over, began, restarts: host.restarts }
}

fn compare(host: &HostStatus, before: Option<&Seen>, seen: &Seen, news: &mut News) {
    let restarts = host.restarts.saturating_sub(before.map_or(0, |before| before.restarts));
    news.restarts = news.restarts.saturating_add(u64::try_from(restarts).unwrap_or(0));
    let told = before.is_some_and(|before| before.number == seen.number && before.over);
    if told {
        return;
    }
    let Some(job) = &host.job else { return };
    let Some(outcome) = job.outcome else { return };
    let took = seen.began.and_then(|began| Duration::try_from(job.at.duration_since(began)).ok());
    news.over.push(Over { action: job.action, outcome, took });
}

#[cfg(test)]
mod tests {
    use kata_api::kata_node::{HostJob, Phase};

    use super::*;

    fn node(number: i64, at: i64, outcome: Option<JobOutcome>, restarts: i64) -> NodeReport {
        let job = HostJob {
            name: format!("job-{number}"),
            number,
            action: NodeAction::Install,
            state: String::new(),
            facts: String::new(),
            outcome,
            before: None,
            at: Timestamp::from_second(at).unwrap(),
            failures: 0,
            message: String::new(),
            code: None,
        };
        NodeReport {
            node: "a".to_owned(),
            uid: "a".to_owned(),
            wanted: true,
            phase: Phase::Installing,
            step: None,
            since: None,
            code: None,
            message: String::new(),
            host: Some(Box::new(HostStatus { job: Some(job), restarts, ..HostStatus::default() })),
        }
    }

    #[test]
    fn each_job_that_ends_is_told_once_and_none_from_before() {
        let mut jobs = Jobs::default();
        let done = Some(JobOutcome::Done);
        assert_eq!(jobs.take(&[node(1, 10, done, 7)]), News::default());
        assert_eq!(jobs.take(&[node(2, 20, None, 7)]), News::default());
        let over = |outcome, took: Option<u64>| Over {
            action: NodeAction::Install,
            outcome,
            took: took.map(Duration::from_secs),
        };
        let back = Some(JobOutcome::RolledBack);
        let news = jobs.take(&[node(2, 50, back, 9)]);
        assert_eq!(news, News { over: vec![over(JobOutcome::RolledBack, Some(30))], restarts: 2 });
        assert_eq!(jobs.take(&[node(2, 50, back, 9)]), News::default());
        // One that began and ended between two reports.
        let news = jobs.take(&[node(3, 60, done, 10)]);
        assert_eq!(news, News { over: vec![over(JobOutcome::Done, None)], restarts: 1 });
    }
}
