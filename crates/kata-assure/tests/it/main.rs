//! The harness itself: promises that fire when they are broken, plans that reproduce, a small sample.
#![expect(clippy::unwrap_used, reason = "a test ends at the first thing that is not as expected")]

mod episodes;
mod model;
mod plain;
mod promises;
mod regressions;
