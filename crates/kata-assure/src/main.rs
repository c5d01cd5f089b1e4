//! The command line of kata-assure. Nothing but arguments, output and exit codes.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kata_assure::model::ModelArguments;

/// Shows that the operator keeps its promises under faults, on the simulated cluster.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Enumerate the decision on a small model of the cluster.
    Model(ModelArguments),
}

fn main() -> std::io::Result<ExitCode> {
    match Arguments::parse().command {
        Command::Model(arguments) => arguments.run(),
    }
}
