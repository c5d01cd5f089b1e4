//! Whether the operator can be removed.

use std::time::Duration;

use kata_operator::uninstall;
use serde_json::{Value, json};
use simcluster::api::server::Writer;
use simcluster::resource::CRDS;

use crate::lab;

#[tokio::test(start_paused = true)]
async fn the_operator_may_go_only_after_the_last_kata_config() {
    let cluster = lab::bare();
    let client = kube::Client::new(cluster.client_service(), "default");
    let reported = async || uninstall::check(&client).await.unwrap().message();
    assert_eq!(reported().await, None, "there is not even the kind");
    cluster.with(|sim, now| {
        let writer = Writer { manager: "kubectl", now };
        for crd in kata_api::crds() {
            sim.api.create(writer, &CRDS, "", serde_json::to_value(crd).unwrap()).unwrap();
        }
    });
    assert!(lab::until(Duration::from_secs(60), || served(&cluster)).await);
    assert_eq!(reported().await, None);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let message = reported().await.unwrap();
    assert!(message.contains("kubectl delete kataconfig example"), "{message}");
    let finalizers = |names: Value| json!({"metadata": {"finalizers": names}});
    lab::merge(&cluster, &lab::kata_configs(), "example", &finalizers(json!(["example.com/test"])));
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    let message = reported().await.unwrap();
    assert!(message.contains("is still being deleted"), "{message}");
    lab::merge(&cluster, &lab::kata_configs(), "example", &finalizers(json!([])));
    assert_eq!(reported().await, None);
}

fn served(cluster: &simcluster::Cluster) -> bool {
    cluster.with(|sim, _| {
        sim.api.registry.by_kind("kataconfiguration.openshift.io", "KataConfig").is_some()
    })
}
