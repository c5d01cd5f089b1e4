//! The node agent as a process against real container runtimes: containerd under a real systemd, in
//! namespaces of its own, on a root folder that the agent takes for the node's.
//!
//! The packages come from `.ci/containerd.sh`. A test that needs them is ignored unless it is asked for, and then
//! fails without them or without root. On a machine without `/dev/kvm` a stand-in answers the agent (`kvm.c`).
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::let_underscore_must_use,
    reason = "tests drive processes, print what they measured, and end at what is wrong"
)]

mod boots;
mod copies;
mod crio;
mod dead;
mod evil;
mod foreign;
mod full;
mod jobs;
mod kills;
mod lab;
mod life;
mod links;
mod meanwhile;
mod mock;
mod mounts;
mod payload;
mod pods;
mod power;
mod releases;
mod sandboxes;
mod seeds;
mod settings;
mod shipped;
mod staging;
mod stock;
mod take_over;
mod two;
