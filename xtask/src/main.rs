//! Checks and code generation of the repository: what CI runs, a developer runs with the same words.
//!
//! No product logic, and no knowledge that the crates do not publish themselves.

mod assure;
mod book;
mod ci;
mod codegen;
mod dist;
mod examples;
mod fuzz;
mod oci;
mod programs;
mod reference;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

/// The repository's tasks.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand, Debug)]
enum Task {
    /// Check the house rules: dependency edges, file sizes, module docs, lints, links, generated files,
    /// seeded bugs that fit the code
    Tidy,
    /// Write the generated files under deploy/ and docs/
    Codegen {
        /// Change nothing; fail if a file is stale
        #[arg(long)]
        check: bool,
    },
    /// Show that the operator keeps its promises under faults, and that tests notice seeded bugs;
    /// write docs/assurance.json
    Assure(assure::Options),
    /// Let fuzz targets try inputs
    Fuzz(fuzz::Options),
    /// Build what is published below target/dist: static binaries, the plugin's archive with
    /// manual pages and completions, krew manifest
    Dist(dist::Options),
    /// Build the operator's image; write it into an archive, or push it to a registry
    Image(dist::ImageOptions),
    /// Publish a version in a registry: image, chart, and the files of a release
    Release(dist::ReleaseOptions),
    /// Run all that CI runs: tests, lints, house rules, a sample of the assurance, the image. Needs the
    /// programs of `.ci/tools`; `.ci/run` fetches them
    Ci(ci::Options),
}

fn main() -> ExitCode {
    let root = root();
    let problems = match Args::parse().task {
        Task::Tidy => tidy::check(&root),
        Task::Codegen { check } => codegen::run(&root, check),
        Task::Assure(options) => assure::run(&root, &options),
        Task::Fuzz(options) => fuzz::run(&root, &options),
        Task::Dist(options) => dist::dist(&root, &options),
        Task::Image(options) => dist::image(&root, &options),
        Task::Release(options) => dist::release(&root, &options),
        Task::Ci(options) => ci::run(&root, options),
    };
    if problems.is_empty() {
        return ExitCode::SUCCESS;
    }
    for problem in &problems {
        say(problem);
    }
    say(&format!("{} problem(s)", problems.len()));
    ExitCode::FAILURE
}

/// The repository's root: the parent of this crate's folder.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Prints a line for the developer.
#[expect(clippy::print_stderr, reason = "xtask talks to a developer's terminal")]
fn say(line: &str) {
    eprintln!("{line}");
}

/// A command in the repository's root.
#[expect(
    clippy::disallowed_methods,
    reason = "xtask starts cargo and git; the product starts nothing"
)]
fn command(root: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root);
    // `cargo xtask` sets variables of xtask's package. A cargo that inherits them runs ring's build script again, and
    // builds all that needs ring again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_MANIFEST_") || text.starts_with("CARGO_PKG_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a command and returns what it printed.
fn output(mut command: Command) -> Result<String, String> {
    let name = format!("{command:?}");
    let output = command.output().map_err(|error| format!("cannot run {name}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{name} failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{name} printed no UTF-8: {error}"))
}
