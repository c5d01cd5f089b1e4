//! How long a roll-out will take, from the nodes that it has finished, and from nothing else.

use jiff::{SignedDuration, Timestamp};

/// What is known of the pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Half of the nodes took longer than this after the one before.
    interval: SignedDuration,
    /// When the last node was done.
    last: Timestamp,
}

/// The pace of a roll-out that began at `began`, given when nodes became ready. `None` before the first
/// node is done: there is nothing to go by.
pub(crate) fn pace(began: Timestamp, finished: &[Timestamp]) -> Option<Pace> {
    let mut times: Vec<Timestamp> = finished.iter().copied().filter(|time| *time > began).collect();
    times.sort();
    let last = *times.last()?;
    let mut intervals: Vec<SignedDuration> = std::iter::once(began)
        .chain(times.iter().copied())
        .zip(times.iter().copied())
        .map(|(before, after)| after.duration_since(before))
        .collect();
    intervals.sort();
    let interval = *intervals.get(intervals.len() / 2)?;
    Some(Pace { interval, last })
}

impl Pace {
    /// How long until the `place`-th of the remaining nodes is done, from 1. Never less than a tenth of
    /// the time that a node takes: what is late is not done yet.
    pub(crate) fn until(&self, now: Timestamp, place: usize) -> SignedDuration {
        let places = i32::try_from(place).unwrap_or(i32::MAX);
        let due = self.interval.saturating_mul(places);
        let left = due.saturating_sub(now.duration_since(self.last));
        left.max(self.interval / 10).max(SignedDuration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    #[test]
    fn nothing_is_guessed_before_the_first_node_is_done() {
        assert_eq!(pace(at(0), &[]), None);
        // What was ready before the roll-out began says nothing about it.
        assert_eq!(pace(at(0), &[at(-50)]), None);
    }

    #[test]
    fn the_median_node_counts() {
        let pace = pace(at(0), &[at(100), at(200), at(900)]).unwrap();
        assert_eq!(pace.interval.as_secs(), 100);
        assert_eq!(pace.until(at(930), 1).as_secs(), 70);
        assert_eq!(pace.until(at(930), 2).as_secs(), 170);
        assert_eq!(pace.until(at(5_000), 1).as_secs(), 10);
    }
}
