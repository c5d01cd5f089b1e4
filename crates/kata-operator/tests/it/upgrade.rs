//! The operator takes over a cluster from its former version.

use std::time::Duration;

use kata_api::platform::Platform;
use kata_manifests::manifests::Options;
use kata_operator::Settings;
use serde_json::{Value, json};
use simcluster::Cluster;
use simcluster::api::server::{PatchType, WriteOptions, WriteRequest, WriteVerb};
use simcluster::resource::{CRDS, JOBS, NODES};

use crate::lab::{self, Operator};

const LIMIT: Duration = Duration::from_hours(2);
const NODE: &str = "worker-0";

fn settings() -> Settings {
    let mut settings = Settings::simulated(lab::epoch());
    settings.options.agent_image = Some("registry.example/kata-operator:1".to_owned());
    settings
}

fn host(cluster: &Cluster) -> Value {
    lab::get(cluster, &lab::kata_nodes(), NODE).unwrap_or_default()["status"]["host"].clone()
}

/// A CRD of KataNodes that permits any action.
fn other_crd() -> Value {
    let mut crd = serde_json::to_value(&kata_api::crds()[1]).unwrap();
    let host = crd
        .pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/host")
        .unwrap();
    host["properties"]["job"]["properties"]["action"] = json!({"type": "string"});
    crd
}

/// Puts the CRD in the place of the one that is there, as `kubectl apply` does.
fn replace_crd(cluster: &Cluster, crd: &Value) {
    let name = crd["metadata"]["name"].as_str().unwrap();
    lab::merge(cluster, &CRDS, name, &json!({"spec": {"versions": crd["spec"]["versions"]}}));
}

/// Writes the status as another version does: server-side apply by the operator's field manager.
fn write_as_another_version(cluster: &Cluster, node: &Value) {
    let body = json!({
        "apiVersion": node["apiVersion"], "kind": "KataNode", "metadata": {"name": NODE},
        "status": node["status"],
    });
    let request = WriteRequest {
        user: None,
        verb: WriteVerb::Patch(PatchType::Apply),
        resource: lab::kata_nodes(),
        namespace: String::new(),
        name: NODE.to_owned(),
        subresource: "status".to_owned(),
        body,
        options: WriteOptions {
            field_manager: "kata-operator".to_owned(),
            ..WriteOptions::default()
        },
    };
    cluster.with(|sim, now| sim.api.write(now, &request)).unwrap();
}

/// What an upgrade must leave as it is.
fn undisturbed(cluster: &Cluster) -> Value {
    let node = lab::get(cluster, &NODES, NODE).unwrap();
    let jobs = cluster.with(|sim, _| sim.api.list(&JOBS));
    let jobs: Vec<&Value> = jobs.iter().map(|job| &job["metadata"]["name"]).collect();
    json!([node["metadata"]["labels"], node["spec"], node["status"]["nodeInfo"]["bootID"], jobs])
}

/// A cluster with one installed node and without an operator.
async fn installed() -> Cluster {
    let cluster = lab::kubernetes();
    lab::create_home(&cluster);
    let operator = Operator::with(&cluster, settings());
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::pass(Duration::from_mins(5)).await;
    drop(operator);
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_record_with_a_value_that_this_version_does_not_know_is_named_and_disturbs_nothing() {
    let cluster = installed().await;
    let mut node = lab::get(&cluster, &lab::kata_nodes(), NODE).unwrap();
    node["status"]["host"]["job"]["action"] = json!("Repair");
    replace_crd(&cluster, &other_crd());
    write_as_another_version(&cluster, &node);
    replace_crd(&cluster, &serde_json::to_value(&kata_api::crds()[1]).unwrap());
    let before = (undisturbed(&cluster), host(&cluster));
    assert_eq!(before.1["job"]["action"], "Repair");
    let operator = Operator::with(&cluster, settings());
    lab::pass(Duration::from_hours(13)).await;
    assert!(operator.runs() && lab::is_ready(&cluster, "example"));
    assert_eq!((undisturbed(&cluster), host(&cluster)), before);
    let reason = "KataNodeValueUnknown".to_owned();
    assert_eq!(lab::condition(&cluster, "example", "Degraded"), ("True".to_owned(), reason));

    lab::delete(&cluster, &lab::kata_nodes(), "", NODE);
    let healed = || lab::condition(&cluster, "example", "Degraded").0 == "False";
    assert!(lab::until(LIMIT, healed).await, "{:#}", host(&cluster));
    let inspected = || host(&cluster)["installed"].is_string();
    assert!(lab::until(LIMIT, inspected).await, "{:#}", host(&cluster));
    assert_eq!(host(&cluster)["restarts"], before.1["restarts"]);
}

/// While the manifests name the new image already, the Jobs of the old operator are refused: that is no failure.
#[tokio::test(start_paused = true)]
async fn jobs_of_the_former_version_wait_for_the_new_operator() {
    let cluster = lab::kubernetes();
    let arguments = |version: u8| Options {
        image: format!("registry.example/kata-operator:{version}"),
        ..lab::installed(Platform::Kubernetes)
    };
    let token = lab::guard(&cluster, &arguments(2));
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let former = Operator::with_token(&cluster, settings(), Some(&token));
    let waits = || {
        let config = lab::get(&cluster, &lab::kata_configs(), "example").unwrap();
        let mut findings = config["status"]["findings"].as_array().into_iter().flatten();
        findings.any(|finding| finding["code"] == "KATA1026")
    };
    assert!(lab::until(Duration::from_mins(1), waits).await);
    for (condition, status) in [("Degraded", "False"), ("Reconciling", "True"), ("Stalled", "")] {
        assert_eq!(lab::condition(&cluster, "example", condition).0, status, "{condition}");
    }
    assert!(cluster.with(|sim, _| sim.api.list(&JOBS)).is_empty());
    drop(former);
    let mut settings = settings();
    settings.options.agent_image = Some(arguments(2).image);
    let _operator = Operator::with_token(&cluster, settings, Some(&token));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
}
