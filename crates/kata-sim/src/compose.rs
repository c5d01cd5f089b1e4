//! Puts a simulated cluster and the operator into one process.
//!
//! The operator gets a `kube::Client` and nothing else of the simulator.

use std::hash::{BuildHasher as _, RandomState};

use jiff::Timestamp;
use serde_json::json;
use simcluster::api::authentication::{Signer, Strangers};
use simcluster::api::rbac::bootstrap;
use simcluster::clock::Clock;
use simcluster::cluster::Cluster;
use simcluster::state::{State, StateError};
use simcluster::topology::{self, Layout};
use tokio::task::JoinHandle;

use crate::Failure;

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

/// Starts a settled cluster that has nothing of ours.
pub(crate) fn bare_cluster(shape: &Shape, clock: Clock) -> Result<Cluster, Failure> {
    let mut simulation = topology::build(&shape.layout, clock.now())?;
    simulation.set_speed(shape.speed);
    Ok(Cluster::start(simulation, clock))
}

/// Allows whoever shows a token only what RBAC grants; with a key of before, the tokens of before are
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

/// Starts a settled cluster in which the operator's CRDs and namespace exist.
pub(crate) fn cluster(shape: &Shape, clock: Clock) -> Result<Cluster, Failure> {
    let mut simulation = topology::build(&shape.layout, clock.now())?;
    simulation.set_speed(shape.speed);
    let writer = simcluster::api::server::Writer { manager: "kata-sim", now: clock.now() };
    // The CRDs and the namespace are what `kata-operator manifests` would have brought.
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": kata_api::names::NAMESPACE}});
    simulation.api.create(writer, &simcluster::resource::NAMESPACES, "", namespace)?;
    for crd in kata_api::crds() {
        let crd = serde_json::to_value(crd)?;
        simulation.api.create(writer, &simcluster::resource::CRDS, "", crd)?;
    }
    Ok(Cluster::start(simulation, clock))
}

/// Starts a cluster that goes on from a state, with the CRDs of this version.
pub(crate) fn resumed(state: State, speed: f64) -> Result<Cluster, StateError> {
    // The clock of a machine can be set back; that of a cluster never goes back.
    let clock = Clock::starting_at(Timestamp::now().max(state.now));
    let mut simulation = state.restore(clock.now())?;
    simulation.set_speed(speed);
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

/// Starts the operator beside the cluster; aborting the task is a crash of the operator.
pub(crate) fn operator(cluster: &Cluster) -> JoinHandle<()> {
    operator_with(cluster, None)
}

/// Starts an operator that runs kata-monitor from this image, or none.
pub(crate) fn operator_with(cluster: &Cluster, monitor_image: Option<String>) -> JoinHandle<()> {
    let mut settings = kata_operator::Settings::simulated(cluster.now());
    settings.options.monitor_image = monitor_image;
    let client = client(cluster);
    tokio::spawn(async move {
        let run = kata_operator::run(client, settings, std::future::pending());
        if let Err(error) = run.await {
            tracing::error!(error = %error, "the operator ended");
        }
    })
}
