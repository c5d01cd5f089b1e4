//! The API server below kube's runtime: discovery and reflectors.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::{WatchStreamExt, reflector, watcher};

use crate::kube_client::{client, cluster, config_map};

async fn discovers(discovery: Discovery) {
    assert!(discovery.groups().any(|group| group.name() == "apps"));
    let pods = GroupVersionKind::gvk("", "v1", "Pod");
    let (resource, capabilities) = discovery.resolve_gvk(&pods).unwrap();
    assert_eq!((resource.plural.as_str(), capabilities.scope), ("pods", Scope::Namespaced));
    assert!(capabilities.operations.iter().any(|verb| verb == verbs::WATCH));
    let deployments = GroupVersionKind::gvk("apps", "v1", "Deployment");
    let (_, capabilities) = discovery.resolve_gvk(&deployments).unwrap();
    let subresources: Vec<&str> =
        capabilities.subresources.iter().map(|(resource, _)| resource.plural.as_str()).collect();
    assert!(subresources.iter().any(|name| name.ends_with("scale")), "{subresources:?}");
}

#[tokio::test(start_paused = true)]
async fn discovery_works_in_its_plain_form() {
    discovers(Discovery::new(client(&cluster())).run().await.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn discovery_works_in_its_aggregated_form() {
    discovers(Discovery::new(client(&cluster())).run_aggregated().await.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn a_reflector_follows_the_store() {
    let cluster = cluster();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&cluster));
    let (store, writer) = reflector::store();
    let stream = watcher(api.clone(), watcher::Config::default()).default_backoff();
    let reflecting =
        tokio::spawn(reflector(writer, stream).touched_objects().for_each(async |_| ()));
    store.wait_until_ready().await.unwrap();
    for name in ["a", "b"] {
        api.create(&PostParams::default(), &config_map(name, "1")).await.unwrap();
    }
    api.delete("a", &DeleteParams::default()).await.unwrap();
    // On the paused clock, this returns when nothing else is left to do.
    tokio::time::advance(Duration::from_secs(1)).await;
    tokio::task::yield_now().await;
    let names: Vec<String> = store.state().iter().map(|object| object.name_any()).collect();
    assert_eq!(names, ["b"]);
    reflecting.abort();
}
