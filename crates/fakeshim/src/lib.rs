//! A shim for containerd's runtime v2, for tests: a sandbox is a process that sleeps.
//!
//! Real sandboxes of Kata need a virtual machine; what the node agent does to running sandboxes depends on
//! the shim's process, its files and containerd alone. Options of any type are accepted, as Kata's shim
//! accepts those that the node agent configures, and as runc's does not. It runs no container, mounts
//! nothing, and is never shipped.
//!
//! Sources: containerd's `core/runtime/v2/README.md` (start, delete, bootstrap), `api/runtime/task/v2/shim.proto`,
//! and the ttrpc protocol's `PROTOCOL.md`.

#![expect(clippy::disallowed_methods, reason = "a shim starts processes")]

pub mod message;
pub mod serve;
pub mod ttrpc;
