//! An etcd that is restored from a backup under a running cluster: clients and controllers see the past again.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use simcluster::resource::{CRDS, DEPLOYMENTS, NODES, PODS};
use simcluster::{Cluster, Simulation};

use crate::kube_client::{client, cluster, config_map};
use crate::nodes;

fn restore(cluster: &Cluster, backup: &simcluster::api::store::Backup) {
    cluster.with(|sim, _| sim.restore_etcd(backup));
}

async fn contents(client: &Client) -> (Vec<String>, u64) {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let list = api.list(&ListParams::default()).await.unwrap();
    let version = list.metadata.resource_version.unwrap().parse().unwrap();
    let item = |object: ConfigMap| format!("{}={}", object.name_any(), object.data.unwrap()["key"]);
    (list.items.into_iter().map(item).collect(), version)
}

#[tokio::test(start_paused = true)]
async fn objects_and_versions_are_those_of_the_backup() {
    let cluster = cluster();
    let client = client(&cluster);
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    for name in ["changed", "deleted"] {
        api.create(&PostParams::default(), &config_map(name, "old")).await.unwrap();
    }
    let backup = cluster.with(|sim, _| sim.api.store.backup());
    let before = contents(&client).await;

    let version = cluster.with(|sim, _| sim.api.store.revision()).to_string();
    let watch = api.watch(&WatchParams::default(), &version).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"key": "new"}}));
    api.patch("changed", &PatchParams::default(), &patch).await.unwrap();
    api.delete("deleted", &DeleteParams::default()).await.unwrap();
    api.create(&PostParams::default(), &config_map("created", "new")).await.unwrap();
    assert_eq!(contents(&client).await.0, ["changed=new", "created=new"]);

    restore(&cluster, &backup);
    assert_eq!(contents(&client).await, before);
    let seen: Vec<_> = watch.try_collect().await.unwrap();
    assert!(seen.is_empty(), "the watch ends, and has no place to go on: {seen:?}");
    // What happens next has versions that were used before.
    api.create(&PostParams::default(), &config_map("created", "again")).await.unwrap();
    assert_eq!(contents(&client).await.1, before.1 + 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_that_is_yet_to_come_is_silent() {
    let cluster = cluster();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&cluster));
    let backup = cluster.with(|sim, _| sim.api.store.backup());
    api.create(&PostParams::default(), &config_map("created", "new")).await.unwrap();
    let mut events = Box::pin(
        watcher::watcher(api.clone(), watcher::Config::default())
            .filter_map(async |event| event.ok()),
    );
    while !matches!(events.next().await.unwrap(), Event::InitDone) {}
    restore(&cluster, &backup);
    // kube's watcher resumes where its watch ended: at a version that is in the future now.
    api.create(&PostParams::default(), &config_map("later", "new")).await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(60), events.next()).await;
    assert!(next.is_err(), "{next:?}");
}

#[test]
fn kinds_that_were_defined_later_are_not_served() {
    let crd: Value =
        serde_json::from_str(include_str!("../fixtures/conformance-crd.json")).unwrap();
    let mut sim = nodes::cluster(0, 1);
    let count = |sim: &Simulation| sim.api.registry.iter().count();
    let (without, before) = (count(&sim), sim.api.store.backup());
    nodes::create(&mut sim, &CRDS, "", crd);
    sim.advance(Duration::from_secs(5));
    let (with, after) = (count(&sim), sim.api.store.backup());
    assert_eq!(with, without + 1);
    sim.restore_etcd(&before);
    assert_eq!(count(&sim), without);
    sim.restore_etcd(&after);
    assert_eq!(count(&sim), with);
}

#[test]
fn controllers_and_kubelets_follow_the_backup() {
    let deployment = |name: &str, replicas: u32| {
        let mut template = nodes::pod("", json!({}));
        template["metadata"] = json!({"labels": {"app": name}});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": template["metadata"], "spec": template["spec"]},
            },
        })
    };
    let mut sim = nodes::cluster(0, 1);
    for (name, replicas) in [("grown", 1), ("deleted", 1)] {
        nodes::create(&mut sim, &DEPLOYMENTS, "default", deployment(name, replicas));
    }
    sim.advance(Duration::from_secs(30));
    let running = |sim: &Simulation| {
        let pods = sim.api.list(&PODS);
        let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running");
        let mut apps: Vec<_> =
            running.map(|pod| pod["metadata"]["labels"]["app"].clone()).collect();
        apps.sort_by_key(ToString::to_string);
        (apps, sim.world.hosts["worker-0"].sandboxes.len())
    };
    let before = running(&sim);
    let boot = sim.world.hosts["worker-0"].boot_id.clone();
    let backup = sim.api.store.backup();

    let grown = json!({"spec": {"replicas": 3}});
    sim.api.merge(nodes::writer(&sim), &DEPLOYMENTS, "default", "grown", &grown).unwrap();
    let options = Default::default();
    sim.api.delete(nodes::writer(&sim), &DEPLOYMENTS, "default", "deleted", &options).unwrap();
    nodes::create(&mut sim, &DEPLOYMENTS, "default", deployment("new", 1));
    sim.advance(Duration::from_secs(60));
    assert_eq!(running(&sim).0, ["grown", "grown", "grown", "new"]);

    sim.restore_etcd(&backup);
    sim.advance(Duration::from_secs(60));
    assert_eq!(running(&sim), before);
    assert_eq!(sim.world.hosts["worker-0"].boot_id, boot, "hosts do not go back");
    let node = nodes::get(&sim, &NODES, "", "worker-0");
    assert_eq!(nodes::condition(&node, "Ready"), "True");
}
