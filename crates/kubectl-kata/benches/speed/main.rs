//! `cargo bench -p kubectl-kata`: how long the commands take on simulated clusters over HTTP, with how many
//! requests and bytes, next to stock kubectl in the same run.
//!
//! The program that is measured is the real one, in a process of its own. The table is that of
//! docs/developers/performance.md.

mod cluster;
mod wire;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;

use crate::cluster::Served;
use crate::wire::Tap;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What kubectl does for comparison.
const KUBECTL: &[&str] = &["get", "nodes,pods", "-A", "-o", "name"];
/// The commands of the table.
const COMMANDS: [&[&str]; 4] = [&["status"], &["pods", "-A"], &["nodes"], &["version", "--client"]];
/// The largest binary that is wanted, in MiB.
const BINARY_MIB: f64 = 12.0;

/// Measure `kubectl kata` on simulated clusters.
#[derive(Parser, Debug)]
#[command(name = "speed")]
struct Arguments {
    /// Numbers of workers
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "3,1000")]
    sizes: Vec<u32>,
    /// Pods on each worker, of which every fifth is sandboxed
    #[arg(long, value_name = "N", default_value = "20")]
    pods: u32,
    /// The size of a pod as JSON, in bytes
    #[arg(long, value_name = "BYTES", default_value = "4000")]
    pod_bytes: usize,
    /// How often each command runs; the median counts
    #[arg(long, value_name = "N", default_value = "7")]
    runs: usize,
    /// The program to measure, instead of the one of this workspace
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// cargo says so
    #[arg(long, hide = true)]
    bench: bool,
}

#[expect(clippy::print_stderr, reason = "the one place where an error reaches the user")]
fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("speed: {error}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the figures are the program's answer")]
fn run(arguments: &Arguments) -> Result<(), Failure> {
    let binary =
        arguments.binary.clone().unwrap_or_else(|| env!("CARGO_BIN_EXE_kubectl-kata").into());
    let kubectl = named_kubectl();
    println!("SIMULATED clusters over HTTP on loopback, without TLS; times are real.\n");
    let bytes = std::fs::metadata(&binary)?.len();
    println!(
        "The program has {:.1} MiB (goal: {BINARY_MIB} MiB).\n",
        float(usize::try_from(bytes)?) / f64::from(1 << 20)
    );
    println!(
        "| workers, pods | command | median | goal | requests | answers | of kubectl's time |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for workers in &arguments.sizes {
        let cluster = Served::start(*workers, arguments.pods, arguments.pod_bytes)?;
        let others = kubectl
            .as_ref()
            .map(|kubectl| measure(kubectl, KUBECTL, &cluster, arguments.runs))
            .transpose()?;
        let place = format!("{workers}, {}", workers * arguments.pods);
        for words in COMMANDS {
            let figures = measure(&binary, words, &cluster, arguments.runs)?;
            println!(
                "| {place} | `kubectl kata {}` | {} | {} | {} | {} | {} |",
                words.join(" "),
                span(figures.median),
                goal(*workers, words).map_or_else(String::new, span),
                figures.requests,
                amount(figures.bytes),
                others.as_ref().map_or_else(String::new, |others| format!(
                    "{:.2}",
                    figures.median.as_secs_f64() / others.median.as_secs_f64()
                )),
            );
        }
        if let Some(others) = others {
            println!(
                "| {place} | `kubectl {}` | {} | | {} | {} | 1 |",
                KUBECTL.join(" "),
                span(others.median),
                others.requests,
                amount(others.bytes),
            );
        }
    }
    Ok(())
}

/// How long a command may take.
fn goal(workers: u32, words: &[&str]) -> Option<Duration> {
    let millis = match (words.first()?, workers) {
        (&"version", _) => 10,
        (&"status", ..=3) => 150,
        (&"status", _) => 1_500,
        (&"pods", 4..) => 3_000,
        _ => return None,
    };
    Some(Duration::from_millis(millis))
}

/// What a command took.
struct Figures {
    median: Duration,
    requests: u64,
    bytes: u64,
}

/// Runs a command often, and once more with an eye on the wire.
fn measure(
    program: &Path,
    words: &[&str],
    cluster: &Served,
    runs: usize,
) -> Result<Figures, Failure> {
    let tap = Tap::to(cluster.address())?;
    cluster.watched(&tap)?;
    cluster.restart_counts();
    once(program, words, &cluster.tapped())?;
    let requests = cluster.requests();
    let bytes = tap.received();
    let mut times = Vec::new();
    for _run in 0..runs.max(1) {
        times.push(once(program, words, &cluster.kubeconfig())?);
    }
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok(Figures { median, requests, bytes })
}

#[expect(clippy::disallowed_methods, reason = "the process is what is measured")]
fn once(program: &Path, words: &[&str], kubeconfig: &Path) -> Result<Duration, Failure> {
    let mut command = Command::new(program);
    command.args(words).arg("--kubeconfig").arg(kubeconfig);
    command.env("HOME", kubeconfig.parent().unwrap_or(kubeconfig)).stdin(Stdio::null());
    let begin = Instant::now();
    let output = command.output()?;
    let took = begin.elapsed();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{} {} failed: {said}", program.display(), words.join(" ")).into());
    }
    Ok(took)
}

#[expect(clippy::disallowed_methods, reason = "who measures says where kubectl is")]
fn named_kubectl() -> Option<PathBuf> {
    std::env::var_os("KATA_TEST_KUBECTL").map(PathBuf::from)
}

fn span(span: Duration) -> String {
    let millis = span.as_secs_f64() * 1_000.0;
    if millis < 1_000.0 { format!("{millis:.0} ms") } else { format!("{:.2} s", millis / 1_000.0) }
}

fn amount(bytes: u64) -> String {
    let kib = float(usize::try_from(bytes).unwrap_or(usize::MAX)) / 1_024.0;
    if kib < 1_024.0 { format!("{kib:.1} KiB") } else { format!("{:.1} MiB", kib / 1_024.0) }
}

#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
fn float(count: usize) -> f64 {
    count as f64
}
