//! The time of day, which is the API server's: what it and others write is compared with it. Durations and deadlines of
//! this process use tokio's monotonic clock.
//!
//! In production it is the system's clock, in a simulation one that follows tokio's, so that a run on paused time is
//! deterministic; both are corrected by the answers of the API server. No other module reads the time of day.

use std::time::Duration;

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use kata_connect::ServerTime;
use tokio::time::Instant;

/// A source of timestamps. Clones share what is known of the API server's clock.
#[derive(Clone, Debug)]
pub struct Clock {
    own: Own,
    server: ServerTime,
}

/// The clock of this machine.
#[derive(Clone, Copy, Debug)]
enum Own {
    System,
    Simulated { epoch: Timestamp, base: Instant },
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self { own: Own::System, server: ServerTime::default() }
    }

    /// A simulated clock that shows `epoch` now.
    pub fn simulated(epoch: Timestamp) -> Self {
        let own = Own::Simulated { epoch, base: Instant::now() };
        Self { own, server: ServerTime::default() }
    }

    /// What the API server's clock shows.
    pub fn now(&self) -> Timestamp {
        let own = self.own_now();
        own.checked_add(self.server.ahead()).unwrap_or(own)
    }

    /// By how much the API server's clock is ahead of this machine's.
    pub fn server_ahead(&self) -> SignedDuration {
        self.server.ahead()
    }

    /// Learns from an answer of the API server that has just come, to a request that was sent `took` before.
    pub fn learn(&self, headers: &HeaderMap, took: Duration) {
        self.server.learn(headers, self.own_now(), took);
    }

    fn own_now(&self) -> Timestamp {
        match self.own {
            Own::System => Timestamp::now(),
            Own::Simulated { epoch, base } => {
                let elapsed =
                    SignedDuration::try_from(base.elapsed()).unwrap_or(SignedDuration::MAX);
                epoch.checked_add(elapsed).unwrap_or(Timestamp::MAX)
            }
        }
    }
}
