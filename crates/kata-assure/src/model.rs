//! The real decision function, enumerated: every interleaving of the operator's writes with the Machine
//! Config Operator, the user, faults and caches that lag, on a small model of the cluster.
//!
//! The model calls `kata_plan::needs` and `kata_plan::decide` and carries out the requests of the plan
//! one by one. It decides nothing itself, and it knows neither the operator's shell nor the simulator.

mod command;
pub mod drain;
pub mod events;
pub mod judge;
pub mod machine;
pub mod project;
mod properties;
mod run;
pub mod world;
pub mod write;

pub use command::ModelArguments;
pub use judge::Distortion;
pub use machine::{Machine, Scope, State};
pub use run::{Checked, Report, check, check_for, report, scopes};
