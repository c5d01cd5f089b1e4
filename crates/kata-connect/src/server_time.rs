//! What time it is for the API server, whose clock is on the objects that it writes.
//!
//! The `Date` of its answers shows that. This module sends nothing and reads no clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use http::HeaderMap;
use http::header::DATE;
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};

/// By how much the API server's clock is ahead of this machine's, as far as its answers have shown. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ServerTime {
    ahead_millis: Arc<AtomicI64>,
}

impl ServerTime {
    /// By how much; negative if the API server's clock is behind. Zero before the first answer.
    ///
    /// A `Date` has no fractions of a second, and the answer took time. So an answer gives bounds, and the value of before
    /// is corrected by as little as these require: clocks that agree stay as they are.
    pub fn ahead(&self) -> SignedDuration {
        SignedDuration::from_millis(self.ahead_millis.load(Ordering::Relaxed))
    }

    /// Learns from the headers of an answer that came at `now`, by this machine's clock, to a request that was sent
    /// `took` before.
    pub fn learn(&self, headers: &HeaderMap, now: Timestamp, took: Duration) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let Some(date) =
            date.and_then(|date| rfc2822::DateTimeParser::new().parse_timestamp(date).ok())
        else {
            return;
        };
        let least = date.as_millisecond().saturating_sub(now.as_millisecond());
        let took = i64::try_from(took.as_millis()).unwrap_or(i64::MAX);
        let most = least.saturating_add(1000).saturating_add(took);
        let known = self.ahead_millis.load(Ordering::Relaxed);
        self.ahead_millis.store(known.clamp(least, most), Ordering::Relaxed);
    }
}
