//! What an episode is held against: the run in which nothing goes wrong and the same is done in the end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::base::Bases;
use crate::episode::{self, EpisodeError, Outcome, Watch};
use crate::plan::{Deed, Plan};
use crate::workload::Workload;
use crate::world;

/// What an episode may take longer than the reference, without any fault.
const SLACK: Duration = Duration::from_mins(5);
/// And for each fault: the resync, by which everything is seen at last, and a little more.
const PER_FAULT: Duration = Duration::from_mins(6);
/// How many writes of an object more than in the reference each fault may bring.
const WRITES_PER_FAULT: u64 = 4;

/// The reference runs that were made so far.
#[derive(Debug, Default)]
pub struct References {
    /// The clusters on which they begin.
    pub bases: Bases,
    known: Mutex<BTreeMap<String, Arc<Outcome>>>,
}

impl References {
    /// The run with which a plan is compared.
    ///
    /// # Errors
    /// If its cluster cannot be made.
    pub fn of(&self, plan: &Plan) -> Result<Arc<Outcome>, EpisodeError> {
        let calm = undisturbed(plan);
        let line = calm.line();
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&line) {
            return Ok(Arc::clone(known));
        }
        let outcome = Arc::new(episode::run(&calm, &self.bases, Watch::default())?);
        Ok(Arc::clone(lock().entry(line).or_insert(outcome)))
    }

    /// O-path: what differs between the end of a workload and the same end reached without a detour.
    ///
    /// # Errors
    /// If its cluster cannot be made.
    pub fn detour(&self, calm: &Plan) -> Result<Vec<String>, EpisodeError> {
        match calm.workload {
            // The runtime that the pod uses stays beside the new one, which no straight way leaves.
            Workload::PayloadUpgradeWithPod
            // Shims that a node has and needs no more stay as long as their payload does, and a class that has lost its
            // last node stays for the pods that name it.
            | Workload::InstallOn
            | Workload::InstallOnWithPod
            | Workload::ProvidedWithPod => return Ok(Vec::new()),
            _ => {}
        }
        let (end, straight) = (self.of(calm)?, episode::straight(calm, &self.bases)?);
        let differences = world::differences(&end.end, &straight.end).into_iter();
        Ok(differences.map(|difference| format!("O-path: {difference}")).collect())
    }

    /// Runs a plan and compares it; returns what was broken with it.
    ///
    /// # Errors
    /// If its cluster cannot be made.
    pub fn judge(&self, plan: &Plan, traced: bool, idle: bool) -> Result<Outcome, EpisodeError> {
        let reference = self.of(plan)?;
        let watch = Watch { limit: limit(plan, &reference), traced, idle };
        let mut outcome = episode::run(plan, &self.bases, watch)?;
        let broken = compare(plan, &outcome, &reference);
        outcome.broken.extend(broken);
        Ok(outcome)
    }
}

/// The plan with what users do, after everything else, and nothing besides.
fn undisturbed(plan: &Plan) -> Plan {
    let by_users = |deed: &Deed| match deed {
        Deed::DeleteConfig
        | Deed::EditConfig { .. }
        | Deed::Label { .. }
        | Deed::Pod { .. }
        | Deed::EndPod { .. }
        | Deed::OsImage => true,
        Deed::Edit { .. }
        | Deed::Remove { .. }
        | Deed::Kill { .. }
        | Deed::StealLease
        | Deed::Second
        | Deed::RemoveJobs { .. }
        | Deed::KillAgent { .. }
        | Deed::ForeignChange { .. }
        | Deed::ForeignRestart { .. }
        | Deed::ForeignEnd { .. } => false,
    };
    let mut calm = Plan::calm(plan.workload, plan.topology);
    calm.deeds = plan.deeds.iter().filter(|at| by_users(&at.deed)).cloned().collect();
    for at in &mut calm.deeds {
        at.call = u64::MAX;
    }
    calm
}

fn faults(plan: &Plan) -> u32 {
    let count = plan.strikes.len() + plan.deeds.len();
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn limit(plan: &Plan, reference: &Outcome) -> Duration {
    let longest: Duration = reference.took.iter().sum();
    let repeated: u64 = plan.strikes.iter().map(|strike| strike.times.min(100)).sum();
    let down: u64 = plan
        .deeds
        .iter()
        .map(|at| match at.deed {
            Deed::Kill { down } => down,
            _ => 0,
        })
        .sum::<u64>()
        + plan.down * repeated;
    // A user's change begins another rollout; a lease that was not released takes its time.
    let again = longest * u32::try_from(plan.deeds.len()).unwrap_or(1);
    let lease =
        if plan.election { Duration::from_secs(200) * (1 + faults(plan)) } else { Duration::ZERO };
    longest
        + again
        + SLACK
        + PER_FAULT * faults(plan)
        + lease
        + Duration::from_secs(down + 30 * repeated)
}

fn compare(plan: &Plan, outcome: &Outcome, reference: &Outcome) -> Vec<String> {
    // What came of an episode that did not reach its goal is another question.
    if outcome.broken.iter().any(|broken| broken.starts_with("L1")) {
        return Vec::new();
    }
    let mut broken: Vec<String> = world::differences(&outcome.end, &reference.end)
        .into_iter()
        .map(|difference| format!("O-end: {difference}"))
        .collect();
    let faults = u64::from(faults(plan))
        + plan.strikes.iter().map(|strike| strike.times.saturating_sub(1).min(100)).sum::<u64>();
    for (object, writes) in &outcome.writes {
        let usual = reference.writes.get(object).copied().unwrap_or_default();
        // Statuses follow what happens, and two operators both write them.
        let most = (usual + 2 + faults * WRITES_PER_FAULT) * if is_doubled(plan) { 3 } else { 1 };
        if *writes > most {
            broken.push(format!("O-updates: {object} was written {writes} times, usually {usual}"));
        }
    }
    let interrupts = plan.workload == Workload::UninstallWhileInstalling || !plan.deeds.is_empty();
    if !interrupts && outcome.boots != reference.boots {
        let (found, wanted) = (&outcome.boots, &reference.boots);
        broken.push(format!("O-boots: hosts booted {found:?} times, usually {wanted:?}"));
    }
    broken
}

fn is_doubled(plan: &Plan) -> bool {
    plan.deeds.iter().any(|at| at.deed == Deed::Second)
}
