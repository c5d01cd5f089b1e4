//! `kata-assure model`: arguments and output, and nothing else.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::machine::Scope;
use super::run::{self, Report};

/// Enumerates the decision on a small model of the cluster.
#[derive(Debug, Args)]
pub struct ModelArguments {
    /// How many workers the largest scope has, from 2 to 4; with --edits also 1.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=4))]
    nodes: u8,
    /// How many threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Write what was found there, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Give up a scope after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    limit: Option<u64>,
    /// Enumerate the scopes that take a minute without optimisation.
    #[arg(long, conflicts_with = "edits")]
    sample: bool,
    /// Enumerate one scope with so many edits, instead of the scopes of a full run.
    #[arg(long)]
    edits: Option<u8>,
    /// With --edits: how many faults.
    #[arg(long, default_value_t = 1, requires = "edits")]
    faults: u8,
    /// With --edits: how many times caches stop.
    #[arg(long, default_value_t = 0, requires = "edits")]
    stalls: u8,
    /// With --edits: how many pods at a time.
    #[arg(long, default_value_t = 1, requires = "edits")]
    pods: u8,
    /// With --edits: how many operators, where one should be.
    #[arg(long, default_value_t = 1, requires = "edits")]
    operators: u8,
    /// With --edits: what is deleted stays for a while.
    #[arg(long, requires = "edits")]
    lingers: bool,
    /// With --edits: the log level is edited too.
    #[arg(long, requires = "edits")]
    log_level: bool,
}

impl ModelArguments {
    fn scopes(&self) -> Vec<Scope> {
        match self.edits {
            None if self.sample => run::sample(self.nodes),
            None => run::scopes(self.nodes),
            Some(edits) => vec![Scope {
                nodes: self.nodes,
                edits,
                faults: self.faults,
                stalls: self.stalls,
                pods: self.pods,
                operators: self.operators,
                lingers: self.lingers,
                log_level: self.log_level,
            }],
        }
    }

    /// Enumerates, prints, and writes the file. Fails if a promise does not hold.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn run(&self) -> io::Result<ExitCode> {
        let limit = self.limit.map(Duration::from_secs);
        let report = run::report(&self.scopes(), self.threads, limit);
        print(&report, &mut io::stdout().lock())?;
        if let Some(file) = &self.json {
            std::fs::write(file, serde_json::to_string_pretty(&report)? + "\n")?;
        }
        Ok(if report.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn print(report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
    for scope in &report.scopes {
        writeln!(
            out,
            "{}: {} states generated, {} unique, {} decisions, depth {}, {:.1} s{}",
            scope.scope,
            scope.generated,
            scope.unique,
            scope.decisions,
            scope.depth,
            scope.seconds,
            if scope.exhaustive { "" } else { ", not exhaustive" },
        )?;
        for property in &scope.properties {
            let holds = if property.holds { "ok" } else { "NOT" };
            writeln!(out, "  {holds:<4}{:<10}{}", property.kind, property.name)?;
            for step in &property.counterexample {
                writeln!(out, "        {step}")?;
            }
        }
    }
    writeln!(
        out,
        "model: {} states generated, {} unique, {} failures, {:.1} s",
        report.model_states, report.unique, report.failures, report.seconds
    )
}
