//! Tests of the API's promises: what old objects and scripts rely on, and what the rules refuse.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod compatible;
mod overhead;
mod rules;
