//! Many installs, and installs at real speed, on virtual time: the operator runs in this process, and
//! the clock jumps over what is only waiting.

use std::time::Duration;

use kata_operator::Settings;
use serde::{Deserialize, Serialize};
use serde_json::json;
use simcluster::Cluster;
use simcluster::api::server::{DeleteOptions, Writer};
use simcluster::clock::Clock;
use simcluster::mco::Timing;
use simcluster::resource::KATACONFIGS;
use simcluster::topology::Layout;
use tokio::task::JoinHandle;

use crate::Failure;
use crate::journal::Journal;
use crate::lab::{self, CONFIG, Requests};

/// How many installs one cluster and one operator see before both are made anew, so that the Events
/// of a simulated cluster, which never expire, do not fill the memory.
const IN_A_ROW: u32 = 50;
/// How long an install or an uninstall may take, in cluster time.
const LIMIT: Duration = Duration::from_secs(6 * 3600);

/// What became of many installs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Installs {
    pub(crate) installs: u32,
    /// RuntimeClasses that came before a node could serve them.
    pub(crate) early_classes: u64,
    /// RuntimeClasses that came at all.
    pub(crate) classes: u64,
    /// Foreign writes to the KataConfig, one at a random moment of each install and uninstall.
    pub(crate) touches: u64,
    /// Installs and uninstalls that did not end well, with the seed of their cluster.
    pub(crate) failures: Vec<String>,
}

/// An install at real speed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Counted {
    pub(crate) workers: u32,
    pub(crate) seconds: f64,
    pub(crate) requests: Requests,
    pub(crate) versions: u64,
    pub(crate) idle_versions: u64,
}

/// A cluster and an operator on virtual time; `Drop` ends both.
struct Pair {
    cluster: Cluster,
    journal: Journal,
    operator: JoinHandle<()>,
}

impl Pair {
    fn start(layout: &Layout, seed: u64) -> Result<Self, Failure> {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse()?);
        let mut simulation = lab::build(layout, clock.now(), 1.0)?;
        let journal = Journal::default();
        simulation.add_controller(journal.writer());
        let cluster = Cluster::start(simulation, clock);
        let settings = Settings { seed, ..Settings::simulated(cluster.now()) };
        let client = kube::Client::new(cluster.client_service(), "default");
        let operator = tokio::spawn(async move {
            // It runs until it is aborted.
            drop(kata_operator::run(client, settings, std::future::pending()).await);
        });
        Ok(Self { cluster, journal, operator })
    }

    fn create(&self, limit: u32) -> Result<(), Failure> {
        let config = json!({
            "apiVersion": "kataconfiguration.openshift.io/v1", "kind": "KataConfig",
            "metadata": {"name": CONFIG}, "spec": {"rollout": {"maxUnavailable": limit}},
        });
        self.cluster.with(|sim, now| {
            lab::limit_workers(sim, &json!(limit))?;
            sim.api.create(Writer { manager: "bench", now }, &KATACONFIGS, "", config).map(drop)
        })?;
        Ok(())
    }

    fn delete(&self) -> Result<(), Failure> {
        let options = DeleteOptions::default();
        self.cluster.with(|sim, now| {
            let writer = Writer { manager: "bench", now };
            sim.api.delete(writer, &KATACONFIGS, "", CONFIG, &options).map(drop)
        })?;
        Ok(())
    }

    /// Touches an annotation of the KataConfig; whether there was one.
    fn touch(&self, value: u64) -> bool {
        let patch =
            json!({"metadata": {"annotations": {"rival.example.com/touch": value.to_string()}}});
        self.cluster.with(|sim, now| {
            let writer = Writer { manager: "rival", now };
            sim.api.merge(writer, &KATACONFIGS, "", CONFIG, &patch).is_ok()
        })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.operator.abort();
        self.cluster.shut_down();
    }
}

/// Installs and uninstalls `count` times on clusters of three workers with random timing.
pub(crate) async fn installs(count: u32, seed: u64) -> Result<Installs, Failure> {
    let mut result = Installs::default();
    let mut random = Random(seed);
    while result.installs < count {
        let cluster_seed = random.next();
        let mut own = Random(cluster_seed);
        let layout =
            Layout { control_plane: 1, workers: 3, timing: timing(&mut own), ..Layout::default() };
        let pair = Pair::start(&layout, cluster_seed)?;
        for _ in 0..IN_A_ROW.min(count - result.installs) {
            result.installs += 1;
            sleep(own.below(Duration::from_secs(30))).await;
            let began = result.failures.len();
            episode(&pair, &mut own, &mut result).await?;
            if result.failures.len() > began {
                result.failures.push(format!("seed {cluster_seed}"));
                break;
            }
        }
    }
    Ok(result)
}

async fn episode(pair: &Pair, random: &mut Random, result: &mut Installs) -> Result<(), Failure> {
    let limit = 1 + u32::try_from(random.next() % 3)?;
    pair.journal.restart();
    pair.create(limit)?;
    // Most moments that matter are early, right after the first writes.
    let moments = [Duration::from_millis(500), Duration::from_secs(20), Duration::from_secs(300)];
    for removes in [false, true] {
        if removes {
            pair.delete()?;
        }
        let moment = moments[usize::try_from(random.next() % 3)?];
        let touch = async {
            sleep(random.below(moment)).await;
            result.touches += u64::from(pair.touch(random.next()));
            std::future::pending::<()>().await;
        };
        let end = async {
            let done = pair
                .journal
                .until(|notes| if removes { notes.gone.is_some() } else { notes.ready.is_some() });
            tokio::time::timeout(LIMIT, done).await.is_ok()
        };
        let ended = tokio::select! {
            biased;
            () = touch => false,
            ended = end => ended,
        };
        if !ended {
            let what = if removes { "an uninstall" } else { "an install" };
            result.failures.push(format!("{what} did not end"));
            return Ok(());
        }
    }
    let notes = pair.journal.notes();
    result.classes += notes.classes;
    result.early_classes += notes.early_classes;
    let left = pair.cluster.with(|sim, _| lab::leftovers(sim));
    if !left.is_empty() {
        result.failures.push(format!("an uninstall left: {}", left.join("; ")));
    }
    Ok(())
}

/// Delays between half and twice those of the recordings.
fn timing(random: &mut Random) -> Timing {
    let recorded = Timing::recorded();
    let mut vary = |span: Duration| span / 2 + random.below(span + span / 2);
    Timing {
        render_delay: vary(recorded.render_delay),
        node_delay: vary(recorded.node_delay),
        drain_delay: vary(recorded.drain_delay),
        daemon_poll: vary(recorded.daemon_poll),
        daemon_step: vary(recorded.daemon_step),
        install: vary(recorded.install),
        reboot: vary(recorded.reboot),
    }
}

/// Installs at the recorded controllers' real speed, and counts.
pub(crate) async fn count(workers: u32, limit: u32) -> Result<Counted, Failure> {
    let layout = Layout { workers, timing: Timing::recorded(), ..Layout::default() };
    let pair = Pair::start(&layout, 1)?;
    sleep(Duration::from_secs(60)).await;
    pair.cluster.with(|sim, _| sim.frontend.reset_requests());
    pair.journal.restart();
    let begin = tokio::time::Instant::now();
    pair.create(limit)?;
    tokio::time::timeout(LIMIT, pair.journal.until(|notes| notes.ready.is_some())).await?;
    let seconds = begin.elapsed().as_secs_f64();
    sleep(Duration::from_secs(5)).await;
    let notes = pair.journal.notes();
    let requests = pair.cluster.with(|sim, _| {
        sim.frontend
            .requests()
            .map(|(resource, verb, count)| (format!("{verb} {resource}"), count))
            .collect()
    });
    Ok(Counted {
        workers,
        seconds,
        requests,
        versions: notes.versions,
        idle_versions: notes.idle_versions,
    })
}

async fn sleep(span: Duration) {
    tokio::time::sleep_until(tokio::time::Instant::now() + span).await;
}

/// A small generator of random numbers (splitmix64); equal seeds give equal numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, span: Duration) -> Duration {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1);
        Duration::from_micros(self.next() % micros)
    }
}
