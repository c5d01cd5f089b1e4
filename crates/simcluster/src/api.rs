//! The API server as a state machine: requests in, responses and store events out.
//!
//! It has no clock, no sockets and no threads: time is an argument, and HTTP is a face elsewhere.

mod admission;
pub mod authentication;
pub mod body;
mod canonical;
mod defaults;
pub mod discovery;
pub mod error;
pub mod events;
pub mod fault;
pub mod fields;
pub mod frontend;
pub mod handle;
pub(crate) mod jsonpath;
pub mod list;
pub mod negotiate;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod rbac;
pub mod registry;
pub mod request;
pub mod review;
pub mod schema;
pub mod selector;
pub mod server;
pub mod store;
pub mod table;
mod validation;
pub mod watch;

pub use error::ApiError;
pub use server::ApiServer;
pub use store::{Event, EventKind, Store};
