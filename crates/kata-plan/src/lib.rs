//! The cluster decision of kata-operator: [`decide`] maps a [`Snapshot`] to a [`Decision`], and
//! [`needs`] says which further reads that decision wants first; [`next`] is both in one.
//!
//! Everything here is a pure function of its arguments: no client, no tokio, no file, no environment,
//! no clock, no randomness, no logging. What a user or a cluster can get wrong is a finding in the
//! report, never an error and never a panic.

mod bodies;
pub mod decide;
mod events;
mod hosts;
pub mod invariants;
mod kata_nodes;
mod mco;
pub mod object;
pub mod observed;
mod payload;
pub mod plan;
pub mod report;
mod selection;
pub mod selector;
pub mod snapshot;
mod status;
mod steps;
mod text;
pub mod validate;
mod view;

pub use bodies::is_our_class;
pub use decide::{Next, conclude, decide, needs, next, running_pods};
pub use hosts::most_unavailable;
pub use object::{Kind, ObjectRef};
pub use observed::Observed;
pub use plan::{Action, OnFailure, Plan, Request, Step};
pub use report::{
    Decision, EventToSend, Finding, NodeReport, Report, StatusReport, StepFailure, Urgency,
    WaitingOn,
};
pub use selection::by_age;
pub use snapshot::{
    DrainBlocker, Freshness, JobEnd, JobObjects, JobPod, MonitorObjects, Need, NodeFacts, NodeJob,
    Options, Platform, PodScope, SandboxedPod, Snapshot, StuckContainer, UnreadableObject,
};
pub use view::sandbox_classes;
