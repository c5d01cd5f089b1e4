//! A node in memory for tests of `kata-host`: a file system that forgets what was not made durable, a
//! container runtime with the traps of the real ones, and a process that can be killed at any call.
//!
//! It tests, and is not shipped. It knows neither the operator nor the simulated cluster, and what is right
//! for a node is decided by `kata-host` alone.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what tests are made of may fail by panicking"
)]

pub mod disk;
pub mod node;
pub mod parsers;
pub mod runtime;
pub mod shipped;
pub mod sweep;
