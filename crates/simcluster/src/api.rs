//! The API server as a state machine: requests in, responses and store events out.
//!
//! It has no clock, no sockets and no threads: time is an argument, and HTTP is a face elsewhere.

pub mod error;
pub mod fields;
pub mod openapi;
pub mod patch;
pub mod registry;
pub mod schema;
pub mod server;
pub mod store;
pub mod table;

pub use error::ApiError;
pub use server::ApiServer;
pub use store::{Event, EventKind, Store};
