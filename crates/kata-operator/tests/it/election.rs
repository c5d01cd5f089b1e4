//! Leader election against the API server, on virtual time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kata_api::names::NAMESPACE;
use kata_api::platform::Platform;
use kata_operator::client::WritePermit;
use kata_operator::clock::Clock;
use kata_operator::jitter::Jitter;
use kata_operator::lease::holder::PodProcess;
use kata_operator::lease::{Candidate, FENCE, LeaderElector, Timing};
use kata_operator::metrics::Metrics;
use kata_operator::{RunError, Settings, run};
use serde_json::{Value, json};
use simcluster::Cluster;
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::api::server::Writer;
use simcluster::api::store::DEFAULT_WINDOW;
use simcluster::resource::{LEASES, NAMESPACES, PODS};
use tokio::sync::{oneshot, watch};
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
        clock: Clock::simulated(now),
        seed,
        ..lab::elected(identity)
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async move {
        // A dropped sender means that nothing will ever stop this operator.
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    Operator { task: tokio::spawn(run(kube, settings, shutdown)), stop }
}

/// Starts the election alone: the task ends when the leader may write no more.
fn start_elector(cluster: &Cluster, identity: &str, seed: u64) -> JoinHandle<()> {
    let client = lab::calls(cluster, WritePermit::Always);
    let candidate = Candidate::new(identity.to_owned(), Timing::default());
    tokio::spawn(async move {
        let (permit, fence) = watch::channel(WritePermit::None);
        let jitter = Jitter::new(seed);
        let metrics = Metrics::new();
        let mut elector =
            LeaderElector::new(client, "default", candidate, &jitter, permit, metrics);
        elector.acquire_lease().await;
        assert!(fence.borrow().allows(Instant::now()));
        elector.renew_until_lost().await;
        assert_eq!(*fence.borrow(), WritePermit::None);
    })
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
    let Timing { duration, retry, .. } = Timing::default();
    // The first renewed at most a retry period before it died.
    assert!(took >= duration - retry, "{took:?}");
    assert!(took <= duration + Duration::from_secs(1), "{took:?}");
    assert!(took < Duration::from_mins(1), "{took:?}");
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

/// The first try to take it fails.
#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_within_a_retry_period_of_a_try_that_failed() {
    let cluster = lab::bare();
    let first = start(&cluster, "one", 1);
    assert!(lab::until(Duration::from_secs(5), || holder(&cluster) == "one").await);
    let second = start_elector(&cluster, "two", 2);
    lab::pass(Duration::from_mins(1)).await;
    first.stop.send(()).unwrap();
    first.task.await.unwrap().unwrap();
    let patch = Match { verb: "patch".to_owned(), ..Match::default() };
    let refused = Fault::Status { code: 500, retry_after: None, message: None, when: When::Before };
    cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(patch, refused)));
    assert!(lab::until(Timing::default().retry, || holder(&cluster) == "two").await);
    second.abort();
}

/// The leader creates it again at its next renewal, and does not lose it.
#[tokio::test(start_paused = true)]
async fn a_standby_does_not_take_a_lease_that_is_deleted() {
    let cluster = lab::bare();
    let first = start_elector(&cluster, "one", 1);
    assert!(lab::until(Duration::from_secs(5), || holder(&cluster) == "one").await);
    let second = start_elector(&cluster, "two", 2);
    lab::pass(Duration::from_mins(1)).await;
    for _ in 0..10 {
        lab::delete(&cluster, &LEASES, "default", "kata-operator");
        let is_back = lab::within(Timing::default().retry, || !holder(&cluster).is_empty());
        assert!(is_back.await.is_some());
        assert_eq!(holder(&cluster), "one");
        lab::pass(Duration::from_secs(33)).await;
    }
    assert!(!first.is_finished());
    first.abort();
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_ends_before_another_may_lead() {
    let cluster = lab::bare();
    let first = start_elector(&cluster, "one", 1);
    assert!(lab::until(Duration::from_secs(5), || holder(&cluster) == "one").await);
    let cut = Rule::once(Match::default(), Fault::Hang { when: When::Before }).times(0);
    cluster.with(|sim, _| sim.frontend.faults.add(cut));
    let begun = Instant::now();
    first.await.unwrap();
    assert!(begun.elapsed() <= Timing::default().renew_deadline, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_finds_another_in_the_lease_ends() {
    let cluster = lab::bare();
    let first = start_elector(&cluster, "one", 1);
    assert!(lab::until(Duration::from_secs(5), || holder(&cluster) == "one").await);
    cluster.with(|sim, now| {
        let writer = Writer { manager: "test", now };
        let patch = json!({"spec": {"holderIdentity": "thief"}});
        sim.api.merge(writer, &LEASES, "default", "kata-operator", &patch).unwrap();
    });
    let stolen = Instant::now();
    first.await.unwrap();
    // At its next look, and not only when its own time has run out.
    assert!(stolen.elapsed() <= Timing::default().retry, "{:?}", stolen.elapsed());
    assert_eq!(holder(&cluster), "thief");
}

/// Two operators of which the second took the lease over from the first, and one that created it.
async fn leaders() -> [(Cluster, JoinHandle<()>, &'static str); 2] {
    let heir = lab::bare();
    let first = start_elector(&heir, "one", 1);
    assert!(lab::until(Duration::from_secs(5), || holder(&heir) == "one").await);
    let second = start_elector(&heir, "two", 2);
    first.abort();
    assert!(lab::until(Duration::from_secs(300), || holder(&heir) == "two").await);
    let creator = lab::bare();
    let third = start_elector(&creator, "three", 3);
    assert!(lab::until(Duration::from_secs(5), || holder(&creator) == "three").await);
    [(heir, second, "it took the lease over"), (creator, third, "it created the lease")]
}

#[tokio::test(start_paused = true)]
async fn a_leader_keeps_the_lease_through_a_short_outage_however_it_got_it() {
    for (cluster, leader, how) in leaders().await {
        let before = holder(&cluster);
        let cut = Rule::once(Match::default(), Fault::Reset { when: When::Before }).times(0);
        cluster.with(|sim, _| sim.frontend.faults.add(cut));
        // One of the two renewals before the deadline is due when there is no outage.
        lab::pass(Timing::default().retry - Duration::from_secs(1)).await;
        cluster.with(|sim, _| sim.frontend.faults.clear());
        lab::pass(Duration::from_mins(10)).await;
        assert!(!leader.is_finished(), "{how}, and gave it up");
        assert_eq!(holder(&cluster), before, "{how}");
        leader.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_works_on_until_its_deadline_however_it_got_the_lease() {
    for (cluster, leader, how) in leaders().await {
        let cut = Rule::once(Match::default(), Fault::Reset { when: When::Before }).times(0);
        cluster.with(|sim, _| sim.frontend.faults.add(cut));
        let begun = Instant::now();
        leader.await.unwrap();
        // Its last renewal was sent at most so long before.
        let Timing { renew_deadline, retry, .. } = Timing::default();
        assert!(begun.elapsed() >= renew_deadline - retry, "{how}: {:?}", begun.elapsed());
        assert!(begun.elapsed() <= renew_deadline, "{how}: {:?}", begun.elapsed());
    }
}

/// It stops between two looks, and does not know yet that it lost the lease.
#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_leaves_the_lease_of_another_as_it_is() {
    let cluster = lab::bare();
    let first = start(&cluster, "one", 1);
    assert!(lab::until(Duration::from_secs(5), || holder(&cluster) == "one").await);
    cluster.with(|sim, now| {
        let writer = Writer { manager: "test", now };
        let patch = json!({"spec": {"holderIdentity": "thief"}});
        sim.api.merge(writer, &LEASES, "default", "kata-operator", &patch).unwrap();
    });
    first.stop.send(()).unwrap();
    first.task.await.unwrap().unwrap();
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
    let first = start_elector(&cluster, "one", 1);
    assert!(lab::until(Duration::from_secs(9), || holder(&cluster) == "one").await);
    let cut = Rule::once(Match::default(), Fault::Hang { when: When::Before }).times(0);
    cluster.with(|sim, _| sim.frontend.faults.add(cut));
    first.await.unwrap();
    let slack = Duration::from_secs(1);
    assert!(begun.elapsed() <= Timing::default().renew_deadline + slack, "{:?}", begun.elapsed());
}

/// A process of the operator in the Pod `operator-1`, which started so many seconds after the epoch.
fn in_pod(uid: &str, second: i64) -> PodProcess {
    let started = lab::epoch().checked_add(SignedDuration::from_secs(second)).unwrap();
    PodProcess { pod: "operator-1".to_owned(), uid: uid.to_owned(), started }
}

/// The Pod `operator-1`, whose container terminated so many seconds after the epoch.
fn create_pod(cluster: &Cluster) -> String {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "operator-1", "namespace": "default"},
        "spec": {"containers": [{"name": "operator", "image": "operator"}]},
    });
    lab::create(cluster, &PODS, "default", pod);
    let pod = cluster.with(|sim, _| sim.api.get(&PODS, "default", "operator-1")).unwrap();
    pod["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// What the kubelet reports when the container terminated so many seconds after the epoch.
fn terminate_container(cluster: &Cluster, second: i64) {
    let finished = lab::epoch().checked_add(SignedDuration::from_secs(second)).unwrap();
    let state = json!({"terminated": {"exitCode": 137, "finishedAt": finished.to_string()}});
    let patch = json!({"status": {"containerStatuses": [{
        "name": "operator", "image": "operator", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    }]}});
    cluster.with(|sim, now| {
        let writer = Writer { manager: "kubelet", now };
        sim.api.merge_status(writer, &PODS, "default", "operator-1", &patch).unwrap();
    });
}

#[tokio::test(start_paused = true)]
async fn a_restarted_container_takes_its_own_lease_within_five_seconds() {
    let cluster = lab::bare();
    let first = start(&cluster, &in_pod("u", 0).identity(), 1);
    assert!(lab::until(Duration::from_secs(5), || !holder(&cluster).is_empty()).await);
    first.task.abort();
    let killed = Instant::now();
    let restarted = in_pod("u", 1).identity();
    let second = start(&cluster, &restarted, 2);
    assert!(lab::until(Duration::from_secs(300), || holder(&cluster) == restarted).await);
    assert!(killed.elapsed() <= Duration::from_secs(5), "{:?}", killed.elapsed());
    second.task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_standby_leads_within_five_seconds_of_the_end_of_the_leaders_container() {
    // At different moments between two renewals of the Lease.
    for seconds in [60_u64, 63, 66, 69] {
        let cluster = lab::bare();
        let uid = create_pod(&cluster);
        let leader = in_pod(&uid, 0).identity();
        let first = start(&cluster, &leader, 1);
        assert!(lab::until(Duration::from_secs(5), || holder(&cluster) == leader).await);
        let second = start(&cluster, "standby", 2);
        lab::pass(Duration::from_secs(seconds)).await;
        first.task.abort();
        let killed = Instant::now();
        terminate_container(&cluster, seconds.cast_signed());
        assert!(lab::until(Duration::from_secs(300), || holder(&cluster) == "standby").await);
        let took = killed.elapsed();
        assert!(took <= Duration::from_secs(5), "after {seconds} s: {took:?}");
        assert!(took >= FENCE, "after {seconds} s: {took:?}");
        second.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_respects_the_lease_of_a_leader_that_is_not_known_to_have_ended() {
    for (what, uid, terminated) in [
        ("the container is not known to have ended", None, None),
        ("an earlier process ended", None, Some(9)),
        ("another pod of the same name ended", Some("another"), Some(60)),
    ] {
        let cluster = lab::bare();
        let created = create_pod(&cluster);
        let leader = in_pod(uid.unwrap_or(&created), 10).identity();
        let first = start(&cluster, &leader, 1);
        assert!(lab::until(Duration::from_secs(5), || holder(&cluster) == leader).await);
        let second = start(&cluster, "standby", 2);
        if let Some(second) = terminated {
            terminate_container(&cluster, second);
        }
        first.task.abort();
        let killed = Instant::now();
        assert!(lab::until(Duration::from_secs(300), || holder(&cluster) == "standby").await);
        assert!(
            killed.elapsed() >= Timing::default().duration - Timing::default().retry,
            "{what}: {:?}",
            killed.elapsed()
        );
        second.task.abort();
    }
}

/// In a roll-out of a control plane of a single node the API server is away for a minute.
#[tokio::test(start_paused = true)]
async fn an_operator_leads_again_within_a_retry_period_after_an_outage_of_a_minute() {
    let cluster = lab::bare();
    let operator = start(&cluster, "one", 1);
    assert!(lab::until(Duration::from_secs(5), || holder(&cluster) == "one").await);
    let cut = Rule::once(Match::default(), Fault::Reset { when: When::Before }).times(0);
    cluster.with(|sim, _| sim.frontend.faults.add(cut));
    lab::pass(Duration::from_mins(1)).await;
    let before = lease(&cluster);
    cluster.with(|sim, _| sim.frontend.faults.clear());
    let retry = Timing::default().retry;
    assert!(lab::until(retry, || lease(&cluster) != before).await);
    assert_eq!(holder(&cluster), "one");
    assert!(!operator.task.is_finished());
    operator.task.abort();
}

/// Without a standby and with one.
#[tokio::test(start_paused = true)]
async fn the_lease_takes_at_most_twelve_requests_a_minute() {
    for standbys in [0, 1] {
        let cluster = lab::bare();
        let leader = start_elector(&cluster, "leader", 1);
        assert!(lab::until(Duration::from_secs(5), || holder(&cluster) == "leader").await);
        let standby = (0..standbys).map(|_| start_elector(&cluster, "standby", 2));
        let standby: Vec<JoinHandle<()>> = standby.collect();
        lab::pass(Duration::from_mins(1)).await;
        let requests = || {
            cluster.with(|sim, _| {
                let counts = sim.frontend.requests();
                counts
                    .filter(|(resource, ..)| resource.starts_with("leases."))
                    .map(|(.., count)| count)
                    .sum()
            })
        };
        for _ in 0..60 {
            let before: u64 = requests();
            lab::pass(Duration::from_mins(1)).await;
            let count = requests() - before;
            assert!((3..=6 + 6 * standbys).contains(&count), "{count} with {standbys} standbys");
        }
        assert_eq!(holder(&cluster), "leader");
        leader.abort();
        standby.into_iter().for_each(|it| it.abort());
    }
}

/// When the leader renews the Lease, the standby goes on with its watch of the leader's Pod. It lists the Pod again when
/// the API server no longer knows the version from which it watches.
#[tokio::test(start_paused = true)]
async fn a_standby_lists_the_leaders_pod_again_only_when_its_version_has_expired() {
    let cluster = lab::bare();
    let uid = create_pod(&cluster);
    let name = in_pod(&uid, 0).identity();
    let leader = start_elector(&cluster, &name, 1);
    assert!(lab::until(Duration::from_secs(5), || holder(&cluster) == name).await);
    let standby = start_elector(&cluster, "standby", 2);
    lab::pass(Duration::from_mins(1)).await;
    let lists = pod_requests(&cluster, "list");
    let watches = pod_requests(&cluster, "watch");
    lab::pass(Duration::from_mins(20)).await;
    assert_eq!(pod_requests(&cluster, "list"), lists);
    let watches = pod_requests(&cluster, "watch") - watches;
    assert!((60..=140).contains(&watches), "{watches} watches");

    lab::create_home(&cluster);
    for change in 0..=DEFAULT_WINDOW {
        let label = json!({"metadata": {"labels": {"change": change.to_string()}}});
        lab::merge(&cluster, &NAMESPACES, NAMESPACE, &label);
    }
    lab::pass(Duration::from_mins(1)).await;
    // The watch of the Lease expires, too, and what has to be read is read whole.
    let again = pod_requests(&cluster, "list") - lists;
    assert!((1..=2).contains(&again), "{again} lists");
    leader.abort();
    standby.abort();
}

fn pod_requests(cluster: &Cluster, verb: &str) -> u64 {
    cluster.with(|sim, _| {
        let of_pods =
            sim.frontend.requests().filter(|(resource, of, _)| *resource == "pods" && *of == verb);
        of_pods.map(|(.., count)| count).sum()
    })
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_an_hour_ends_with_one_leader_and_no_restart() {
    let cluster = lab::bare();
    let operators = [start(&cluster, "one", 1), start(&cluster, "two", 2)];
    assert!(lab::until(Duration::from_secs(5), || !holder(&cluster).is_empty()).await);
    let cut = Rule::once(Match::default(), Fault::Hang { when: When::Before }).times(0);
    cluster.with(|sim, _| sim.frontend.faults.add(cut));
    lab::pass(Duration::from_hours(1)).await;
    let before = lease(&cluster);
    cluster.with(|sim, _| sim.frontend.faults.clear());
    assert!(lab::until(Duration::from_mins(3), || lease(&cluster) != before).await);
    for operator in operators {
        assert!(!operator.task.is_finished(), "an operator ended");
        operator.task.abort();
    }
}
