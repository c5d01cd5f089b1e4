//! The policy of calls: time limits, repeated reads, writes that are never repeated.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kata_operator::client::{CALL_TIMEOUT, Endpoint, READ_RETRY_SPAN, WritePermit};
use kata_operator::error::Retry;
use kata_plan::Kind;
use serde_json::{Value, json};
use simcluster::Cluster;
use simcluster::api::fault::{Fault, Match, Rule, When};
use tokio::time::Instant;

use crate::lab;

fn fail(cluster: &Cluster, verb: &str, fault: Fault, times: u64) {
    let matches = Match { verb: verb.to_owned(), ..Match::default() };
    cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(matches, fault).times(times)));
}

fn unavailable(when: When) -> Fault {
    Fault::Status { code: 503, retry_after: None, message: None, when }
}

fn class(name: &str) -> Value {
    json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": name}, "handler": "kata",
    })
}

#[tokio::test(start_paused = true)]
async fn a_read_is_repeated_twice_within_two_seconds() {
    let cluster = lab::bare();
    let client = lab::calls(&cluster, WritePermit::Always);
    let nodes = Endpoint::of(Kind::Node);
    fail(&cluster, "get", unavailable(When::Before), 2);
    assert!(client.get::<Node>(&nodes, "a").await.unwrap().is_none());

    fail(&cluster, "get", unavailable(When::Before), 0);
    let (begun, before) = (Instant::now(), lab::requests(&cluster, &["get"]));
    let error = client.get::<Node>(&nodes, "a").await.unwrap_err();
    assert_eq!((error.category(), error.retry()), ("server_error", Retry::Backoff));
    assert!(begun.elapsed() <= READ_RETRY_SPAN, "{:?}", begun.elapsed());
    let calls = cluster.with(|sim, _| sim.frontend.faults.calls());
    assert_eq!(calls, 6, "three calls each");
    assert!(lab::requests(&cluster, &["get"]) >= before);
}

/// A KataConfig that was deleted and made anew between read and write is another one.
#[tokio::test(start_paused = true)]
async fn a_status_is_not_written_to_an_object_of_the_same_name() {
    let cluster = lab::openshift(1, 1);
    let client = lab::calls(&cluster, WritePermit::Always);
    let endpoint = Endpoint::of(Kind::KataConfig);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let status = |generation: i64| json!({"observedGeneration": generation, "kataNodes": {}});
    let error =
        client.replace_status(&endpoint, "example", "another", &status(1)).await.unwrap_err();
    assert_eq!((error.category(), error.retry()), ("invalid", Retry::Reread), "{error}");
    let object = lab::get(&cluster, &lab::kata_configs(), "example").unwrap();
    assert!(object["status"].is_null());
    let uid = object["metadata"]["uid"].as_str().unwrap();
    client.replace_status(&endpoint, "example", uid, &status(2)).await.unwrap();
    let object = lab::get(&cluster, &lab::kata_configs(), "example").unwrap();
    assert_eq!(object["status"]["observedGeneration"], 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_ends_after_ten_seconds() {
    let cluster = lab::bare();
    let client = lab::calls(&cluster, WritePermit::Always);
    fail(&cluster, "write", Fault::Hang { when: When::Before }, 0);
    let begun = Instant::now();
    let endpoint = Endpoint::of(Kind::RuntimeClass);
    let error = client.apply(&endpoint, "kata", None, &class("kata")).await.unwrap_err();
    assert_eq!(error.category(), "timeout");
    assert_eq!(begun.elapsed(), CALL_TIMEOUT);
}

/// An answer that is lost after the write took effect: it must not be sent again by the client.
#[tokio::test(start_paused = true)]
async fn a_write_is_never_repeated() {
    let cluster = lab::bare();
    let client = lab::calls(&cluster, WritePermit::Always);
    let endpoint = Endpoint::of(Kind::RuntimeClass);
    for fault in [unavailable(When::After), Fault::Reset { when: When::After }] {
        cluster.with(|sim, _| sim.frontend.faults.clear());
        let before = cluster.with(|sim, _| sim.frontend.faults.calls());
        fail(&cluster, "write", fault, 0);
        client.apply(&endpoint, "kata", None, &class("kata")).await.unwrap_err();
        let after = cluster.with(|sim, _| sim.frontend.faults.calls());
        assert_eq!(after - before, 1);
    }
    cluster.with(|sim, _| sim.frontend.faults.clear());
    let found: Option<Value> = client.get(&endpoint, "kata").await.unwrap();
    assert_eq!(found.unwrap()["handler"], "kata");
}

#[tokio::test(start_paused = true)]
async fn the_wish_of_a_busy_api_server_is_passed_on() {
    let cluster = lab::bare();
    let client = lab::calls(&cluster, WritePermit::Always);
    let busy = Fault::Status { code: 429, retry_after: Some(7), message: None, when: When::Before };
    fail(&cluster, "read", busy, 0);
    let begun = Instant::now();
    let error = client.get::<Node>(&Endpoint::of(Kind::Node), "a").await.unwrap_err();
    assert_eq!(error.retry(), Retry::After(Duration::from_secs(7)));
    assert_eq!(begun.elapsed(), Duration::ZERO, "a wait longer than the read's own is not made");
}

#[tokio::test(start_paused = true)]
async fn without_the_lease_nothing_is_sent() {
    let cluster = lab::bare();
    let endpoint = Endpoint::of(Kind::RuntimeClass);
    for permit in [WritePermit::None, WritePermit::Until(Instant::now())] {
        let client = lab::calls(&cluster, permit);
        let error = client.apply(&endpoint, "kata", None, &class("kata")).await.unwrap_err();
        assert_eq!((error.category(), error.retry()), ("not_leader", Retry::Never));
        assert!(client.get::<Node>(&Endpoint::of(Kind::Node), "a").await.unwrap().is_none());
    }
    assert_eq!(lab::requests(&cluster, &["patch"]), 0);
}

#[tokio::test(start_paused = true)]
async fn an_object_of_another_uid_is_not_deleted_and_one_that_is_gone_is_no_error() {
    let cluster = lab::bare();
    let client = lab::calls(&cluster, WritePermit::Always);
    let endpoint = Endpoint::of(Kind::RuntimeClass);
    client.apply(&endpoint, "kata", None, &class("kata")).await.unwrap();
    let with =
        |uid: &str| kube::api::Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    let error = client.delete(&endpoint, "kata", with("another")).await.unwrap_err();
    assert!(error.is_conflict(), "{error}");
    let found: Option<Value> = client.get(&endpoint, "kata").await.unwrap();
    let uid = found.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    client.delete(&endpoint, "kata", with(&uid)).await.unwrap();
    client.delete(&endpoint, "kata", with(&uid)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_list_comes_in_pages_and_is_whole() {
    let cluster = lab::bare();
    cluster.with(|sim, now| {
        let writer = simcluster::api::server::Writer { manager: "test", now };
        for index in 0..1_203 {
            let object = class(&format!("c{index:04}"));
            sim.api.create(writer, &simcluster::resource::RUNTIMECLASSES, "", object).unwrap();
        }
    });
    let client = lab::calls(&cluster, WritePermit::Always);
    let mut names = Vec::new();
    let endpoint = Endpoint::of(Kind::RuntimeClass);
    let version = client
        .list(&endpoint, None, |text| {
            let object: Value = serde_json::from_str(text).unwrap();
            names.push(object["metadata"]["name"].as_str().unwrap().to_owned());
        })
        .await
        .unwrap();
    assert!(version.parse::<u64>().unwrap() > 0);
    assert_eq!(names.len(), 1_203);
    assert_eq!((names[0].as_str(), names[1_202].as_str()), ("c0000", "c1202"));
    assert_eq!(lab::requests(&cluster, &["list"]), 3);
}

/// A proxy may put a code of success on anything; none of it is an object or an empty list.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_list_is_not_an_empty_one() {
    let cluster = lab::bare();
    let client = lab::calls(&cluster, WritePermit::Always);
    let nodes = Endpoint::of(Kind::Node);
    let when = When::Before;
    for fault in [Fault::WrongCode { when }, Fault::Html { when }, Fault::Garbage { when }] {
        cluster.with(|sim, _| sim.frontend.faults.clear());
        fail(&cluster, "read", fault.clone(), 0);
        let mut items = 0;
        client.list(&nodes, None, |_| items += 1).await.unwrap_err();
        client.get::<Node>(&nodes, "a").await.unwrap_err();
        let platform = kata_api::platform::Platform::Auto;
        kata_operator::platform::detect(&client, platform).await.unwrap_err();
        assert_eq!(items, 0, "{fault:?}");
    }
}

/// A page under a code of success is no answer to a write: what relies on it must not follow.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_object_does_not_pass_for_a_write() {
    let cluster = lab::bare();
    let client = lab::calls(&cluster, WritePermit::Always);
    let endpoint = Endpoint::of(Kind::RuntimeClass);
    client.apply(&endpoint, "kata", None, &class("kata")).await.unwrap();
    let when = When::Before;
    for fault in [Fault::WrongCode { when }, Fault::Html { when }, Fault::Garbage { when }] {
        cluster.with(|sim, _| sim.frontend.faults.clear());
        fail(&cluster, "write", fault.clone(), 0);
        let patch = serde_json::json!({"metadata": {"labels": {"app": "x"}}});
        client.apply(&endpoint, "kata", None, &class("kata")).await.unwrap_err();
        client.merge(&endpoint, "kata", None, &patch).await.unwrap_err();
        client.create(&endpoint, "other", &class("other")).await.unwrap_err();
        let any = kube::api::Preconditions { uid: None, resource_version: None };
        client.delete(&endpoint, "kata", any).await.unwrap_err();
        cluster.with(|sim, _| sim.frontend.faults.clear());
        let kept: Option<Value> = client.get(&endpoint, "kata").await.unwrap();
        assert!(kept.is_some(), "{fault:?}");
        let other: Option<Value> = client.get(&endpoint, "other").await.unwrap();
        assert!(other.is_none(), "{fault:?}");
    }
}
