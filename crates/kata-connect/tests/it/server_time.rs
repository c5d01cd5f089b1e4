//! What answers of an API server show of its clock.

use std::time::Duration;

use http::HeaderMap;
use http::header::DATE;
use jiff::{SignedDuration, Timestamp};
use kata_connect::ServerTime;

/// The clock of this machine, when the answer came; how long that took in milliseconds; the answer's `Date`; and by how
/// many milliseconds the API server's clock is ahead by then.
const ANSWERS: [(&str, u64, &str, i64); 9] = [
    // A Date without its fraction, and an answer that was long on its way.
    ("2026-11-29T10:00:00.900Z", 10, "Sun, 29 Nov 2026 10:00:00 GMT", 0),
    ("2026-11-29T10:00:09.000Z", 9000, "Sun, 29 Nov 2026 10:00:00 GMT", 0),
    // Three minutes ahead, which is known ever better.
    ("2026-11-29T10:00:10.400Z", 10, "Sun, 29 Nov 2026 10:03:10 GMT", 179_600),
    ("2026-11-29T10:00:11.100Z", 10, "Sun, 29 Nov 2026 10:03:11 GMT", 179_900),
    ("2026-11-29T10:00:12.800Z", 10, "Sun, 29 Nov 2026 10:03:12 GMT", 179_900),
    // What is no date, or none at all.
    ("2026-11-29T10:00:13.000Z", 10, "yesterday", 179_900),
    ("2026-11-29T10:00:13.000Z", 10, "", 179_900),
    // This machine's clock is set, and is 20 minutes ahead of the server's.
    ("2026-11-29T10:23:14.500Z", 10, "Sun, 29 Nov 2026 10:03:14 GMT", -1_199_490),
    ("2026-11-29T10:23:15.200Z", 10, "Sun, 29 Nov 2026 10:03:15 GMT", -1_199_490),
];

#[test]
fn the_difference_of_clocks_is_the_least_that_an_answer_leaves() {
    let time = ServerTime::default();
    let reader = time.clone();
    for (now, took, date, ahead) in ANSWERS {
        let mut headers = HeaderMap::new();
        if !date.is_empty() {
            headers.insert(DATE, date.parse().unwrap());
        }
        let now: Timestamp = now.parse().unwrap();
        time.learn(&headers, now, Duration::from_millis(took));
        assert_eq!(reader.ahead(), SignedDuration::from_millis(ahead), "{now} {date}");
    }
}
