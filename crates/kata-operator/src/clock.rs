//! The time of day, for display only: durations and deadlines use tokio's monotonic clock.
//!
//! In production it is the system's clock; in a simulation it follows tokio's clock, so that a run on paused
//! time is deterministic. No other module reads the time of day.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A source of timestamps.
#[derive(Clone, Copy, Debug)]
pub enum Clock {
    /// The system's clock.
    System,
    /// A clock that showed `epoch` at `base` and follows tokio's clock since.
    Simulated {
        /// What the clock showed at `base`.
        epoch: Timestamp,
        /// When it showed `epoch`.
        base: Instant,
    },
}

impl Clock {
    /// A simulated clock that shows `epoch` now.
    pub fn simulated(epoch: Timestamp) -> Self {
        Self::Simulated { epoch, base: Instant::now() }
    }

    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Simulated { epoch, base } => {
                let elapsed =
                    SignedDuration::try_from(base.elapsed()).unwrap_or(SignedDuration::MAX);
                epoch.checked_add(elapsed).unwrap_or(Timestamp::MAX)
            }
        }
    }
}
