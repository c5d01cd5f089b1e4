//! `kata-sim bench`: how long, how many requests, how much memory.
//!
//! Times of the cluster are virtual and say how the operator and the controllers wait for each other;
//! real time and memory are measured. Every size runs in a process of its own, so that memory is its own.

use std::process::Command;
use std::time::{Duration, Instant};

use kata_api::{KataConfig, conditions};
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use simcluster::topology::Layout;
use simcluster::world::Platform;

use crate::arguments::BenchArguments;
use crate::compose::{self, Shape};
use crate::{Failure, Outcome, idle};

/// Of the nodes, this many are control plane.
const CONTROL_PLANE: u32 = 3;
/// How long a run may take, in cluster time.
const LIMIT: Duration = Duration::from_secs(60 * 60 * 24);

/// Measures all sizes, each in a process of its own, and an idle `up`.
#[expect(clippy::print_stdout, reason = "the figures are the command's answer")]
pub(crate) fn all(arguments: &BenchArguments) -> Result<Outcome, Failure> {
    println!("SIMULATED cluster; \"cluster time\" is virtual, memory and real time are measured.");
    println!(
        "All workers are selected; in both pools at most 10% of them, but at least one, are unavailable at once."
    );
    println!();
    println!(
        "{:>6} {:>12} {:>12} {:>10} {:>9} {:>9} {:>10}  requests of the operator",
        "nodes", "to Ready", "to removed", "real time", "requests", "per node", "peak RSS"
    );
    for nodes in &arguments.nodes {
        let figures = measure(*nodes)?;
        let requests = figures["requests"].as_object().cloned().unwrap_or_default();
        let total: u64 = requests.values().filter_map(Value::as_u64).sum();
        let per_node = f64::from(u32::try_from(total)?) / f64::from(*nodes);
        let verbs: Vec<String> =
            requests.iter().map(|(verb, count)| format!("{verb} {count}")).collect();
        println!(
            "{nodes:>6} {:>12} {:>12} {:>9.2}s {total:>9} {per_node:>9.1} {:>9}M  {}",
            clock(figures["ready_seconds"].as_u64()),
            clock(figures["removed_seconds"].as_u64()),
            figures["real_seconds"].as_f64().unwrap_or_default(),
            figures["peak_mib"].as_u64().unwrap_or_default(),
            verbs.join(", "),
        );
    }
    println!();
    for line in idle::measure(Duration::from_secs(arguments.idle))? {
        println!("{line}");
    }
    Ok(Outcome::Fine)
}

fn clock(seconds: Option<u64>) -> String {
    seconds.map_or_else(
        || "never".to_owned(),
        |seconds| format!("{}h{:02}m{:02}s", seconds / 3600, seconds / 60 % 60, seconds % 60),
    )
}

#[expect(
    clippy::disallowed_methods,
    reason = "a size's memory is only its own in a process of its own"
)]
fn measure(nodes: u32) -> Result<Value, Failure> {
    let output = Command::new(std::env::current_exe()?)
        .args(["bench", "--one", &nodes.to_string()])
        .output()?;
    if !output.status.success() {
        return Err(format!(
            "the run with {nodes} nodes failed: {}",
            String::from_utf8_lossy(&output.stderr)
        )
        .into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Installs on all workers of a cluster, removes again, and prints the figures as JSON.
#[expect(clippy::print_stdout, reason = "the parent process reads it")]
pub(crate) async fn one(arguments: BenchArguments) -> Result<Outcome, Failure> {
    let nodes = arguments.one.unwrap_or(6).max(CONTROL_PLANE + 1);
    let begin = Instant::now();
    let layout = Layout {
        platform: Platform::OpenShift,
        control_plane: CONTROL_PLANE,
        workers: nodes - CONTROL_PLANE,
        compact: false,
        ..Layout::default()
    };
    let cluster = compose::cluster(&Shape { layout, speed: 1.0 }, compose::virtual_clock())?;
    let operator = compose::operator(&cluster);
    let client = compose::client(&cluster);
    let configs: Api<KataConfig> = Api::all(client.clone());
    // The requests of this program itself are few: one create, one watch, one delete.
    let pools: Api<kata_api::MachineConfigPool> = Api::all(client.clone());
    let limit = json!({"spec": {"maxUnavailable": "10%"}});
    pools.patch("worker", &PatchParams::default(), &Patch::Merge(limit)).await?;
    let config = json!({
        "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
        "metadata": {"name": "cluster-kataconfig"}, "spec": {"rollout": {"maxUnavailable": "10%"}},
    });
    cluster.with(|sim, _now| sim.frontend.reset_requests());
    let start = tokio::time::Instant::now();
    configs
        .patch("cluster-kataconfig", &PatchParams::apply("bench"), &Patch::Apply(&config))
        .await?;
    let ready = wait(&configs, |config| {
        config.is_some_and(|config| {
            let status = config.status.clone().unwrap_or_default();
            let ready = status.conditions.iter().any(|condition| {
                condition.type_ == conditions::READY && condition.status == "True"
            });
            ready && status.kata_nodes.node_count == i64::from(nodes - CONTROL_PLANE)
        })
    })
    .await;
    let ready_seconds = ready.then(|| start.elapsed().as_secs());
    let removal = tokio::time::Instant::now();
    configs.delete("cluster-kataconfig", &kube::api::DeleteParams::default()).await?;
    let removed = wait(&configs, |config| config.is_none()).await;
    let removed_seconds = removed.then(|| removal.elapsed().as_secs());
    let mut requests: std::collections::BTreeMap<&'static str, u64> =
        std::collections::BTreeMap::new();
    cluster.with(|sim, _now| {
        for (_, verb, count) in sim.frontend.requests() {
            *requests.entry(verb).or_default() += count;
        }
    });
    operator.abort();
    println!(
        "{}",
        json!({
            "ready_seconds": ready_seconds, "removed_seconds": removed_seconds, "requests": requests,
            "real_seconds": begin.elapsed().as_secs_f64(), "peak_mib": idle::memory("self", "VmHWM")?,
        })
    );
    Ok(if ready && removed { Outcome::Fine } else { Outcome::Findings })
}

async fn wait(configs: &Api<KataConfig>, done: impl Fn(Option<&KataConfig>) -> bool) -> bool {
    let condition = kube::runtime::wait::await_condition(
        configs.clone(),
        "cluster-kataconfig",
        |config: Option<&KataConfig>| done(config),
    );
    matches!(tokio::time::timeout(LIMIT, condition).await, Ok(Ok(_)))
}
