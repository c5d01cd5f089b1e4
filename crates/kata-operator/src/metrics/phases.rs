//! Measures how long nodes stay in a phase, from one report to the next, and how long new nodes take to get Kata.
//!
//! Only a phase that this process observed from its beginning to its end is measured: an earlier one would be
//! measured too short.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_node::Phase;
use kata_plan::NodeReport;
use tokio::time::Instant;

/// How old a node that joins may be when it is seen first.
const MAX_AGE_OF_JOINING_NODE: SignedDuration = SignedDuration::from_mins(10);

/// The nodes of the last report, by uid.
#[derive(Debug, Default)]
pub(super) struct PhaseTracker {
    /// `None` before the first report.
    nodes: Option<BTreeMap<String, Seen>>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    phase: Phase,
    /// When the phase began, if this process observed that.
    since: Option<Instant>,
    /// When the node was created, if it is new and was not Ready yet.
    joins_since: Option<Timestamp>,
}

/// What ended from one report to the next.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Ended {
    /// Phases, and how long they lasted.
    pub(super) phases: Vec<(Phase, Duration)>,
    /// For each new node that became Ready, the time since its creation.
    pub(super) joins: Vec<SignedDuration>,
}

impl PhaseTracker {
    /// Compares a report with the last one.
    pub(super) fn update(&mut self, nodes: &[NodeReport], now: Instant) -> Ended {
        let first = self.nodes.is_none();
        let before = self.nodes.take().unwrap_or_default();
        let mut ended = Ended::default();
        let mut after = BTreeMap::new();
        for node in nodes {
            let mut seen = match before.get(&node.uid) {
                Some(seen) if seen.phase == node.phase => *seen,
                Some(seen) => {
                    ended.phases.extend(seen.since.map(|since| (seen.phase, now - since)));
                    Seen { phase: node.phase, since: Some(now), ..*seen }
                }
                None => Seen {
                    phase: node.phase,
                    since: (!first).then_some(now),
                    joins_since: created_lately(node).filter(|_| !first),
                },
            };
            if node.phase == Phase::Ready
                && let Some(created) = seen.joins_since.take()
            {
                ended.joins.extend(node.since.map(|since| since.duration_since(created)));
            }
            after.insert(node.uid.clone(), seen);
        }
        self.nodes = Some(after);
        ended
    }
}

/// When a node was created, if that is so short ago that it was made for its pods. An older node waited for the
/// administrator.
fn created_lately(node: &NodeReport) -> Option<Timestamp> {
    let (since, created) = (node.since?, node.created?);
    let is_new =
        node.phase != Phase::Ready && since.duration_since(created) < MAX_AGE_OF_JOINING_NODE;
    is_new.then_some(created)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(uid: &str, phase: Phase) -> NodeReport {
        NodeReport {
            node: uid.to_owned(),
            uid: uid.to_owned(),
            wanted: true,
            provided: false,
            behind: false,
            phase,
            step: None,
            since: None,
            created: None,
            code: None,
            message: String::new(),
            host: None,
        }
    }

    #[test]
    fn only_a_phase_observed_from_beginning_to_end_is_measured() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut phases = PhaseTracker::default();
        assert_eq!(phases.update(&[node("a", Phase::Installing)], at(0)).phases, []);
        // When its installation began is not known.
        let report = [node("a", Phase::Ready), node("b", Phase::Waiting)];
        assert_eq!(phases.update(&report, at(10)).phases, []);
        let report = [node("a", Phase::Ready), node("b", Phase::Installing)];
        assert_eq!(
            phases.update(&report, at(40)).phases,
            [(Phase::Waiting, Duration::from_secs(30))]
        );
        let report = [node("b", Phase::Installing)];
        assert_eq!(phases.update(&report, at(50)).phases, [], "a node that is gone ends nothing");
        let report = [node("b", Phase::Ready)];
        assert_eq!(
            phases.update(&report, at(100)).phases,
            [(Phase::Installing, Duration::from_secs(60))]
        );
    }
    #[test]
    fn the_time_from_creation_to_ready_is_measured_once_and_of_new_nodes() {
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).ok();
        let new =
            |phase, second| NodeReport { created: at(0), since: at(second), ..node("a", phase) };
        let old = |phase, second| NodeReport {
            created: at(-7_200),
            since: at(second),
            ..node("b", phase)
        };
        let mut phases = PhaseTracker::default();
        assert_eq!(phases.update(&[], Instant::now()), Ended::default());
        let mut update = |second: i64| {
            let phase = if second < 90 { Phase::Waiting } else { Phase::Ready };
            phases.update(&[new(phase, second), old(phase, second)], Instant::now()).joins
        };
        assert_eq!(update(30), []);
        assert_eq!(update(90), [SignedDuration::from_secs(90)]);
        let ready = [new(Phase::NotReady, 200), old(Phase::Ready, 90)];
        assert_eq!(phases.update(&ready, Instant::now()).joins, []);
        assert_eq!(phases.update(&[new(Phase::Ready, 300)], Instant::now()).joins, []);
        // It had Kata when it was seen first.
        let mut phases = PhaseTracker::default();
        assert_eq!(phases.update(&[], Instant::now()), Ended::default());
        for (phase, second) in [(Phase::Ready, 30), (Phase::NotReady, 40), (Phase::Ready, 50)] {
            assert_eq!(phases.update(&[new(phase, second)], Instant::now()).joins, []);
        }
        // This process did not see it come.
        let mut phases = PhaseTracker::default();
        for (phase, second) in [(Phase::Waiting, 30), (Phase::Ready, 90)] {
            assert_eq!(phases.update(&[new(phase, second)], Instant::now()).joins, []);
        }
    }
}
