//! Random numbers that spread retries over time. They are not for secrets.
//!
//! The seed is a setting, so that a simulated run is repeatable. Two operators must not share one, or they
//! retry in lockstep.

use std::sync::Mutex;
use std::time::Duration;

/// A seeded generator (splitmix64).
#[derive(Debug)]
pub struct Jitter(Mutex<u64>);

impl Jitter {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        // A poisoned lock still guards a valid number.
        let mut state = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A duration from half of `span` up to `span`.
    pub fn spread(&self, span: Duration) -> Duration {
        let half = span / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX);
        half + Duration::from_nanos(self.next() % nanos.saturating_add(1))
    }

    /// The wait before retry number `attempt` (from 0): doubling from `first`, at most `longest`, spread.
    pub fn backoff(&self, attempt: u32, first: Duration, longest: Duration) -> Duration {
        self.spread(
            first.saturating_mul(1_u32.checked_shl(attempt).unwrap_or(u32::MAX)).min(longest),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_stays_below_its_cap_and_repeats_with_the_seed() {
        let (one, two) = (Jitter::new(7), Jitter::new(7));
        let cap = Duration::from_secs(30);
        for attempt in 0..80 {
            let wait = one.backoff(attempt, Duration::from_millis(500), cap);
            assert_eq!(wait, two.backoff(attempt, Duration::from_millis(500), cap));
            assert!(wait <= cap, "{wait:?}");
            assert!(wait >= Duration::from_millis(250), "{wait:?}");
        }
        assert!(one.backoff(40, Duration::from_millis(500), cap) >= cap / 2);
    }
}
