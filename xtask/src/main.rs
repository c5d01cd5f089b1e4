//! Checks and code generation of the repository.

fn main() {}
