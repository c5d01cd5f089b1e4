//! Tests of kata-host at its boundary: a task and a node in, a report and the node's files out.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail by panicking")]

use hostlab::{node, runtime};

mod back;
mod boot;
mod compared;
mod crash;
mod crio;
mod drop_ins;
mod faults;
mod findings;
mod foreign;
mod fuzz;
mod install;
mod layouts;
mod refusals;
mod releases;
mod room;
mod runs;
mod settings;
mod shipped;
mod sites;
mod take_over;
mod upstream;
mod verified;
