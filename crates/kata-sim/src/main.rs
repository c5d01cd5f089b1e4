//! The `kata-sim` binary.

fn main() {}
