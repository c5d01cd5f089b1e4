//! An install and an uninstall from beginning to end, on virtual time.

use std::time::Duration;

use kata_api::machine_config;
use kata_operator::Settings;
use serde_json::json;
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::resource::{NODES, RUNTIMECLASSES};

use crate::lab::{self, Operator};

/// Far above what an install or uninstall of one node takes.
const LIMIT: Duration = Duration::from_secs(2 * 60 * 60);
/// After this nothing is on its way any more.
const SETTLE: Duration = Duration::from_secs(120);

#[tokio::test(start_paused = true)]
async fn one_labelled_worker_gets_kata_and_loses_it_without_a_trace() {
    let cluster = lab::openshift(3, 1);
    let before = lab::end_state(&cluster);
    let operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(
        lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await,
        "{:#?}",
        lab::end_state(&cluster)
    );

    let class = lab::get(&cluster, &RUNTIMECLASSES, "kata").unwrap();
    assert_eq!(class["handler"], "kata");
    assert_eq!(class["overhead"]["podFixed"], json!({"cpu": "250m", "memory": "350Mi"}));
    let config = lab::get(&cluster, &lab::kata_configs(), "example").unwrap();
    assert_eq!(config["status"]["runtimeClasses"], json!(["kata"]));
    assert_eq!(config["status"]["kataNodes"]["nodeCount"], 1);
    assert_eq!(config["status"]["kataNodes"]["readyNodeCount"], 1);
    assert_eq!(lab::condition(&cluster, "example", "InProgress").0, "False");

    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    let gone = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    assert!(lab::until(LIMIT, gone).await, "{:#?}", lab::end_state(&cluster));
    lab::pass(SETTLE).await;
    lab::assert_same(&lab::end_state(&cluster), &before, "");
    assert!(operator.runs());
}

#[tokio::test(start_paused = true)]
async fn an_idle_operator_writes_nothing_and_lists_only_to_resync() {
    let cluster = lab::openshift(3, 1);
    let operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::pass(SETTLE).await;
    let (before, writes, lists) = (operator.requests().len(), operator.writes(), operator.lists());
    lab::pass(Duration::from_mins(10)).await;
    let since = &operator.requests()[before..];
    assert_eq!(operator.writes() - writes, 0, "{since:#?}");
    // Seven kinds, twice.
    assert!(operator.lists() - lists <= 14, "{since:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_writes_nothing() {
    let cluster = lab::openshift(3, 1);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let before = lab::end_state(&cluster);
    let settings = Settings { dry_run: true, ..Settings::simulated(lab::epoch()) };
    let operator = Operator::with(&cluster, settings);
    lab::pass(Duration::from_mins(20)).await;
    assert!(operator.runs());
    lab::assert_same(&lab::end_state(&cluster), &before, "");
    assert_eq!(operator.writes(), 0, "{:#?}", operator.requests());
}

#[tokio::test(start_paused = true)]
async fn what_is_deleted_or_changed_by_hand_comes_back() {
    let cluster = lab::openshift(3, 1);
    let _operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::pass(SETTLE).await;
    let wanted = lab::end_state(&cluster);
    lab::delete(&cluster, &RUNTIMECLASSES, "", "kata");
    lab::pass(Duration::from_secs(5)).await;
    lab::assert_same(&lab::end_state(&cluster), &wanted, "");

    for label in ["katacontainers.io/kata-runtime", "kata.node-restriction.kubernetes.io/kata"] {
        let gone = json!({"metadata": {"labels": {label: null}}});
        let node = lab::get(&cluster, &NODES, &lab::worker(0)).unwrap();
        assert_eq!(node["metadata"]["labels"][label], "true");
        lab::merge(&cluster, &NODES, &lab::worker(0), &gone);
        lab::pass(Duration::from_secs(5)).await;
        lab::assert_same(&lab::end_state(&cluster), &wanted, label);
    }

    let leaving = json!([{"key": "kata-operator.dev/leaving", "effect": "NoSchedule"}]);
    let tainted = json!({"spec": {"taints": leaving}});
    lab::merge(&cluster, &NODES, &lab::worker(0), &tainted);
    lab::pass(Duration::from_secs(5)).await;
    lab::assert_same(&lab::end_state(&cluster), &wanted, "taint of an earlier release");
}

/// A watch that stays silent for ever: the resync finds what changed.
#[tokio::test(start_paused = true)]
async fn a_change_that_no_watch_tells_of_is_found_by_the_resync() {
    let cluster = lab::openshift(3, 1);
    let _operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::pass(SETTLE).await;
    let wanted = lab::end_state(&cluster);
    let silent = Match { resource: "runtimeclasses".to_owned(), ..Match::default() };
    let rule = Rule::once(silent, Fault::DropEvent).times(0);
    cluster.with(|sim, _| sim.frontend.faults.add(rule));
    lab::delete(&cluster, &RUNTIMECLASSES, "", "kata");
    lab::pass(Duration::from_mins(6)).await;
    lab::assert_same(&lab::end_state(&cluster), &wanted, "");
}

/// Statuses are written in spite of other writes that fail, and say why.
#[tokio::test(start_paused = true)]
async fn a_refused_write_shows_in_the_status_and_is_forgotten_when_it_succeeds() {
    let cluster = lab::openshift(3, 1);
    let forbidden =
        Fault::Status { code: 403, retry_after: None, message: None, when: When::Before };
    let matches = Match {
        verb: "patch".to_owned(),
        resource: "machineconfigs".to_owned(),
        ..Match::default()
    };
    cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(matches, forbidden).times(0)));
    let operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    lab::pass(Duration::from_mins(5)).await;
    let degraded = || lab::condition(&cluster, "example", "Degraded");
    assert_eq!(degraded(), ("True".to_owned(), "WriteFailed".to_owned()));
    let writes = operator.writes();
    lab::pass(Duration::from_mins(10)).await;
    let more = operator.writes() - writes;
    assert!(more <= 45, "an attempt every 15 to 30 s, and no status each time: {more}");

    cluster.with(|sim, _| sim.frontend.faults.clear());
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    assert_ne!(degraded().0, "True");
}

/// What is refused for good is tried again at its own pace, and nothing else waits for it.
#[tokio::test(start_paused = true)]
async fn a_refused_write_slows_down_nothing_else() {
    let cluster = lab::openshift(3, 1);
    let forbidden =
        Fault::Status { code: 403, retry_after: None, message: None, when: When::Before };
    let matches = Match {
        verb: "patch".to_owned(),
        resource: "runtimeclasses".to_owned(),
        ..Match::default()
    };
    cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(matches, forbidden).times(0)));
    let _operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let refused = || {
        let (status, reason) = lab::condition(&cluster, "example", "Degraded");
        status == "True" && reason == "WriteFailed"
    };
    assert!(lab::until(LIMIT, refused).await);
    lab::pass(SETTLE).await;
    let label = json!({"metadata": {"labels": {"kata": "true"}}});
    lab::merge(&cluster, &NODES, &lab::worker(1), &label);
    lab::pass(Duration::from_secs(2)).await;
    let node = lab::get(&cluster, &NODES, &lab::worker(1)).unwrap();
    assert!(node["metadata"]["labels"].get("node-role.kubernetes.io/kata-oc").is_some());
}

/// On OpenShift without the Machine Config Operator it says that nothing may change the nodes, once, and does
/// nothing. A hosted control plane may serve a part of that one's kinds.
#[tokio::test(start_paused = true)]
async fn without_the_mco_the_status_says_so_and_nothing_is_changed() {
    for kinds in [&[][..], &["MachineConfigNode"], &["MachineConfig", "MachineConfigPool"]] {
        let cluster = lab::openshift_without_mco();
        for kind in kinds {
            lab::define(&cluster, machine_config::GROUP, kind);
        }
        let nodes = |cluster| -> Vec<_> {
            let state = lab::end_state(cluster).into_iter();
            state.filter(|(name, _)| !name.starts_with("KataConfig")).collect()
        };
        let before = nodes(&cluster);
        let operator = Operator::start(&cluster);
        lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
        lab::pass(Duration::from_mins(20)).await;
        let expected = ("False".to_owned(), "PlatformUnsupported".to_owned());
        assert_eq!(lab::condition(&cluster, "example", "Ready"), expected);
        assert_eq!(nodes(&cluster), before);
        assert_eq!(operator.writes(), 2, "{:#?}", operator.requests());
        lab::delete(&cluster, &lab::kata_configs(), "", "example");
        assert_eq!(lab::get(&cluster, &lab::kata_configs(), "example"), None);
    }
}
