//! How long controllers and daemons wait before they try again.

use std::time::Duration;

/// A controller's queue: 5 ms, doubled with every failure, and after 15 failures one minute.
pub(super) fn queue(failures: u32) -> Duration {
    if failures > 15 {
        return Duration::from_secs(60);
    }
    Duration::from_millis(5).saturating_mul(1 << failures.saturating_sub(1))
}

/// A daemon: one second, doubled with every failure, at most one minute.
pub(super) fn daemon(failures: u32) -> Duration {
    Duration::from_secs(1 << failures.saturating_sub(1).min(6)).min(Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_limit() {
        let queue: Vec<_> = [1, 2, 13, 15, 16, 99].map(|n| queue(n).as_millis()).into();
        assert_eq!(queue, [5, 10, 20_480, 81_920, 60_000, 60_000]);
        let daemon: Vec<_> = [1, 2, 6, 7, 99].map(|n| daemon(n).as_secs()).into();
        assert_eq!(daemon, [1, 2, 32, 60, 60]);
    }
}
