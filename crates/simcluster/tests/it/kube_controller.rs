//! The API server below kube's controllers and finalizers.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{Event as Finalize, finalizer};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::kube_client::{client, cluster, config_map, http_client};

/// Marks each ConfigMap, and holds it with a finalizer while it exists.
async fn controls(client: Client) {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let reconcile = async |object: Arc<ConfigMap>, api: Arc<Api<ConfigMap>>| {
        finalizer(&api, "test.example/hold", object, async |event| match event {
            Finalize::Apply(object) => {
                let mark = Patch::Merge(json!({"data": {"seen": "yes"}}));
                api.patch(&object.name_any(), &PatchParams::default(), &mark).await?;
                Ok(Action::await_change())
            }
            Finalize::Cleanup(_) => Ok::<_, kube::Error>(Action::await_change()),
        })
        .await
    };
    let controller = Controller::new(api.clone(), watcher::Config::default()).run(
        move |object, api| {
            Box::pin(async move { reconcile(object, api).await })
                as futures::future::BoxFuture<'static, _>
        },
        |_, _, _| Action::requeue(Duration::from_secs(1)),
        Arc::new(api.clone()),
    );
    let running = tokio::spawn(controller.for_each(async |_| ()));
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let marked =
        kube::runtime::wait::await_condition(api.clone(), "a", |object: Option<&ConfigMap>| {
            object.is_some_and(|object| {
                object.finalizers() == ["test.example/hold"]
                    && object.data.as_ref().is_some_and(|data| data.contains_key("seen"))
            })
        });
    tokio::time::timeout(Duration::from_secs(30), marked).await.unwrap().unwrap();
    let uid = api.get("a").await.unwrap().uid().unwrap();
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let gone = kube::runtime::wait::await_condition(
        api.clone(),
        "a",
        kube::runtime::wait::conditions::is_deleted(&uid),
    );
    tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap().unwrap();
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_controller_with_a_finalizer_works_in_process() {
    controls(client(&cluster())).await;
}

#[tokio::test]
async fn a_controller_with_a_finalizer_works_over_http() {
    let cluster = cluster();
    controls(http_client(&cluster).await).await;
    cluster.shut_down();
}
