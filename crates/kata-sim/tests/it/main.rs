//! Tests of the program `kata-sim`, from outside: as a process, its outputs, and over HTTP.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "programs are started, and outputs renewed on demand"
)]

mod alerts;
mod data_directory;
mod docs;
mod helm;
mod kubectl;
mod kubectl_process;
mod kubectl_readme;
mod scenarios;
mod seed;
mod site;
mod walkthrough;
mod ways;
