//! Tests of the API's promises: what old objects and scripts rely on, and what the rules refuse.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod compatible;
mod names;
mod node_task;
mod overhead;
mod rules;
mod schema;
