//! The second table: what the Go operator was measured at, with this operator in its place.

use std::path::Path;
use std::time::{Duration, Instant};

use kata_api::names;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use simcluster::api::server::DeleteOptions;
use simcluster::mco::Timing;
use simcluster::resource::{
    DAEMONSETS, KATACONFIGS, MACHINECONFIGPOOLS, MACHINECONFIGS, NODES, PODS, RUNTIMECLASSES,
};
use simcluster::topology::Layout;
use simcluster::topology::load::run_pod;
use simcluster::{Resource, Simulation};

use crate::Failure;
use crate::lab::{self, CONFIG, Lab, pause};
use crate::process::Operator;
use crate::sizes::{Phase, install, uninstall};

/// The speed of the clusters on which behaviour is looked at; install and reboot are short.
const SPEED: f64 = 20.0;
/// Pods in the cluster while one uninstall is measured, and the size of each as JSON.
const PODS_AT_UNINSTALL: (u32, usize) = (5_000, 11_000);
/// How often others touch the KataConfig, in touches a second.
pub(crate) const RATES: [u32; 3] = [5, 20, 100];

/// An install and uninstalls of one of the sizes that the Go operator was measured at.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Comparison {
    pub(crate) workers: u32,
    pub(crate) limit: u32,
    pub(crate) speed: f64,
    pub(crate) started: f64,
    pub(crate) steady: f64,
    pub(crate) install: Phase,
    pub(crate) uninstall: Phase,
    /// The same with 5,000 pods in the cluster.
    pub(crate) uninstall_with_pods: Option<Phase>,
}

/// Measures one size; `with_pods` uninstalls a second time with pods.
pub(crate) async fn measure(
    binary: &Path,
    (workers, limit, speed): (u32, u32, f64),
    with_pods: bool,
) -> Result<Comparison, Failure> {
    let layout = Layout { workers, images: 50, timing: Timing::recorded(), ..Layout::default() };
    let lab = Lab::start(&layout, speed).await?;
    let operator = lab.operator(binary).await?;
    let started = operator.resident()?;
    let limit_value = json!(limit);
    let (first, ..) = install(&lab, &operator, &limit_value).await?;
    let steady = operator.resident()?;
    let removed = uninstall(&lab, &operator).await?;
    let mut uninstall_with_pods = None;
    if with_pods {
        install(&lab, &operator, &limit_value).await?;
        let (pods, bytes) = PODS_AT_UNINSTALL;
        lab.fill(pods.div_ceil(workers), bytes).await?;
        uninstall_with_pods = Some(uninstall(&lab, &operator).await?);
    }
    expect_clean(&lab)?;
    Ok(Comparison {
        workers,
        limit,
        speed,
        started,
        steady,
        install: first,
        uninstall: removed,
        uninstall_with_pods,
    })
}

/// How the operator behaved; times in seconds of real time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Behaviour {
    /// Objects that were removed by hand, and how long they were away; `None` for one that this
    /// operator did not make.
    pub(crate) restored: Vec<(String, Option<f64>)>,
    pub(crate) pool_paused_named: f64,
    pub(crate) nothing_selected_named: f64,
    pub(crate) goes_on_after_last_pod: f64,
    /// From the request to stop until the process was gone, and from there, with the start of the
    /// next one, until that leads.
    pub(crate) stop: f64,
    pub(crate) next_leads: f64,
    pub(crate) rivals: Vec<Rival>,
}

/// An install and an uninstall during which another client writes to the KataConfig.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Rival {
    pub(crate) rate: u32,
    pub(crate) touches: u64,
    pub(crate) installed: bool,
    pub(crate) early_classes: u64,
    pub(crate) left: Vec<String>,
}

/// Looks at everything that needs only three workers.
///
/// A pod blocks a removal for `blocked`.
pub(crate) async fn behaviour(binary: &Path, blocked: Duration) -> Result<Behaviour, Failure> {
    let layout = Layout { timing: Timing::recorded(), ..Layout::default() };
    let lab = Lab::start(&layout, SPEED).await?;
    let operator = lab.operator(binary).await?;
    let nothing_selected_named = nothing_selected(&lab).await?;
    let pool_paused_named = paused(&lab, &operator).await?;
    let mut restored = Vec::new();
    for (what, resource, namespace, name) in [
        ("RuntimeClass", RUNTIMECLASSES, "", names::RUNTIME_CLASS),
        ("MachineConfig", MACHINECONFIGS, "", names::MACHINE_CONFIG),
        (
            "monitor DaemonSet",
            DAEMONSETS,
            names::NAMESPACE,
            "openshift-sandboxed-containers-monitor",
        ),
    ] {
        restored.push((what.to_owned(), deleted(&lab, &resource, namespace, name).await?));
        ready_again(&lab).await?;
    }
    restored.push(("node label kata-oc".to_owned(), Some(unlabelled(&lab).await?)));
    ready_again(&lab).await?;
    let goes_on_after_last_pod = last_pod(&lab, blocked).await?;
    expect_clean(&lab)?;
    let (stop, next_leads, operator) = restart(&lab, operator, binary).await?;
    let mut rivals = Vec::new();
    for rate in RATES {
        rivals.push(rival(&lab, &operator, rate).await?);
    }
    Ok(Behaviour {
        restored,
        pool_paused_named,
        nothing_selected_named,
        goes_on_after_last_pod,
        stop,
        next_leads,
        rivals,
    })
}

fn expect_clean(lab: &Lab) -> Result<(), Failure> {
    let left = lab.leftovers();
    if left.is_empty() {
        Ok(())
    } else {
        Err(format!("the uninstall left: {}", left.join("; ")).into())
    }
}

/// Whether the KataConfig's conditions say `word`.
fn says(lab: &Lab, word: &str) -> bool {
    lab.config().is_some_and(|config| {
        config["status"]["conditions"].to_string().to_lowercase().contains(word)
    })
}

async fn ready_again(lab: &Lab) -> Result<(), Failure> {
    lab.rest().await?;
    lab::wait("the KataConfig is Ready again", || {
        lab.config().is_some_and(|config| crate::journal::is_ready(&config))
    })
    .await
    .map(drop)
}

async fn remove_config(lab: &Lab) -> Result<(), Failure> {
    lab.delete_config()?;
    lab::wait("the KataConfig is gone", || lab.config().is_none()).await?;
    lab.rest().await
}

async fn nothing_selected(lab: &Lab) -> Result<f64, Failure> {
    let selector = json!({"matchLabels": {"no-node": "has-this"}});
    let begin = lab.create_config(&json!({"kataConfigPoolSelector": selector}))?;
    lab::wait("the status says that nothing is selected", || says(lab, "nonodesselected")).await?;
    let took = begin.elapsed().as_secs_f64();
    remove_config(lab).await?;
    Ok(took)
}

/// An admin pauses the pool while it is installed; goes on until it is Ready.
async fn paused(lab: &Lab, operator: &Operator) -> Result<f64, Failure> {
    operator.reset_peak()?;
    lab.create_config(&json!({}))?;
    let pool =
        |lab: &Lab| lab.cluster.with(|sim, _| sim.api.get(&MACHINECONFIGPOOLS, "", names::POOL));
    lab::wait("the pool exists", || pool(lab).is_some()).await?;
    set_paused(lab, true)?;
    let begin = Instant::now();
    lab::wait("the status says that the pool is paused", || says(lab, "paused")).await?;
    let took = begin.elapsed().as_secs_f64();
    set_paused(lab, false)?;
    ready_again(lab).await?;
    Ok(took)
}

fn set_paused(lab: &Lab, paused: bool) -> Result<(), Failure> {
    let patch = json!({"spec": {"paused": paused}});
    lab.act(|sim, admin| {
        sim.api.merge(admin, &MACHINECONFIGPOOLS, "", names::POOL, &patch).map(drop)
    })
}

async fn deleted(
    lab: &Lab,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<Option<f64>, Failure> {
    let get = |sim: &Simulation| sim.api.get(resource, namespace, name);
    let Some(known) = lab.cluster.with(|sim, _| get(sim)) else { return Ok(None) };
    let uid = &known["metadata"]["uid"];
    let options = DeleteOptions::default();
    lab.act(|sim, admin| sim.api.delete(admin, resource, namespace, name, &options).map(drop))?;
    let begin = Instant::now();
    lab::wait("what was deleted is back", || {
        lab.cluster.with(|sim, _| get(sim)).is_some_and(|object| object["metadata"]["uid"] != *uid)
    })
    .await?;
    Ok(Some(begin.elapsed().as_secs_f64()))
}

async fn unlabelled(lab: &Lab) -> Result<f64, Failure> {
    let patch = json!({"metadata": {"labels": {(names::KATA_ROLE_LABEL): null}}});
    lab.act(|sim, admin| sim.api.merge(admin, &NODES, "", "worker-1", &patch).map(drop))?;
    let begin = Instant::now();
    lab::wait("the label is back", || {
        let node = lab.cluster.with(|sim, _| sim.api.get(&NODES, "", "worker-1"));
        node.is_some_and(|node| node["metadata"]["labels"].get(names::KATA_ROLE_LABEL).is_some())
    })
    .await?;
    Ok(begin.elapsed().as_secs_f64())
}

/// A pod holds the uninstall up; from its end to the first node that loses its role.
async fn last_pod(lab: &Lab, blocked: Duration) -> Result<f64, Failure> {
    lab.act(|sim, admin| {
        let place = ("sandboxed", "worker-0");
        run_pod(sim, admin.now, place, Some(names::RUNTIME_CLASS), 0)
    })?;
    lab.restart_counts();
    lab.delete_config()?;
    lab::wait("the status says that pods block", || {
        lab.config().is_some_and(|config| {
            config["status"]["conditions"].as_array().into_iter().flatten().any(|condition| {
                condition["type"] == "DeletionBlocked" && condition["status"] == "True"
            })
        })
    })
    .await?;
    // Long enough for a back-off to grow.
    pause(blocked).await;
    let now = DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() };
    lab.act(|sim, admin| sim.api.delete(admin, &PODS, "default", "sandboxed", &now).map(drop))?;
    let begin = Instant::now();
    tokio::time::timeout(lab::PATIENCE, async {
        while lab.journal.notes().first_intent.is_none() {
            pause(Duration::from_millis(5)).await;
        }
    })
    .await?;
    let took = begin.elapsed().as_secs_f64();
    lab::wait("the KataConfig is gone", || lab.config().is_none()).await?;
    lab.rest().await?;
    Ok(took)
}

/// Ends the operator as a Deployment does, and starts another one.
async fn restart(
    lab: &Lab,
    operator: Operator,
    binary: &Path,
) -> Result<(f64, f64, Operator), Failure> {
    let old = lab.leader();
    let (stop, _) = operator.terminate()?;
    let begin = Instant::now();
    let operator = lab.spawn(binary)?;
    lab::wait("the next operator leads", || {
        let leader = lab.leader();
        !leader.is_empty() && leader != old
    })
    .await?;
    let next_leads = begin.elapsed().as_secs_f64();
    lab.rest().await?;
    Ok((stop.as_secs_f64(), next_leads, operator))
}

async fn rival(lab: &Lab, operator: &Operator, rate: u32) -> Result<Rival, Failure> {
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let touching = tokio::spawn(touch(lab.cluster.clone(), rate, stopped));
    let installed = install(lab, operator, &json!(1)).await;
    let notes = lab.journal.notes();
    let ready: Value = lab
        .config()
        .map_or(Value::Null, |config| config["status"]["kataNodes"]["readyNodeCount"].clone());
    let removed = uninstall(lab, operator).await;
    stop.send_replace(true);
    let touches = touching.await?;
    installed.map(drop)?;
    removed.map(drop)?;
    Ok(Rival {
        rate,
        touches,
        installed: ready == lab.workers,
        early_classes: notes.early_classes,
        left: lab.leftovers(),
    })
}

/// Writes an annotation of the KataConfig `rate` times a second; how often it did.
async fn touch(
    cluster: simcluster::Cluster,
    rate: u32,
    stopped: tokio::sync::watch::Receiver<bool>,
) -> u64 {
    let begin = Instant::now();
    let (mut tried, mut touches) = (0_u64, 0_u64);
    while !*stopped.borrow() {
        // One that is late is made up for.
        let due = begin.elapsed().as_secs_f64() * f64::from(rate);
        while lab::to_float(tried) < due {
            let text = tried.to_string();
            let patch = json!({"metadata": {"annotations": {"rival.example.com/touch": text}}});
            let touched = cluster.with(|sim, now| {
                let writer = simcluster::api::server::Writer { manager: "rival", now };
                sim.api.merge(writer, &KATACONFIGS, "", CONFIG, &patch)
            });
            tried += 1;
            touches += u64::from(touched.is_ok());
        }
        pause(Duration::from_millis(2)).await;
    }
    touches
}
