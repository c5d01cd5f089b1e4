//! One episode: a simulated cluster on virtual time, the unmodified operator, a workload, and a plan of
//! what goes wrong; and what came of it.
//!
//! An episode has a runtime of its own with a paused clock, so that the same plan gives the same calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use simcluster::clock::Clock;
use simcluster::state::{State as Kept, StateError};
use simcluster::world::Host;
use simcluster::{Cluster, Simulation};
use tokio::time::Instant;

use kata_operator::pacing::RESYNC;

use crate::base::{self, Bases};
use crate::deeds;
use crate::ledger::{Actor, Call, Ledger};
use crate::operator::{Gate, Operator};
use crate::plan::{Plan, Strike};
use crate::promises::Promises;
use crate::watchdog;
use crate::workload::{Act, Base, Goal, NAMED, Phase};
use crate::world::{self, State};

/// For how long a cluster must be as wanted to count as settled.
const HOLD: Duration = Duration::from_secs(40);
/// For how long nothing may be written afterwards.
const IDLE: Duration = Duration::from_mins(10);
/// For how long an Event may be held back, because the same was said before.
const HELD_BACK: Duration = Duration::from_mins(1);
/// How often these minutes may begin anew because a fault struck in them.
const MORE_IDLE: u32 = 20;
/// How long the operator runs before anything is done.
const WARM_UP: Duration = Duration::from_secs(5);
/// How long the operator may say what is not true any more.
const GRACE: Duration = Duration::from_secs(20);
/// How many late calls of a pass come before its status: a Job, and the KataNode.
const CALLS: u32 = 2;
/// The same after a watch event was lost: until the resync, and a little longer.
const LONG_GRACE: Duration = Duration::from_secs(360);

/// Why there is no episode.
#[derive(Debug, thiserror::Error)]
pub enum EpisodeError {
    /// Its cluster cannot be made.
    #[error("the cluster to begin with cannot be made: {0}")]
    Base(String),
    /// There is no runtime.
    #[error("no runtime")]
    Runtime(#[from] std::io::Error),
}

/// How an episode is watched.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    /// How long each phase may take.
    pub limit: Duration,
    /// Whether ten idle minutes follow.
    pub idle: bool,
    /// Whether all that happens is written down.
    pub traced: bool,
}

impl Default for Watch {
    fn default() -> Self {
        Self { limit: Duration::from_hours(3), idle: true, traced: false }
    }
}

/// What came of an episode.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The promises that were broken; empty if all were kept.
    pub broken: Vec<String>,
    /// The calls of the operators up to the end of the last phase.
    pub calls: Vec<Call>,
    /// How many watch events there were up to then.
    pub events: u64,
    /// The cluster at the end.
    pub end: State,
    /// How long each phase took, without the time for which its goal had to hold.
    pub took: Vec<Duration>,
    /// Writes by object.
    pub writes: BTreeMap<String, u64>,
    /// How often each host booted during the episode.
    pub boots: BTreeMap<String, u32>,
    /// What happened, if it was written down.
    pub trace: Vec<String>,
}

/// Runs an episode.
///
/// # Errors
/// If its cluster cannot be made.
pub fn run(plan: &Plan, bases: &Bases, watch: Watch) -> Result<Outcome, EpisodeError> {
    let state = bases.state(plan.topology, plan.workload.base())?;
    let mut simulation = base::restore(&state)?;
    plan.workload.prepare(&mut simulation)?;
    let phases = plan.workload.phases(plan.topology);
    let (outcome, _) = play(plan, &phases, simulation, watch)?;
    Ok(outcome)
}

/// The cluster to which the workload of a plan leads, reached from one without a KataConfig and without a
/// detour.
///
/// # Errors
/// If its cluster cannot be made.
pub fn straight(plan: &Plan, bases: &Bases) -> Result<Outcome, EpisodeError> {
    let mut simulation = base::restore(&*bases.state(plan.topology, Base::Clean)?)?;
    plan.workload.prepare(&mut simulation)?;
    let (before, config) = plan.workload.straight(plan.topology);
    for deed in before {
        deeds::change(&mut simulation, &deed)?;
    }
    let created = config.map(Act::Create);
    let phases = [Phase { act: created.unwrap_or(Act::Nothing), goal: Goal::Settled }];
    let watch = Watch { idle: false, ..Watch::default() };
    let (outcome, _) = play(plan, &phases, simulation, watch)?;
    Ok(outcome)
}

/// The state of the cluster after an episode, changed in the end.
///
/// # Errors
/// If the episode breaks a promise, or its cluster cannot be made.
pub fn left_behind(
    plan: &Plan,
    bases: &Bases,
    change: impl FnOnce(&mut Simulation) -> Result<(), StateError>,
) -> Result<Kept, EpisodeError> {
    let state = bases.state(plan.topology, plan.workload.base())?;
    let mut simulation = base::restore(&state)?;
    plan.workload.prepare(&mut simulation)?;
    let watch = Watch { idle: false, ..Watch::default() };
    let phases = plan.workload.phases(plan.topology);
    let (outcome, kept) = play(plan, &phases, simulation, watch)?;
    if let Some(broken) = outcome.broken.first() {
        return Err(EpisodeError::Base(broken.clone()));
    }
    let mut simulation = base::restore(&kept)?;
    change(&mut simulation)?;
    Ok(Kept::of(&simulation, &plan.topology.layout()))
}

fn play(
    plan: &Plan,
    phases: &[Phase],
    simulation: Simulation,
    watch: Watch,
) -> Result<(Outcome, Kept), EpisodeError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let result = runtime.block_on(async {
        let ledger = Ledger::new(watch.traced);
        let _listening = watchdog::listen(&ledger, watch.traced);
        let stage = Stage::new(plan, simulation, ledger, watch);
        stage.play(phases).await
    });
    // What is left of tasks ends here.
    drop(runtime);
    Ok(result)
}

/// How often a host, or its container runtime, was started.
fn starts(host: &Host) -> u32 {
    host.boots + host.containerd.starts
}

struct Stage<'a> {
    plan: &'a Plan,
    watch: Watch,
    ledger: Ledger,
    cluster: Cluster,
    gate: Arc<Gate>,
    boots: BTreeMap<String, u32>,
    /// Since when the KataConfig says what is not true.
    untrue: Option<Instant>,
    revision: u64,
    lie: Option<String>,
    /// How many calls were struck by a fault when it was last looked.
    struck: u64,
}

impl<'a> Stage<'a> {
    fn new(plan: &'a Plan, mut simulation: Simulation, ledger: Ledger, watch: Watch) -> Self {
        let boots = simulation
            .world
            .hosts
            .iter()
            .map(|(name, host)| (name.clone(), starts(host)))
            .collect();
        for strike in &plan.strikes {
            simulation.frontend.faults.add(strike.rule());
        }
        let converged = plan.topology.is_converged();
        simulation.add_controller(Box::new(Promises::new(ledger.clone(), converged)));
        let clock = Clock::starting_at(simulation.now());
        let cluster = Cluster::start(simulation, clock);
        let gate = Gate::new(&cluster, &ledger, plan.deeds.clone());
        Self {
            plan,
            watch,
            ledger,
            cluster,
            gate,
            boots,
            untrue: None,
            revision: 0,
            lie: None,
            struck: 0,
        }
    }

    async fn play(mut self, phases: &[Phase]) -> (Outcome, Kept) {
        tokio::task::yield_now().await;
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let down = Duration::from_secs(self.plan.down);
        let election = self.plan.election;
        let mut operators = vec![Operator::start(&self.gate, 0, down, election)];
        if election {
            operators.push(Operator::start(&self.gate, 1, down, election));
        }
        self.pass(WARM_UP).await;
        let mut took = Vec::new();
        for (index, phase) in phases.iter().enumerate() {
            let begun = Instant::now();
            self.begin(index, phase);
            let last = index + 1 == phases.len();
            let reached = self.reach(phase.goal, last, &mut operators).await;
            let end = reached.as_ref().map_or_else(|_| Instant::now(), |end| *end);
            took.push(end.duration_since(begun));
            if let Err(missing) = reached {
                let after = begun.elapsed().as_secs();
                self.ledger.open().broke("L1", format!("phase {index}, {after} s: {missing}"));
                break;
            }
            self.check_boots(phase);
        }
        let events = self.cluster.with(|sim, _| sim.frontend.faults.events());
        let calls = self.ledger.open().calls.clone();
        let rests = !self.plan.topology.asks_again();
        if self.watch.idle && rests && self.ledger.open().broken.is_empty() {
            // A client that received 404 may find the object again on its next read.
            if self.plan.strikes.iter().any(Strike::denies) {
                self.pass(RESYNC + HOLD).await;
            }
            self.stay_idle().await;
        }
        drop(operators);
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        let left = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        if left > tasks {
            self.ledger.open().broke("O-task", format!("{} tasks are left", left - tasks));
        }
        let (end, boots, kept) = self.cluster.with(|sim, _| {
            let boots = sim.world.hosts.iter().map(|(name, host)| {
                let before = self.boots.get(name).copied().unwrap_or_default();
                (name.clone(), starts(host).saturating_sub(before))
            });
            let kept = Kept::of(sim, &self.plan.topology.layout());
            (world::state(sim), boots.filter(|(_, boots)| *boots > 0).collect(), kept)
        });
        let mut page = self.ledger.open();
        for panic in watchdog::panics() {
            page.broke("O-panic", panic);
        }
        let outcome = Outcome {
            broken: page.broken.clone(),
            calls,
            events,
            end,
            took,
            writes: page.writes.clone(),
            boots,
            trace: page.trace.take().unwrap_or_default(),
        };
        drop(page);
        self.cluster.shut_down();
        (outcome, kept)
    }

    /// What the Go operator left is taken over without a reboot.
    fn check_boots(&self, phase: &Phase) {
        if phase.act != Act::Nothing {
            return;
        }
        let booted: Vec<String> = self.cluster.with(|sim, _| {
            let hosts = sim.world.hosts.iter();
            let booted = hosts.filter(|(name, host)| {
                self.boots.get(*name).is_some_and(|before| *before < host.boots)
            });
            booted.map(|(name, _)| name.clone()).collect()
        });
        if !booted.is_empty() {
            self.ledger.open().broke("O-boots", format!("adoption rebooted {booted:?}"));
        }
    }

    fn begin(&self, index: usize, phase: &Phase) {
        self.ledger.open().note(&format!("phase {index}: {phase:?}"));
        self.cluster.with(|_, _| ());
        let ledger = &self.ledger;
        let done =
            ledger.acting(Actor::Episode, || self.cluster.with(|sim, _| phase.act.perform(sim)));
        // A deed may have taken away what the phase begins with.
        if let Err(error) = done {
            ledger.open().note(&format!("refused: {}", error.message));
        }
    }

    /// Lets time pass.
    async fn pass(&self, span: Duration) {
        tokio::time::sleep_until(Instant::now() + span).await;
    }

    /// Waits until the goal is reached and, if it is to last, until it has lasted since the last disturbance: an
    /// operator that is down reports nothing. Returns when it was reached; what is missing if it is not in time.
    async fn reach(
        &mut self,
        goal: Goal,
        last: bool,
        operators: &mut Vec<Operator>,
    ) -> Result<Instant, String> {
        let calm = self.plan.strikes.is_empty() && self.plan.deeds.is_empty();
        let named = calm && matches!(goal, Goal::Blocked(_));
        let end = Instant::now() + if named { NAMED } else { self.watch.limit };
        let converged = self.plan.topology.is_converged();
        let mut since = None;
        loop {
            if futures::FutureExt::now_or_never(self.gate.second.notified()).is_some() {
                let down = Duration::from_secs(self.plan.down);
                let number = operators.len();
                operators.push(Operator::start(&self.gate, number, down, self.plan.election));
            }
            let now = Instant::now();
            let missing = self.cluster.with(|sim, _| goal.missing(sim, converged));
            self.look_for_lies(now);
            match missing {
                None => {
                    let reached = *since.get_or_insert(now);
                    if !goal.lasts() {
                        return Ok(reached);
                    }
                    let disturbed = self.ledger.open().disturbed;
                    let calm_since = disturbed.map_or(reached, |disturbed| reached.max(disturbed));
                    if now.saturating_duration_since(calm_since) >= HOLD {
                        if !last || self.gate.is_done() {
                            return Ok(reached);
                        }
                        self.gate.finish_deeds();
                    }
                }
                Some(missing) if now >= end => return Err(missing),
                Some(_) => since = None,
            }
            self.pass(Duration::from_secs(1)).await;
        }
    }

    /// Notes when the KataConfig goes on saying what is not true.
    fn look_for_lies(&mut self, now: Instant) {
        // A call that hangs is struck long before it ends.
        let struck = self.gate.struck();
        if struck != self.struck {
            self.struck = struck;
            let mut page = self.ledger.open();
            page.disturbed = page.disturbed.max(Some(now));
        }
        let (revision, converged) = (self.revision, self.plan.topology.is_converged());
        let (current, lie) = self.cluster.with(|sim, _| {
            let current = sim.api.store.revision();
            (current, (current != revision).then(|| world::lie(sim, converged)))
        });
        self.revision = current;
        if let Some(lie) = lie {
            self.lie = lie;
        }
        let Some(lie) = &self.lie else {
            self.untrue = None;
            return;
        };
        let lossy = self.plan.strikes.iter().any(|strike| strike.concerns_events());
        // The status is written when the other calls of a pass were answered.
        let late = self.plan.strikes.iter().map(Strike::lateness).max().unwrap_or_default();
        let grace = if lossy { LONG_GRACE } else { GRACE + late * CALLS };
        let begun = *self.untrue.get_or_insert(now);
        let mut page = self.ledger.open();
        let begun = page.disturbed.map_or(begun, |disturbed| begun.max(disturbed));
        let calm = grace + if page.disturbed.is_some() { LONG_GRACE } else { Duration::ZERO };
        if now.duration_since(begun) > calm {
            page.broke("O-status", lie);
        }
    }

    /// Ten minutes in which nothing is written.
    async fn stay_idle(&self) {
        let (mut before, mut begun) = (0, Duration::ZERO);
        // A fault that strikes meanwhile may be reported, so the minutes begin anew; there are few faults.
        for _ in 0..MORE_IDLE {
            let idle_since = {
                let mut page = self.ledger.open();
                page.note("ten idle minutes");
                (before, begun) = (page.calls.len(), page.start.elapsed());
                Instant::now()
            };
            self.pass(IDLE).await;
            if self.ledger.open().disturbed.is_none_or(|disturbed| disturbed < idle_since) {
                break;
            }
        }
        let mut page = self.ledger.open();
        let calls = page.calls.split_off(before);
        let late = |call: &Call| call.is_event() && call.at < begun + HELD_BACK;
        let idle = |call: &&Call| call.is_write() && !call.is_lease() && !late(call);
        for call in calls.iter().filter(idle) {
            page.broke("O-updates", format!("written while idle: {} {}", call.method, call.path));
        }
        page.calls.extend(calls);
    }
}
