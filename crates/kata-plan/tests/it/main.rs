//! The decision at its boundary: a cluster in, a plan and a report out.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

mod cases;
mod claim;
mod content;
mod findings;
mod hosts;
mod hosts_random;
mod journeys;
mod kstatus;
mod lessons;
mod monitor;
mod plain;
mod promises;
mod random;
mod render;
mod status_findings;
mod turns;
mod world;
