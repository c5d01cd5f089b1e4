//! The command line of kata-assure. Nothing but arguments, output and exit codes.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use kata_assure::agents::{self, AgentCounts, Extent};
use kata_assure::campaign::{self, Order};
use kata_assure::enumerate::Amount;
use kata_assure::judge::References;
use kata_assure::model::ModelArguments;
use kata_assure::plan::Plan;
use kata_assure::report;
use kata_assure::shape::Topology;
use kata_assure::workload::Workload;

/// Shows that the operator keeps its promises under faults, on the simulated cluster.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run many episodes: crashes, faults, rivals and users at every call.
    Episodes(Episodes),
    /// Print the names of the workloads, a line each.
    Workloads,
    /// Run one episode, and print what happens in it.
    Episode {
        /// The plan, as a failure prints it.
        plan: String,
    },
    /// End the node agent at every call, loop it, and give its parsers many inputs.
    Agents(Agents),
    /// Enumerate the decision on a small model of the cluster.
    Model(ModelArguments),
}

#[derive(Debug, Parser)]
struct Episodes {
    /// Percent of all plans to run.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=100))]
    sample: u64,
    /// Chooses the sample and the random plans.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Begin no episode after so many seconds.
    #[arg(long)]
    budget: Option<u64>,
    /// Write the summary to this file, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Only these workloads, such as `install`; may be given several times.
    #[arg(long, value_parser = workload)]
    workload: Vec<Workload>,
    /// Only these topologies, such as `three`; may be given several times.
    #[arg(long, value_parser = topology)]
    topology: Vec<Topology>,
}

#[derive(Debug, Parser)]
struct Agents {
    /// All crash points, but fewer loops and inputs.
    #[arg(long)]
    sample: bool,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Write the counts to this file, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// The repository, in which the parsers' seeds are.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))]
    repository: PathBuf,
}

fn workload(name: &str) -> Result<Workload, String> {
    let known = Workload::ALL.map(Workload::as_str);
    let found = Workload::ALL.into_iter().find(|workload| workload.as_str() == name);
    found.ok_or_else(|| format!("give one of {}", known.join(", ")))
}

fn topology(name: &str) -> Result<Topology, String> {
    let known = Topology::ALL.map(Topology::as_str);
    let found = Topology::ALL.into_iter().find(|topology| topology.as_str() == name);
    found.ok_or_else(|| format!("give one of {}", known.join(", ")))
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("this is not a plan: {0}")]
    Plan(#[from] serde_json::Error),
    #[error(transparent)]
    Episode(#[from] kata_assure::episode::EpisodeError),
    #[error("cannot write")]
    Write(#[from] io::Error),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Episodes(episodes) => many(episodes),
        Command::Workloads => workloads(),
        Command::Episode { plan } => one(&plan),
        Command::Agents(agents) => many_agents(&agents),
        Command::Model(arguments) => {
            return arguments.run().unwrap_or_else(|error| {
                drop(writeln!(io::stderr(), "error: {error}"));
                ExitCode::from(2)
            });
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nowhere is left to say that this cannot be written.
            drop(writeln!(io::stderr(), "error: {error}"));
            ExitCode::from(2)
        }
    }
}

fn workloads() -> Result<bool, Failure> {
    for workload in Workload::ALL {
        writeln!(io::stdout(), "{}", workload.as_str())?;
    }
    Ok(true)
}

fn many(episodes: Episodes) -> Result<bool, Failure> {
    let Episodes { sample, seed, threads, budget, json, workload, topology } = episodes;
    let or_all = |given: Vec<Workload>| {
        if given.is_empty() { Workload::ALL.to_vec() } else { given }
    };
    let order = Order {
        amount: Amount { sample, seed },
        threads,
        budget: budget.map(Duration::from_secs),
        workloads: or_all(workload),
        topologies: if topology.is_empty() { Topology::ALL.to_vec() } else { topology },
    };
    // Progress is a courtesy.
    let summary = campaign::run(&order, &|line| drop(writeln!(io::stderr(), "{line}")));
    io::stdout().write_all(report::table(&summary).as_bytes())?;
    if let Some(file) = json {
        let mut text = serde_json::to_vec_pretty(&summary)?;
        text.push(b'\n');
        std::fs::write(file, text)?;
    }
    Ok(summary.failures == 0)
}

fn many_agents(arguments: &Agents) -> Result<bool, Failure> {
    let extent = if arguments.sample { Extent::SAMPLE } else { Extent::WHOLE };
    let counts = agents::run(&arguments.repository, extent, arguments.threads);
    let AgentCounts { crash_points, loops, fuzz_inputs, failures, broken, seconds } = &counts;
    let mut out = io::stdout().lock();
    for line in broken {
        writeln!(out, "BROKEN {line}")?;
    }
    writeln!(
        out,
        "SIMULATED: the decision is the real one, the nodes are in memory; {crash_points} crash points, \
         {loops} loops, {fuzz_inputs} inputs for parsers, {failures} failures, {seconds} s"
    )?;
    if let Some(file) = &arguments.json {
        let mut text = serde_json::to_vec_pretty(&counts)?;
        text.push(b'\n');
        std::fs::write(file, text)?;
    }
    Ok(*failures == 0)
}

fn one(line: &str) -> Result<bool, Failure> {
    let plan: Plan = serde_json::from_str(line)?;
    let outcome = References::default().judge(&plan, true, true)?;
    let mut out = io::stdout().lock();
    writeln!(out, "SIMULATED: virtual seconds, what happened\n")?;
    for line in &outcome.trace {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    for broken in &outcome.broken {
        writeln!(out, "BROKEN {broken}")?;
    }
    let kept = outcome.broken.is_empty();
    writeln!(
        out,
        "{}",
        if kept {
            "all promises were kept (simulated)"
        } else {
            "not all promises were kept (simulated)"
        }
    )?;
    Ok(kept)
}
