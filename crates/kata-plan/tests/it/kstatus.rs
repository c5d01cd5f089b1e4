//! What generic tools conclude from a status (`kubectl wait`, kstatus): checked after every pass of every
//! history.

use std::collections::BTreeSet;

use kata_plan::{Snapshot, StatusReport};

/// Fails if a status contradicts itself, or says less than it must.
pub(crate) fn check(report: &StatusReport, snapshot: &Snapshot) {
    let status = &report.status;
    let find = |type_: &str| status.conditions.iter().find(|condition| condition.type_ == type_);
    let is = |type_: &str| find(type_).map(|condition| condition.status.as_str());
    let text = format!("{}: {:#?}", report.config, status.conditions);
    let config = snapshot.configs.iter().find(|config| config.metadata.uid == report.config.uid);
    let config = config.unwrap();
    let deleting = config.metadata.deletion_timestamp.is_some();

    let types: BTreeSet<&str> =
        status.conditions.iter().map(|found| found.type_.as_str()).collect();
    assert_eq!(types.len(), status.conditions.len(), "{text}");
    for condition in &status.conditions {
        assert!(!condition.reason.is_empty() && !condition.message.is_empty(), "{text}");
        assert!(["True", "False", "Unknown"].contains(&condition.status.as_str()), "{text}");
    }
    assert!(find("Ready").is_some(), "{text}");
    // kstatus reads these two as InProgress and Failed; both at once is neither.
    assert!(is("Reconciling") != Some("True") || is("Stalled") != Some("True"), "{text}");
    if is("Ready") == Some("True") {
        assert_eq!(status.observed_generation, config.metadata.generation, "{text}");
        assert!(!deleting, "{text}");
    }
    // Work that goes on is the same work under both names.
    if is("Ready") != Some("Unknown") && is("Reconciling") == Some("True") && !deleting {
        assert_eq!(is("InProgress"), Some("True"), "{text}");
    }
    let nodes = &status.kata_nodes;
    assert!(nodes.ready_node_count <= nodes.node_count || deleting, "{nodes:?}");
    let whole = i64::try_from(nodes.installed.len()).unwrap() == nodes.ready_node_count;
    assert!(whole || nodes.truncated, "{nodes:?}");
}
