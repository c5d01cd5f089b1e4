//! `cargo xtask image` as a process, against registries: what it pushes is what it built, and a registry that lies is
//! refused. The programs in these images are stand-ins; `published` has the real ones.

#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests start processes, and fail by panicking"
)]

mod before;
mod hostile;
mod lab;
mod published;
mod pushes;
mod signed;
