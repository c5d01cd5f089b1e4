//! What generic tools conclude from a status (`kubectl wait`, kstatus): checked after every pass of every
//! history.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kata_api::kata_config::LIST_CAP;
use kata_api::situations::{Readiness, Row, SITUATIONS};
use kata_api::{Code, Severity, conditions, event_reasons};
use kata_plan::{EventToSend, Finding, Kind, Report, Snapshot, StatusReport, Waiting};

/// Fails if a node waits without a reason: one in the wait itself, a finding about the node, or a finding or a wait
/// that concerns all nodes.
pub(crate) fn waits_have_reasons(report: &Report) {
    let concerns_all = report.findings.iter().any(|finding| {
        finding.subject.kind != Kind::Node && finding.code.entry().severity >= Severity::Warning
    }) || report
        .waiting_on
        .iter()
        .any(|it| !matches!(it.what, Waiting::Node | Waiting::OwnWrites));
    let has_finding = |name: &str| {
        let about = |it: &Finding| it.subject.kind == Kind::Node && it.subject.name == name;
        report.findings.iter().any(about)
            || report.nodes.iter().find(|it| it.node == name).is_none_or(|it| it.code.is_some())
    };
    for waiting in &report.waiting_on {
        let reasonless = waiting.message.split_once("not being changed: ");
        let names = reasonless.iter().flat_map(|(_, names)| names.split(", "));
        for name in names.filter(|_| !concerns_all) {
            assert!(has_finding(name), "{name} waits without a reason: {report:#?}");
        }
    }
}

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
    let before = config.status.iter().flat_map(|status| &status.conditions);
    let is_foreign = |type_: &str| !conditions::ALL.contains(&type_);
    let foreign: Vec<_> = before.clone().filter(|found| is_foreign(&found.type_)).collect();
    let kept: Vec<_> = status.conditions.iter().filter(|it| is_foreign(&it.type_)).collect();
    assert_eq!(kept, foreign, "conditions of other clients are kept as they are");
    for condition in status.conditions.iter().filter(|found| !is_foreign(&found.type_)) {
        let before = before.clone().find(|before| before.type_ == condition.type_);
        let kept = before.is_some_and(|before| before.status == condition.status);
        let now = Timestamp::from_second(snapshot.now.as_second()).unwrap();
        let since = if kept { before.unwrap().last_transition_time.0 } else { now };
        assert_eq!(condition.last_transition_time.0, since, "{}: {text}", condition.type_);
        assert!(!condition.reason.is_empty() && !condition.message.is_empty(), "{text}");
        assert!(condition.message.len() <= 32_768, "{text}");
        assert!(["True", "False", "Unknown"].contains(&condition.status.as_str()), "{text}");
        // The reference names every type and every reason.
        assert!(is_among(&conditions::TYPES, &condition.type_), "{text}");
        let reason = condition.reason.as_str();
        assert!(is_of_finding(reason) || is_among(&conditions::REASONS, reason), "{text}");
    }
    assert!(find("Ready").is_some(), "{text}");
    // kstatus reads these two as InProgress and Failed; both at once is neither.
    assert!(is("Reconciling") != Some("True") || is("Stalled") != Some("True"), "{text}");
    let row = |row: &&Row| {
        let ready: &[&str] = match row.ready {
            Readiness::False => &["False"],
            Readiness::True => &["True"],
            Readiness::IfCurrent | Readiness::IfInstalled => &["True", "False"],
            Readiness::Unknown => &["Unknown", "False"],
        };
        let blocked = row.deletion_blocked.map(|it| if it { "True" } else { "False" });
        // The others stay as they were.
        if is("Ready") == Some("Unknown") && !row.stalled {
            return row.ready == Readiness::Unknown && is("DeletionBlocked") == blocked;
        }
        ready.contains(&is("Ready").unwrap_or_default())
            && is("Reconciling") == row.reconciling.then_some("True")
            && is("Stalled") == row.stalled.then_some("True")
            && (!row.degraded || is("Degraded") == Some("True"))
            && is("DeletionBlocked") == blocked
    };
    assert!(SITUATIONS.iter().any(|it| row(&it)), "no row of the table: {text}");
    if is("Ready") == Some("True") {
        assert_eq!(status.observed_generation, config.metadata.generation, "{text}");
        assert!(!deleting, "{text}");
    }
    // Work that goes on is the same work under both names.
    if is("Ready") != Some("Unknown") && is("Reconciling") == Some("True") && !deleting {
        assert_eq!(is("InProgress"), Some("True"), "{text}");
    }
    let nodes = &status.kata_nodes;
    let lists = [
        &nodes.installed,
        &nodes.installing,
        &nodes.waiting_to_install,
        &nodes.failed_to_install,
        &nodes.uninstalling,
        &nodes.waiting_to_uninstall,
        &nodes.failed_to_uninstall,
    ];
    assert!(lists.iter().all(|list| list.len() <= LIST_CAP), "{nodes:?}");
    assert!(nodes.ready_node_count <= nodes.node_count || deleting, "{nodes:?}");
    if !nodes.truncated && !deleting && is("Ready") != Some("Unknown") {
        let listed: BTreeSet<&String> = lists.iter().flat_map(|list| list.iter()).collect();
        let count: usize = lists.iter().map(|list| list.len()).sum();
        assert_eq!(listed.len(), count, "a node is in two lists: {nodes:?}");
        assert!(i64::try_from(count).unwrap() >= nodes.node_count, "one is in none: {nodes:?}");
    }
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
