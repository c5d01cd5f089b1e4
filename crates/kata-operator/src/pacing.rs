//! How fast the operator acts. Every wait between two attempts is in this table, and nowhere else; the
//! times of the leader election are settings ([`crate::settings`]), and the limits of a single call are the
//! client's ([`crate::client`]).
//!
//! | When | Wait | Name |
//! |---|---|---|
//! | **Passes** | | |
//! | A change was seen | gather changes for 75 ms, then a pass | [`DEBOUNCE`] |
//! | A node shows progress of a change by the Machine Config Operator | 2 s, then a pass | [`PROGRESS`] |
//! | A pass succeeded, and its decision asks for another one | as long as it asks for, and at least the two waits below | [`Schedule::succeeded`] |
//! | A pass used the processor | 9 times as long, at most 5 s | [`pause_after`] |
//! | A pass wrote what it had written before | see "writes" | [`FIGHT`] |
//! | A pass failed, or the platform is not known | 0.2 s, doubling up to 30 s | [`PASS_FAILED`] |
//! | The API server asked for a wait (`Retry-After`) | as long as it asks for, from 0.2 s to 30 s | [`PASS_FAILED`] |
//! | A watch has not shown what the pass before wrote or read | until it has; after 5 s the kind is listed again | [`CATCH_UP`] |
//! | Nothing happens | 5 min, then everything is read again | [`RESYNC`] |
//! | **Watches** | | |
//! | A watch lasted as long as requested | none, but 1 s since it was opened | [`WATCH_INTERVAL`] |
//! | A watch or its list failed | 0.5 s, doubling up to 30 s; from the start again after 30 s of success | [`WATCH_FAILED`], [`WATCH_STABLE`] |
//! | The history that a watch needs is gone | 0.1 s, doubling up to 30 s, then a list | [`WATCH_EXPIRED`] |
//! | A watch is refused for good, such as for lack of a permission | 5 s, doubling up to 60 s | [`WATCH_REFUSED`] |
//! | The API server asked for a wait | up to twice as long, at most 60 s | [`watch_retry`] |
//! | **Pods that hold up a deletion** | | |
//! | One of them ended | all are listed again, 30 s after the last list at the earliest | [`PODS_RELISTED`] |
//! | None of them ended | all are listed again after 5 min | [`RESYNC`] |
//! | The watch of pods that are not scheduled failed | 30 s, and meanwhile all are listed in each pass | [`POD_WATCH_FAILED`] |
//! | **Writes** | | |
//! | A write was refused for good | that write: 15 to 30 s; other writes: none | [`REFUSED_WRITE`] |
//! | The same was written more than three times, each within 20 s of the last wait | 0.2 s, doubling up to 30 s | [`FIGHT`] |
//! | Only warnings and errors of a status changed, or only its lists of nodes and messages | 2 s or 10 s after its last write | [`STATUS_FINDINGS`], [`STATUS_PROGRESS`] |
//! | An Event has the reason and the objects of another one | 1 min since that one | [`EVENT_INTERVAL`] |
//! | The API server was too busy for an Event | 10 s | [`EVENTS_REFUSED`] |

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Retry;
use crate::jitter::Jitter;

/// How long changes are gathered before a pass.
pub const DEBOUNCE: Duration = Duration::from_millis(75);
/// How long progress of a change by others may wait for a pass.
pub const PROGRESS: Duration = Duration::from_secs(2);
/// After how long everything is read again, past the caches, if nothing else happens.
pub const RESYNC: Duration = Duration::from_mins(5);
/// The waits after passes that failed in a row.
pub const PASS_FAILED: Backoff = Backoff::new(Duration::from_millis(200), LONGEST);
/// After how many consecutive failed passes transient failures are reported.
pub const FAILURES_BEFORE_REPORT: u32 = 3;
/// How often an idle loop records a heartbeat.
pub const HEARTBEAT: Duration = Duration::from_secs(30);
/// How long a watch may take to show what was written or read.
pub const CATCH_UP: Duration = Duration::from_secs(5);

/// How long the API server keeps a watch open. kube-runtime notices a dead connection 5 s later.
pub const WATCH_LIFETIME: Duration = Duration::from_secs(60);
/// The shortest time from the opening of a watch to the next one of its kind.
pub const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// How long a watch must last to count as a success. A list does not count: lists must not be repeated
/// quickly while watches are refused.
pub const WATCH_STABLE: Duration = Duration::from_secs(30);
/// The waits after a watch or its list failed.
pub const WATCH_FAILED: Backoff = Backoff::new(Duration::from_millis(500), LONGEST);
/// The waits before a list, if the API server no longer has the history that a watch needs.
pub const WATCH_EXPIRED: Backoff = Backoff::new(Duration::from_millis(100), LONGEST);
/// The waits after a watch or its list was refused for good.
pub const WATCH_REFUSED: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(60));
/// How long a watch may be out of contact before its cache counts as unknown.
pub const STALE_AFTER: Duration = Duration::from_secs(75);
/// How long a watch may be out of contact before `/readyz` reports it.
pub const NOT_READY_AFTER: Duration = Duration::from_secs(10);

/// The shortest time between two lists of the pods that hold up a deletion, if one of them ended.
pub const PODS_RELISTED: Duration = LONGEST;
/// The wait after the watch of pods that are not scheduled failed.
pub const POD_WATCH_FAILED: Duration = LONGEST;

/// The longest wait before a write that was refused for good is sent again; the shortest is half of it.
pub const REFUSED_WRITE: Duration = LONGEST;
/// The waits after a pass that repeated a write that another client keeps reverting.
pub const FIGHT: Backoff = Backoff::new(Duration::from_millis(200), LONGEST);
/// How often the same may be written before there are waits.
pub const WRITES_BEFORE_FIGHT: u32 = 3;
/// How soon after the last wait a repeated write counts as reverted by a program. People take longer, and
/// need not wait.
pub const FIGHT_WINDOW: Duration = Duration::from_secs(20);
/// The shortest wait for which a fight is reported.
pub const FIGHT_REPORTED_FROM: Duration = Duration::from_secs(1);
/// How long after a status was written its warnings and errors may be out of date.
pub const STATUS_FINDINGS: Duration = Duration::from_secs(2);
/// How long after a status was written its lists of nodes and its messages may be out of date.
pub const STATUS_PROGRESS: Duration = Duration::from_secs(10);
/// How soon an Event may repeat the reason of another one about the same objects.
pub const EVENT_INTERVAL: Duration = Duration::from_mins(1);
/// For how long no Event is sent after one that a busy API server refused.
pub const EVENTS_REFUSED: Duration = Duration::from_secs(10);

/// The longest wait of most rows.
const LONGEST: Duration = Duration::from_secs(30);
/// The wait after a pass, as a multiple of its processor time. It bounds the share of the processor that a
/// storm of changes uses.
const PAUSE_FACTOR: u32 = 9;
/// The longest such wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Waits that double from one attempt to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The wait before retry number `attempt` (from 0), spread from half of it upwards.
    pub fn wait(self, attempt: u32, jitter: &Jitter) -> Duration {
        jitter.backoff(attempt, self.first, self.longest)
    }
}

/// How long to wait after a pass that used this much processor time. A single change does not wait.
pub fn pause_after(processor_time: Duration) -> Duration {
    (processor_time * PAUSE_FACTOR).min(LONGEST_PAUSE)
}

/// How long to wait before a watch that failed is tried again, or its kind is listed again.
pub fn watch_retry(retry: Retry, expired: bool, attempt: u32, jitter: &Jitter) -> Duration {
    match retry {
        Retry::After(wait) => jitter.spread(wait * 2).min(LONGEST * 2),
        Retry::AfterChange => WATCH_REFUSED.wait(attempt, jitter),
        Retry::Reread if expired => WATCH_EXPIRED.wait(attempt, jitter),
        Retry::Reread | Retry::Backoff | Retry::Never => WATCH_FAILED.wait(attempt, jitter),
    }
}

/// When the next pass begins.
#[derive(Debug)]
pub struct Schedule {
    /// When it begins if nothing changes.
    due: Instant,
    /// When it begins at the earliest if something changes.
    not_before: Instant,
    /// When everything is read again.
    resync: Instant,
    /// How many passes failed in a row.
    failures: u32,
}

impl Schedule {
    /// A schedule before the first pass, which the first change triggers.
    pub fn new(now: Instant) -> Self {
        Self { due: now + RESYNC, not_before: now, resync: now + RESYNC, failures: 0 }
    }

    /// How many passes failed in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether a pass is due, with or without a change.
    pub fn is_due(&self, now: Instant, changed: bool) -> bool {
        now >= self.next_pass(changed)
    }

    /// When the next pass begins, if nothing more happens.
    pub fn next_pass(&self, changed: bool) -> Instant {
        let due = self.due.min(self.resync);
        if changed { due.min(self.not_before) } else { due }
    }

    /// Whether a resync is due; if so, schedules the next one.
    pub fn take_resync(&mut self, now: Instant) -> bool {
        let is_due = now >= self.resync;
        if is_due {
            self.resync = now + RESYNC;
        }
        is_due
    }

    /// Schedules the next pass at `time`, even if nothing changes.
    pub fn begin_at(&mut self, time: Instant) {
        self.due = self.due.min(time);
    }

    /// Schedules a pass soon, since there is progress to report.
    pub fn progressed(&mut self, now: Instant) {
        self.due = self.due.min((now + PROGRESS).max(self.not_before));
    }

    /// Postpones the next pass until the watches have their first answers, which count as changes.
    pub fn wait_for_change(&mut self, now: Instant) {
        self.due = self.due.max(now + HEARTBEAT);
        self.resync = self.resync.max(now + HEARTBEAT);
    }

    /// Records a successful pass. The next one is due after `requeue_after`, and not before `pause` is over.
    pub fn succeeded(&mut self, now: Instant, requeue_after: Option<Duration>, pause: Duration) {
        self.failures = 0;
        // Passes that change nothing must not follow each other without a wait, even if the decision asks for
        // it.
        self.due = now + requeue_after.map_or(RESYNC, |wait| wait.max(pause).max(DEBOUNCE));
        self.not_before = now + pause;
    }

    /// Records a failed pass.
    pub fn failed(&mut self, now: Instant, retry: Retry, jitter: &Jitter) {
        let wait = match retry {
            Retry::Reread | Retry::Backoff => PASS_FAILED.wait(self.failures, jitter),
            Retry::After(wait) => wait.min(PASS_FAILED.longest).max(PASS_FAILED.first),
            Retry::AfterChange => jitter.spread(PASS_FAILED.longest),
            Retry::Never => PASS_FAILED.longest,
        };
        self.failures = self.failures.saturating_add(1);
        self.due = now + wait;
        // The operator's own status write must not cut the wait short.
        self.not_before = self.due;
    }
}
