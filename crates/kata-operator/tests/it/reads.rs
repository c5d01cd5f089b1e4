//! What the operator believes: a node is not disturbed on hearsay, a read that fails says nothing, and a
//! watch that dies is noticed.

use std::time::Duration;

use serde_json::json;
use simcluster::Cluster;
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::api::server::Writer;
use simcluster::resource::{CONFIGMAPS, NAMESPACES, NODES, PODS, RUNTIMECLASSES};

use crate::lab::{self, Operator};

const LIMIT: Duration = Duration::from_secs(2 * 60 * 60);
const SETTLE: Duration = Duration::from_secs(120);
const POOL_LABEL: &str = "node-role.kubernetes.io/kata-oc";

/// From now on every such request or event goes wrong.
fn break_all(cluster: &Cluster, verb: &str, resource: &str, fault: Fault) {
    let matches = Match {
        verb: verb.to_owned(),
        resource: resource.to_owned(),
        manager: if verb.is_empty() { String::new() } else { "kata-operator".to_owned() },
        ..Match::default()
    };
    cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(matches, fault).times(0)));
}

fn refused(code: u16) -> Fault {
    Fault::Status { code, retry_after: None, message: None, when: When::Before }
}

fn has_label(cluster: &Cluster, node: u32, key: &str) -> bool {
    let node = lab::get(cluster, &NODES, &lab::worker(node)).unwrap();
    node["metadata"]["labels"].get(key).is_some()
}

async fn installed(workers: u32, labelled: u32) -> (Cluster, Operator) {
    let cluster = lab::openshift(workers, labelled);
    let operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::pass(SETTLE).await;
    (cluster, operator)
}

fn run_a_pod(cluster: &Cluster) {
    lab::create(
        cluster,
        &PODS,
        "default",
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "runtimeClassName": "kata", "nodeName": lab::worker(0),
                "containers": [{"name": "web", "image": "example.org/web"}],
            },
        }),
    );
}

/// The cache still says that the node is selected; no event said otherwise.
#[tokio::test(start_paused = true)]
async fn a_node_does_not_join_on_what_only_the_cache_says() {
    let cluster = lab::openshift(3, 1);
    let _operator = Operator::start(&cluster);
    lab::pass(SETTLE).await;
    break_all(&cluster, "", "nodes", Fault::DropEvent);
    let label = json!({"metadata": {"labels": {"kata": null}}});
    lab::merge(&cluster, &NODES, &lab::worker(0), &label);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    // Its label would come off again at the next pass, which sees what the first one wrote.
    for _ in 0..3_000 {
        lab::pass(Duration::from_millis(20)).await;
        assert!(!has_label(&cluster, 0, POOL_LABEL));
    }
}

/// Watches go on, so that the cache seems to be good, and lists past it fail.
#[tokio::test(start_paused = true)]
async fn a_node_does_not_join_while_pools_cannot_be_read() {
    let (cluster, _operator) = installed(3, 1).await;
    break_all(&cluster, "list", "machineconfigpools", refused(503));
    break_all(&cluster, "get", "machineconfigpools", refused(503));
    let label = json!({"metadata": {"labels": {"kata": "true"}}});
    lab::merge(&cluster, &NODES, &lab::worker(1), &label);
    lab::pass(SETTLE).await;
    let joined = has_label(&cluster, 1, POOL_LABEL);
    cluster.with(|sim, _| sim.frontend.faults.clear());
    assert!(lab::until(LIMIT, || has_label(&cluster, 1, POOL_LABEL)).await);
    assert!(!joined);
}

/// Watches go on, so that the cache seems to be good, and lists past it fail.
#[tokio::test(start_paused = true)]
async fn nothing_is_removed_while_nodes_cannot_be_read() {
    let (cluster, _operator) = installed(3, 1).await;
    break_all(&cluster, "list", "nodes", refused(503));
    break_all(&cluster, "get", "nodes", refused(503));
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    lab::pass(SETTLE).await;
    assert!(lab::get(&cluster, &RUNTIMECLASSES, "kata").is_some());
    assert!(has_label(&cluster, 0, POOL_LABEL));
    cluster.with(|sim, _| sim.frontend.faults.clear());
    let gone = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    assert!(lab::until(LIMIT, gone).await);
}

#[tokio::test(start_paused = true)]
async fn pods_that_cannot_be_listed_are_not_gone() {
    let (cluster, _operator) = installed(3, 1).await;
    break_all(&cluster, "list", "pods", refused(403));
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    lab::pass(Duration::from_mins(5)).await;
    assert!(lab::get(&cluster, &RUNTIMECLASSES, "kata").is_some());
    assert!(has_label(&cluster, 0, POOL_LABEL));
    cluster.with(|sim, _| sim.frontend.faults.clear());
    let gone = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    assert!(lab::until(LIMIT, gone).await);
}

/// The caches are compared with lists every five minutes, those of ConfigMaps too.
#[tokio::test(start_paused = true)]
async fn a_config_map_whose_change_the_watch_missed_is_read_again() {
    let (cluster, _operator) = installed(3, 1).await;
    let (namespace, name) = ("openshift-sandboxed-containers-operator", "osc-feature-gates");
    let gates = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {"layeredImageDeployment": "false"},
    });
    let home = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    lab::create(&cluster, &NAMESPACES, "", home);
    lab::create(&cluster, &CONFIGMAPS, namespace, gates);
    lab::pass(SETTLE).await;
    break_all(&cluster, "", "configmaps", Fault::DropEvent);
    let switched_on = json!({"data": {"layeredImageDeployment": "true"}});
    cluster.with(|sim, now| {
        let writer = Writer { manager: "admin", now };
        sim.api.merge(writer, &CONFIGMAPS, namespace, name, &switched_on).unwrap();
    });
    lab::pass(Duration::from_secs(5)).await;
    cluster.with(|sim, _| sim.frontend.faults.clear());
    let degraded = || lab::condition(&cluster, "example", "Degraded");
    assert_eq!(degraded().0, "False");
    assert!(lab::until(Duration::from_mins(6), || degraded().1 == "ImageModeIncomplete").await);
}

/// A pass that waits for pods reads one, so that these reads show how many passes there are.
#[tokio::test(start_paused = true)]
async fn a_node_that_changes_in_what_does_not_matter_wakes_nobody() {
    let (cluster, operator) = installed(3, 1).await;
    run_a_pod(&cluster);
    lab::pass(SETTLE).await;
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    lab::pass(SETTLE).await;
    let passes = || {
        let requests = operator.requests();
        requests.iter().filter(|line| line.starts_with("GET ") && line.contains("/pods/")).count()
    };
    let before = passes();
    lab::pass(Duration::from_mins(1)).await;
    let quiet = passes() - before;
    for beat in 0..600 {
        lab::pass(Duration::from_millis(100)).await;
        let name = lab::worker(beat % 3);
        let note = json!({"metadata": {"annotations": {"example.org/beat": beat.to_string()}}});
        lab::merge(&cluster, &NODES, &name, &note);
        let volumes = json!({"status": {"volumesInUse": [format!("volume-{beat}")]}});
        cluster.with(|sim, now| {
            let writer = Writer { manager: "kubelet", now };
            sim.api.merge_status(writer, &NODES, "", &name, &volumes).unwrap();
        });
    }
    let busy = passes() - before - quiet;
    assert!(quiet > 0, "nothing is waited for");
    assert!(busy <= quiet + 10, "{busy} passes in a minute, and {quiet} without heartbeats");
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_history_is_gone_starts_over() {
    let (cluster, _operator) = installed(3, 1).await;
    let matches = Match { resource: "runtimeclasses".to_owned(), ..Match::default() };
    cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(matches, Fault::ExpireWatch)));
    lab::delete(&cluster, &RUNTIMECLASSES, "", "kata");
    lab::pass(Duration::from_secs(10)).await;
    assert!(lab::get(&cluster, &RUNTIMECLASSES, "kata").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_falls_silent_is_opened_anew() {
    let (cluster, _operator) = installed(3, 1).await;
    let matches = Match { resource: "runtimeclasses".to_owned(), ..Match::default() };
    cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(matches, Fault::SilenceWatch)));
    lab::delete(&cluster, &RUNTIMECLASSES, "", "kata");
    lab::pass(Duration::from_secs(75)).await;
    assert!(lab::get(&cluster, &RUNTIMECLASSES, "kata").is_some());
}

#[tokio::test(start_paused = true)]
async fn what_has_not_been_heard_of_for_long_is_not_called_ready() {
    let (cluster, _operator) = installed(3, 1).await;
    break_all(&cluster, "list", "nodes", refused(503));
    break_all(&cluster, "watch", "nodes", refused(503));
    lab::pass(Duration::from_mins(12)).await;
    let unknown = ("Unknown".to_owned(), "ReadFailed".to_owned());
    assert_eq!(lab::condition(&cluster, "example", "Ready"), unknown);
    cluster.with(|sim, _| sim.frontend.faults.clear());
    assert!(lab::until(SETTLE * 5, || lab::is_ready(&cluster, "example")).await);
}
