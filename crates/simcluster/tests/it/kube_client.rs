//! The API server as kube's client sees it, in process and on virtual time, and over a socket.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{
    Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use serde_json::json;
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::clock::Clock;
use simcluster::{Cluster, Simulation};

/// The time at which simulated clusters begin.
fn epoch() -> jiff::Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// A running cluster without controllers.
pub(crate) fn cluster() -> Cluster {
    Cluster::start(Simulation::new(epoch(), Vec::new()), Clock::starting_at(epoch()))
}

pub(crate) fn client(cluster: &Cluster) -> Client {
    Client::new(cluster.client_service(), "default")
}

pub(crate) async fn http_client(cluster: &Cluster) -> Client {
    let address = cluster.serve(0).await.unwrap();
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    Client::try_from(config).unwrap()
}

pub(crate) fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("default".to_owned()),
            labels: Some(BTreeMap::from([("value".to_owned(), value.to_owned())])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("key".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

fn rule(verb: &str, fault: Fault) -> Rule {
    Rule::once(
        Match { verb: verb.to_owned(), resource: "configmaps".to_owned(), ..Match::default() },
        fault,
    )
}

async fn crud(client: Client) {
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let post = PostParams::default();
    let created = api.create(&post, &config_map("a", "1")).await.unwrap();
    assert!(created.uid().is_some());
    let twice = api.create(&post, &config_map("a", "1")).await.unwrap_err();
    assert!(matches!(twice, kube::Error::Api(status) if status.is_already_exists()));

    let mut changed = created.clone();
    changed.data = Some(BTreeMap::from([("key".to_owned(), "2".to_owned())]));
    api.replace("a", &post, &changed).await.unwrap();
    let stale = api.replace("a", &post, &created).await.unwrap_err();
    assert!(matches!(stale, kube::Error::Api(status) if status.is_conflict()));

    let patch = Patch::Merge(json!({"data": {"other": "3"}}));
    api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    let data = api.get("a").await.unwrap().data.unwrap();
    assert_eq!((data["key"].as_str(), data["other"].as_str()), ("2", "3"));

    api.create(&post, &config_map("b", "1")).await.unwrap();
    let list = api.list(&ListParams::default().labels("value=1").limit(1)).await.unwrap();
    assert_eq!(list.items.len(), 1);
    let token = list.metadata.continue_.unwrap();
    let rest = api
        .list(&ListParams::default().labels("value=1").limit(1).continue_token(&token))
        .await
        .unwrap();
    assert_eq!(rest.items[0].name_any(), "b");
    assert_eq!(api.get_metadata("a").await.unwrap().name_any(), "a");

    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn typed_crud_in_process() {
    crud(client(&cluster())).await;
}

#[tokio::test]
async fn typed_crud_over_http() {
    let cluster = cluster();
    crud(http_client(&cluster).await).await;
    cluster.shut_down();
}

/// What a watcher says, shortened.
fn describe(event: Event<ConfigMap>) -> String {
    match event {
        Event::Init => "init".to_owned(),
        Event::InitApply(object) => format!("initial {}", object.name_any()),
        Event::InitDone => "ready".to_owned(),
        Event::Apply(object) => format!("apply {}", object.name_any()),
        Event::Delete(object) => format!("delete {}", object.name_any()),
    }
}

async fn watches(client: Client, config: watcher::Config) {
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let post = PostParams::default();
    api.create(&post, &config_map("a", "1")).await.unwrap();
    api.create(&post, &config_map("b", "2")).await.unwrap();
    let mut events =
        Box::pin(watcher::watcher(api.clone(), config.labels("value=1")).map_ok(describe));
    let mut next = async || events.next().await.unwrap().unwrap();
    assert_eq!(next().await, "init");
    assert_eq!(next().await, "initial a");
    assert_eq!(next().await, "ready");
    // Entering and leaving the selector, and vanishing.
    let label = |value: &str| Patch::Merge(json!({"metadata": {"labels": {"value": value}}}));
    api.patch("b", &PatchParams::default(), &label("1")).await.unwrap();
    assert_eq!(next().await, "apply b");
    api.patch("a", &PatchParams::default(), &label("2")).await.unwrap();
    assert_eq!(next().await, "delete a");
    api.delete("b", &DeleteParams::default()).await.unwrap();
    assert_eq!(next().await, "delete b");
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_lists_first_sees_every_change() {
    watches(client(&cluster()), watcher::Config::default()).await;
}

#[tokio::test(start_paused = true)]
async fn a_streaming_watcher_sees_every_change() {
    watches(client(&cluster()), watcher::Config::default().streaming_lists()).await;
}

#[tokio::test]
async fn watchers_work_over_http() {
    let cluster = cluster();
    watches(http_client(&cluster).await, watcher::Config::default().streaming_lists()).await;
    cluster.shut_down();
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_too_old_is_told_so_once() {
    let cluster = cluster();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&cluster));
    for name in ["a", "b", "c"] {
        api.create(&PostParams::default(), &config_map(name, "1")).await.unwrap();
    }
    cluster.with(|sim, _| sim.api.store.set_window(1));
    let events: Vec<_> =
        api.watch(&WatchParams::default(), "1").await.unwrap().try_collect().await.unwrap();
    let [WatchEvent::Error(error)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((error.code, error.reason.as_str()), (410, "Expired"));
    assert_eq!(error.message, "too old resource version: 1 (8)");
}

#[tokio::test(start_paused = true)]
async fn a_watch_sends_bookmarks_and_ends_in_time() {
    let cluster = cluster();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&cluster));
    let begin = tokio::time::Instant::now();
    let revision = cluster.with(|sim, _| sim.api.store.revision()).to_string();
    let events: Vec<_> = api
        .watch(&WatchParams::default().timeout(100), &revision)
        .await
        .unwrap()
        .map_ok(|event| match event {
            WatchEvent::Bookmark(bookmark) => {
                (begin.elapsed().as_secs(), bookmark.metadata.resource_version)
            }
            other => panic!("{other:?}"),
        })
        .try_collect()
        .await
        .unwrap();
    assert_eq!(events, [(60, revision.clone()), (98, revision)]);
    assert_eq!(begin.elapsed().as_secs(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_recovers_when_its_watch_expires() {
    let cluster = cluster();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&cluster));
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    cluster.with(|sim, _| sim.frontend.faults.add(rule("watch", Fault::ExpireWatch)));
    let mut events = Box::pin(
        watcher::watcher(api.clone(), watcher::Config::default())
            .filter_map(async |event| event.ok().map(describe)),
    );
    assert_eq!(events.by_ref().take(3).collect::<Vec<_>>().await, ["init", "initial a", "ready"]);
    api.create(&PostParams::default(), &config_map("b", "1")).await.unwrap();
    assert_eq!(
        events.by_ref().take(4).collect::<Vec<_>>().await,
        ["init", "initial a", "initial b", "ready"]
    );
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_request_fault_reaches_the_client() {
    let cluster = cluster();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&cluster));
    let post = PostParams::default();
    let add = |rule: Rule| cluster.with(|sim, _| sim.frontend.faults.add(rule));
    let exists = async |name: &str| api.get_opt(name).await.unwrap().is_some();

    let status = |when| Fault::Status { code: 503, retry_after: None, message: None, when };
    add(rule("create", status(When::Before)));
    let error = api.create(&post, &config_map("a", "1")).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 503));
    assert!(!exists("a").await);
    add(rule("create", status(When::After)));
    api.create(&post, &config_map("a", "1")).await.unwrap_err();
    assert!(exists("a").await);

    add(rule("delete", Fault::Reset { when: When::Before }));
    let error = api.delete("a", &DeleteParams::default()).await.unwrap_err();
    assert!(matches!(error, kube::Error::Service(_)), "{error:?}");
    assert!(exists("a").await);
    add(rule("delete", Fault::Reset { when: When::After }));
    api.delete("a", &DeleteParams::default()).await.unwrap_err();
    assert!(!exists("a").await);

    add(rule("get", Fault::Garbage { when: When::Before }));
    let error = api.get("a").await.unwrap_err();
    assert!(matches!(error, kube::Error::SerdeError(_)), "{error:?}");

    let begin = tokio::time::Instant::now();
    add(rule("get", Fault::Delay { millis: 2500 }));
    assert!(!exists("a").await);
    assert_eq!(begin.elapsed(), Duration::from_millis(2500));

    let mut crashes = cluster.crashes();
    add(rule("write", Fault::Crash { when: When::After }));
    let object = config_map("b", "1");
    let create = api.create(&post, &object);
    tokio::select! {
        _ = create => panic!("a crashed client gets no answer"),
        changed = crashes.changed() => changed.unwrap(),
    }
    assert_eq!(*crashes.borrow(), 1);
    assert!(exists("b").await);

    add(rule("get", Fault::Hang { when: When::Before }));
    let hung = tokio::time::timeout(Duration::from_secs(600), api.get("b")).await;
    assert!(hung.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_says_what_was_so_when_the_request_came() {
    let cluster = cluster();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&cluster));
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let before = cluster.with(|sim, _| sim.api.store.revision()).to_string();
    cluster.with(|sim, _| {
        sim.frontend.faults.add(rule("list", Fault::DelayAnswer { millis: 5000 }));
        sim.frontend.faults.add(rule("create", Fault::DelayAnswer { millis: 3000 }));
    });
    let begin = tokio::time::Instant::now();
    let params = ListParams::default();
    let late_list = async { (api.list(&params).await.unwrap(), begin.elapsed().as_secs()) };
    let late_create = async {
        let object = config_map("b", "1");
        tokio::time::sleep_until(begin + Duration::from_millis(1)).await;
        api.create(&PostParams::default(), &object).await.unwrap();
        begin.elapsed().as_secs()
    };
    let meanwhile = async {
        tokio::time::sleep_until(begin + Duration::from_secs(1)).await;
        assert!(api.get_opt("b").await.unwrap().is_some(), "it took effect at once");
        api.delete("a", &DeleteParams::default()).await.unwrap();
    };
    let ((list, listed), created, ()) = tokio::join!(late_list, late_create, meanwhile);
    assert_eq!((listed, created), (5, 3));
    assert_eq!(list.items.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["a"]);
    assert_eq!(list.metadata.resource_version, Some(before));
    assert!(api.get_opt("a").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_watch_fault_reaches_the_client() {
    let cluster = cluster();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&cluster));
    let begin = tokio::time::Instant::now();
    cluster.with(|sim, _| {
        let faults = &mut sim.frontend.faults;
        faults.add(rule("watch", Fault::DropEvent));
        faults.add(rule("watch", Fault::DuplicateEvent).from_nth(2));
        faults.add(rule("watch", Fault::DelayEvent { millis: 5000 }).from_nth(3));
        faults.add(rule("watch", Fault::CloseWatch).from_nth(4));
    });
    let revision = cluster.with(|sim, _| sim.api.store.revision()).to_string();
    let events = api.watch(&WatchParams::default(), &revision).await.unwrap();
    for name in ["dropped", "twice", "late", "cut"] {
        api.create(&PostParams::default(), &config_map(name, "1")).await.unwrap();
    }
    let seen: Vec<_> = events
        .map_ok(|event| match event {
            WatchEvent::Added(object) => (object.name_any(), begin.elapsed().as_secs()),
            other => panic!("{other:?}"),
        })
        .try_collect()
        .await
        .unwrap();
    let expected = [("twice", 0), ("twice", 0), ("late", 5)];
    assert_eq!(seen, expected.map(|(name, seconds)| (name.to_owned(), seconds)));
}

#[tokio::test(start_paused = true)]
async fn a_watcher_survives_a_watch_that_falls_silent() {
    let cluster = cluster();
    let api: Api<ConfigMap> = Api::default_namespaced(client(&cluster));
    cluster.with(|sim, _| sim.frontend.faults.add(rule("watch", Fault::SilenceWatch)));
    let mut events = Box::pin(
        watcher::watcher(api.clone(), watcher::Config::default())
            .filter_map(async |event| event.ok().map(describe)),
    );
    assert_eq!(events.by_ref().take(2).collect::<Vec<_>>().await, ["init", "ready"]);
    let begin = tokio::time::Instant::now();
    api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert_eq!(events.next().await.unwrap(), "apply a");
    assert!(begin.elapsed() > Duration::from_secs(200), "{:?}", begin.elapsed());
}

/// Two clients, a fault and some time; returns all that the cluster then holds.
async fn run_once() -> serde_json::Value {
    let cluster = cluster();
    cluster.with(|sim, _| sim.frontend.faults.add(rule("patch", Fault::Delay { millis: 40 })));
    let work = async |prefix: &str| {
        let api: Api<ConfigMap> = Api::default_namespaced(client(&cluster));
        for index in 0..5 {
            let name = format!("{prefix}{index}");
            api.create(&PostParams::default(), &config_map(&name, "1")).await.unwrap();
            tokio::time::advance(Duration::from_millis(7)).await;
            let patch = Patch::Merge(json!({"data": {"key": "2"}}));
            api.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        }
    };
    tokio::join!(work("a"), work("b"));
    cluster.with(|sim, _| {
        let objects = sim.api.registry.iter().flat_map(|def| sim.api.list(&def.resource));
        objects.map(|object| (*object).clone()).collect()
    })
}

#[tokio::test(start_paused = true)]
async fn the_same_inputs_give_the_same_cluster() {
    let first = run_once().await;
    assert_eq!(first, run_once().await);
}

#[tokio::test]
async fn a_reset_over_http_breaks_the_connection() {
    let cluster = cluster();
    let api: Api<ConfigMap> = Api::default_namespaced(http_client(&cluster).await);
    cluster.with(|sim, _| {
        sim.frontend.faults.add(rule("create", Fault::Reset { when: When::After }));
    });
    let error = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap_err();
    assert!(matches!(error, kube::Error::HyperError(_) | kube::Error::Service(_)), "{error:?}");
    assert!(api.get_opt("a").await.unwrap().is_some());
    cluster.shut_down();
}
