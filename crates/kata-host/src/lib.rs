//! The node decision: from a task and what is on a node to a plan, and the plan's execution as a
//! transaction that survives a loss of power at any point.
//!
//! ```text
//! lock ─▶ recover ─▶ observe ─▶ decide (pure) ─▶ HostPlan ─▶ execute ─▶ NodeReport
//!              every reading and every effect is one call of `trait Host`
//! ```
//!
//! [`run`] is everything. There is no I/O here, no clock, no environment and no logging: those are in the
//! [`Host`], which the node agent implements for Linux and the simulated cluster for its nodes.

mod apply;
mod boot;
mod check;
mod configuration;
pub mod containerd;
mod cri;
pub mod crio;
mod crio_folder;
mod decide;
mod decision;
pub mod digest;
mod durable;
mod environment;
mod execute;
mod header;
pub mod host;
pub mod journal;
mod kata_deploy;
pub mod nodeadm;
mod observe;
pub mod paths;
pub mod payload;
pub mod plan;
mod preflight;
mod recover;
mod release;
mod run;
mod sandbox;
mod settings;
pub mod site;
mod take_over;
mod trace;
mod verify;
mod written;

pub use configuration::Configuration;
pub use header::is_ours;
pub use host::Host;
pub use plan::HostPlan;
pub use run::{plan, refused, run};
pub use sandbox::{PodName, SandboxError, sandbox};
