//! An API server that is busy, silent or away: nothing is begun on old knowledge, nothing is hurried,
//! and all is well soon after it is back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::node::v1::RuntimeClass;
use kata_operator::client::WritePermit;
use kata_operator::jitter::Jitter;
use kata_operator::metrics::Metrics;
use kata_operator::watch::{AnyCache as _, Cache};
use kata_plan::Kind;
use serde_json::json;
use simcluster::Cluster;
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::resource::{NODES, RUNTIMECLASSES};

use crate::lab::{self, Operator};

const LIMIT: Duration = Duration::from_secs(60 * 60);
const SETTLE: Duration = Duration::from_secs(120);
const MINUTE: Duration = Duration::from_mins(1);

fn busy(retry_after: Option<u64>) -> Fault {
    Fault::Status { code: 503, retry_after, message: None, when: When::Before }
}

fn begin(cluster: &Cluster, verb: &str, fault: Fault) {
    let matches =
        Match { verb: verb.to_owned(), manager: "kata-operator".to_owned(), ..Match::default() };
    cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(matches, fault).times(0)));
}

/// No client is connected any more, and none can connect.
fn cut(cluster: &Cluster) {
    begin(cluster, "watch", Fault::CloseWatch);
    begin(cluster, "", Fault::Reset { when: When::Before });
}

fn end(cluster: &Cluster) {
    cluster.with(|sim, _| sim.frontend.faults.clear());
}

/// A cluster of two workers of which one has Kata, at rest.
async fn installed() -> (Cluster, Operator) {
    let cluster = lab::openshift(2, 1);
    let operator = Operator::elected(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::pass(SETTLE).await;
    (cluster, operator)
}

/// Something to be done that only the API server knows.
fn select_another(cluster: &Cluster) {
    let label = json!({"metadata": {"labels": {"kata": "true"}}});
    lab::merge(cluster, &NODES, &lab::worker(1), &label);
}

fn has_joined(cluster: &Cluster) -> bool {
    let node = lab::get(cluster, &NODES, &lab::worker(1)).unwrap_or_default();
    !node["metadata"]["labels"]["node-role.kubernetes.io/kata-oc"].is_null()
}

/// How often each reader listed what it reads: several read single objects of the same kind.
fn lists(requests: &[String]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in requests {
        if line.starts_with("GET ") && line.contains("limit=") {
            *counts.entry(line.clone()).or_insert(0) += 1;
        }
    }
    counts
}

/// Busy for a minute: writes are tried again by the loop, ever more slowly, and nowhere else.
#[tokio::test(start_paused = true)]
async fn while_the_api_server_is_busy_writes_are_rare_and_then_done() {
    let (cluster, operator) = installed().await;
    begin(&cluster, "write", busy(None));
    select_another(&cluster);
    let before = operator.writes();
    lab::pass(MINUTE).await;
    let tried = operator.writes() - before;
    // Some ten passes, of an Event, a step and the status.
    assert!(
        (3..=30).contains(&tried),
        "{tried} writes within a minute: {:#?}",
        operator.requests()
    );
    assert!(!has_joined(&cluster));
    end(&cluster);
    assert!(lab::until(MINUTE, || has_joined(&cluster)).await);
}

#[tokio::test(start_paused = true)]
async fn the_wait_that_the_api_server_asks_for_is_kept() {
    let (cluster, operator) = installed().await;
    begin(&cluster, "write", busy(Some(20)));
    select_another(&cluster);
    lab::pass(Duration::from_secs(2)).await;
    let before = operator.writes();
    lab::pass(Duration::from_secs(15)).await;
    assert_eq!(operator.writes() - before, 0, "{:#?}", operator.requests());
    end(&cluster);
    assert!(lab::until(MINUTE, || has_joined(&cluster)).await);
}

/// A watch whose connection died without a word: the next one shows it, within 65 s and without a list.
#[tokio::test(start_paused = true)]
async fn a_half_open_watch_is_noticed_within_sixty_five_seconds() {
    let (cluster, operator) = installed().await;
    let matches = Match { resource: "runtimeclasses".to_owned(), ..Match::default() };
    cluster.with(|sim, _| {
        sim.frontend.faults.add(Rule::once(matches, Fault::SilenceWatch));
    });
    // Right after a resync, so that the next one does not help.
    let lists_before = operator.lists();
    assert!(lab::until(10 * MINUTE, || operator.lists() > lists_before).await);
    lab::pass(Duration::from_secs(5)).await;
    let before = operator.requests().len();
    lab::delete(&cluster, &RUNTIMECLASSES, "", "kata");
    let back = || lab::get(&cluster, &RUNTIMECLASSES, "kata").is_some();
    let took = lab::within(Duration::from_secs(66), back).await;
    assert!(took.is_some_and(|took| took > Duration::from_secs(2)), "{took:?}");
    let listed = lists(&operator.requests()[before..]);
    assert!(!listed.keys().any(|line| line.contains("/runtimeclasses?")), "{listed:#?}");
}

/// `/readyz` shows within ten seconds that a cache is out of contact, and is content as soon as it is
/// not.
#[tokio::test(start_paused = true)]
async fn a_cache_out_of_contact_is_not_ready_after_ten_seconds() {
    let cluster = lab::bare();
    let client = lab::calls(&cluster, WritePermit::Always);
    let cache = Arc::new(Cache::<RuntimeClass>::new(Kind::RuntimeClass, &Arc::default()));
    let following = Arc::clone(&cache).follow(client, Arc::new(Jitter::new(1)), Metrics::new());
    let task = tokio::spawn(following);
    lab::pass(Duration::from_secs(5)).await;
    assert!(cache.check().1.is_ok());
    cut(&cluster);
    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": {"name": "any"}, "handler": "any",
    });
    // The event closes the watch.
    lab::create(&cluster, &RUNTIMECLASSES, "", class);
    let noticed = lab::within(Duration::from_secs(13), || cache.check().1.is_err()).await;
    assert!(noticed.is_some());
    assert!(cache.view().objects.is_known(), "what was known is good for a while");
    lab::pass(MINUTE).await;
    end(&cluster);
    assert!(lab::within(Duration::from_secs(31), || cache.check().1.is_ok()).await.is_some());
    task.abort();
}

/// Away for so long: nothing is begun, at most two lists of a reader, and all is done a minute later. The leader has lost
/// the Lease, so all caches are filled anew.
async fn away_for(span: Duration) {
    let (cluster, operator) = installed().await;
    cut(&cluster);
    // Ends the watches.
    select_another(&cluster);
    lab::pass(span).await;
    assert!(!has_joined(&cluster));
    assert!(operator.runs());
    let begun = operator.requests().len();
    end(&cluster);
    assert!(lab::until(MINUTE, || has_joined(&cluster)).await, "{span:?}");
    let since = operator.requests()[begun..].to_vec();
    let joined = since.iter().position(|line| {
        line.starts_with("PATCH /api/v1/nodes/worker-1") && !line.contains("status")
    });
    let read =
        since.iter().position(|line| line.starts_with("GET ") && line.contains("kataconfigs?"));
    assert!(read.is_some() && read < joined, "joined on old knowledge: {since:#?}");
    // One for the cache, and one past it before the node is disturbed.
    let most = lists(&since).into_values().max();
    assert!(most <= Some(2), "{:#?}", lists(&since));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_a_minute_is_over_a_minute_later() {
    away_for(MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_ten_minutes_is_over_a_minute_later() {
    away_for(10 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_an_hour_is_over_a_minute_later() {
    away_for(60 * MINUTE).await;
}

/// An idle operator after an outage: at most one list of a reader.
#[tokio::test(start_paused = true)]
async fn after_an_outage_nobody_lists_twice() {
    let (cluster, operator) = installed().await;
    cut(&cluster);
    lab::pass(10 * MINUTE).await;
    let begun = operator.requests().len();
    end(&cluster);
    lab::pass(MINUTE).await;
    let listed = lists(&operator.requests()[begun..]);
    assert!(listed.values().all(|count| *count <= 1), "{listed:#?}");
    assert_eq!(lab::condition(&cluster, "example", "Ready").0, "True");
}

/// One second there, one second away, for an hour.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_comes_and_goes_is_not_hammered() {
    let (cluster, operator) = installed().await;
    select_another(&cluster);
    let before = operator.requests().len();
    for _ in 0..1_800 {
        cut(&cluster);
        lab::pass(Duration::from_secs(1)).await;
        end(&cluster);
        lab::pass(Duration::from_secs(1)).await;
    }
    let sent = operator.requests().len() - before;
    assert!(sent < 10_000, "{sent} requests within an hour");
    assert!(operator.runs());
    assert!(lab::until(MINUTE, || lab::is_ready(&cluster, "example")).await, "{sent}");
}

/// The time of each condition of a KataConfig, with its status.
fn transitions(cluster: &Cluster, name: &str) -> BTreeMap<String, (String, String)> {
    let config = lab::get(cluster, &lab::kata_configs(), name).unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let conditions = config["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let of = |condition: &serde_json::Value| {
        let (status, time) = (&condition["status"], &condition["lastTransitionTime"]);
        (text(&condition["type"]), (text(status), text(time)))
    };
    conditions.iter().map(of).collect()
}

/// The answer to a status write is lost, the watch that would show it is silent, and the next writes are
/// refused for some seconds: a condition keeps the time at which it changed. The status is that of a second
/// KataConfig, for which nothing is done, so that no other reason makes the operator read it again.
#[tokio::test(start_paused = true)]
async fn a_status_write_whose_answer_is_lost_moves_no_time() {
    let (cluster, _operator) = installed().await;
    let ours = |verb: &str| Match {
        verb: verb.to_owned(),
        resource: "kataconfigs".to_owned(),
        name: "second".to_owned(),
        manager: if verb.is_empty() { String::new() } else { "kata-operator".to_owned() },
        ..Match::default()
    };
    cluster.with(|sim, _| {
        let faults = &mut sim.frontend.faults;
        // The first event is its creation.
        faults.add(Rule::once(ours(""), Fault::SilenceWatch).from_nth(2));
        faults.add(Rule::once(ours("write"), Fault::Reset { when: When::After }));
        faults.add(Rule::once(ours("write"), busy(None)).from_nth(2).times(5));
    });
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("second"));
    assert!(lab::until(MINUTE, || !transitions(&cluster, "second").is_empty()).await);
    let written = transitions(&cluster, "second");
    lab::pass(MINUTE).await;
    assert_eq!(transitions(&cluster, "second"), written);
}

/// A kind that could not be read for a while, and is what it was when it can be: the status says so soon,
/// and not only when everything is read again.
#[tokio::test(start_paused = true)]
async fn what_can_be_read_again_is_told_although_nothing_changed() {
    let (cluster, _operator) = installed().await;
    let says = |cluster: &Cluster| {
        let config = lab::get(cluster, &lab::kata_configs(), "example").unwrap_or_default();
        config["status"].to_string().contains("KATA1016")
    };
    for verb in ["list", "watch"] {
        let matches = Match {
            verb: verb.to_owned(),
            resource: "configmaps".to_owned(),
            manager: "kata-operator".to_owned(),
            ..Match::default()
        };
        // Expired, so that the watch does not go on where it ended.
        let code = if verb == "list" { 503 } else { 410 };
        let fault = Fault::Status { code, retry_after: None, message: None, when: When::Before };
        cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(matches, fault).times(0)));
    }
    assert!(lab::until(MINUTE * 10, || says(&cluster)).await);
    end(&cluster);
    assert!(lab::until(MINUTE, || !says(&cluster)).await);
}
