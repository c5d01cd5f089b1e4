//! An API server whose lists answer late, so that what they show is as old as the request, or whose etcd is restored from
//! a backup. What the operator has seen since must survive a late list, and must be given up when etcd is restored.

use std::time::Duration;

use serde_json::json;
use simcluster::Cluster;
use simcluster::api::fault::{Fault, Match, Rule};
use simcluster::resource::{NODES, PODS, RUNTIMECLASSES};

use crate::lab::{self, Operator};

const LIMIT: Duration = Duration::from_hours(2);
const SETTLE: Duration = Duration::from_mins(2);

/// From now on lists of nodes answer eight seconds late.
fn list_nodes_late(cluster: &Cluster) {
    let lists = Match { verb: "list".to_owned(), resource: "nodes".to_owned(), ..Match::default() };
    let late = Rule::once(lists, Fault::DelayAnswer { millis: 8_000 }).times(0);
    cluster.with(|sim, _| sim.frontend.faults.add(late));
}

fn lists_of_nodes(operator: &Operator) -> usize {
    let requests = operator.requests();
    requests
        .iter()
        .filter(|line| line.starts_with("GET /api/v1/nodes?") && !line.contains("watch=true"))
        .count()
}

async fn installed() -> (Cluster, Operator) {
    let cluster = lab::openshift(2, 2);
    let operator = Operator::elected(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::pass(SETTLE).await;
    (cluster, operator)
}

/// Every five minutes everything is listed, in any case.
#[tokio::test(start_paused = true)]
async fn a_node_that_goes_while_a_list_answers_late_stays_gone() {
    let (cluster, operator) = installed().await;
    list_nodes_late(&cluster);
    let before = lists_of_nodes(&operator);
    assert!(lab::within(LIMIT, || lists_of_nodes(&operator) > before).await.is_some());
    let gone = lab::worker(1);
    let kata_node = || lab::get(&cluster, &lab::kata_nodes(), &gone);
    let count = || {
        let config = lab::get(&cluster, &lab::kata_configs(), "example").unwrap_or_default();
        config["status"]["kataNodes"]["nodeCount"].clone()
    };
    assert!(kata_node().is_some() && count() == 2);
    lab::delete(&cluster, &NODES, "", &gone);
    // Before the answer comes it is seen to be gone.
    assert!(lab::within(Duration::from_secs(4), || kata_node().is_none()).await.is_some());
    let noticed = operator.requests().len();
    for _ in 0..1_200 {
        lab::pass(Duration::from_millis(50)).await;
        assert!(kata_node().is_none());
        assert_eq!(lab::condition(&cluster, "example", "InProgress").0, "False");
    }
    assert_eq!(count(), 1);
    let about = format!("/nodes/{gone}");
    let requests = operator.requests().split_off(noticed);
    assert!(!requests.iter().any(|line| line.contains(&about)), "{requests:#?}");
}

/// A pass that asked for the list sees what the watch has shown meanwhile.
#[tokio::test(start_paused = true)]
async fn a_pass_whose_list_answers_late_writes_to_no_node_that_is_gone() {
    let (cluster, operator) = installed().await;
    list_nodes_late(&cluster);
    let before = lists_of_nodes(&operator);
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    assert!(lab::within(LIMIT, || lists_of_nodes(&operator) > before).await.is_some());
    let gone = lab::worker(1);
    let asked = operator.requests().len();
    lab::delete(&cluster, &NODES, "", &gone);
    let left = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    assert!(lab::until(LIMIT, left).await);
    let about = format!("/nodes/{gone}");
    let requests = operator.requests().split_off(asked);
    assert!(!requests.iter().any(|line| line.contains(&about)), "{requests:#?}");
}

/// The backup was made before the deletion, so after it is restored the KataConfig is not being deleted.
#[tokio::test(start_paused = true)]
async fn an_etcd_that_is_restored_takes_a_deletion_back() {
    let (cluster, operator) = installed().await;
    let pod = json!({"metadata": {"name": "web"}, "spec": {
        "runtimeClassName": "kata",
        "containers": [{"name": "main", "image": "registry.example/app:1"}],
    }});
    lab::create(&cluster, &PODS, "default", pod);
    lab::pass(SETTLE).await;
    let class = || lab::get(&cluster, &RUNTIMECLASSES, "kata").unwrap()["scheduling"].clone();
    let open = class();
    let backup = cluster.with(|sim, _| sim.api.store.backup());
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    let is_blocked = || lab::condition(&cluster, "example", "DeletionBlocked").0 == "True";
    assert!(lab::until(LIMIT, is_blocked).await);
    assert_ne!(class(), open);
    lab::pass(SETTLE).await;

    cluster.with(|sim, _| sim.restore_etcd(&backup));
    let restored = operator.requests().len();
    // Longer than the five minutes after which everything is listed again.
    lab::pass(Duration::from_mins(6)).await;
    assert!(lab::is_ready(&cluster, "example"));
    assert_eq!(class(), open);
    let requests = operator.requests().split_off(restored);
    assert!(!requests.iter().any(|line| line.starts_with("DELETE")), "{requests:#?}");
    // It can be deleted again.
    lab::delete(&cluster, &PODS, "default", "web");
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    let is_gone = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    assert!(lab::until(LIMIT, is_gone).await);
}
