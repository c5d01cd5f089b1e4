//! The controllers that turn workloads into pods on nodes.
//!
//! They know pods and nodes through the API only; what runs is the kubelet's affair.

pub mod daemonset;
pub mod deployment;
pub mod disruption;
pub mod job;
pub mod kata_deploy;
pub mod owned;
pub mod replicaset;
pub mod scheduler;
