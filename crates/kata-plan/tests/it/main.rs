//! The decision at its boundary: a cluster in, a plan and a report out.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

mod journeys;
mod render;
mod world;
