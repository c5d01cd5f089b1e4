//! A simulated Kubernetes cluster: an API server that is a state machine with a revisioned store,
//! the Kubernetes and Machine Config Operator controllers that matter to kata-operator, and hosts.
//!
//! It is a test bed and a try-out, never a product.
//! It must not know the operator: the operator reaches it through HTTP, or through the same requests
//! as a `tower::Service`, and nothing here may make a decision for it.
//!
//! ```text
//!  kubectl, operator ──HTTP──▶ http ─┐
//!  kube::Client ──tower::Service─────┴▶ Simulation { ApiServer, World, controllers, agenda }
//!                                            ▲ run_due(now): time is an input
//! ```
//!
//! [`Simulation`] is synchronous and deterministic; `cluster::Cluster` puts a clock and sockets
//! around it.

pub mod api;
pub mod clock;
pub mod cluster;
pub mod controllers;
pub mod http;
pub mod mco;
pub mod node;
pub mod quantity;
pub mod recorder;
pub mod resource;
mod selector;
pub mod service;
pub mod simulation;
pub mod topology;
pub mod workload;
pub mod world;

pub use cluster::Cluster;
pub use resource::Resource;
pub use simulation::{Context, Controller, Simulation};
