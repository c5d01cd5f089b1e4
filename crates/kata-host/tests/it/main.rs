//! Tests of kata-host at its boundary: a task and a node in, a report and the node's files out.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod crash;
mod disk;
mod install;
mod node;
mod runtime;
