//! A simulated cluster over HTTP in this process, and what an admin, pods and kubelets do in it.
//!
//! All of it goes past HTTP, so that the request counters know the operator's requests only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kata_api::names;
use serde_json::{Value, json};
use simcluster::api::ApiError;
use simcluster::api::server::{DeleteOptions, Writer};
use simcluster::clock::Clock;
use simcluster::cluster::write_kubeconfig;
use simcluster::recorder::time;
use simcluster::resource::{
    CRDS, KATACONFIGS, LEASES, MACHINECONFIGPOOLS, NAMESPACES, NODES, PODS, PRIORITYCLASSES,
};
use simcluster::topology::load::run_pod;
use simcluster::topology::{self, Layout};
use simcluster::{Cluster, Simulation};

use crate::Failure;
use crate::journal::Journal;
use crate::process::Operator;

/// The name of the KataConfig.
pub(crate) const CONFIG: &str = "cluster-kataconfig";
/// How long anything may take before the measurement gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(900);
/// Changes that the store keeps, so that a watch that is behind by less is not cut off.
const WINDOW: usize = 20_000;

/// A simulated cluster, served on loopback.
#[derive(Debug)]
pub(crate) struct Lab {
    pub(crate) cluster: Cluster,
    pub(crate) journal: Journal,
    pub(crate) workers: u32,
    folder: PathBuf,
    operators: std::cell::Cell<u32>,
}

/// Requests by verb and kind, such as `patch nodes`.
pub(crate) type Requests = BTreeMap<String, u64>;

impl Lab {
    /// A settled cluster whose controllers' delays are `speed` times shorter than real ones.
    pub(crate) async fn start(layout: &Layout, speed: f64) -> Result<Self, Failure> {
        let clock = Clock::starting_at(Timestamp::now());
        let mut simulation = build(layout, clock.now(), speed)?;
        let journal = Journal::default();
        simulation.add_controller(journal.writer());
        let cluster = Cluster::start(simulation, clock);
        let address = cluster.serve(0).await?;
        let folder = std::env::temp_dir().join(format!(
            "kata-sim-scale-{}-{}",
            std::process::id(),
            address.port()
        ));
        std::fs::create_dir_all(&folder)?;
        write_kubeconfig(&folder.join("kubeconfig"), address)?;
        let workers = layout.workers;
        Ok(Self { cluster, journal, workers, folder, operators: std::cell::Cell::new(0) })
    }

    /// Starts an operator, and waits until it is at rest.
    pub(crate) async fn operator(&self, binary: &Path) -> Result<Operator, Failure> {
        let operator = self.spawn(binary)?;
        let watches = || self.requests().get("watch nodes").copied().unwrap_or(0);
        let before = watches();
        wait("the operator watches nodes", || watches() > before).await?;
        self.rest().await?;
        Ok(operator)
    }

    /// Starts an operator.
    pub(crate) fn spawn(&self, binary: &Path) -> Result<Operator, Failure> {
        let number = self.operators.get();
        self.operators.set(number + 1);
        let log = self.folder.join(format!("operator-{number}.log"));
        Operator::start(binary, &self.folder.join("kubeconfig"), &log)
    }

    /// Waits until there has been no request but those for the lease for a second.
    pub(crate) async fn rest(&self) -> Result<(), Failure> {
        let begin = Instant::now();
        let (mut known, mut since) = (self.without_lease(), Instant::now());
        while since.elapsed() < Duration::from_secs(1) {
            if begin.elapsed() > PATIENCE {
                return Err("the operator does not come to rest".into());
            }
            pause(Duration::from_millis(50)).await;
            let now = self.without_lease();
            if now != known {
                (known, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    fn without_lease(&self) -> u64 {
        let requests = self.requests();
        requests.iter().filter(|(what, _)| !what.contains("leases")).map(|(_, count)| count).sum()
    }

    /// The requests so far.
    pub(crate) fn requests(&self) -> Requests {
        self.cluster.with(|sim, _| {
            sim.frontend
                .requests()
                .map(|(resource, verb, count)| (format!("{verb} {resource}"), count))
                .collect()
        })
    }

    /// Forgets requests and notes.
    pub(crate) fn restart_counts(&self) {
        self.cluster.with(|sim, _| sim.frontend.reset_requests());
        self.journal.restart();
    }

    /// Creates a KataConfig for all workers that changes `limit` of them at once.
    pub(crate) fn create_config(&self, spec: &Value) -> Result<Instant, Failure> {
        let config = json!({
            "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
            "metadata": {"name": CONFIG}, "spec": spec,
        });
        self.act(|sim, admin| sim.api.create(admin, &KATACONFIGS, "", config).map(drop))?;
        Ok(Instant::now())
    }

    /// Deletes the KataConfig.
    pub(crate) fn delete_config(&self) -> Result<Instant, Failure> {
        let options = DeleteOptions::default();
        self.act(|sim, admin| sim.api.delete(admin, &KATACONFIGS, "", CONFIG, &options).map(drop))?;
        Ok(Instant::now())
    }

    /// The KataConfig.
    pub(crate) fn config(&self) -> Option<std::sync::Arc<Value>> {
        self.cluster.with(|sim, _| sim.api.get(&KATACONFIGS, "", CONFIG))
    }

    /// Does something as an admin.
    pub(crate) fn act<T>(
        &self,
        work: impl FnOnce(&mut Simulation, Writer<'static>) -> Result<T, ApiError>,
    ) -> Result<T, Failure> {
        let done = self.cluster.with(|sim, now| work(sim, Writer { manager: "bench", now }));
        done.map_err(|error| format!("the simulated cluster refused: {error}").into())
    }

    /// Lets pods run on every worker, `each` on each, each of about `bytes` bytes of JSON.
    pub(crate) async fn fill(&self, each: u32, bytes: usize) -> Result<(), Failure> {
        for worker in 0..self.workers {
            self.act(|sim, admin| {
                (0..each).try_for_each(|number| {
                    let name = format!("load-{worker}-{number}");
                    run_pod(sim, admin.now, (&name, &format!("worker-{worker}")), None, bytes)
                })
            })?;
            // The operator's requests are answered in between.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Like [`Lab::fill`], after the pods have left with the nodes' reboots; those that stay go first.
    pub(crate) async fn fill_again(&self, each: u32, bytes: usize) -> Result<(), Failure> {
        self.act(|sim, admin| {
            let now = DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() };
            for pod in sim.api.list(&PODS) {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                if name.starts_with("load-") {
                    sim.api.delete(admin, &PODS, "default", name, &now)?;
                }
            }
            Ok(())
        })?;
        self.fill(each, bytes).await
    }

    /// How many pods there are.
    pub(crate) fn pods(&self) -> usize {
        self.cluster.with(|sim, _| sim.api.store.list(&PODS).count())
    }

    /// The mean size of a worker's Node object as JSON, in bytes.
    pub(crate) fn node_bytes(&self) -> usize {
        let node = self.cluster.with(|sim, _| sim.api.get(&NODES, "", "worker-0"));
        node.map_or(0, |node| node.to_string().len())
    }

    /// What kubelets do at rest: all nodes report, `rate` a second, for `span`; how many did.
    pub(crate) async fn heartbeats(&self, rate: u32, span: Duration) -> Result<u64, Failure> {
        let begin = Instant::now();
        let (mut sent, mut next) = (0_u64, 0);
        while begin.elapsed() < span {
            let due = begin.elapsed().as_secs_f64() * f64::from(rate);
            while to_float(sent) < due {
                self.heartbeat(next)?;
                next = (next + 1) % self.workers.max(1);
                sent += 1;
            }
            pause(Duration::from_millis(5)).await;
        }
        Ok(sent)
    }

    /// A node reports that nothing has changed.
    pub(crate) fn heartbeat(&self, worker: u32) -> Result<(), Failure> {
        let name = format!("worker-{worker}");
        self.act(|sim, admin| {
            let Some(node) = sim.api.get(&NODES, "", &name) else { return Ok(()) };
            let mut conditions = node["status"]["conditions"].clone();
            for condition in conditions.as_array_mut().into_iter().flatten() {
                condition["lastHeartbeatTime"] = json!(time(admin.now));
            }
            let patch = json!({"status": {"conditions": conditions}});
            let kubelet = Writer { manager: "kubelet", ..admin };
            sim.api.merge_status(kubelet, &NODES, "", &name, &patch).map(drop)
        })
    }

    /// Who holds the operator's lease.
    pub(crate) fn leader(&self) -> String {
        self.cluster.with(|sim, _| {
            let leases = sim.api.list(&LEASES);
            let mine =
                leases.iter().find(|lease| lease["metadata"]["namespace"] == names::NAMESPACE);
            let holder = mine.and_then(|lease| lease["spec"]["holderIdentity"].as_str());
            holder.unwrap_or_default().to_owned()
        })
    }

    /// What is wrong with a cluster on which no Kata should be, if anything is.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        self.cluster.with(|sim, _| leftovers(sim))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.cluster.shut_down();
        // A folder that stays does no harm.
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// A settled cluster with the operator's CRDs and namespace, in whose pools a tenth of the nodes may
/// be unavailable at once.
pub(crate) fn build(layout: &Layout, now: Timestamp, speed: f64) -> Result<Simulation, Failure> {
    let mut simulation = topology::build(layout, now)?;
    simulation.set_speed(speed);
    simulation.api.store.set_window(WINDOW);
    let writer = Writer { manager: "bench", now };
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names::NAMESPACE}});
    simulation.api.create(writer, &NAMESPACES, "", namespace)?;
    let class = kata_manifests::manifests::check_priority_class();
    simulation.api.create(writer, &PRIORITYCLASSES, "", class)?;
    for crd in kata_api::crds() {
        simulation.api.create(writer, &CRDS, "", serde_json::to_value(crd)?)?;
    }
    Ok(simulation)
}

/// Sets how many nodes of the pool of ordinary workers may be unavailable at once.
pub(crate) fn limit_workers(sim: &mut Simulation, limit: &Value) -> Result<(), ApiError> {
    let writer = Writer { manager: "bench", now: sim.now() };
    let patch = json!({"spec": {"maxUnavailable": limit}});
    sim.api.merge(writer, &MACHINECONFIGPOOLS, "", names::WORKER_POOL, &patch).map(drop)
}

/// What is wrong with a cluster on which no Kata should be, if anything is.
pub(crate) fn leftovers(sim: &Simulation) -> Vec<String> {
    let mut found = Vec::new();
    if sim.api.get(&MACHINECONFIGPOOLS, "", names::POOL).is_some() {
        found.push(format!("pool {}", names::POOL));
    }
    for node in sim.api.list(&NODES) {
        let (metadata, name) = (&node["metadata"], node["metadata"]["name"].as_str());
        let annotation = |key: &str| metadata["annotations"][key].as_str().unwrap_or_default();
        let on_kata = [names::mco::CURRENT_CONFIG, names::mco::DESIRED_CONFIG]
            .iter()
            .any(|key| annotation(key).starts_with("rendered-kata-oc-"));
        if on_kata || annotation(names::mco::STATE) != "Done" {
            let state = annotation(names::mco::STATE);
            found.push(format!("{} is {state}, on kata-oc: {on_kata}", name.unwrap_or_default()));
        }
    }
    found
}

/// Looks every few milliseconds until `done` holds; how long that took.
pub(crate) async fn wait(what: &str, mut done: impl FnMut() -> bool) -> Result<Duration, Failure> {
    let begin = Instant::now();
    while !done() {
        if begin.elapsed() > PATIENCE {
            return Err(format!("in vain waited until {what}").into());
        }
        pause(Duration::from_millis(5)).await;
    }
    Ok(begin.elapsed())
}

/// Lets real time pass.
pub(crate) async fn pause(span: Duration) {
    tokio::time::sleep_until(tokio::time::Instant::now() + span).await;
}

/// A count for arithmetic; exact far above all counts here.
#[expect(clippy::cast_precision_loss, reason = "counts are below 2^52")]
pub(crate) fn to_float(count: u64) -> f64 {
    count as f64
}
