//! All that CI runs: lanes of steps, so that what waits runs beside what computes.
//!
//! The output of a step goes to a file below `target/ci` and is printed whole when the step ends. At the end come
//! the time of each step and the number of tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;

use crate::{command, say};

mod count;

/// Where the output of the steps is.
const FOLDER: &str = "target/ci";
const WITHOUT_PROGRAMS: &str = "tests";
const WITH_PROGRAMS: &str = "tests with stock programs";
const WITH_IMAGE: &str = "tests with the image";
/// Why a test is ignored that a whole run cannot run, either; the others are left out of a quick run.
const NOT_RUN: [&str; 4] = [
    "needs a foreign cluster",
    "needs helm and checkov",
    "needs checkov",
    "needs docker-registry, openssl, containerd, kubectl and helm",
];

/// How much is run.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// Leave out the sample of the assurance, fuzzing, the image and checkov
    #[arg(long)]
    quick: bool,
}

/// A step of CI. In a command line `xtask` is this program.
struct Step {
    /// Its name in the table of times.
    name: &'static str,
    /// The command line of a whole run.
    whole: &'static str,
    /// The command line of a quick run; `None` if that leaves the step out.
    quick: Option<&'static str>,
}

impl Step {
    const fn always(name: &'static str, line: &'static str) -> Self {
        Self { name, whole: line, quick: Some(line) }
    }

    const fn whole(name: &'static str, line: &'static str) -> Self {
        Self { name, whole: line, quick: None }
    }
}

/// The lanes run at the same time; in a lane, a step begins when the one before it has passed.
const LANES: [&[Step]; 3] = [
    // Node agents that are killed, systemd and stock programs: these tests wait more than they compute.
    &[Step {
        name: WITH_PROGRAMS,
        whole: "cargo test --workspace --tests --locked -- --ignored --skip foreign_cluster --skip published",
        quick: Some(
            "cargo test --workspace --tests --locked -- --ignored --skip foreign_cluster --skip published --skip checkov",
        ),
    }],
    &[
        Step::always(WITHOUT_PROGRAMS, "cargo test --workspace --locked"),
        Step::whole("sample of the assurance", "xtask assure --sample"),
    ],
    &[
        Step::always("format", "cargo fmt --all --check"),
        // cargo-deny reads the crates of all systems; a build fetches only those of this one.
        Step::always("all crates", "cargo fetch --locked"),
        // A quick run compiles none of them, and their lock file is one of its own.
        Step::always(
            "crates of fuzz targets",
            "cargo fetch --locked --manifest-path fuzz/Cargo.toml",
        ),
        Step::always(
            "licenses and sources",
            "cargo deny --offline --locked check --hide-inclusion-graph bans licenses sources",
        ),
        Step::always("lints", "cargo clippy --workspace --all-targets --locked -- -D warnings"),
        Step::always("house rules", "xtask tidy"),
        // Compiles all targets, and runs those for what a stolen token, a node and a payload's publisher choose, a
        // minute each.
        Step::whole("fuzz", "xtask fuzz task kubelet_arguments payload_tar"),
        // From unoptimized programs. What is published is built by `cargo xtask release`, which takes long. Of the whole
        // workspace: cargo would build xtask, which runs, again for one package.
        Step::whole(WITH_IMAGE, "cargo test --workspace --test it --locked -- --ignored published"),
    ],
];

/// How a step ended.
struct Ended {
    name: &'static str,
    begun: Duration,
    took: Duration,
    failure: Option<String>,
}

/// Runs all steps; returns what failed.
pub(crate) fn run(root: &Path, Options { quick }: Options) -> Vec<String> {
    let folder = root.join(FOLDER);
    drop(fs::remove_dir_all(&folder));
    if let Err(error) = fs::create_dir_all(&folder) {
        return vec![format!("cannot make {}: {error}", folder.display())];
    }
    let start = Instant::now();
    let ended = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for lane in LANES {
            let ended = &ended;
            scope.spawn(move || {
                for step in lane {
                    let line = if quick { step.quick } else { Some(step.whole) };
                    let Some(line) = line else { continue };
                    let begun = start.elapsed();
                    let failure = run_step(root, step.name, line).err();
                    let took = start.elapsed().saturating_sub(begun);
                    let failed = failure.is_some();
                    let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                    print(root, step.name);
                    ended.push(Ended { name: step.name, begun, took, failure });
                    if failed {
                        break;
                    }
                }
            });
        }
    });
    let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    say("xtask: seconds of each step, and when it began");
    for Ended { name, begun, took, failure } in &ended {
        let state = if failure.is_some() { ": FAILED" } else { "" };
        say(&format!("{:6} {:6}  {name}{state}", took.as_secs(), begun.as_secs()));
    }
    say(&format!("{:6}         all steps", start.elapsed().as_secs()));
    let mut problems: Vec<String> = ended.into_iter().filter_map(|step| step.failure).collect();
    let text = |name| fs::read_to_string(log(root, name)).unwrap_or_default();
    let with_programs = [text(WITH_PROGRAMS), text(WITH_IMAGE)].concat();
    let tests = count::Tests::of(&text(WITHOUT_PROGRAMS), &with_programs);
    let left_out = if quick { &NOT_RUN[..] } else { &NOT_RUN[..1] };
    for (reason, number) in &tests.skipped {
        say(&format!("{number} tests skipped: {reason}"));
        if !left_out.contains(&reason.as_str()) {
            problems.push(format!("{number} tests did not run: {reason}"));
        }
    }
    say(&tests.to_string());
    problems
}

fn log(root: &Path, name: &str) -> PathBuf {
    root.join(FOLDER).join(format!("{}.log", name.replace(' ', "-")))
}

/// Prints what a step printed.
fn print(root: &Path, name: &str) {
    say(&format!("xtask: {name}"));
    say(&fs::read_to_string(log(root, name)).unwrap_or_default());
}

fn run_step(root: &Path, name: &str, line: &str) -> Result<(), String> {
    let failed = |why: &str| format!("{name}: `{line}` {why}");
    let mut words = line.split(' ');
    let program = match words.next() {
        Some("xtask") => std::env::current_exe().map_err(|error| failed(&error.to_string()))?,
        other => PathBuf::from(other.unwrap_or_default()),
    };
    let file = fs::File::create(log(root, name)).map_err(|error| failed(&error.to_string()))?;
    let errors = file.try_clone().map_err(|error| failed(&error.to_string()))?;
    let mut run = command(root, program.to_str().unwrap_or_default());
    run.args(words).stdin(Stdio::null()).stdout(file).stderr(errors);
    let status = run.status().map_err(|error| failed(&format!("cannot be run: {error}")))?;
    if status.success() { Ok(()) } else { Err(failed(&format!("ended with {status}"))) }
}
