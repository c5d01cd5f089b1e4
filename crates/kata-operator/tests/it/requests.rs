//! How many requests an install and an uninstall cost, leases apart, and what they are.

use std::collections::BTreeMap;
use std::time::Duration;

use kata_operator::Settings;
use serde_json::json;
use simcluster::Cluster;
use simcluster::mco::Timing;
use simcluster::resource::{MACHINECONFIGPOOLS, PODS};
use tokio::time::Instant;

use crate::lab::{self, Operator};
use crate::metrics;

/// Far above what an install takes.
const LIMIT: Duration = Duration::from_secs(60 * 60);
/// After this the operator is at rest.
const SETTLE: Duration = Duration::from_secs(20);

/// Method and resource of a request, such as `PATCH nodes` or `WATCH pods`.
fn sort(line: &str) -> String {
    let (method, url) = line.split_once(' ').unwrap();
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let skip = if parts[0] == "api" { 2 } else { 3 };
    let rest = parts.get(skip..).unwrap_or_default();
    let rest = if rest.first() == Some(&"namespaces") { rest.get(2..).unwrap() } else { rest };
    let verb = match method {
        "GET" if query.contains("watch=") => "WATCH",
        "GET" if rest.len() == 1 => "LIST",
        other => other,
    };
    let part = rest.get(2).map(|part| format!("/{part}")).unwrap_or_default();
    format!("{verb} {}{part}", rest.first().unwrap_or(&path))
}

/// Counts the operator's requests from a moment on.
fn counts_since(operator: &Operator, before: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in &operator.requests()[before..] {
        *counts.entry(sort(line)).or_insert(0) += 1;
    }
    counts
}

/// Counts the requests of a change from `before` until it is done and the operator is at rest.
async fn count(
    what: &str,
    operator: &Operator,
    before: usize,
    limit: usize,
    is_done: impl Fn() -> bool,
) -> BTreeMap<String, usize> {
    let begun = Instant::now();
    assert!(lab::until(LIMIT, is_done).await);
    let took = begun.elapsed();
    lab::pass(SETTLE).await;
    let counts = counts_since(operator, before);
    let all: usize = counts.values().sum();
    let list: Vec<String> = counts.iter().map(|(what, count)| format!("{what} {count}")).collect();
    #[expect(clippy::print_stderr, reason = "the figures are worth reading")]
    {
        eprintln!("{what}, {took:?}: {all} of at most {limit}: {}", list.join(", "));
    }
    assert!(all <= limit, "{all} requests for {what}: {counts:#?}");
    counts
}

/// Installs on so many workers, and counts the operator's requests from the creation of the KataConfig until it is
/// Ready and at rest.
async fn install(workers: u32, at_once: u32) -> (Cluster, Operator, BTreeMap<String, usize>) {
    let cluster = lab::fast(workers);
    let limit = 6 * usize::try_from(workers).unwrap() + 40;
    let (operator, counts) = install_on(&cluster, (workers, at_once), limit).await;
    (cluster, operator, counts)
}

async fn install_on(
    cluster: &Cluster,
    (workers, at_once): (u32, u32),
    limit: usize,
) -> (Operator, BTreeMap<String, usize>) {
    let operator = Operator::start(cluster);
    let counts = install_with(cluster, &operator, (workers, at_once), limit).await;
    (operator, counts)
}

async fn install_with(
    cluster: &Cluster,
    operator: &Operator,
    (workers, at_once): (u32, u32),
    limit: usize,
) -> BTreeMap<String, usize> {
    lab::pass(SETTLE).await;
    let before = operator.requests().len();
    let config = json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": "example"},
        "spec": {"rollout": {"maxUnavailable": at_once}},
    });
    lab::create(cluster, &lab::kata_configs(), "", config);
    let is_ready = || lab::is_ready(cluster, "example");
    let what = format!("an install of {workers}");
    let counts = count(&what, operator, before, limit, is_ready).await;
    let kata_nodes = lab::end_state(cluster);
    let ready = kata_nodes.values().filter(|object| object["status"]["phase"] == "Ready").count();
    assert_eq!(ready, usize::try_from(workers).unwrap());
    counts
}

/// Uninstalls from workers of which so many may be unavailable at once.
async fn uninstall(
    cluster: &Cluster,
    operator: &Operator,
    (workers, at_once): (u32, u32),
) -> BTreeMap<String, usize> {
    let pool = json!({"spec": {"maxUnavailable": at_once}});
    lab::merge(cluster, &MACHINECONFIGPOOLS, "worker", &pool);
    let before = operator.requests().len();
    lab::delete(cluster, &lab::kata_configs(), "", "example");
    let gone = || lab::get(cluster, &lab::kata_configs(), "example").is_none();
    let limit = 6 * usize::try_from(workers).unwrap() + 90;
    count(&format!("an uninstall of {workers}"), operator, before, limit, gone).await
}

#[tokio::test(start_paused = true)]
async fn an_install_of_three_takes_few_requests() {
    let (.., counts) = install(3, 1).await;
    assert_eq!(counts["PATCH nodes"], 6, "each of two labels, once");
    assert_eq!(counts["PATCH katanodes"], 3);
    assert!(!counts.contains_key("LIST pods") && !counts.contains_key("LIST nodes"));
}

#[tokio::test(start_paused = true)]
async fn an_install_of_fifty_takes_few_requests() {
    let (.., counts) = install(50, 10).await;
    assert_eq!(counts["PATCH nodes"], 100, "each of two labels, once");
    assert_eq!(counts["PATCH katanodes"], 50);
}

/// Only steps that last are written to a KataNode.
#[tokio::test(start_paused = true)]
async fn an_install_at_a_minute_a_node_takes_few_requests() {
    let timing = Timing {
        install: Duration::from_secs(20),
        reboot: Duration::from_secs(30),
        ..Timing::default()
    };
    let cluster = lab::with_timing(50, timing);
    let (_, counts) = install_on(&cluster, (50, 10), 440).await;
    assert!(counts["PATCH katanodes/status"] <= 150, "{counts:#?}");
    assert!(counts["PATCH kataconfigs/status"] <= 30, "{counts:#?}");
}

/// The pods of the whole cluster are listed before something is taken away, and not in each pass of a removal that
/// takes hours.
#[tokio::test(start_paused = true)]
async fn an_uninstall_lists_pods_only_while_they_can_hold_it_up() {
    for (workers, at_once) in [(3, 1), (50, 10)] {
        let (cluster, operator, _) = install(workers, at_once).await;
        let counts = uninstall(&cluster, &operator, (workers, at_once)).await;
        assert!(counts["LIST pods"] <= 7, "{counts:#?}");
        assert!(counts["LIST nodes"] <= 5, "{counts:#?}");
        assert_eq!(counts["PATCH nodes"], 2 * usize::try_from(workers).unwrap());
    }
}

/// Where Jobs change the nodes, a large cluster takes no more passes a node than a small one, and an uninstall lists the
/// pods of the whole cluster no more often.
#[tokio::test(start_paused = true)]
async fn passes_with_jobs_grow_with_the_nodes_and_no_faster() {
    let (few, many) = (10, 40);
    let [(install, uninstall), (large_install, large_uninstall)] =
        [passes_with_jobs(few).await, passes_with_jobs(many).await];
    let factor = f64::from(many) / f64::from(few);
    assert!(large_install <= install * factor, "{install} passes, and then {large_install}");
    assert!(
        large_uninstall <= uninstall * factor,
        "{uninstall} passes, and then {large_uninstall}"
    );
}

/// The passes of an install and of an uninstall on so many workers.
async fn passes_with_jobs(workers: u32) -> (f64, f64) {
    let cluster = lab::kubernetes_of(workers);
    lab::create_home(&cluster);
    let (operator, address) = metrics::served(&cluster).await;
    let limit = 16 * usize::try_from(workers).unwrap() + 40;
    let before = metrics::passes(&address).await;
    install_with(&cluster, &operator, (workers, 5), limit).await;
    let installed = metrics::passes(&address).await;
    let first = operator.requests().len();
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    let is_gone = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    count(&format!("an uninstall of {workers}"), &operator, first, limit, is_gone).await;
    let gone = metrics::passes(&address).await;
    let is_of_all_pods =
        |line: &&String| line.starts_with("GET /api/v1/pods?") && !line.contains("fieldSelector");
    let all_pods = operator.requests()[first..].iter().filter(is_of_all_pods).count();
    assert!((1..=12).contains(&all_pods), "{all_pods} lists of all pods");
    (installed - before, gone - installed)
}

/// For nodes that provide Kata the operator needs neither Jobs nor the Machine Config Operator, so that the same could be
/// done against a real kube-apiserver, with Node objects alone (docs/developers/performance.md). `real` is what its audit
/// log counted on 28 November 2026, without leases and watches.
#[tokio::test(start_paused = true)]
async fn provided_nodes_take_as_many_requests_as_on_a_real_api_server() {
    let cluster = lab::provided(50);
    let operator = Operator::start(&cluster);
    lab::pass(SETTLE).await;
    let before = operator.requests().len();
    let config = json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": "example"},
        "spec": {"providedNodes": {}, "runtimes": [{"name": "kata"}]},
    });
    lab::create(&cluster, &lab::kata_configs(), "", config);
    let is_ready = || lab::is_ready(&cluster, "example");
    let installed = count("an install of 50", &operator, before, 250, is_ready).await;
    let before = operator.requests().len();
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    let is_gone = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    let removed = count("an uninstall of 50", &operator, before, 250, is_gone).await;
    for (counts, real) in [(installed, 208), (removed, 230)] {
        let requests = counts.iter().filter(|(what, _)| !what.starts_with("WATCH"));
        let simulated: usize = requests.map(|(_, count)| count).sum();
        assert!(simulated.abs_diff(real) * 5 <= real, "{simulated}, not {real}: {counts:#?}");
    }
}

/// A deletion that waits for pods reads one of them at a time, and sees those that come.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_waits_for_pods_does_not_list_them() {
    let cluster = lab::fast(3);
    let operator = Operator::start(&cluster);
    let config = json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": "example"},
    });
    lab::create(&cluster, &lab::kata_configs(), "", config);
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    let create = |name: &str| {
        let pod = json!({"metadata": {"name": name}, "spec": {
            "runtimeClassName": "kata",
            "containers": [{"name": "main", "image": "registry.example/app:1"}],
        }});
        lab::create(&cluster, &PODS, "default", pod);
    };
    for number in 0..12 {
        create(&format!("web-{number:02}"));
    }
    lab::pass(SETTLE).await;
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    let blocked = || lab::condition(&cluster, "example", "DeletionBlocked").0 == "True";
    assert!(lab::until(LIMIT, blocked).await);
    lab::pass(SETTLE).await;

    let before = operator.requests().len();
    lab::pass(Duration::from_mins(1)).await;
    let counts = counts_since(&operator, before);
    assert!(!counts.contains_key("LIST pods"), "{counts:#?}");
    assert!((10..=16).contains(&counts["GET pods"]), "{counts:#?}");
    assert!(counts["WATCH pods"] <= 2, "{counts:#?}");

    // One that comes is named, as soon as if all pods were listed.
    let message =
        || lab::get(&cluster, &lab::kata_configs(), "example").unwrap()["status"].to_string();
    assert!(message().contains("12 sandboxed pods"), "{}", message());
    create("late");
    let soon = Duration::from_secs(6);
    assert!(lab::until(soon, || message().contains("13 sandboxed pods")).await, "{}", message());
    assert!(message().contains("default/late"), "{}", message());

    // The pods that the message names are each read again in turn.
    lab::delete(&cluster, &PODS, "default", "web-03");
    assert!(lab::until(Duration::from_mins(1), || !message().contains("web-03")).await);
    for number in (0..11).filter(|number| *number != 3) {
        lab::delete(&cluster, &PODS, "default", &format!("web-{number:02}"));
    }
    lab::delete(&cluster, &PODS, "default", "late");
    let is_last = || message().contains("web-11") && !message().contains("web-10");
    assert!(lab::until(Duration::from_mins(1), is_last).await, "{}", message());
    assert!(blocked());
    lab::delete(&cluster, &PODS, "default", "web-11");
    let gone = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    assert!(lab::until(LIMIT, gone).await);
}

/// The object is gone with its last finalizer, which the answer to that write shows.
#[tokio::test(start_paused = true)]
async fn the_last_write_of_a_deletion_removes_the_finalizer() {
    let cluster = lab::kubernetes();
    lab::create_home(&cluster);
    // Nothing is to be removed, so the pass that sees the deletion is the last one.
    let mut config = lab::kata_config("example");
    config["spec"] = json!({"kataConfigPoolSelector": {"matchLabels": {"kata": "no"}}});
    lab::create(&cluster, &lab::kata_configs(), "", config);
    let mut settings = Settings::simulated(lab::epoch());
    settings.options.agent_image = Some("registry.example/kata-operator:1".to_owned());
    let operator = Operator::with(&cluster, settings);
    let observed = || !lab::condition(&cluster, "example", "Ready").0.is_empty();
    assert!(lab::until(LIMIT, observed).await);
    lab::pass(SETTLE).await;
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    let gone = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    assert!(lab::until(LIMIT, gone).await);
    lab::pass(SETTLE).await;
    let requests = operator.requests();
    let is_write = |line: &&String| line.starts_with("PATCH") && line.contains("/kataconfigs/");
    let last = requests.iter().rfind(is_write).unwrap();
    assert!(!last.contains("/status"), "{last}");
}
