//! The node agent as a program of its own, for the tests of this crate. What is published is `kata-operator`,
//! which takes the same words.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kata_node_agent::command::{NodeAgentCommand, ProbeArguments};

/// The commands of `kata-operator` that run on a node.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the facts of the sandbox that this process runs in, as JSON.
    Probe(ProbeArguments),
    /// Change or look at the node that this runs on; what a node Job runs.
    #[command(subcommand)]
    NodeAgent(NodeAgentCommand),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Probe(arguments) => arguments.execute(),
        Command::NodeAgent(command) => command.execute(),
    }
}
