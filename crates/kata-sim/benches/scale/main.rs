//! `cargo bench -p kata-sim`: the real operator process on simulated clusters over HTTP, measured.
//!
//! Every measurement runs in a process of its own, so that memory is its own; the tables that
//! docs/developers/performance.md holds are printed as Markdown.
//! Under `cargo test` it measures one small cluster, and fails if the operator does what it must not.

mod compare;
mod journal;
mod lab;
mod process;
mod sizes;
mod tables;
mod virtual_time;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Parser;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::compare::{Behaviour, Comparison};
use crate::sizes::{Conditions, Figures};
use crate::virtual_time::{Counted, Installs};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Measure the operator on simulated clusters.
#[derive(Parser, Debug)]
#[command(name = "scale")]
struct Arguments {
    /// A minute instead of twenty: small clusters, short looks, few installs
    #[arg(long)]
    quick: bool,
    /// What to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Numbers of workers of the first table
    #[arg(long, value_delimiter = ',', value_name = "N,...")]
    sizes: Vec<u32>,
    /// How long to watch the operator at rest, in seconds
    #[arg(long, value_name = "SECONDS")]
    idle: Option<u64>,
    /// How many times to install on virtual time
    #[arg(long, value_name = "N")]
    installs: Option<u32>,
    /// The operator to measure, instead of the one of this workspace
    #[arg(long, value_name = "PATH")]
    operator: Option<PathBuf>,
    /// cargo says so; without it, this is a test
    #[arg(long, hide = true)]
    bench: bool,
    /// One measurement, as JSON; its figures are printed as JSON
    #[arg(long, hide = true)]
    job: Option<String>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Clusters from small to very large
    Sizes,
    /// What the Go operator was measured at
    Compare,
    /// Many installs on virtual time
    Installs,
}

/// A measurement in a process of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Job {
    Size { operator: PathBuf, workers: u32, speed: f64, idle: u64, heartbeats: u64 },
    Compare { operator: PathBuf, workers: u32, limit: u32, speed: f64, with_pods: bool },
    Behaviour { operator: PathBuf, blocked: u64 },
    Count { workers: u32, limit: u32 },
    Installs { count: u32, seed: u64 },
}

#[expect(clippy::print_stderr, reason = "the one place where an error reaches the user")]
fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let measures = given.iter().any(|argument| matches!(argument.as_str(), "--bench" | "--job"));
    let result = if measures {
        let arguments = Arguments::parse();
        match &arguments.job {
            Some(job) => serde_json::from_str(job).map_err(Failure::from).and_then(run),
            None => measure(&arguments),
        }
    } else if is_wanted(&given) {
        test()
    } else {
        Ok(())
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scale: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the arguments of `cargo test` want this test: a list wants none, a filter some.
fn is_wanted(arguments: &[String]) -> bool {
    let mut filters = arguments.iter().filter(|argument| !argument.starts_with('-')).peekable();
    let listed = arguments.iter().any(|argument| argument == "--list");
    !listed && (filters.peek().is_none() || filters.any(|filter| "scale".contains(filter.as_str())))
}

/// Does one measurement in this process.
#[expect(clippy::print_stdout, reason = "the parent process reads it")]
fn run(job: Job) -> Result<(), Failure> {
    let real =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let paused =
        || tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let figures = match job {
        Job::Size { operator, workers, speed, idle, heartbeats } => {
            let conditions = Conditions {
                workers,
                speed,
                idle: Duration::from_secs(idle),
                heartbeats: Duration::from_secs(heartbeats),
            };
            let figures = real()?.block_on(sizes::measure(&operator, conditions))?;
            serde_json::to_string(&figures)
        }
        Job::Compare { operator, workers, limit, speed, with_pods } => {
            let size = (workers, limit, speed);
            let figures = real()?.block_on(compare::measure(&operator, size, with_pods))?;
            serde_json::to_string(&figures)
        }
        Job::Behaviour { operator, blocked } => {
            let blocked = Duration::from_secs(blocked);
            let figures = real()?.block_on(compare::behaviour(&operator, blocked))?;
            serde_json::to_string(&figures)
        }
        Job::Count { workers, limit } => {
            serde_json::to_string(&paused()?.block_on(virtual_time::count(workers, limit))?)
        }
        Job::Installs { count, seed } => {
            serde_json::to_string(&paused()?.block_on(virtual_time::installs(count, seed))?)
        }
    };
    println!("{}", figures?);
    Ok(())
}

/// Has a measurement done by a process of its own.
#[expect(clippy::disallowed_methods, reason = "memory is only its own in a process of its own")]
fn ask<T: DeserializeOwned>(job: &Job) -> Result<T, Failure> {
    let output = Command::new(std::env::current_exe()?)
        .args(["--job", &serde_json::to_string(job)?])
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("failed: {job:?}").into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// How fast the cluster's time passes: as fast as this machine can simulate without getting late, so
/// slower for larger clusters.
fn speed(workers: u32) -> f64 {
    match workers {
        0..=4_999 => 20.0,
        5_000..=9_999 => 8.0,
        _ => 6.0,
    }
}

/// Measures everything that is asked for, and prints the tables.
#[expect(clippy::print_stdout, reason = "the tables are the program's answer")]
fn measure(arguments: &Arguments) -> Result<(), Failure> {
    let wanted = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let quick = arguments.quick;
    let given = arguments.operator.clone();
    let operator = given.map_or_else(process::build_operator, Ok)?;
    let of_size = |full: &[u32], small: &[u32]| match arguments.sizes.as_slice() {
        [] => if quick { small } else { full }.to_vec(),
        given => given.to_vec(),
    };
    println!("SIMULATED cluster: no kubelet, no container and no Machine Config Operator is real.");
    if wanted(Part::Sizes) {
        let mut figures: Vec<Figures> = Vec::new();
        for workers in of_size(&[100, 1_000, 5_000, 10_000], &[100]) {
            figures.push(ask(&Job::Size {
                operator: operator.clone(),
                workers,
                speed: speed(workers),
                idle: arguments.idle.unwrap_or_else(|| if quick { 5 } else { idle_for(workers) }),
                heartbeats: if quick { 5 } else { 60.min(idle_for(workers)) },
            })?);
        }
        println!("{}", tables::sizes(&figures));
    }
    if wanted(Part::Compare) {
        let sizes: &[_] = if quick {
            &[(3, 1, 20.0, false), (50, 10, 20.0, false)]
        } else {
            &[(3, 1, 20.0, false), (50, 10, 20.0, true), (300, 60, 20.0, false)]
        };
        let mut figures: Vec<(Comparison, Counted)> = Vec::new();
        for &(workers, limit, speed, with_pods) in sizes {
            let operator = operator.clone();
            let compared = ask(&Job::Compare { operator, workers, limit, speed, with_pods })?;
            figures.push((compared, ask(&Job::Count { workers, limit })?));
        }
        let behaviour: Behaviour = ask(&Job::Behaviour {
            operator: operator.clone(),
            blocked: if quick { 3 } else { 30 },
        })?;
        println!("{}", tables::compare(&figures, &behaviour));
    }
    if wanted(Part::Installs) {
        let count = arguments.installs.unwrap_or(if quick { 100 } else { 10_000 });
        println!("{}", tables::installs(&many_installs(count)?));
    }
    Ok(())
}

/// How long a cluster of that size is watched at rest, in seconds: five minutes only at the size for
/// which there is a goal.
fn idle_for(workers: u32) -> u64 {
    if workers >= 10_000 { 300 } else { 15 }
}

/// Installs on both processors.
fn many_installs(count: u32) -> Result<Installs, Failure> {
    let halves = [count.div_ceil(2), count / 2];
    let parts = std::thread::scope(|scope| {
        let running: Vec<_> = (1_u64..)
            .zip(halves)
            .map(|(seed, count)| {
                scope.spawn(move || ask::<Installs>(&Job::Installs { count, seed }))
            })
            .collect();
        running
            .into_iter()
            .map(|part| part.join().map_err(|_panic| Failure::from("a measurement panicked"))?)
            .collect::<Result<Vec<Installs>, Failure>>()
    })?;
    Ok(parts.into_iter().fold(Installs::default(), |mut sum, part| {
        sum.installs += part.installs;
        sum.classes += part.classes;
        sum.early_classes += part.early_classes;
        sum.touches += part.touches;
        sum.failures.extend(part.failures);
        sum
    }))
}

/// Measures a small cluster, and checks what does not depend on the machine.
fn test() -> Result<(), Failure> {
    // `cargo test --workspace` has built it; building it alone would build all it needs once more.
    let mut operator = process::built_operator()?;
    if !operator.exists() {
        operator = process::build_operator()?;
    }
    let job = Job::Size { operator, workers: 20, speed: 60.0, idle: 3, heartbeats: 3 };
    let figures: Figures = ask(&job)?;
    let installs: Installs = ask(&Job::Installs { count: 10, seed: 1 })?;
    let mut wrong = tables::broken_promises(&figures);
    if installs.early_classes > 0 || installs.classes < 10 || !installs.failures.is_empty() {
        wrong.push(format!("installs on virtual time: {installs:?}"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
}
