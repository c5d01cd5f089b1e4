//! Tests of the simulated cluster at its boundaries.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod conformance;
mod etcd_restore;
mod http_semantics;
mod kube_client;
mod kube_controller;
mod kube_runtime;
mod lifecycle;
mod managed_fields;
mod mco;
mod nodes;
mod rbac;
mod restart;
mod workload;
mod write;
