//! How soon the operator acts: what is removed by hand is back, what is wrong is named, and what was
//! held up goes on.

use std::time::Duration;

use serde_json::json;
use simcluster::resource::{MACHINECONFIGPOOLS, MACHINECONFIGS, NODES, PODS, RUNTIMECLASSES};

use crate::lab::{self, Operator};

const LIMIT: Duration = Duration::from_secs(60 * 60);
const SETTLE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn what_is_removed_by_hand_is_back_within_a_second() {
    let cluster = lab::openshift(1, 1);
    let _operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::pass(SETTLE).await;

    let ours = "50-enable-sandboxed-containers-extension";
    for (resource, name) in [(RUNTIMECLASSES, "kata"), (MACHINECONFIGS, ours)] {
        lab::delete(&cluster, &resource, "", name);
        let back = lab::within(SECOND, || lab::get(&cluster, &resource, name).is_some()).await;
        assert!(back.is_some(), "{name} is not back");
    }
    for label in ["katacontainers.io/kata-runtime", "node-role.kubernetes.io/kata-oc"] {
        let gone = json!({"metadata": {"labels": {label: null}}});
        lab::merge(&cluster, &NODES, &lab::worker(0), &gone);
        let is_back = || {
            let node = lab::get(&cluster, &NODES, &lab::worker(0)).unwrap_or_default();
            !node["metadata"]["labels"][label].is_null()
        };
        assert!(lab::within(SECOND, is_back).await.is_some(), "{label} is not back");
    }
}

#[tokio::test(start_paused = true)]
async fn what_nothing_can_come_of_is_named_within_a_second() {
    let cluster = lab::openshift(1, 1);
    let _operator = Operator::start(&cluster);
    lab::pass(SETTLE).await;
    let mut config = lab::kata_config("example");
    config["spec"]["kataConfigPoolSelector"]["matchLabels"] = json!({"no": "node"});
    lab::create(&cluster, &lab::kata_configs(), "", config);
    let named = || lab::condition(&cluster, "example", "Ready").1 == "NoNodesSelected";
    assert!(lab::within(SECOND, named).await.is_some());

    let all =
        json!({"spec": {"kataConfigPoolSelector": {"matchLabels": {"kata": "true", "no": null}}}});
    lab::merge(&cluster, &lab::kata_configs(), "example", &all);
    let pool = || lab::get(&cluster, &MACHINECONFIGPOOLS, "kata-oc").is_some();
    assert!(lab::within(SECOND, pool).await.is_some());
    lab::merge(&cluster, &MACHINECONFIGPOOLS, "kata-oc", &json!({"spec": {"paused": true}}));
    let named = || lab::condition(&cluster, "example", "Ready").1 == "PoolPaused";
    assert!(lab::within(SECOND, named).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn when_the_last_pod_is_gone_the_removal_goes_on_within_five_seconds() {
    let cluster = lab::openshift(1, 1);
    let _operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "guest", "namespace": "default"},
        "spec": {"runtimeClassName": "kata", "containers": [{"name": "c", "image": "i"}]},
    });
    lab::create(&cluster, &PODS, "default", pod);
    lab::pass(SETTLE).await;
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    let blocked = || lab::condition(&cluster, "example", "DeletionBlocked").0 == "True";
    assert!(lab::within(SECOND, blocked).await.is_some());
    // For longer than any wait could have grown.
    lab::pass(Duration::from_mins(30)).await;
    assert!(blocked());
    lab::delete(&cluster, &PODS, "default", "guest");
    let gone = || cluster.with(|sim, _| sim.api.get(&PODS, "default", "guest")).is_none();
    assert!(lab::within(SETTLE, gone).await.is_some());
    let goes_on = || lab::get(&cluster, &RUNTIMECLASSES, "kata").is_none();
    let took = lab::within(5 * SECOND, goes_on).await;
    assert!(took.is_some());
}
