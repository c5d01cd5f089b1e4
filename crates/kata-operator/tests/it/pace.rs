//! Nothing that the cluster does makes the operator go round in circles: not a rival, not watches that
//! are refused, not an API server that begins to serve the Machine Config Operator's kinds.

use std::collections::BTreeMap;
use std::time::Duration;

use kata_api::platform::Platform;
use kata_operator::Settings;
use serde_json::json;
use simcluster::api::fault::{Fault, Match, Rule, When};
use simcluster::resource::{CRDS, EVENTS_V1, NODES, RUNTIMECLASSES};

use tokio::time::Instant;

use crate::lab::{self, Operator};

const LIMIT: Duration = Duration::from_secs(2 * 60 * 60);
const SETTLE: Duration = Duration::from_secs(120);

/// Without tolerations of ours, an apply that leaves them out would keep those, and never be done.
#[tokio::test(start_paused = true)]
async fn tolerations_that_somebody_adds_to_our_class_are_taken_away_once() {
    let cluster = lab::openshift(3, 1);
    let operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::pass(SETTLE).await;
    let writes = operator.writes();
    let theirs = json!({"scheduling": {"tolerations": [{"key": "x", "operator": "Exists"}]}});
    lab::merge(&cluster, &RUNTIMECLASSES, "kata", &theirs);
    lab::pass(SETTLE).await;
    let class = lab::get(&cluster, &RUNTIMECLASSES, "kata").unwrap();
    assert!(class["scheduling"]["tolerations"].as_array().is_none_or(Vec::is_empty), "{class:#}");
    assert_eq!(operator.writes() - writes, 1);
}

/// Another client removes the label of a verified node each time, at once or after a while.
#[tokio::test(start_paused = true)]
async fn a_rival_is_answered_ever_more_slowly() {
    for delay in [Duration::ZERO, Duration::from_secs(8)] {
        let cluster = lab::openshift(3, 1);
        let operator = Operator::start(&cluster);
        lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
        assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
        lab::pass(SETTLE).await;
        let writes = operator.writes();
        let reported = || {
            let config = lab::get(&cluster, &lab::kata_configs(), "example").unwrap();
            config["status"].to_string().contains("KATA1022")
        };
        let gone = json!({"metadata": {"labels": {"katacontainers.io/kata-runtime": null}}});
        let mut first = None;
        let begun = Instant::now();
        let mut undone = begun;
        while begun.elapsed() < Duration::from_mins(10) {
            let node = lab::get(&cluster, &NODES, &lab::worker(0)).unwrap();
            let is_there = node["metadata"]["labels"]["katacontainers.io/kata-runtime"] == "true";
            if is_there && undone.elapsed() >= delay {
                lab::merge(&cluster, &NODES, &lab::worker(0), &gone);
                undone = Instant::now();
            } else if !is_there {
                // Counted from when it comes back.
                undone = Instant::now();
            }
            lab::pass(Duration::from_millis(100)).await;
            first = first.or_else(|| reported().then(|| begun.elapsed()));
            assert!(
                first.is_none() || reported(),
                "after {:?} it is no longer reported",
                begun.elapsed()
            );
        }
        let first = first.expect("KATA1022 was never reported");
        assert!(first < Duration::from_mins(2), "{first:?}");
        let more = operator.writes() - writes;
        println!("{delay:?}: {more} writes in 10 minutes, reported after {first:?}");
        assert!((10..90).contains(&more), "{more} writes in 10 minutes");

        // And it is over as soon as the rival is.
        assert!(lab::until(SETTLE, || lab::is_ready(&cluster, "example")).await);
        lab::pass(SETTLE).await;
        assert!(!reported());
    }
}

/// What else the operator writes while a client reverts its RuntimeClass was reverted by no client.
#[tokio::test(start_paused = true)]
async fn only_what_was_reverted_is_reported_as_reverted() {
    let cluster = lab::openshift(3, 1);
    let _operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::pass(SETTLE).await;
    let reported = || {
        let config = lab::get(&cluster, &lab::kata_configs(), "example").unwrap();
        let status = config["status"].to_string();
        status.split("KATA1022").nth(1).map(|text| text.chars().take(120).collect::<String>())
    };
    let theirs = json!({"scheduling": {"tolerations": [{"key": "x", "operator": "Exists"}]}});
    let revert = async || {
        lab::merge(&cluster, &RUNTIMECLASSES, "kata", &theirs);
        lab::pass(Duration::from_millis(100)).await;
    };
    for _ in 0..1_200 {
        if reported().is_some() {
            break;
        }
        revert().await;
    }
    assert!(reported().is_some_and(|text| text.contains("RuntimeClass kata")), "{:?}", reported());
    let selected = json!({"metadata": {"labels": {"kata": "true"}}});
    lab::merge(&cluster, &NODES, &lab::worker(1), &selected);
    for _ in 0..300 {
        revert().await;
        let reported = reported().unwrap_or_default();
        assert!(!reported.contains(&lab::worker(1)), "{reported}");
    }
}

/// People who change their mind, and change it back, are no rivals.
#[tokio::test(start_paused = true)]
async fn a_label_that_goes_on_and_off_by_hand_is_followed_at_once() {
    let cluster = lab::kubernetes();
    lab::create_home(&cluster);
    let mut settings =
        Settings { platform: Platform::Kubernetes, ..Settings::simulated(lab::epoch()) };
    settings.options.agent_image = Some("registry.example/kata-operator:1".to_owned());
    let _operator = Operator::with(&cluster, settings);
    let mut config = lab::kata_config("example");
    config["spec"]["rollout"] = json!({"leaveDelay": "0s"});
    lab::create(&cluster, &lab::kata_configs(), "", config);
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::pass(SETTLE).await;
    let is_verified = || {
        let node = lab::get(&cluster, &NODES, &lab::worker(0)).unwrap();
        node["metadata"]["labels"]["katacontainers.io/kata-runtime"] == "true"
    };
    let mut took = BTreeMap::new();
    for value in [None, Some("true")].repeat(8) {
        let labels = json!({"metadata": {"labels": {"kata": value}}});
        lab::merge(&cluster, &NODES, &lab::worker(0), &labels);
        let begun = Instant::now();
        assert!(lab::until(SETTLE, || is_verified() == value.is_some()).await);
        took.entry(value).or_insert_with(Vec::new).push(begun.elapsed());
        // A person looks at what came of it.
        lab::pass(Duration::from_secs(20)).await;
    }
    for times in took.values() {
        let late = times.iter().any(|time| *time > times[0] + Duration::from_secs(5));
        assert!(!late, "{took:?}");
    }
}

/// Another client deletes the RuntimeClass three times within a minute.
#[tokio::test(start_paused = true)]
async fn what_goes_to_and_fro_is_told_once_a_minute_and_how_it_ended_is_too() {
    const REPORTED: [&str; 2] = ["RuntimeClassRemoved", "RuntimeClassCreated"];
    let cluster = lab::openshift(3, 1);
    let _operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::pass(SETTLE).await;
    let mut last = cluster.now();
    for _ in 0..3 {
        last = cluster.now();
        lab::delete(&cluster, &RUNTIMECLASSES, "", "kata");
        let is_back = || lab::get(&cluster, &RUNTIMECLASSES, "kata").is_some();
        assert!(lab::until(SETTLE, is_back).await);
        lab::pass(Duration::from_secs(5)).await;
    }
    lab::pass(SETTLE).await;

    let events = cluster.with(|sim, _| sim.api.list(&EVENTS_V1));
    let time = |event: &serde_json::Value, path: &str| -> jiff::Timestamp {
        event.pointer(path).and_then(serde_json::Value::as_str).unwrap().parse().unwrap()
    };
    for reason in REPORTED {
        let of_it = || events.iter().filter(|event| event["reason"] == reason);
        let mut reported: Vec<_> =
            of_it().map(|event| time(event, "/metadata/creationTimestamp")).collect();
        reported.sort();
        assert!(reported.len() >= 2, "{reason}: {reported:?}");
        let gaps = reported.windows(2).map(|two| two[1].duration_since(two[0]).as_secs());
        assert!(gaps.into_iter().all(|gap| gap >= 59), "{reason}: {reported:?}");
        let seen = of_it().map(|event| time(event, "/eventTime")).max().unwrap();
        assert!(seen >= last, "{reason}: {seen}, and happened after {last}");
    }
}

/// Lists succeed, watches do not: the lists must not take their place, and the watches are tried ever more
/// rarely.
#[tokio::test(start_paused = true)]
async fn while_watches_are_refused_lists_are_rare() {
    let cluster = lab::openshift(3, 1);
    let busy = Fault::Status { code: 503, retry_after: None, message: None, when: When::Before };
    let matches = Match { verb: "watch".to_owned(), ..Match::default() };
    cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(matches, busy).times(0)));
    let operator = Operator::start(&cluster);
    lab::pass(Duration::from_mins(5)).await;
    let watches = || operator.requests().iter().filter(|line| line.contains("watch=true")).count();
    let (lists, before) = (operator.lists(), watches());
    lab::pass(Duration::from_mins(10)).await;
    // Two or three resyncs.
    let more = operator.lists() - lists;
    assert!((2 * 7..=3 * 7).contains(&more), "{more} lists in 10 minutes");
    // Eleven kinds, every 15 to 30 s.
    let tried = watches() - before;
    assert!((9 * 20..12 * 44).contains(&tried), "{tried} watches in 10 minutes");
    assert!(operator.runs());
}

/// The Machine Config Operator's kinds come to be served while the operator runs.
#[tokio::test(start_paused = true)]
async fn a_cluster_whose_machine_config_operator_comes_later_is_noticed() {
    let cluster = lab::openshift_without_mco();
    let operator = Operator::start(&cluster);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    lab::pass(SETTLE).await;
    assert_eq!(lab::condition(&cluster, "example", "Ready").1, "PlatformUnsupported");
    for text in [
        include_str!("../../../simcluster/src/mco/crds/machineconfigs.yaml"),
        include_str!("../../../simcluster/src/mco/crds/machineconfigpools.yaml"),
        include_str!("../../../simcluster/src/mco/crds/containerruntimeconfigs.yaml"),
    ] {
        lab::create(&cluster, &CRDS, "", serde_saphyr::from_str(text).unwrap());
    }
    // A slow API server, so that the first answers take a while.
    let slow = Fault::Delay { millis: 3_000 };
    let matches = Match { verb: "list".to_owned(), ..Match::default() };
    cluster.with(|sim, _| sim.frontend.faults.add(Rule::once(matches, slow).times(0)));
    lab::pass(Duration::from_mins(11)).await;
    let reported = lab::condition(&cluster, "example", "Ready").1;
    assert_eq!(reported, "MachineConfigOperatorNotReady");
    assert!(operator.runs());
}
