//! Leader election against the API server, on virtual time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kata_operator::lease::Timing;
use kata_operator::settings::{Election, Platform};
use kata_operator::{RunError, Settings, run};
use serde_json::Value;
use simcluster::Cluster;
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::resource::LEASES;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::lab;

/// An operator under election.
struct Operator {
    task: JoinHandle<Result<(), RunError>>,
    stop: oneshot::Sender<()>,
}

fn start(cluster: &Cluster, identity: &str, seed: u64) -> Operator {
    start_at(cluster, identity, seed, lab::epoch())
}

/// Starts an operator whose clock shows `now`.
fn start_at(cluster: &Cluster, identity: &str, seed: u64, now: Timestamp) -> Operator {
    let kube = kube::Client::new(cluster.client_service(), "default");
    let settings = Settings {
        namespace: "default".to_owned(),
        platform: Platform::Kubernetes,
        election: Some(Election { identity: identity.to_owned(), timing: Timing::default() }),
        seed,
        ..Settings::simulated(now)
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async move {
        // A dropped sender means that nobody will ever stop this operator.
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    Operator { task: tokio::spawn(run(kube, settings, shutdown)), stop }
}

fn lease(cluster: &Cluster) -> Option<Value> {
    cluster.with(|sim, _| sim.api.get(&LEASES, "default", "kata-operator")).map(|it| (*it).clone())
}

fn holder(cluster: &Cluster) -> String {
    let lease = lease(cluster);
    lease
        .and_then(|it| it["spec"]["holderIdentity"].as_str().map(str::to_owned))
        .unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn the_second_takes_over_when_the_first_is_killed_but_not_earlier() {
    let cluster = lab::bare();
    let first = start(&cluster, "one", 1);
    assert!(lab::until(Duration::from_secs(5), || holder(&cluster) == "one").await);
    let second = start(&cluster, "two", 2);
    tokio::time::sleep_until(Instant::now() + Duration::from_secs(1_000)).await;
    assert_eq!(holder(&cluster), "one");

    first.task.abort();
    let killed = Instant::now();
    assert!(lab::until(Duration::from_secs(300), || holder(&cluster) == "two").await);
    let took = killed.elapsed();
    // The first renewed at most 26 s before it died, and the second looks every 13 to 26 s.
    assert!(took >= Duration::from_secs(137 - 26), "{took:?}");
    assert!(took <= Duration::from_secs(137 + 26 + 1), "{took:?}");
    assert_eq!(lease(&cluster).unwrap()["spec"]["leaseTransitions"], 1);
    drop(second.stop);
    second.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_released_is_taken_at_once() {
    let cluster = lab::bare();
    let first = start(&cluster, "one", 1);
    assert!(lab::until(Duration::from_secs(5), || holder(&cluster) == "one").await);
    let second = start(&cluster, "two", 2);
    tokio::time::sleep_until(Instant::now() + Duration::from_secs(60)).await;
    first.stop.send(()).unwrap();
    let stopped = Instant::now();
    first.task.await.unwrap().unwrap();
    lab::pass(Duration::from_millis(300)).await;
    assert_eq!(holder(&cluster), "two");
    assert!(stopped.elapsed() < Duration::from_secs(1), "{:?}", stopped.elapsed());
    second.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_ends_before_another_may_lead() {
    let cluster = lab::bare();
    let first = start(&cluster, "one", 1);
    assert!(lab::until(Duration::from_secs(5), || holder(&cluster) == "one").await);
    let cut = Rule::once(Match::default(), Fault::Hang { when: When::Before }).times(0);
    cluster.with(|sim, _| sim.frontend.faults.add(cut));
    let begun = Instant::now();
    let ended = first.task.await.unwrap();
    assert!(matches!(ended, Err(RunError::LeaseLost)), "{ended:?}");
    assert!(begun.elapsed() <= Timing::default().renew_deadline, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_finds_another_in_the_lease_ends() {
    let cluster = lab::bare();
    let first = start(&cluster, "one", 1);
    assert!(lab::until(Duration::from_secs(5), || holder(&cluster) == "one").await);
    cluster.with(|sim, now| {
        let writer = simcluster::api::server::Writer { manager: "test", now };
        let patch = serde_json::json!({"spec": {"holderIdentity": "thief"}});
        sim.api.merge(writer, &LEASES, "default", "kata-operator", &patch).unwrap();
    });
    let stolen = Instant::now();
    let ended = first.task.await.unwrap();
    // At its next look, and not only when its own time has run out.
    assert!(stolen.elapsed() <= Timing::default().retry, "{:?}", stolen.elapsed());
    assert!(matches!(ended, Err(RunError::LeaseLost)), "{ended:?}");
    assert_eq!(holder(&cluster), "thief");
}

/// The clocks of two machines may be hours apart: whose is right does not matter.
#[tokio::test(start_paused = true)]
async fn a_wrong_clock_takes_no_lease_from_anybody() {
    for hours in [-3, 3] {
        let cluster = lab::bare();
        let first = start(&cluster, "one", 1);
        assert!(lab::until(Duration::from_secs(5), || holder(&cluster) == "one").await);
        let wrong = lab::epoch().checked_add(SignedDuration::from_hours(hours)).unwrap();
        let second = start_at(&cluster, "two", 2, wrong);
        for _ in 0..1_000 {
            lab::pass(Duration::from_secs(1)).await;
            assert_eq!(holder(&cluster), "one", "{hours} h");
        }
        first.task.abort();
        second.task.abort();
    }
}

/// Others count from when they see a renewal, which may be as soon as it is sent.
#[tokio::test(start_paused = true)]
async fn a_leader_counts_from_when_it_sent_its_renewal() {
    let cluster = lab::bare();
    let slow = Match { verb: "create".to_owned(), ..Match::default() };
    let rule = Rule::once(slow, Fault::Delay { millis: 8_000 });
    cluster.with(|sim, _| sim.frontend.faults.add(rule));
    let begun = Instant::now();
    let first = start(&cluster, "one", 1);
    assert!(lab::until(Duration::from_secs(9), || holder(&cluster) == "one").await);
    let cut = Rule::once(Match::default(), Fault::Hang { when: When::Before }).times(0);
    cluster.with(|sim, _| sim.frontend.faults.add(cut));
    let ended = first.task.await.unwrap();
    assert!(matches!(ended, Err(RunError::LeaseLost)), "{ended:?}");
    let slack = Duration::from_secs(1);
    assert!(begun.elapsed() <= Timing::default().renew_deadline + slack, "{:?}", begun.elapsed());
}
