//! The command line of kata-assure. Nothing but arguments, output and exit codes.

use clap::Parser;

/// Shows that the operator keeps its promises under faults, on the simulated cluster.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {}

fn main() {
    let Arguments {} = Arguments::parse();
}
