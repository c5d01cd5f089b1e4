//! What time it is, for display only: durations and deadlines use tokio's monotonic clock.
//!
//! The system's clock in production; a clock that follows tokio's in a simulation, so that a run on
//! paused time is deterministic. No other module asks for the time of day.

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

    /// The current time.
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
