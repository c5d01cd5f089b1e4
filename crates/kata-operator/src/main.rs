//! The `kata-operator` binary.

fn main() {}
