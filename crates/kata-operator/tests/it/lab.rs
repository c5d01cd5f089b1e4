//! Clusters to test on, and what tests ask them. Times are virtual: nothing here waits for real.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use kata_api::platform::Platform;
use kata_manifests::manifests::Options;
use kata_manifests::manifests::{self, NAME};
use kata_operator::Settings;
use kata_operator::client::{Client, WritePermit};
use kata_operator::jitter::Jitter;
use kata_operator::lease::Timing;
use kata_operator::metrics::Metrics;
use kata_operator::settings::Election;
use serde_json::{Value, json};
use simcluster::api::authentication::{self, Signer};
use simcluster::api::rbac::bootstrap;
use simcluster::api::server::{DeleteOptions, Writer};
use simcluster::clock::Clock;
use simcluster::resource::{
    CRDS, MACHINECONFIGPOOLS, MACHINECONFIGS, NAMESPACES, NODES, PRIORITYCLASSES, RUNTIMECLASSES,
};
use simcluster::topology::{self, Layout, NodeOptions, Role};
use simcluster::{Cluster, Resource, Simulation};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tower::ServiceExt as _;

/// When simulated clusters begin.
pub(crate) fn epoch() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// An API server without controllers and objects.
pub(crate) fn bare() -> Cluster {
    Cluster::start(Simulation::new(epoch(), Vec::new()), Clock::starting_at(epoch()))
}

/// A client of the operator's own sort.
pub(crate) fn calls(cluster: &Cluster, permit: WritePermit) -> Client {
    let (_sender, fence) = watch::channel(permit);
    let kube = kube::Client::new(cluster.client_service(), "default");
    let clock = kata_operator::clock::Clock::simulated(epoch());
    Client::new(kube, Arc::new(Jitter::new(1)), Metrics::new(), clock, fence)
}

/// Lets virtual time pass until `done` holds; false after `limit`.
pub(crate) async fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if done() {
            return true;
        }
        let now = Instant::now();
        if now >= end {
            return false;
        }
        tokio::time::sleep_until(now + Duration::from_secs(1)).await;
    }
}

/// The same, looking every 50 ms; says how long it took.
pub(crate) async fn within(limit: Duration, mut done: impl FnMut() -> bool) -> Option<Duration> {
    let begun = Instant::now();
    while !done() {
        if begun.elapsed() > limit {
            return None;
        }
        tokio::time::sleep_until(Instant::now() + Duration::from_millis(50)).await;
    }
    Some(begun.elapsed())
}

/// How many requests of these verbs there were.
pub(crate) fn requests(cluster: &Cluster, verbs: &[&str]) -> u64 {
    cluster.with(|sim, _| {
        let counts = sim.frontend.requests();
        counts.filter(|(_, verb, _)| verbs.contains(verb)).map(|(.., count)| count).sum()
    })
}

/// The KataConfig of the examples: workers with the label `kata=true`.
pub(crate) fn kata_config(name: &str) -> Value {
    json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": name},
        "spec": {"kataConfigPoolSelector": {"matchLabels": {"kata": "true"}}},
    })
}

/// The kinds that belong to us or that we write.
pub(crate) fn kata_configs() -> Resource {
    Resource::dynamic("kataconfiguration.openshift.io".to_owned(), "kataconfigs".to_owned())
}

pub(crate) fn kata_nodes() -> Resource {
    Resource::dynamic("kata-operator.dev".to_owned(), "katanodes".to_owned())
}

/// Creates an object as a user would.
pub(crate) fn create(cluster: &Cluster, resource: &Resource, namespace: &str, object: Value) {
    cluster.with(|sim, now| {
        let writer = Writer { manager: "kubectl", now };
        sim.api.create(writer, resource, namespace, object).unwrap();
    });
}

/// Changes an object as a user would.
pub(crate) fn merge(cluster: &Cluster, resource: &Resource, name: &str, patch: &Value) {
    cluster.with(|sim, now| {
        let writer = Writer { manager: "kubectl", now };
        sim.api.merge(writer, resource, "", name, patch).unwrap();
    });
}

/// Deletes an object as a user would.
pub(crate) fn delete(cluster: &Cluster, resource: &Resource, namespace: &str, name: &str) {
    cluster.with(|sim, now| {
        let writer = Writer { manager: "kubectl", now };
        sim.api.delete(writer, resource, namespace, name, &DeleteOptions::default()).unwrap();
    });
}

/// An object of cluster scope.
pub(crate) fn get(cluster: &Cluster, resource: &Resource, name: &str) -> Option<Value> {
    cluster.with(|sim, _| sim.api.get(resource, "", name)).map(|object| (*object).clone())
}

/// A condition of a KataConfig: its status and reason.
pub(crate) fn condition(cluster: &Cluster, name: &str, type_: &str) -> (String, String) {
    let config = get(cluster, &kata_configs(), name).unwrap_or_default();
    let conditions = config["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == type_);
    let text = |key: &str| {
        found.and_then(|condition| condition[key].as_str()).unwrap_or_default().to_owned()
    };
    (text("status"), text("reason"))
}

/// Whether the KataConfig is Ready, and for the generation that it has.
pub(crate) fn is_ready(cluster: &Cluster, name: &str) -> bool {
    let config = get(cluster, &kata_configs(), name).unwrap_or_default();
    condition(cluster, name, "Ready").0 == "True"
        && config["status"]["observedGeneration"] == config["metadata"]["generation"]
}

/// Everything that the operator owns or writes, without what differs from run to run: times, uids and
/// versions.
pub(crate) fn end_state(cluster: &Cluster) -> BTreeMap<String, Value> {
    cluster.with(|sim, _| {
        let mut state = BTreeMap::new();
        let kinds = [
            (kata_configs(), "KataConfig"),
            (kata_nodes(), "KataNode"),
            (MACHINECONFIGPOOLS, "MachineConfigPool"),
            (RUNTIMECLASSES, "RuntimeClass"),
        ];
        for (resource, kind) in kinds {
            for object in sim.api.list(&resource) {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let mut object = timeless(&object);
                if kind == "MachineConfigPool" {
                    // The Machine Config Operator's report, in an order that means nothing.
                    object["status"] = Value::Null;
                }
                state.insert(format!("{kind} {name}"), object);
            }
        }
        for object in sim.api.list(&MACHINECONFIGS) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if name.starts_with("50-") {
                state.insert(format!("MachineConfig {name}"), timeless(&object));
            }
        }
        for node in sim.api.list(&NODES) {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            let facts = json!({
                "labels": node["metadata"]["labels"],
                "unschedulable": node["spec"]["unschedulable"],
                // An empty list says no more than none.
                "taints": node["spec"]["taints"].as_array().filter(|taints| !taints.is_empty()),
            });
            state.insert(format!("Node {name}"), facts);
        }
        state
    })
}

/// Asserts that two end states are the same, and shows only what differs.
pub(crate) fn assert_same(
    found: &BTreeMap<String, Value>,
    wanted: &BTreeMap<String, Value>,
    about: &str,
) {
    let names: BTreeSet<&String> = found.keys().chain(wanted.keys()).collect();
    let differing: Vec<String> = names
        .into_iter()
        .filter(|name| found.get(*name) != wanted.get(*name))
        .map(|name| {
            let text = |state: &BTreeMap<String, Value>| {
                state.get(name).map_or_else(|| "absent".to_owned(), Value::to_string)
            };
            format!("{name}\n  found  {}\n  wanted {}\n", text(found), text(wanted))
        })
        .collect();
    assert!(differing.is_empty(), "{about}\n{}", differing.concat());
}

/// The object without times, uids, versions and field managers.
fn timeless(object: &Value) -> Value {
    const VARYING: [&str; 12] = [
        "managedFields",
        "uid",
        "resourceVersion",
        "generation",
        "observedGeneration",
        "creationTimestamp",
        "lastTransitionTime",
        "lastUpdateTime",
        "since",
        "history",
        "bootId",
        "bootID",
    ];
    match object {
        Value::Object(map) => Value::Object(
            map.iter()
                .filter(|(key, _)| !VARYING.contains(&key.as_str()))
                .map(|(key, value)| (key.clone(), timeless(value)))
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.iter().map(timeless).collect()),
        other => other.clone(),
    }
}

/// An operator that is started again whenever a fault rule crashes it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Operator {
    supervisor: JoinHandle<()>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Operator {
    /// Starts an operator.
    pub(crate) fn start(cluster: &Cluster) -> Self {
        Self::with(cluster, Settings::simulated(epoch()))
    }

    /// Starts an operator that writes only while it holds the Lease, as with the manifests.
    pub(crate) fn elected(cluster: &Cluster) -> Self {
        create_home(cluster);
        Self::with(cluster, elected("one"))
    }

    /// Starts an operator with these settings, who may do everything.
    pub(crate) fn with(cluster: &Cluster, settings: Settings) -> Self {
        Self::with_token(cluster, settings, None)
    }

    /// Starts an operator that shows a token.
    pub(crate) fn with_token(cluster: &Cluster, settings: Settings, token: Option<&str>) -> Self {
        let bearer = token.map(|token| format!("Bearer {token}").parse().unwrap());
        let cluster = cluster.clone();
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut crashes = cluster.crashes();
        crashes.mark_unchanged();
        let requests = Arc::clone(&log);
        let supervisor = tokio::spawn(async move {
            loop {
                let requests = Arc::clone(&requests);
                let bearer: Option<http::HeaderValue> = bearer.clone();
                let service = cluster.client_service().map_request(
                    move |mut request: http::Request<kube::client::Body>| {
                        let line = format!("{} {}", request.method(), request.uri());
                        requests.lock().unwrap().push(line);
                        if let Some(bearer) = &bearer {
                            request.headers_mut().insert("authorization", bearer.clone());
                        }
                        request
                    },
                );
                let kube = kube::Client::new(service, "default");
                let run = kata_operator::run(kube, settings.clone(), std::future::pending());
                let mut operator = JoinSet::new();
                operator.spawn(run);
                tokio::select! {
                    crash = crashes.changed() => if crash.is_err() { return },
                    _ = operator.join_next() => return,
                }
            }
        });
        Self { supervisor, log }
    }

    /// Whether it still runs, which it does unless it panicked.
    pub(crate) fn runs(&self) -> bool {
        !self.supervisor.is_finished()
    }

    /// How many requests there were that write something but the Lease.
    pub(crate) fn writes(&self) -> usize {
        self.count(|line| !line.starts_with("GET ") && !line.contains("/leases"))
    }

    /// How many lists there were.
    pub(crate) fn lists(&self) -> usize {
        self.count(|line| line.starts_with("GET ") && line.contains("limit="))
    }

    /// All requests so far, as method and path.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    fn count(&self, counts: impl Fn(&str) -> bool) -> usize {
        self.log.lock().unwrap().iter().filter(|line| counts(line)).count()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

/// Enforces RBAC, brings what `kata-operator manifests` prints, and gives a token of the operator.
pub(crate) fn guard(cluster: &Cluster, arguments: &Options) -> String {
    let objects = manifests::objects(arguments).unwrap();
    cluster.with(|sim, now| {
        bootstrap::enforce(sim, Signer::new([1, 2])).unwrap();
        for object in objects {
            store(sim, now, object);
        }
        let account = (arguments.namespace.as_str(), NAME);
        let request = json!({"spec": {"expirationSeconds": 1_000_000}});
        let signer = sim.frontend.signer.as_ref();
        let answer = authentication::token(&sim.api, signer, account, &request, now).unwrap();
        answer["status"]["token"].as_str().unwrap().to_owned()
    })
}

/// Creates the object, or changes the one that is there, as `kubectl apply` does.
fn store(sim: &mut Simulation, now: Timestamp, object: Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, version) = (text(&object["kind"]), text(&object["apiVersion"]));
    // Its pods would only be simulated ones.
    if kind == "Deployment" {
        return;
    }
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let def = sim.api.registry.by_kind(group, &kind).unwrap();
    let resource = def.resource.clone();
    let namespace = text(&object["metadata"]["namespace"]);
    let name = text(&object["metadata"]["name"]);
    let writer = Writer { manager: "kubectl", now };
    if sim.api.get(&resource, &namespace, &name).is_none() {
        sim.api.create(writer, &resource, &namespace, object).unwrap();
    } else {
        sim.api.merge(writer, &resource, &namespace, &name, &object).unwrap();
    }
}

/// What was refused for want of a permission.
pub(crate) fn denied(cluster: &Cluster) -> Vec<String> {
    cluster.with(|sim, _| sim.frontend.denied().map(|(message, _)| message.to_owned()).collect())
}

/// A cluster with so many workers of which the first few have the label `kata=true`, and our CRDs.
pub(crate) fn openshift(workers: u32, labelled: u32) -> Cluster {
    let layout = Layout { workers, control_plane: 1, ..Layout::default() };
    let mut simulation = topology::build(&layout, epoch()).unwrap();
    prepare(&mut simulation, labelled);
    Cluster::start(simulation, Clock::starting_at(epoch()))
}

/// A cluster of workers that are changed within seconds, as on the test bed on which the OpenShift
/// operator was measured: about 16 s a node. The API server's request counters begin at zero.
pub(crate) fn fast(workers: u32) -> Cluster {
    let recorded = simcluster::mco::Timing::recorded();
    // Its daemons were notified when a drain was done, and did not look every ten seconds.
    with_timing(
        workers,
        simcluster::mco::Timing { daemon_poll: Duration::from_secs(1), ..recorded },
    )
}

/// A cluster of workers that are changed at this pace. The API server's request counters begin at zero.
pub(crate) fn with_timing(workers: u32, timing: simcluster::mco::Timing) -> Cluster {
    let layout = Layout { workers, control_plane: 1, timing, ..Layout::default() };
    let mut simulation = topology::build(&layout, epoch()).unwrap();
    prepare(&mut simulation, 0);
    Cluster::start(simulation, Clock::starting_at(epoch()))
}

/// A cluster without the Machine Config Operator, with our CRDs.
pub(crate) fn kubernetes() -> Cluster {
    kubernetes_of(1)
}

/// The same with so many workers.
pub(crate) fn kubernetes_of(workers: u32) -> Cluster {
    let mut simulation = kubernetes_nodes(workers);
    prepare(&mut simulation, workers);
    Cluster::start(simulation, Clock::starting_at(epoch()))
}

fn kubernetes_nodes(workers: u32) -> Simulation {
    let platform = simcluster::world::Platform::Kubernetes;
    let layout = Layout { platform, workers, control_plane: 1, ..Layout::default() };
    topology::build(&layout, epoch()).unwrap()
}

/// The same with workers whose operating system provides Kata.
pub(crate) fn provided(workers: u32) -> Cluster {
    let mut simulation = kubernetes_nodes(0);
    for index in 0..workers {
        let handlers = Some(vec!["kata".to_owned()]);
        let options = NodeOptions { handlers, ..NodeOptions::default() };
        topology::add_node(&mut simulation, &worker(index), Role::Worker, options).unwrap();
    }
    simulation.advance(Duration::from_mins(1));
    prepare(&mut simulation, 0);
    Cluster::start(simulation, Clock::starting_at(epoch()))
}

/// Settings of an operator with this name in the leader election.
pub(crate) fn elected(identity: &str) -> Settings {
    let election = Election { identity: identity.to_owned(), timing: Timing::default() };
    Settings { election: Some(election), ..Settings::simulated(epoch()) }
}

/// What is installed on a kind of cluster, in the namespace of [`Settings::simulated`].
pub(crate) fn installed(platform: Platform) -> Options {
    Options { namespace: kata_api::names::NAMESPACE.to_owned(), ..Options::of(platform) }
}

/// Creates the operator's namespace, for its Jobs and its Lease.
pub(crate) fn create_home(cluster: &Cluster) {
    let home = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": kata_api::names::NAMESPACE},
    });
    create(cluster, &NAMESPACES, "", home);
}

/// OpenShift whose Machine Config Operator is not there yet.
pub(crate) fn openshift_without_mco() -> Cluster {
    let cluster = kubernetes();
    define(&cluster, "config.openshift.io", "ClusterVersion");
    cluster
}

/// Has the cluster serve another kind.
pub(crate) fn define(cluster: &Cluster, group: &str, kind: &str) {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": singular, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    create(cluster, &CRDS, "", crd);
}

/// Adds our CRDs and the labels that the example's KataConfig selects.
pub(crate) fn prepare(simulation: &mut Simulation, labelled: u32) {
    let writer = Writer { manager: "kubectl", now: simulation.now() };
    for crd in kata_api::crds() {
        let crd = serde_json::to_value(crd).unwrap();
        simulation.api.create(writer, &CRDS, "", crd).unwrap();
    }
    let class = kata_manifests::manifests::check_priority_class();
    simulation.api.create(writer, &PRIORITYCLASSES, "", class).unwrap();
    for index in 0..labelled {
        let label = json!({"metadata": {"labels": {"kata": "true"}}});
        simulation.api.merge(writer, &NODES, "", &worker(index), &label).unwrap();
    }
}

/// The name of a worker.
pub(crate) fn worker(index: u32) -> String {
    format!("worker-{index}")
}

/// Lets virtual time pass.
pub(crate) async fn pass(span: Duration) {
    tokio::time::sleep_until(Instant::now() + span).await;
}
