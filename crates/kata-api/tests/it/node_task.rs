//! Reports of node agents of other versions.

use kata_api::node_task::{NODE_TASK_VERSION, NodeReport};
use serde_json::json;

#[test]
fn a_report_of_a_newer_agent_is_refused_by_its_version_and_not_by_its_values() {
    let newer = NODE_TASK_VERSION + 1;
    let report = json!({"version": newer, "action": "Repair", "outcome": "Postponed"});
    let error = NodeReport::parse(&report.to_string()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "it has version {newer}, and this operator reads versions up to {NODE_TASK_VERSION}"
        )
    );
    let report =
        json!({"version": NODE_TASK_VERSION, "action": "Install", "outcome": "Done", "added": 1});
    assert!(NodeReport::parse(&report.to_string()).is_ok());
    assert!(NodeReport::parse("garbage").is_err());
}
