//! The clock of a running cluster: wall time that follows tokio's clock.
//!
//! On a paused tokio clock it is virtual time, and a run is deterministic.
//! Only this module may ask what time it is; the state machine gets time as an argument.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Maps tokio's monotonic clock to timestamps.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: Timestamp,
    base: Instant,
}

impl Clock {
    /// A clock that shows `epoch` now.
    pub fn starting_at(epoch: Timestamp) -> Self {
        Self { epoch, base: Instant::now() }
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.base.elapsed()).unwrap_or(SignedDuration::MAX);
        self.epoch.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    /// The instant at which the clock shows `time`; times in the past give the present.
    pub fn instant_of(&self, time: Timestamp) -> Instant {
        let ahead = time.duration_since(self.epoch);
        self.base + std::time::Duration::try_from(ahead).unwrap_or_default()
    }
}
