//! A simulated Kubernetes cluster: an API server that is a state machine with a revisioned store,
//! the Kubernetes and Machine Config Operator controllers that matter to kata-operator, and hosts.
//!
//! It is a test bed and a try-out, never a product.
//! It must not know the operator: the operator reaches it through HTTP, or through the same requests
//! as a `tower::Service`, and nothing here may make a decision for it.
//!
//! ```text
//!  kubectl, operator ──HTTP──▶ http ─┐
//!  kube::Client ──tower::Service─────┴▶ Cluster ──▶ Simulation { api, world, controllers, agenda }
//!                                      clock, locks      ▲ run_due(now): time is an input
//! ```
//!
//! | Module | What it is |
//! |---|---|
//! | [`simulation`] | the state machine, and what a controller is |
//! | [`api`] | the API server: store, registry, admission, patches, watches, faults |
//! | [`world`] | hosts, their container runtimes and what breaks on them |
//! | [`node`] | kubelets, and the controller that watches over them |
//! | [`workload`], [`controllers`] | scheduler, workloads, garbage collection, namespaces |
//! | [`mco`] | the Machine Config Operator |
//! | [`openshift`] | other kinds of OpenShift, which are stored only |
//! | [`topology`] | whole clusters, built and changed |
//! | [`cluster`], [`http`], [`service`], [`clock`] | the shell: sockets, locks and time |
//!
//! [`Simulation`] is synchronous and deterministic; [`Cluster`] puts a clock and sockets around it.

pub mod api;
pub mod clock;
pub mod cluster;
pub mod controllers;
pub mod http;
pub mod mco;
pub mod node;
pub mod openshift;
pub mod quantity;
pub mod recorder;
pub mod resource;
mod selector;
pub mod service;
pub mod simulation;
pub mod state;
pub mod topology;
pub mod workload;
pub mod world;

pub use cluster::Cluster;
pub use resource::Resource;
pub use simulation::{Context, Controller, Simulation};
