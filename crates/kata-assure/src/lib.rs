//! Shows that the operator keeps its promises under faults: it runs the unmodified operator against
//! the simulated cluster, breaks one thing after another, and compares what comes of it.
//!
//! It is a tool of the developers and no part of the product. It decides nothing about a cluster, and
//! neither the operator nor the simulator knows of it.
//!
//! ```text
//! plan (one line) ─▶ episode: simulated cluster + operator + workload ─▶ judge: against a calm run
//!                         promises, checked after every write
//! ```

pub mod agents;
pub mod base;
pub mod campaign;
pub mod deeds;
pub mod enumerate;
pub mod episode;
pub mod judge;
pub mod ledger;
pub mod model;
pub mod operator;
pub mod plain;
pub mod plan;
pub mod promises;
pub mod report;
pub mod shape;
pub mod watchdog;
pub mod workload;
pub mod world;
