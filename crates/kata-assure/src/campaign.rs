//! Many episodes on several threads, and what came of them together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::enumerate::{self, Amount, Sort};
use crate::judge::References;
use crate::plan::Plan;
use crate::shape::Topology;
use crate::workload::Workload;

/// How long an episode may take; one of fifty nodes takes some seconds. In one that takes longer no virtual
/// time passes any more, because a task runs without end.
const STUCK: Duration = Duration::from_mins(5);
/// How often to look for such episodes.
const LOOK: Duration = Duration::from_secs(1);

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Order {
    /// How much of what can be enumerated.
    pub amount: Amount,
    /// On how many threads.
    pub threads: usize,
    /// No episode begins after so long.
    pub budget: Option<Duration>,
    /// Which workloads.
    pub workloads: Vec<Workload>,
    /// On which topologies.
    pub topologies: Vec<Topology>,
}

/// A plan that broke something.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The plan as one line, for `kata-assure episode`.
    pub plan: String,
    /// What was broken.
    pub broken: Vec<String>,
}

/// What came of one workload on one topology.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cell {
    /// The workload.
    pub workload: String,
    /// The topology.
    pub topology: String,
    /// Calls of the operator when nothing goes wrong.
    pub calls: u64,
    /// Of them, writes.
    pub writes: u64,
    /// Watch events.
    pub events: u64,
    /// Virtual seconds that it takes when nothing goes wrong.
    pub virtual_seconds: u64,
    /// Plans that were run, by what they are about.
    pub plans: BTreeMap<Sort, u64>,
    /// Plans that were enumerated.
    pub enumerated: u64,
    /// Those that broke something.
    pub failures: Vec<Failure>,
}

/// What came of all.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Always true: no real cluster was touched.
    pub simulated: bool,
    /// Calls at which the operator was killed, before and after counted each.
    pub crash_points: u64,
    /// Episodes in which something else went wrong.
    pub fault_plans: u64,
    /// Of them, those with faults at random.
    pub seeds: u64,
    /// Episodes that broke a promise.
    pub failures: u64,
    /// How long it took.
    pub wall_seconds: f64,
    /// Episodes per second, over all threads.
    pub episodes_per_second: f64,
    /// On how many threads.
    pub threads: usize,
    /// Percent of the plans that were asked for.
    pub sample: u64,
    /// What chose the sample and the random plans.
    pub seed: u64,
    /// Plans that did not run because the time was up.
    pub left_out: u64,
    /// Each workload on each topology.
    pub workloads: Vec<Cell>,
}

/// Runs everything that is ordered. `progress` gets a line now and then.
pub fn run(order: &Order, progress: &(dyn Fn(&str) + Sync)) -> Summary {
    let begun = Instant::now();
    let references = References::default();
    let pairs: Vec<(Workload, Topology)> = order
        .topologies
        .iter()
        .flat_map(|topology| order.workloads.iter().map(move |workload| (*workload, *topology)))
        .filter(|(workload, topology)| workload.fits(*topology))
        .collect();
    let cells: Mutex<BTreeMap<(Topology, Workload), Cell>> = Mutex::default();
    let jobs: Mutex<Vec<(Sort, Plan)>> = Mutex::default();
    let lock = || cells.lock().unwrap_or_else(PoisonError::into_inner);
    each(&pairs, order.threads, |(workload, topology)| {
        let calm = Plan::calm(*workload, *topology);
        let mut cell = Cell {
            workload: workload.as_str().to_owned(),
            topology: topology.as_str().to_owned(),
            ..Cell::default()
        };
        let run = references.of(&calm).and_then(|outcome| Ok((outcome, references.detour(&calm)?)));
        match run {
            Ok((outcome, detour)) => {
                let broken: Vec<String> = outcome.broken.iter().cloned().chain(detour).collect();
                let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
                cell.calls = count(outcome.calls.len());
                cell.writes = count(outcome.calls.iter().filter(|call| call.is_write()).count());
                cell.events = outcome.events;
                cell.virtual_seconds = outcome.took.iter().map(Duration::as_secs).sum();
                if broken.is_empty() {
                    let plans = enumerate::plans(*workload, *topology, &outcome, order.amount);
                    cell.enumerated = count(plans.len());
                    jobs.lock().unwrap_or_else(PoisonError::into_inner).extend(plans);
                } else {
                    cell.failures.push(Failure { plan: calm.line(), broken });
                }
            }
            Err(error) => {
                let broken = vec![error.to_string()];
                cell.failures.push(Failure { plan: calm.line(), broken });
            }
        }
        progress(&format!(
            "{workload} on {topology}: {calls} calls, {events} events, {took} virtual s, {plans} plans{bad}",
            workload = cell.workload,
            topology = cell.topology,
            calls = cell.calls,
            events = cell.events,
            took = cell.virtual_seconds,
            plans = cell.enumerated,
            bad = cell.failures.first().map_or_else(String::new, |failure| {
                format!("; BROKEN without any fault: {:?}", failure.broken)
            }),
        ));
        lock().insert((*topology, *workload), cell);
    });
    let mut jobs = jobs.into_inner().unwrap_or_else(PoisonError::into_inner);
    // In an order that has nothing to do with what they are about, so that a budget leaves out a little of
    // everything, and the speed after each hundred is that of all.
    jobs.sort_by_cached_key(|(_, plan)| enumerate::hash(&plan.line()));
    let (done, left_out) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // The runs without faults are not what a budget is for, and all of them are needed.
    let faults_begun = Instant::now();
    let under_way: Mutex<BTreeMap<String, Instant>> = Mutex::default();
    let under_way = || under_way.lock().unwrap_or_else(PoisonError::into_inner);
    let work = |(sort, plan): &(Sort, Plan)| {
        if order.budget.is_some_and(|budget| faults_begun.elapsed() >= budget) {
            left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        under_way().insert(plan.line(), Instant::now());
        let broken = match references.judge(plan, false, stays_idle(plan)) {
            Ok(outcome) => outcome.broken,
            Err(error) => vec![error.to_string()],
        };
        under_way().remove(&plan.line());
        let count = done.fetch_add(1, Ordering::Relaxed) + 1;
        let failure = (!broken.is_empty()).then(|| Failure { plan: plan.line(), broken });
        if let Some(Failure { plan, broken }) = &failure {
            let first = broken.first().map(String::as_str).unwrap_or_default();
            progress(&format!("BROKEN {first}\n  {plan}"));
        }
        if count.is_multiple_of(100) {
            let speed = count as f64 / faults_begun.elapsed().as_secs_f64();
            progress(&format!("{count} of {} episodes, {speed:.1} per second", jobs.len()));
        }
        let mut cells = lock();
        let cell = cells.entry((plan.topology, plan.workload)).or_default();
        *cell.plans.entry(*sort).or_default() += 1;
        cell.failures.extend(failure);
    };
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
                let stuck = |(_, since): &(&String, &Instant)| since.elapsed() > STUCK;
                if let Some((plan, _)) = under_way().iter().find(stuck) {
                    progress(&format!("BROKEN L1: it never ends\n  {plan}"));
                    #[expect(
                        clippy::exit,
                        reason = "its thread cannot be stopped, nor waited for"
                    )]
                    std::process::exit(1);
                }
            }
        });
        let _end = End(&ended);
        each(&jobs, order.threads, work);
    });
    let cells = cells.into_inner().unwrap_or_else(PoisonError::into_inner);
    let left_out = u64::try_from(left_out.into_inner()).unwrap_or(u64::MAX);
    summarise(order, cells.into_values().collect(), left_out, begun.elapsed())
}

/// Says that all is over when it is dropped, be it by a panic.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether ten idle minutes follow; they cost as much as the rest.
fn stays_idle(plan: &Plan) -> bool {
    enumerate::hash(&plan.line()).is_multiple_of(4)
}

fn summarise(order: &Order, cells: Vec<Cell>, left_out: u64, took: Duration) -> Summary {
    let sum = |wanted: &dyn Fn(Sort) -> bool| -> u64 {
        let plans = cells.iter().flat_map(|cell| &cell.plans);
        plans.filter(|(sort, _)| wanted(**sort)).map(|(_, count)| count).sum()
    };
    let all = sum(&|_| true);
    let failures = cells.iter().map(|cell| cell.failures.len()).sum::<usize>();
    Summary {
        simulated: true,
        crash_points: sum(&|sort| sort == Sort::Crash),
        fault_plans: sum(&|sort| sort != Sort::Crash),
        seeds: sum(&|sort| sort == Sort::Random),
        failures: u64::try_from(failures).unwrap_or(u64::MAX),
        wall_seconds: (took.as_secs_f64() * 10.0).round() / 10.0,
        episodes_per_second: (all as f64 / took.as_secs_f64().max(0.001) * 10.0).round() / 10.0,
        threads: order.threads,
        sample: order.amount.sample,
        seed: order.amount.seed,
        left_out,
        workloads: cells,
    }
}

/// Does something with every item, on several threads.
fn each<T: Sync>(items: &[T], threads: usize, work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}
