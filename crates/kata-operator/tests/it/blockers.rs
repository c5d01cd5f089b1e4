//! Pods that hold up a deletion, of which the operator remembers the last list.

use std::time::Duration;

use kata_api::names;
use serde_json::{Value, json};
use simcluster::Cluster;
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::api::server::{DeleteOptions, Writer};
use simcluster::resource::{NODES, PODS, RUNTIMECLASSES};

use crate::lab::{self, Operator};

const LIMIT: Duration = Duration::from_secs(60 * 60);
/// A pass every four seconds lists or reads pods, and messages are written every ten seconds.
const SOON: Duration = Duration::from_secs(15);

fn pod(name: &str, class: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "runtimeClassName": class,
        "containers": [{"name": "main", "image": "registry.example/app:1"}],
    }})
}

fn create_pod(cluster: &Cluster, name: &str, class: &str) {
    lab::create(cluster, &PODS, "default", pod(name, class));
}

/// A pod that the kubelet runs from a file of the node and shows in the API: it is bound when it is created.
fn create_static_pod(cluster: &Cluster, name: &str, class: &str, node: &str) {
    let mut pod = pod(name, class);
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "1"});
    pod["spec"]["nodeName"] = json!(node);
    lab::create(cluster, &PODS, "default", pod);
}

fn status(cluster: &Cluster) -> String {
    let config = lab::get(cluster, &lab::kata_configs(), "example");
    config.map_or(Value::Null, |config| config["status"].clone()).to_string()
}

/// Installs Kata, and deletes the KataConfig while the pod `web` runs.
async fn block(cluster: &Cluster) -> Operator {
    let operator = Operator::start(cluster);
    let config = json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": "example"},
    });
    lab::create(cluster, &lab::kata_configs(), "", config);
    assert!(lab::until(LIMIT, || lab::is_ready(cluster, "example")).await);
    create_pod(cluster, "web", "kata");
    lab::pass(SOON).await;
    lab::delete(cluster, &lab::kata_configs(), "", "example");
    assert!(lab::until(LIMIT, || status(cluster).contains("default/web")).await);
    lab::pass(SOON).await;
    operator
}

/// The watch does not show a static pod. The last pod that is remembered comes back under its name with a class that
/// does not count.
#[tokio::test(start_paused = true)]
async fn a_pod_that_nothing_has_shown_keeps_the_labels_when_the_remembered_pods_are_gone() {
    let cluster = lab::fast(3);
    let _operator = block(&cluster).await;
    let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "other"}, "handler": "runc"});
    lab::create(&cluster, &RUNTIMECLASSES, "", class);
    let node = lab::worker(1);
    create_static_pod(&cluster, "static", "kata", &node);
    cluster.with(|sim, now| {
        let at_once = DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() };
        let writer = Writer { manager: "kubectl", now };
        sim.api.delete(writer, &PODS, "default", "web", &at_once).unwrap();
    });
    create_pod(&cluster, "web", "other");
    let is_named = lab::until(SOON, || status(&cluster).contains("default/static")).await;
    assert!(is_named, "{}", status(&cluster));
    lab::pass(Duration::from_mins(1)).await;
    let node = lab::get(&cluster, &NODES, &node).unwrap();
    assert!(node["metadata"]["labels"].get(names::RUNTIME_LABEL).is_some(), "{node}");
    lab::delete(&cluster, &PODS, "default", "static");
    let is_gone = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    assert!(lab::until(LIMIT, is_gone).await);
}

/// Without the watch all pods are listed in each pass, so that a pod that comes is named as soon; the watch is tried
/// again now and then.
#[tokio::test(start_paused = true)]
async fn pods_that_cannot_be_watched_are_listed() {
    let cluster = lab::fast(3);
    let matches = Match {
        verb: "watch".to_owned(),
        resource: "pods".to_owned(),
        manager: "kata-operator".to_owned(),
        ..Match::default()
    };
    let refused = Fault::Status { code: 403, retry_after: None, message: None, when: When::Before };
    cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(matches, refused).times(0)));
    let operator = block(&cluster).await;
    let before = operator.requests().len();
    lab::pass(Duration::from_mins(1)).await;
    let requests = operator.requests();
    let of_pods = |mark: &str| {
        let since = requests[before..].iter();
        since.filter(|line| line.contains("/pods?") && line.contains(mark)).count()
    };
    let watches = of_pods("watch=true");
    assert!((1..=3).contains(&watches), "{watches} watches");
    create_pod(&cluster, "late", "kata");
    assert!(lab::until(SOON, || status(&cluster).contains("default/late")).await);
}
