//! Simulated clusters on which Kata is installed: made on virtual time, then served over HTTP in real time.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use kata_api::platform::Platform;
use kata_manifests::manifests::Options;
use serde_json::{Value, json};
use simcluster::api::server::Writer;
use simcluster::clock::Clock;
use simcluster::cluster::write_kubeconfig;
use simcluster::resource::KATACONFIGS;
use simcluster::state::State;
use simcluster::topology::load::run_pod;
use simcluster::topology::{self, Layout};
use simcluster::{Cluster, Simulation};
use tokio::runtime::{Builder, Runtime};

use crate::Failure;
use crate::wire::Tap;

/// The KataConfig's name.
const CONFIG: &str = "cluster-kataconfig";
/// How many images each node reports, as a kubelet does by default.
const IMAGES: u32 = 50;
/// Every so many pods one is sandboxed.
const SANDBOXED: u32 = 5;
/// How long the installation may take, in the cluster's time.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// A cluster that is served.
pub(crate) struct Served {
    cluster: Cluster,
    address: SocketAddr,
    folder: PathBuf,
    // Dropped last, after the cluster that runs on it.
    _runtime: Runtime,
}

impl Served {
    /// A cluster of so many workers with Kata, and so many pods on each of about so many bytes.
    pub(crate) fn start(workers: u32, pods: u32, bytes: usize) -> Result<Self, Failure> {
        let layout = Layout { workers, images: IMAGES, ..Layout::default() };
        let state = installed(&layout)?;
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (cluster, address) = runtime.block_on(async {
            let clock = Clock::starting_at(Timestamp::now().max(state.now));
            let mut simulation = state.restore(clock.now())?;
            fill(&mut simulation, workers, pods, bytes)?;
            let cluster = Cluster::start(simulation, clock);
            let address = cluster.serve(0).await?;
            Ok::<_, Failure>((cluster, address))
        })?;
        let name = format!("kubectl-kata-speed-{}-{}", std::process::id(), address.port());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder)?;
        let served = Self { cluster, address, folder, _runtime: runtime };
        write_kubeconfig(&served.kubeconfig(), address)?;
        Ok(served)
    }

    /// Where the API server is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The kubeconfig of the cluster.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// The kubeconfig of the cluster behind a tap.
    pub(crate) fn tapped(&self) -> PathBuf {
        self.folder.join("tapped")
    }

    /// Writes the kubeconfig of a tap.
    pub(crate) fn watched(&self, tap: &Tap) -> Result<(), Failure> {
        Ok(write_kubeconfig(&self.tapped(), tap.address())?)
    }

    /// Forgets the requests so far.
    pub(crate) fn restart_counts(&self) {
        self.cluster.with(|sim, _| sim.frontend.reset_requests());
    }

    /// How many requests there were.
    pub(crate) fn requests(&self) -> u64 {
        self.cluster.with(|sim, _| sim.frontend.requests().map(|(.., count)| count).sum())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.cluster.shut_down();
        // A folder that stays does no harm.
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// The state of a cluster on whose workers Kata was installed, a tenth of them at once.
fn installed(layout: &Layout) -> Result<State, Failure> {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(async {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse()?);
        let mut simulation = topology::build(layout, clock.now())?;
        install(&mut simulation)?;
        let cluster = Cluster::start(simulation, clock);
        let client = kube::Client::new(cluster.client_service(), "default");
        let settings = kata_operator::Settings::simulated(cluster.now());
        let operator = tokio::spawn(kata_operator::run(client, settings, std::future::pending()));
        let end = tokio::time::Instant::now() + PATIENCE;
        while !ready(&cluster) {
            if tokio::time::Instant::now() > end {
                return Err("the installation does not end".into());
            }
            let soon = tokio::time::Instant::now() + Duration::from_secs(5);
            tokio::time::sleep_until(soon).await;
        }
        operator.abort();
        let state = cluster.with(|sim, _| State::of(sim, layout));
        cluster.shut_down();
        Ok(state)
    })
}

/// Creates what `kata-operator manifests` prints, but for the Deployment, and a KataConfig.
fn install(simulation: &mut Simulation) -> Result<(), Failure> {
    let mut objects = kata_manifests::manifests::objects(&Options::of(Platform::Openshift))?;
    objects.retain(|object| object["kind"] != "Deployment");
    objects.push(json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": CONFIG}, "spec": {"rollout": {"maxUnavailable": "10%"}},
    }));
    let writer = Writer { manager: "bench", now: simulation.now() };
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let def = simulation.api.registry.by_kind(group, &kind);
        let resource = def.map(|def| def.resource.clone()).ok_or("a kind is not served")?;
        let namespace = text(&object["metadata"]["namespace"]);
        simulation.api.create(writer, &resource, &namespace, object)?;
    }
    Ok(())
}

fn ready(cluster: &Cluster) -> bool {
    let config = cluster.with(|sim, _| sim.api.get(&KATACONFIGS, "", CONFIG)).unwrap_or_default();
    let conditions = config["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn fill(sim: &mut Simulation, workers: u32, pods: u32, bytes: usize) -> Result<(), Failure> {
    let now = sim.now();
    for worker in 0..workers {
        for number in 0..pods {
            let class = (number % SANDBOXED == 0).then_some("kata");
            let name = format!("load-{worker}-{number}");
            run_pod(sim, now, (&name, &format!("worker-{worker}")), class, bytes)?;
        }
    }
    Ok(())
}
