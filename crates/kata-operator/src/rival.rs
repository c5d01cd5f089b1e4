//! Notices that somebody undoes what is written, by its coming again and again, and sets the pace against it.
//!
//! It decides only how long to wait, and for how long this is told.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::time::Duration;

use kata_plan::{Action, Plan, StepFailure};
use tokio::time::Instant;

use crate::apply::Refused;
use crate::jitter::Jitter;

/// What is written again so soon after the last pause is over is undone by a program. People who change
/// their mind take longer for it, and shall not wait.
const SOON: Duration = Duration::from_secs(20);
/// How often the same may be written before there are pauses.
const OFTEN: u32 = 3;
/// The first pause; it doubles with each time, up to the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(30)];
/// From which pause on it is told.
const TOLD: Duration = Duration::from_secs(1);
/// How many plans are remembered.
const REMEMBERED: usize = 64;

/// What was written lately, without statuses, and what is told of it.
#[derive(Debug, Default)]
pub(crate) struct Rival {
    written: BTreeMap<u64, Written>,
    told: Option<(StepFailure, Instant)>,
}

#[derive(Debug)]
struct Written {
    /// How often it came since it came late, but for the first time.
    times: u32,
    /// When the pause after it is over.
    ripe: Instant,
}

impl Rival {
    /// How long to wait after what a plan has written.
    pub(crate) fn pace(&mut self, plan: &Plan, refused: &Refused, jitter: &Jitter) -> Duration {
        let now = Instant::now();
        self.written.retain(|_, written| now < written.ripe + SOON);
        let Some(hash) = hash(plan, refused) else { return Duration::ZERO };
        let oldest = self.written.iter().min_by_key(|(_, written)| written.ripe);
        if self.written.len() >= REMEMBERED
            && let Some(oldest) = oldest.map(|(hash, _)| *hash)
        {
            self.written.remove(&oldest);
        }
        let times = self.written.get(&hash).map_or(0, |written| written.times + 1);
        let [first, longest] = PAUSES;
        let pause = match times.checked_sub(OFTEN) {
            Some(attempt) => jitter.backoff(attempt, first, longest),
            None => Duration::ZERO,
        };
        self.written.insert(hash, Written { times, ripe: now + pause });
        if times == OFTEN {
            let first: Vec<String> = plan.steps.iter().take(5).map(ToString::to_string).collect();
            tracing::warn!(
                plan.steps = plan.steps.len(),
                plan.first = first.join("; "),
                "the same is written again and again; something undoes it"
            );
        }
        if pause >= TOLD || self.told().is_some() {
            self.told = undone(plan, refused).map(|failure| (failure, now + pause + SOON));
        }
        pause
    }

    /// What is told, and for how long yet.
    pub(crate) fn told(&self) -> Option<(StepFailure, Duration)> {
        let (failure, until) = self.told.as_ref()?;
        let more = until.saturating_duration_since(Instant::now());
        (!more.is_zero()).then(|| (failure.clone(), more))
    }
}

/// What a plan writes, without statuses and without what is held back.
fn writes<'a>(plan: &'a Plan, refused: &Refused) -> impl Iterator<Item = &'a Action> {
    let actions = plan.steps.iter().map(|step| &step.action);
    actions.filter(|action| !matches!(action, Action::ApplyStatus { .. }) && !refused.holds(action))
}

fn undone(plan: &Plan, refused: &Refused) -> Option<StepFailure> {
    let action = writes(plan, refused).next()?;
    Some(StepFailure {
        object: action.object().clone(),
        error: format!("somebody undoes what the operator writes again and again: {action}"),
        undone: true,
    })
}

/// A hash of what a plan writes; `None` if that is nothing. What a step relies on is no part of it: only
/// what it writes comes again.
fn hash(plan: &Plan, refused: &Refused) -> Option<u64> {
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
    let mut empty = true;
    for action in writes(plan, refused) {
        empty = false;
        sink.0.write(action.to_string().as_bytes());
        if let Action::Apply { body, .. } = action {
            // Neither a Value nor the sink fails.
            drop(serde_json::to_writer(&mut sink, body));
        }
    }
    (!empty).then(|| sink.0.finish())
}
