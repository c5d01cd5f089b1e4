//! Detects that another client keeps reverting the operator's writes: the operator has to write the same
//! again and again.
//!
//! It sets only how long to wait, and how long to report the fight. It decides nothing.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::time::Duration;

use kata_api::Code;
use kata_plan::{Action, Plan, StepFailure};
use tokio::time::Instant;

use crate::apply::RefusedWrites;
use crate::jitter::Jitter;
use crate::pacing::{FIGHT, FIGHT_REPORTED_FROM, FIGHT_WINDOW, WRITES_BEFORE_FIGHT};

/// How many plans are remembered.
const MAX_PLANS: usize = 64;

/// The recent writes, without statuses, and the fight that is reported.
#[derive(Debug, Default)]
pub(crate) struct FightDetector {
    written: BTreeMap<u64, Written>,
    reported: Option<(StepFailure, Instant)>,
}

#[derive(Debug)]
struct Written {
    /// How often it was written again within the window.
    repeats: u32,
    /// When the wait after the last write ends.
    wait_ends: Instant,
}

impl FightDetector {
    /// How long to wait after a plan was carried out.
    pub(crate) fn pause_after(
        &mut self,
        plan: &Plan,
        refused: &RefusedWrites,
        jitter: &Jitter,
    ) -> Duration {
        let now = Instant::now();
        self.written.retain(|_, written| now < written.wait_ends + FIGHT_WINDOW);
        let Some(hash) = hash_writes(plan, refused) else { return Duration::ZERO };
        let oldest = self.written.iter().min_by_key(|(_, written)| written.wait_ends);
        if self.written.len() >= MAX_PLANS
            && let Some(oldest) = oldest.map(|(hash, _)| *hash)
        {
            self.written.remove(&oldest);
        }
        let repeats = self.written.get(&hash).map_or(0, |written| written.repeats + 1);
        let pause = match repeats.checked_sub(WRITES_BEFORE_FIGHT) {
            Some(attempt) => FIGHT.wait(attempt, jitter),
            None => Duration::ZERO,
        };
        self.written.insert(hash, Written { repeats, wait_ends: now + pause });
        if repeats == WRITES_BEFORE_FIGHT {
            let first: Vec<String> = plan.steps.iter().take(5).map(ToString::to_string).collect();
            tracing::warn!(
                plan.steps = plan.steps.len(),
                plan.first = first.join("; "),
                "another client keeps reverting the operator's changes"
            );
        }
        // A plan that is written once in the meantime was not reverted.
        let continues = self.reported().is_some() && repeats >= WRITES_BEFORE_FIGHT;
        if pause >= FIGHT_REPORTED_FROM || continues {
            self.reported =
                reverted_write(plan, refused).map(|failure| (failure, now + pause + FIGHT_WINDOW));
        }
        pause
    }

    /// The fight to report, and for how much longer.
    pub(crate) fn reported(&self) -> Option<(StepFailure, Duration)> {
        let (failure, until) = self.reported.as_ref()?;
        let left = until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| (failure.clone(), left))
    }
}

/// The writes of a plan, without statuses and without postponed writes.
fn writes<'a>(plan: &'a Plan, refused: &RefusedWrites) -> impl Iterator<Item = &'a Action> {
    let actions = plan.steps.iter().map(|step| &step.action);
    actions
        .filter(|action| !matches!(action, Action::ApplyStatus { .. }) && !refused.contains(action))
}

fn reverted_write(plan: &Plan, refused: &RefusedWrites) -> Option<StepFailure> {
    let action = writes(plan, refused).next()?;
    Some(StepFailure {
        object: action.object().clone(),
        error: format!("another client keeps reverting what the operator writes: {action}"),
        code: Code::WriteUndone,
    })
}

/// A hash of a plan's writes; `None` if it has none. It leaves out preconditions: they may differ when a
/// write is repeated.
fn hash_writes(plan: &Plan, refused: &RefusedWrites) -> Option<u64> {
    struct Sink(DefaultHasher);
    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut sink = Sink(DefaultHasher::new());
    let mut is_empty = true;
    for action in writes(plan, refused) {
        is_empty = false;
        sink.0.write(action.to_string().as_bytes());
        if let Action::Apply { body, .. } = action {
            // Neither a Value nor the sink fails.
            drop(serde_json::to_writer(&mut sink, body));
        }
    }
    (!is_empty).then(|| sink.0.finish())
}
