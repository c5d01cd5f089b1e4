//! Shows that the operator keeps its promises under faults: it runs the unmodified operator against
//! the simulated cluster, breaks one thing after another, and compares what comes of it.
//!
//! It is a tool of the developers and no part of the product. It decides nothing about a cluster, and
//! neither the operator nor the simulator knows of it.

pub mod model;
