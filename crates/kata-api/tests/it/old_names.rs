//! KataNodes with the former names of their fields, as the version at d7b4189 wrote them.

use kata_api::KataNode;
use serde_json::{Value, json};

/// A node whose installation was rolled back.
fn written_by_the_former_version() -> Value {
    json!({
        "apiVersion": "kata-operator.dev/v1alpha1",
        "kind": "KataNode",
        "metadata": {"name": "worker-1"},
        "spec": {"kataConfig": "cluster-kataconfig", "nodeName": "worker-1"},
        "status": {
            "ready": "False",
            "phase": "Failed",
            "host": {
                "bad": "4330765e38f4d961.470a31aed4f7b097",
                "drifts": 1,
                "fitFor": "4330765e38f4d961.470a31aed4f7b097",
                "handlers": ["runc"],
                "inspected": "2026-01-01T00:00:43Z",
                "job": {
                    "action": "Install",
                    "at": "2026-01-01T00:15:50Z",
                    "before": "Failed",
                    "code": "KATA3033",
                    "facts": "470a31aed4f7b097",
                    "failures": 1,
                    "name": "kata-worker-1-01c2af2463dffe16",
                    "number": 4,
                    "outcome": "RolledBack",
                    "state": "4330765e38f4d961",
                },
                "restarts": 2,
                "rollbacks": 1,
                "touched": true,
            },
        },
    })
}

fn host(node: &Value) -> Value {
    let node: KataNode = serde_json::from_value(node.clone()).unwrap();
    serde_json::to_value(node.status.unwrap().host).unwrap()
}

#[test]
fn former_names_are_read_and_written_with_the_names_of_today() {
    let mut node = written_by_the_former_version();
    let read = host(&node);
    assert_eq!(
        read,
        json!({
            "failedFor": "4330765e38f4d961.470a31aed4f7b097",
            "drifts": 1,
            "fitFor": "4330765e38f4d961.470a31aed4f7b097",
            "handlers": ["runc"],
            "inspected": "2026-01-01T00:00:43Z",
            "job": {
                "action": "Install",
                "time": "2026-01-01T00:15:50Z",
                "previousOutcome": "Failed",
                "code": "KATA3033",
                "nodeFactsDigest": "470a31aed4f7b097",
                "failures": 1,
                "name": "kata-worker-1-01c2af2463dffe16",
                "number": 4,
                "outcome": "RolledBack",
                "desiredStateDigest": "4330765e38f4d961",
            },
            "restarts": 2,
            "rollbacks": 1,
            "mayHaveArtifacts": true,
        })
    );
    node["status"]["host"] = read.clone();
    assert_eq!(host(&node), read);
}

#[test]
fn the_name_of_today_counts_if_an_object_has_both() {
    let mut node = written_by_the_former_version();
    node["status"]["host"]["failedFor"] = json!("new");
    node["status"]["host"]["job"]["time"] = json!("2026-01-02T00:00:00Z");
    let read = host(&node);
    assert_eq!(read["failedFor"], "new");
    assert_eq!(read["job"]["time"], "2026-01-02T00:00:00Z");
}

/// Otherwise an API server with the new CRD drops the field before the operator reads it, or answers with the default
/// of the new name.
#[test]
fn the_crd_lists_former_names_and_gives_their_fields_no_default() {
    let crd = serde_json::to_value(&kata_api::crds()[1]).unwrap();
    let status = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    let host = &status["properties"]["host"];
    let job = &host["properties"]["job"];
    let required: Vec<&Value> = job["required"].as_array().unwrap().iter().collect();
    for (schema, old, new) in [
        (host, "bad", "failedFor"),
        (host, "touched", "mayHaveArtifacts"),
        (job, "at", "time"),
        (job, "before", "previousOutcome"),
        (job, "facts", "nodeFactsDigest"),
        (job, "state", "desiredStateDigest"),
    ] {
        let (old, new) = (&schema["properties"][old], &schema["properties"][new]);
        assert_eq!(old["type"], new["type"], "{old}");
        assert_eq!(old["format"], new["format"], "{old}");
        assert!(old["description"].as_str().unwrap().starts_with("Deprecated"), "{old}");
        assert!(old["default"].is_null() && new["default"].is_null(), "{old} {new}");
    }
    assert_eq!(required, ["action", "name", "number"]);
}
