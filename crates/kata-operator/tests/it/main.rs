//! The operator against the simulated cluster.
