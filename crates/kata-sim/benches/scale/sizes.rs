//! The first table: one operator process on clusters from small to very large.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::json;
use simcluster::api::fault::{Fault, Match, Rule};
use simcluster::mco::Timing;
use simcluster::topology::Layout;

use crate::Failure;
use crate::journal::Notes;
use crate::lab::{self, Lab, Requests, pause, to_float};
use crate::process::Operator;

/// Pods on each worker.
const PODS: u32 = 10;
/// The size of a pod as JSON, in bytes. Small, since the operator keeps no pods, and a hundred
/// thousand of them are in the memory of the simulator.
const POD_BYTES: usize = 2_000;
/// Images that each node reports, as a kubelet with its default settings does at most.
const IMAGES: u32 = 50;

/// How a size is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    /// How many workers there are.
    pub(crate) workers: u32,
    /// How many times faster than real the cluster's controllers and nodes are.
    pub(crate) speed: f64,
    /// How long the operator is watched at rest.
    pub(crate) idle: Duration,
    /// How long all nodes send heartbeats.
    pub(crate) heartbeats: Duration,
}

/// What was measured. Times in seconds, memory in MiB.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) workers: u32,
    pub(crate) speed: f64,
    pub(crate) node_bytes: usize,
    /// Resident memory after the start, before there is a KataConfig.
    pub(crate) started: f64,
    /// From the KataConfig to the first and the last node that is labelled.
    pub(crate) first_intent: f64,
    pub(crate) last_intent: f64,
    pub(crate) install: Phase,
    pub(crate) uninstall: Phase,
    /// From the last node's completion to Ready.
    pub(crate) done_to_ready: f64,
    pub(crate) largest_status: usize,
    /// At rest, installed.
    pub(crate) steady: f64,
    pub(crate) idle_seconds: f64,
    pub(crate) idle_cpu: f64,
    pub(crate) idle_requests: Requests,
    /// While all nodes send heartbeats.
    pub(crate) heartbeats_a_second: f64,
    pub(crate) heartbeat_cpu_percent: f64,
    pub(crate) heartbeat_writes: u64,
    /// The peak while nodes are listed anew.
    pub(crate) relist_peak: f64,
    /// How long the operator took to end after SIGTERM.
    pub(crate) stop: f64,
    /// The memory of this process, that is of the simulator.
    pub(crate) simulator_peak: f64,
}

/// An install or an uninstall.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Phase {
    /// From the admin's write to the end.
    pub(crate) seconds: f64,
    pub(crate) requests: Requests,
    pub(crate) cpu: f64,
    pub(crate) peak: f64,
    pub(crate) log_bytes: u64,
    pub(crate) versions: u64,
    pub(crate) idle_versions: u64,
    pub(crate) status_writes: u64,
    pub(crate) pods: usize,
}

/// The counters before a phase.
#[derive(Debug)]
struct Before {
    cpu: f64,
    log: u64,
    pods: usize,
}

impl Phase {
    fn begin(lab: &Lab, operator: &Operator) -> Result<Before, Failure> {
        operator.reset_peak()?;
        lab.restart_counts();
        Ok(Before { cpu: operator.cpu()?, log: operator.log_bytes()?, pods: lab.pods() })
    }

    fn end(
        lab: &Lab,
        operator: &Operator,
        before: &Before,
        seconds: f64,
    ) -> Result<(Self, Notes), Failure> {
        let notes = lab.journal.notes();
        let phase = Self {
            seconds,
            requests: lab.requests(),
            cpu: operator.cpu()? - before.cpu,
            peak: operator.peak()?,
            log_bytes: operator.log_bytes()? - before.log,
            versions: notes.versions,
            idle_versions: notes.idle_versions,
            status_writes: notes.status_writes,
            pods: before.pods,
        };
        Ok((phase, notes))
    }
}

/// Installs, and waits until it is Ready and at rest.
pub(crate) async fn install(
    lab: &Lab,
    operator: &Operator,
    limit: &serde_json::Value,
) -> Result<(Phase, Notes, Instant), Failure> {
    lab.act(|sim, _| lab::limit_workers(sim, limit))?;
    lab.rest().await?;
    let before = Phase::begin(lab, operator)?;
    let begin = lab.create_config(&json!({"rollout": {"maxUnavailable": limit}}))?;
    until(lab, "the KataConfig is Ready", |notes| notes.ready.is_some()).await?;
    let ready = lab.journal.notes().ready.unwrap_or(begin);
    lab.rest().await?;
    let seconds = ready.duration_since(begin).as_secs_f64();
    let (phase, notes) = Phase::end(lab, operator, &before, seconds)?;
    Ok((phase, notes, begin))
}

/// Deletes the KataConfig, and waits until it is gone.
pub(crate) async fn uninstall(lab: &Lab, operator: &Operator) -> Result<Phase, Failure> {
    let before = Phase::begin(lab, operator)?;
    let begin = lab.delete_config()?;
    until(lab, "the KataConfig is gone", |notes| notes.gone.is_some()).await?;
    let gone = lab.journal.notes().gone.unwrap_or(begin);
    lab.rest().await?;
    let seconds = gone.duration_since(begin).as_secs_f64();
    Ok(Phase::end(lab, operator, &before, seconds)?.0)
}

async fn until(lab: &Lab, what: &str, done: impl Fn(&Notes) -> bool) -> Result<(), Failure> {
    tokio::time::timeout(lab::PATIENCE, lab.journal.until(done))
        .await
        .map_err(|_elapsed| format!("in vain waited until {what}").into())
}

/// Measures one size.
pub(crate) async fn measure(binary: &Path, conditions: Conditions) -> Result<Figures, Failure> {
    let Conditions { workers, speed, idle, heartbeats } = conditions;
    let timing = Timing::recorded();
    let layout = Layout { workers, images: IMAGES, timing, ..Layout::default() };
    say(workers, "builds the cluster");
    let lab = Lab::start(&layout, speed).await?;
    lab.fill(PODS, POD_BYTES).await?;
    let node_bytes = lab.node_bytes();
    say(workers, "starts the operator");
    let operator = lab.operator(binary).await?;
    let started = operator.resident()?;

    say(workers, "installs");
    let (install, notes, begin) = install(&lab, &operator, &json!("10%")).await?;
    let since = |at: Option<Instant>, from: Option<Instant>| {
        at.zip(from).map_or(f64::NAN, |(at, from)| at.duration_since(from).as_secs_f64())
    };
    let steady = operator.resident()?;

    say(workers, "rests");
    lab.restart_counts();
    let (begun, cpu) = (Instant::now(), operator.cpu()?);
    pause(idle).await;
    let (idle_seconds, idle_cpu) = (begun.elapsed().as_secs_f64(), operator.cpu()? - cpu);
    let idle_requests = lab.requests();

    say(workers, "sends heartbeats");
    lab.restart_counts();
    let (begun, cpu) = (Instant::now(), operator.cpu()?);
    // Every node reports every ten seconds.
    let sent = lab.heartbeats(workers.div_ceil(10), heartbeats).await?;
    let seconds = begun.elapsed().as_secs_f64();
    let spent = operator.cpu()? - cpu;
    let heartbeat_writes = writes(&lab.requests());

    say(workers, "lists nodes anew");
    operator.reset_peak()?;
    lab.restart_counts();
    let lists = || lab.requests().get("list nodes").copied().unwrap_or(0);
    let before = lists();
    lab.cluster.with(|sim, _| {
        let nodes =
            Match { verb: "watch".to_owned(), resource: "nodes".to_owned(), ..Match::default() };
        sim.frontend.faults.add(Rule::once(nodes, Fault::ExpireWatch));
    });
    lab.heartbeat(0)?;
    lab::wait("nodes are listed anew", || lists() > before).await?;
    lab.rest().await?;
    let relist_peak = operator.peak()?;

    say(workers, "uninstalls");
    lab.fill_again(PODS, POD_BYTES).await?;
    let uninstall = uninstall(&lab, &operator).await?;
    let left = lab.leftovers();
    if !left.is_empty() {
        return Err(format!("the uninstall left: {}", left.join("; ")).into());
    }
    let (stop, _) = operator.terminate()?;
    Ok(Figures {
        workers,
        speed,
        node_bytes,
        started,
        first_intent: since(notes.first_intent, Some(begin)),
        last_intent: since(notes.last_intent, Some(begin)),
        done_to_ready: since(notes.ready, notes.last_done),
        largest_status: notes.largest_status,
        install,
        uninstall,
        steady,
        idle_seconds,
        idle_cpu,
        idle_requests,
        heartbeats_a_second: to_float(sent) / seconds,
        heartbeat_cpu_percent: spent / seconds * 100.0,
        heartbeat_writes,
        relist_peak,
        stop: stop.as_secs_f64(),
        simulator_peak: crate::process::memory(std::process::id(), "VmHWM")?,
    })
}

/// How many of the requests are writes, those of the lease apart.
pub(crate) fn writes(requests: &Requests) -> u64 {
    const READS: [&str; 3] = ["get ", "list ", "watch "];
    requests
        .iter()
        .filter(|(what, _)| {
            !what.contains("leases") && !READS.iter().any(|verb| what.starts_with(verb))
        })
        .map(|(_, count)| count)
        .sum()
}

/// Says how far a long measurement is.
#[expect(clippy::print_stderr, reason = "it shows progress")]
fn say(workers: u32, what: &str) {
    eprintln!("{workers} workers: {what}");
}
