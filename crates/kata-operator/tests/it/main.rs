//! The operator against the simulated cluster: in process on virtual time, and as a process over HTTP.
#![expect(clippy::unwrap_used, reason = "a test ends at the first thing that is not as expected")]

mod blockers;
mod cache;
mod calls;
mod clocks;
mod crash;
mod election;
mod failover;
mod health;
mod lab;
mod late;
mod metrics;
mod monitor;
mod pace;
mod privilege;
mod process;
mod reads;
mod requests;
mod rollout;
mod server;
mod speed;
mod stolen;
mod trouble;
mod twins;
mod uninstall;
mod upgrade;
mod writes;
