//! Two installations of the operator in two namespaces of one cluster.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kata_api::names::OPERATOR_NAMESPACE_ANNOTATION;
use kata_api::platform::Platform;
use kata_operator::Settings;
use serde_json::{Value, json};
use simcluster::Cluster;
use simcluster::resource::{EVENTS_V1, JOBS, LEASES, NAMESPACES};

use crate::lab::{self, Operator};

/// Far above what an install takes.
const LIMIT: Duration = Duration::from_mins(30);

/// A process that leads the installation in this namespace.
fn installation(cluster: &Cluster, namespace: &str, payload: &str) -> Operator {
    let home = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    lab::create(cluster, &NAMESPACES, "", home);
    let mut settings = Settings {
        platform: Platform::Kubernetes,
        namespace: namespace.to_owned(),
        ..lab::elected(namespace)
    };
    settings.options.agent_image = Some("registry.example/kata-operator:1".to_owned());
    payload.clone_into(&mut settings.options.payload_image);
    Operator::with(cluster, settings)
}

fn owner(cluster: &Cluster) -> String {
    let config = lab::get(cluster, &lab::kata_configs(), "example").unwrap();
    let claim = &config["metadata"]["annotations"][OPERATOR_NAMESPACE_ANNOTATION];
    claim.as_str().unwrap_or_default().to_owned()
}

fn namespaces_of(objects: &[Arc<Value>]) -> BTreeSet<String> {
    let names = objects.iter().map(|it| it["metadata"]["namespace"].as_str().unwrap_or_default());
    names.map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn only_the_first_of_two_installations_changes_anything_until_its_namespace_is_gone() {
    let cluster = lab::kubernetes_of(3);
    let first = installation(&cluster, "kata-a", "registry.example/payload:1");
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || owner(&cluster) == "kata-a").await);
    let second = installation(&cluster, "kata-b", "registry.example/payload:2");
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::pass(Duration::from_hours(7)).await;
    assert!(lab::is_ready(&cluster, "example"));
    let jobs = cluster.with(|sim, _| sim.api.list(&JOBS));
    assert_eq!(namespaces_of(&jobs), BTreeSet::from(["kata-a".to_owned()]));
    let leases = cluster.with(|sim, _| sim.api.list(&LEASES));
    assert!(namespaces_of(&leases).contains("kata-b"), "it leads in its own namespace");
    let wrote: Vec<String> = second
        .requests()
        .into_iter()
        .filter(|line| !line.starts_with("GET ") && !line.contains("/leases"))
        .collect();
    assert_eq!(wrote.len(), 1, "{wrote:?}");
    assert!(wrote[0].starts_with("POST ") && wrote[0].contains("/events"), "{wrote:?}");
    let events = cluster.with(|sim, _| sim.api.list(&EVENTS_V1));
    let said = "KATA1025: KataConfig example belongs to the operator in namespace kata-a";
    let says = |event: &Arc<Value>| event["note"].as_str().is_some_and(|it| it.starts_with(said));
    assert_eq!(events.iter().filter(|event| says(event)).count(), 1);

    // A move: the first is removed with its namespace.
    drop(first);
    lab::delete(&cluster, &NAMESPACES, "", "kata-a");
    assert!(lab::until(LIMIT, || owner(&cluster) == "kata-b").await);
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    let is_gone = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    assert!(lab::until(LIMIT, is_gone).await);
}

/// Both see it at the same moment.
#[tokio::test(start_paused = true)]
async fn of_two_installations_that_start_together_one_is_at_work() {
    let cluster = lab::kubernetes_of(3);
    let operators = ["kata-a", "kata-b"]
        .map(|namespace| installation(&cluster, namespace, "registry.example/payload:1"));
    lab::pass(Duration::from_mins(2)).await;
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    let jobs = cluster.with(|sim, _| sim.api.list(&JOBS));
    assert_eq!(namespaces_of(&jobs), BTreeSet::from([owner(&cluster)]));
    drop(operators);
}
