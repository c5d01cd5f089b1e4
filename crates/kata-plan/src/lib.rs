//! The cluster decision of kata-operator: [`decide`] maps a [`Snapshot`] to a [`Decision`], [`needs`] lists
//! the reads that the decision requires first, and [`next`] does both in one call.
//!
//! Every function here is pure: no client, no tokio, no file, no environment, no clock, no randomness, no
//! logging. A mistake of a user or a fault of the cluster becomes a finding in the report, never an error or
//! a panic.

mod assessment;
mod claim;
mod classes;
mod configs;
pub mod decide;
mod disruption;
mod draft;
mod eligibility;
mod events;
pub mod forms;
mod image_digest;
pub mod invariants;
mod job_limits;
mod jobs;
mod leaving;
mod log_level;
mod mco;
mod node;
pub mod object;
pub mod observed;
mod ownership;
pub mod plan;
mod pods;
mod reading;
pub mod report;
mod selection;
pub mod selector;
mod settings;
pub mod snapshot;
mod status;
mod steps;
mod text;
pub mod validate;

pub use claim::claimed_by;
pub use classes::{is_of_kata_deploy, is_our_class};
pub use configs::configs_by_age;
pub use decide::{Decision, Outcome, decide, needs, next, report_after_apply, running_pods};
pub use disruption::most_unavailable;
pub use job_limits::JobLimits;
pub use jobs::{runtimes_to_add, take_over_obstacle};
pub use object::{Kind, ObjectRef};
pub use observed::Observed;
pub use plan::{Action, OnFailure, Plan, Request, Step};
pub use pods::sandbox_classes;
pub use report::{
    EventToSend, Finding, NodeReport, Report, StatusReport, StepFailure, Urgency, Waiting,
    WaitingOn,
};
pub use snapshot::{
    DrainBlocker, Freshness, JobEnd, JobObjects, JobPod, MonitorObjects, Need, NodeFacts, NodeJob,
    Options, Platform, PodScope, SandboxedPod, Snapshot, StuckContainer, UnreadableJob,
    UnreadableObject,
};
pub use status::with_findings;
