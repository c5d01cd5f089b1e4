//! The operator against the simulated cluster: in process on virtual time, and as a process over HTTP.
#![expect(clippy::unwrap_used, reason = "a test ends at the first thing that is not as expected")]

mod calls;
mod crash;
mod distribution;
mod election;
mod lab;
mod metrics;
mod monitor;
mod node_agent;
mod pace;
mod privilege;
mod process;
mod reads;
mod requests;
mod rollout;
mod speed;
mod traces;
mod trouble;
mod writes;
