//! kata-monitor by the operator as it is installed: with its permissions, and with no more requests
//! than it takes.

use std::collections::BTreeSet;
use std::time::Duration;

use kata_api::platform::Platform;
use kata_manifests::manifests::Options;
use kata_operator::Settings;
use serde_json::{Value, json};
use simcluster::resource::DAEMONSETS;
use simcluster::{Cluster, Resource};

use crate::lab::{self, Operator};

pub(crate) const NAME: &str = "openshift-sandboxed-containers-monitor";
pub(crate) const NAMESPACE: &str = "openshift-sandboxed-containers-operator";
pub(crate) const CONSTRAINTS: &str = "sandboxed-containers-operator-scc";
/// Far more than an installation takes.
const LIMIT: Duration = Duration::from_mins(30);

pub(crate) fn scc() -> Resource {
    Resource::new("security.openshift.io", "securitycontextconstraints")
}

fn settings(image: Option<&str>) -> Settings {
    let mut settings = Settings::simulated(lab::epoch());
    settings.options.monitor_image = image.map(str::to_owned);
    settings
}

pub(crate) fn daemon_set(cluster: &Cluster) -> Option<Value> {
    cluster.with(|sim, _| sim.api.get(&DAEMONSETS, NAMESPACE, NAME)).map(|object| (*object).clone())
}

pub(crate) fn constraints(cluster: &Cluster) -> Option<Value> {
    lab::get(cluster, &scc(), CONSTRAINTS)
}

/// A cluster with one worker, and the operator's namespace.
fn cluster() -> Cluster {
    let cluster = lab::openshift(1, 1);
    lab::create_home(&cluster);
    cluster
}

/// The requests about kata-monitor's objects: verb and kind.
fn requests(operator: &Operator) -> Vec<String> {
    operator
        .requests()
        .into_iter()
        .filter_map(|line| {
            let (method, uri) = line.split_once(' ')?;
            let kind = ["daemonsets", "securitycontextconstraints"]
                .into_iter()
                .find(|kind| uri.contains(kind))?;
            let verb = match (method, uri.contains("watch=true")) {
                ("GET", true) => "watch",
                ("GET", false) => "list",
                ("PATCH", _) => "patch",
                ("DELETE", _) => "delete",
                (other, _) => other,
            };
            let named = if method == "GET" {
                "fieldSelector=metadata.name%3D".to_owned()
            } else {
                kind.to_owned()
            };
            assert!(uri.contains(&named), "{line}: not by name");
            Some(format!("{verb} {kind}"))
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_operator_without_an_image_looks_once_and_leaves_it_at_that() {
    let cluster = lab::openshift(1, 1);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let operator = Operator::with(&cluster, settings(None));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::pass(Duration::from_hours(1)).await;
    let mut requests = requests(&operator);
    requests.sort();
    assert_eq!(requests, ["list daemonsets", "list securitycontextconstraints"]);
}

/// Nothing is denied to the service account that the manifests bring, from installation to removal.
#[tokio::test(start_paused = true)]
async fn the_manifests_grant_what_it_takes_and_no_more() {
    let cluster = lab::openshift(1, 1);
    let arguments = Options {
        monitor_image: Some("example.org/monitor".to_owned()),
        ..lab::installed(Platform::Openshift)
    };
    let token = lab::guard(&cluster, &arguments);
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let image = settings(Some("example.org/monitor"));
    let operator = Operator::with_token(&cluster, image, Some(&token));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    let there = || daemon_set(&cluster).is_some() && constraints(&cluster).is_some();
    assert!(lab::until(Duration::from_secs(5), there).await);
    cluster.with(|sim, now| {
        let writer = simcluster::api::server::Writer { manager: "kubectl", now };
        let options = simcluster::api::server::DeleteOptions::default();
        sim.api.delete(writer, &DAEMONSETS, NAMESPACE, NAME, &options).unwrap();
    });
    assert!(lab::until(Duration::from_secs(2), there).await);
    let uid =
        lab::get(&cluster, &lab::kata_configs(), "example").unwrap()["metadata"]["uid"].clone();
    assert_eq!(daemon_set(&cluster).unwrap()["metadata"]["ownerReferences"][0]["uid"], uid);
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    let gone = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    assert!(lab::until(LIMIT, gone).await);
    assert!(daemon_set(&cluster).is_none() && constraints(&cluster).is_none());

    assert_eq!(lab::denied(&cluster), [""; 0]);
    let used: BTreeSet<String> = requests(&operator).into_iter().collect();
    let granted: BTreeSet<String> = kata_manifests::manifests::granted_for_monitor()
        .into_iter()
        // What a patch that creates its object needs besides `patch`.
        .filter(|(_, _, verb, _)| verb != "create")
        .map(|(_, resource, verb, _)| format!("{verb} {resource}"))
        .collect();
    assert_eq!(used, granted);
    assert!(operator.runs());
}

/// What an earlier operator left goes, although this one never had its image.
#[tokio::test(start_paused = true)]
async fn an_operator_without_an_image_removes_what_an_earlier_one_left() {
    let cluster = left_behind().await;
    let operator = Operator::with(&cluster, settings(None));
    let gone = || daemon_set(&cluster).is_none() && constraints(&cluster).is_none();
    assert!(lab::until(Duration::from_secs(10), gone).await);
    assert!(lab::until(Duration::from_secs(10), || lab::is_ready(&cluster, "example")).await);
    drop(operator);
}

/// The default manifests allow an operator without an image to remove what an earlier one left, and to watch
/// nothing of it.
#[tokio::test(start_paused = true)]
async fn under_the_default_manifests_what_an_earlier_operator_left_is_removed() {
    let cluster = left_behind().await;
    let token = lab::guard(&cluster, &lab::installed(Platform::Openshift));
    let operator = Operator::with_token(&cluster, settings(None), Some(&token));
    let gone = || daemon_set(&cluster).is_none() && constraints(&cluster).is_none();
    assert!(lab::until(Duration::from_secs(10), gone).await);
    lab::pass(Duration::from_hours(1)).await;
    let mut requests = requests(&operator);
    requests.sort();
    requests.dedup();
    let used = ["delete", "list"].map(|verb| {
        ["daemonsets", "securitycontextconstraints"].map(|kind| format!("{verb} {kind}"))
    });
    assert_eq!(requests, used.concat());
    assert_eq!(lab::denied(&cluster), [""; 0]);
}

/// Manifests of an earlier version do not allow the removal.
#[tokio::test(start_paused = true)]
async fn what_may_not_be_removed_is_reported_and_never_watched() {
    use simcluster::api::fault::{Fault, Match, Rule, When};
    let cluster = left_behind().await;
    cluster.with(|sim, _| {
        for resource in ["daemonsets", "securitycontextconstraints"].map(str::to_owned) {
            let matches = Match { resource, verb: "delete".to_owned(), ..Match::default() };
            let fault =
                Fault::Status { code: 403, retry_after: None, message: None, when: When::Before };
            sim.frontend.faults.add(Rule::once(matches, fault).times(0));
        }
    });
    let operator = Operator::with(&cluster, settings(None));
    let command = format!("kubectl delete daemonsets {NAME} -n {NAMESPACE}");
    let reported = || {
        let config = lab::get(&cluster, &lab::kata_configs(), "example").unwrap();
        let text = config["status"].to_string();
        text.contains("KATA1017") && text.contains(&command)
    };
    assert!(lab::until(Duration::from_mins(1), reported).await, "not reported");
    lab::pass(Duration::from_hours(1)).await;
    assert!(reported());
    let requests = requests(&operator);
    assert!(requests.iter().all(|request| !request.starts_with("watch")), "{requests:?}");
    let lists = requests.iter().filter(|request| *request == "list daemonsets").count();
    assert!(lists <= 14, "{lists}");
    // It is over when the permission is there.
    cluster.with(|sim, _| sim.frontend.faults.clear());
    let gone = || daemon_set(&cluster).is_none() && constraints(&cluster).is_none();
    assert!(lab::until(Duration::from_mins(6), || gone() && !reported()).await);
}

/// A cluster on which an operator with kata-monitor ran.
async fn left_behind() -> Cluster {
    let cluster = cluster();
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let operator = Operator::with(&cluster, settings(Some("example.org/monitor")));
    let there = || daemon_set(&cluster).is_some() && constraints(&cluster).is_some();
    assert!(lab::until(LIMIT, there).await);
    drop(operator);
    cluster
}

/// A watch that the role does not grant is tried ever more rarely, and reported once.
#[tokio::test(start_paused = true)]
async fn a_refused_watch_is_tried_once_a_minute() {
    use simcluster::api::fault::{Fault, Match, Rule, When};
    let cluster = cluster();
    cluster.with(|sim, _| {
        let resource = "daemonsets".to_owned();
        let matches = Match { resource, verb: "watch".to_owned(), ..Match::default() };
        let fault =
            Fault::Status { code: 403, retry_after: None, message: None, when: When::Before };
        sim.frontend.faults.add(Rule::once(matches, fault).times(0));
    });
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let operator = Operator::with(&cluster, settings(Some("example.org/monitor")));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    let watches = || requests(&operator).iter().filter(|line| *line == "watch daemonsets").count();
    let before = watches();
    lab::pass(Duration::from_mins(10)).await;
    let tried = watches() - before;
    assert!((9..=21).contains(&tried), "{tried} watches in 10 minutes");
    let config = lab::get(&cluster, &lab::kata_configs(), "example").unwrap();
    assert!(config["status"].to_string().contains("KATA1016"), "{config:#}");
}

/// A cluster that has no SecurityContextConstraints is reported, and monitored all the same.
#[tokio::test(start_paused = true)]
async fn where_constraints_are_not_served_it_runs_without() {
    let cluster = cluster();
    cluster.with(|sim, now| {
        let writer = simcluster::api::server::Writer { manager: "kubectl", now };
        let name = "securitycontextconstraints.security.openshift.io";
        let options = simcluster::api::server::DeleteOptions::default();
        sim.api.delete(writer, &simcluster::resource::CRDS, "", name, &options).unwrap();
    });
    lab::pass(Duration::from_mins(1)).await;
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let operator = Operator::with(&cluster, settings(Some("example.org/monitor")));
    assert!(lab::until(LIMIT, || daemon_set(&cluster).is_some()).await);
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    lab::delete(&cluster, &lab::kata_configs(), "", "example");
    let gone = || lab::get(&cluster, &lab::kata_configs(), "example").is_none();
    assert!(lab::until(LIMIT, gone).await);
    let asked = requests(&operator).into_iter().filter(|line| line.contains("security")).count();
    assert_eq!(asked, 1);
    assert!(daemon_set(&cluster).is_none());
}

/// It cannot be read: that is said, and nothing else stops.
#[tokio::test(start_paused = true)]
async fn without_permission_to_read_it_the_rest_goes_on() {
    use simcluster::api::fault::{Fault, Match, Rule, When};
    let cluster = cluster();
    cluster.with(|sim, _| {
        let matches = Match { resource: "daemonsets".to_owned(), ..Match::default() };
        let fault =
            Fault::Status { code: 403, retry_after: None, message: None, when: When::Before };
        sim.frontend.faults.add(Rule::once(matches, fault).times(0));
    });
    lab::create(&cluster, &lab::kata_configs(), "", lab::kata_config("example"));
    let operator = Operator::with(&cluster, settings(Some("example.org/monitor")));
    assert!(lab::until(LIMIT, || lab::is_ready(&cluster, "example")).await);
    let config = || lab::get(&cluster, &lab::kata_configs(), "example").unwrap();
    let reported = || {
        let conditions = config()["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| {
            condition["type"] == json!("Ready")
                && condition["message"].as_str().is_some_and(|text| text.contains("KATA1016"))
        })
    };
    assert!(lab::until(Duration::from_mins(1), reported).await, "{}", config());
    // When it can be read, it runs within the longest wait.
    cluster.with(|sim, _| sim.frontend.faults.clear());
    assert!(lab::until(Duration::from_mins(2), || daemon_set(&cluster).is_some()).await);
    assert!(operator.runs());
}
