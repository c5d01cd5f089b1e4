//! Measures how long nodes stay in a phase, from one report to the next.
//!
//! Only a phase that this process observed from its beginning to its end is measured: an earlier one would be
//! measured too short.

use std::collections::BTreeMap;
use std::time::Duration;

use kata_api::kata_node::Phase;
use kata_plan::NodeReport;
use tokio::time::Instant;

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
}

impl PhaseTracker {
    /// Compares a report with the last one; returns the phases that ended, and how long they lasted.
    pub(super) fn update(&mut self, nodes: &[NodeReport], now: Instant) -> Vec<(Phase, Duration)> {
        let first = self.nodes.is_none();
        let before = self.nodes.take().unwrap_or_default();
        let mut ended = Vec::new();
        let mut after = BTreeMap::new();
        for node in nodes {
            let seen = match before.get(&node.uid) {
                Some(seen) if seen.phase == node.phase => *seen,
                Some(seen) => {
                    ended.extend(seen.since.map(|since| (seen.phase, now - since)));
                    Seen { phase: node.phase, since: Some(now) }
                }
                None => Seen { phase: node.phase, since: (!first).then_some(now) },
            };
            after.insert(node.uid.clone(), seen);
        }
        self.nodes = Some(after);
        ended
    }
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
        assert_eq!(phases.update(&[node("a", Phase::Installing)], at(0)), []);
        // When its installation began is not known.
        let report = [node("a", Phase::Ready), node("b", Phase::Waiting)];
        assert_eq!(phases.update(&report, at(10)), []);
        let report = [node("a", Phase::Ready), node("b", Phase::Installing)];
        assert_eq!(phases.update(&report, at(40)), [(Phase::Waiting, Duration::from_secs(30))]);
        let report = [node("b", Phase::Installing)];
        assert_eq!(phases.update(&report, at(50)), [], "a node that is gone ends nothing");
        let report = [node("b", Phase::Ready)];
        assert_eq!(phases.update(&report, at(100)), [(Phase::Installing, Duration::from_secs(60))]);
    }
}
