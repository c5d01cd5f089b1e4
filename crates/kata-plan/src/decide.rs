//! The decision: from a snapshot to a plan and a report.

use crate::report::Decision;
use crate::snapshot::{Need, Snapshot};

/// Decides about a snapshot. Total and deterministic; the order of the snapshot's lists does not
/// matter.
pub fn decide(snapshot: &Snapshot) -> Decision {
    let _ = snapshot;
    Decision::default()
}

/// The reads that the decision about this snapshot wants first; empty if it can be made. A read that
/// was tried and failed ([`crate::Observed::Unknown`]) is not asked for again.
pub fn needs(snapshot: &Snapshot) -> Vec<Need> {
    let _ = snapshot;
    Vec::new()
}
