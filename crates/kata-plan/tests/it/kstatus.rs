//! What generic tools conclude from a status (`kubectl wait`, kstatus): checked after every pass of every
//! history.

use std::collections::BTreeSet;

use kata_api::{Code, conditions, event_reasons};
use kata_plan::{EventToSend, Snapshot, StatusReport};

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
        // The reference names every type and every reason.
        assert!(is_among(&conditions::TYPES, &condition.type_), "{text}");
        let reason = condition.reason.as_str();
        assert!(is_of_finding(reason) || is_among(&conditions::REASONS, reason), "{text}");
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

fn is_among(names: &[(&str, &str)], name: &str) -> bool {
    names.iter().any(|(known, _)| *known == name)
}

fn is_of_finding(reason: &str) -> bool {
    Code::ALL.iter().any(|code| code.entry().reason == reason)
}

/// Fails if the reference does not name the reason of an Event.
pub(crate) fn named(event: &EventToSend) {
    let reason = event.reason.as_str();
    let known = is_among(&event_reasons::ALL, reason) || is_among(&conditions::REASONS, reason);
    assert!(known || is_of_finding(reason), "{event:?}");
}
