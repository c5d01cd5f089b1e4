//! Puts a simulated cluster and the operator into one process.
//!
//! The operator gets a `kube::Client` and nothing else of the simulator.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use http::HeaderValue;
use http::header::AUTHORIZATION;
use jiff::{SignedDuration, Timestamp};
use kata_api::platform::Platform;
use kata_manifests::manifests::Options;
use kata_operator::lease::Timing;
use kata_operator::settings::Election;
use kube::client::Body;
use serde_json::json;
use simcluster::Simulation;
use simcluster::api::authentication::{self, Signer, Strangers};
use simcluster::api::rbac::bootstrap;
use simcluster::clock::Clock;
use simcluster::cluster::Cluster;
use simcluster::state::{State, StateError};
use simcluster::topology::{self, Layout};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use crate::{Failure, programs};

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) layout: Layout,
    pub(crate) speed: f64,
}

impl Default for Shape {
    /// Three control-plane nodes and three workers of OpenShift, in real time.
    fn default() -> Self {
        Self { layout: Layout::default(), speed: 1.0 }
    }
}

/// The clock of a walkthrough: the same date every time, so that runs are equal.
pub(crate) fn virtual_clock() -> Clock {
    Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap_or_default())
}

/// The clock of a cluster that people look at: ages are true.
pub(crate) fn wall_clock() -> Clock {
    Clock::starting_at(Timestamp::now())
}

/// Starts a settled cluster in which the operator's CRDs and namespace exist.
pub(crate) fn cluster(shape: &Shape, clock: Clock) -> Result<Cluster, Failure> {
    let mut simulation = empty(shape, &clock)?;
    let writer = simcluster::api::server::Writer { manager: "kata-sim", now: clock.now() };
    // The CRDs, the namespace and the PriorityClass are what `kata-operator manifests` would have brought.
    let name = platform(&simulation).namespace();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    simulation.api.create(writer, &simcluster::resource::NAMESPACES, "", namespace)?;
    let class = kata_manifests::manifests::check_priority_class();
    simulation.api.create(writer, &simcluster::resource::PRIORITYCLASSES, "", class)?;
    for crd in kata_api::crds() {
        let crd = serde_json::to_value(crd)?;
        simulation.api.create(writer, &simcluster::resource::CRDS, "", crd)?;
    }
    Ok(Cluster::start(simulation, clock))
}

/// Starts a settled cluster that has nothing of ours.
pub(crate) fn bare_cluster(shape: &Shape, clock: Clock) -> Result<Cluster, Failure> {
    Ok(Cluster::start(empty(shape, &clock)?, clock))
}

fn empty(shape: &Shape, clock: &Clock) -> Result<Simulation, Failure> {
    let mut simulation = topology::build(&shape.layout, clock.now())?;
    simulation.set_speed(shape.speed);
    programs::bring(&mut simulation);
    Ok(simulation)
}

/// The kind of cluster, as the operator's manifests name it.
fn platform(simulation: &Simulation) -> Platform {
    match simulation.world.platform {
        simcluster::world::Platform::OpenShift => Platform::Openshift,
        simcluster::world::Platform::Kubernetes => Platform::Kubernetes,
    }
}

/// Enforces RBAC for every client that presents a token; with a key of before, the tokens of before are
/// valid. Over plain HTTP kubectl shows no token, and is the administrator.
pub(crate) fn guard(cluster: &Cluster, known: Option<Signer>) -> Result<(), Failure> {
    // Each of the standard library's hashers has a random key of its own.
    let random = || RandomState::new().hash_one(Timestamp::now());
    let signer = known.unwrap_or_else(|| Signer::new([random(), random()]));
    cluster.with(|simulation, _| {
        simulation.frontend.strangers = Strangers::Admin;
        bootstrap::enforce(simulation, signer)
    })?;
    Ok(())
}

/// Starts a cluster that goes on from a state, with the CRDs of this version.
pub(crate) fn resumed(state: State, speed: f64) -> Result<Cluster, StateError> {
    // The clock of a machine can be set back; that of a cluster never goes back.
    let clock = Clock::starting_at(Timestamp::now().max(state.now));
    let mut simulation = state.restore(clock.now())?;
    simulation.set_speed(speed);
    programs::bring(&mut simulation);
    let writer = simcluster::api::server::Writer { manager: "kata-sim", now: clock.now() };
    for crd in kata_api::crds() {
        let name = crd.metadata.name.clone().unwrap_or_default();
        let patch = json!({"spec": crd.spec});
        // One that its user has deleted stays deleted.
        let crds = &simcluster::resource::CRDS;
        if let Err(error) = simulation.api.merge(writer, crds, "", &name, &patch) {
            tracing::warn!(%error, name, "the stored definition stays");
        }
    }
    Ok(Cluster::start(simulation, clock))
}

/// A client of the cluster in this process.
pub(crate) fn client(cluster: &Cluster) -> kube::Client {
    kube::Client::new(cluster.client_service(), "default")
}

/// Brings what `kata-operator manifests` prints. The operator itself runs beside the cluster; the pods of its
/// Deployment stand for it. Objects that exist stay as they are. Returns a token of the operator's service account.
pub(crate) fn install(cluster: &Cluster, monitor_image: Option<String>) -> Result<String, Failure> {
    let platform = cluster.with(|simulation, _| platform(simulation));
    let arguments = Options { monitor_image, ..Options::of(platform) };
    let account = (arguments.namespace.as_str(), kata_manifests::manifests::NAME);
    let objects = kata_manifests::manifests::objects(&arguments)?;
    cluster.with(|simulation, now| {
        let writer = simcluster::api::server::Writer { manager: "kata-sim", now };
        for object in &objects {
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let kind = text(&object["kind"]);
            let version = text(&object["apiVersion"]);
            let group = version.split_once('/').map_or("", |(group, _)| group);
            let namespace = text(&object["metadata"]["namespace"]);
            let resource = simulation
                .api
                .registry
                .by_kind(group, &kind)
                .map(|def| def.resource.clone())
                .ok_or_else(|| format!("the simulated cluster serves no {kind} of {version}"))?;
            let name = text(&object["metadata"]["name"]);
            if simulation.api.get(&resource, &namespace, &name).is_none() {
                simulation.api.create(writer, &resource, &namespace, object.clone())?;
            }
        }
        let request = json!({"spec": {"expirationSeconds": TOKEN_SECONDS}});
        let signer = simulation.frontend.signer.as_ref();
        let answer = authentication::token(&simulation.api, signer, account, &request, now)?;
        Ok(answer["status"]["token"].as_str().unwrap_or_default().to_owned())
    })
}

/// How long the token of an operator in this process is valid: longer than the process lives.
const TOKEN_SECONDS: u64 = 10 * 365 * 24 * 3600;

/// Options of the operator in this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct OperatorOptions {
    /// The image of kata-monitor; none runs without.
    pub(crate) monitor_image: Option<String>,
    /// How often nodes are inspected; as the operator does by itself without.
    pub(crate) inspect_every: Option<Duration>,
    /// How many times faster than real the cluster is, if it is.
    pub(crate) speed: Option<f64>,
    /// By how much its clock is ahead of the API server's.
    pub(crate) clock_offset: SignedDuration,
    /// Whether it holds a Lease, as an installed one does.
    pub(crate) leads: bool,
}

/// Starts the operator beside the cluster; aborting the task is a crash of the operator.
pub(crate) fn operator(cluster: &Cluster) -> JoinHandle<()> {
    operator_with(cluster, OperatorOptions::default())
}

/// Starts an operator with these options.
pub(crate) fn operator_with(cluster: &Cluster, options: OperatorOptions) -> JoinHandle<()> {
    spawn(cluster, client(cluster), options)
}

/// The same beside a cluster that wants tokens.
pub(crate) fn operator_with_token(
    cluster: &Cluster,
    options: OperatorOptions,
    token: &str,
) -> Result<JoinHandle<()>, Failure> {
    let bearer = HeaderValue::try_from(format!("Bearer {token}"))?;
    let service = cluster.client_service().map_request(move |mut request: http::Request<Body>| {
        request.headers_mut().insert(AUTHORIZATION, bearer.clone());
        request
    });
    Ok(spawn(cluster, kube::Client::new(service, "default"), options))
}

/// A busy machine would exceed a shorter limit.
const LEAST_LIMIT: Duration = Duration::from_secs(10);

fn spawn(cluster: &Cluster, client: kube::Client, options: OperatorOptions) -> JoinHandle<()> {
    let now = cluster.now();
    let shown = now.checked_add(options.clock_offset).unwrap_or(now);
    let mut settings = kata_operator::Settings::simulated(shown);
    let platform = cluster.with(|simulation, _| platform(simulation));
    platform.namespace().clone_into(&mut settings.namespace);
    settings.options.monitor_image = options.monitor_image;
    if let Some(speed) = options.speed.filter(|speed| *speed > 1.0) {
        // Changes of nodes take less real time, so their limits are shorter.
        let limits = &mut settings.options;
        for limit in [&mut limits.drain_blocked_after, &mut limits.step_slow_after] {
            *limit = limit.div_f64(speed).max(LEAST_LIMIT);
        }
        limits.steps_published_after = limits.steps_published_after.div_f64(speed);
    }
    settings.election = options
        .leads
        .then(|| Election { identity: "kata-sim".to_owned(), timing: Timing::default() });
    if let Some(every) = options.inspect_every {
        settings.options.inspect_every = every;
    }
    settings.options.agent_image = Some(kata_manifests::manifests::UNPUBLISHED.to_owned());
    tokio::spawn(async move {
        let run = kata_operator::run(client, settings, std::future::pending());
        if let Err(error) = run.await {
            tracing::error!(error = %error, "the operator ended");
        }
    })
}
