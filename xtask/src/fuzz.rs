//! Runs fuzz targets: builds them with the coverage that libFuzzer reads, on the stable toolchain and without
//! sanitizers, and lets each try inputs for a while.
//!
//! New inputs stay below `target/fuzz`; the seeds in `fuzz/corpus` are not changed.

use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::Args;

use crate::{command, output, say};

/// Below `target/`.
const FOLDER: &str = "target/fuzz";
/// As `cargo fuzz` sets them. With a target of its own for cargo they do not concern build scripts.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions --cfg fuzzing";
/// The most memory of a target, in MiB.
const MEMORY: u32 = 512;
/// The longest that a target may take for one input, in seconds.
const INPUT_SECONDS: u32 = 10;

/// Which targets, and for how long.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Targets in fuzz/fuzz_targets
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<String>,
    /// Seconds for each target
    #[arg(long, default_value_t = 60, value_name = "N")]
    seconds: u32,
}

/// Returns what was found.
pub(crate) fn run(root: &Path, options: &Options) -> Vec<String> {
    let folder = match build(root) {
        Ok(folder) => folder,
        Err(error) => return vec![error],
    };
    let fault = |target: &String| run_one(root, &folder, target, options.seconds).err();
    options.targets.iter().filter_map(fault).collect()
}

/// Builds all targets: nothing else compiles those that are not asked for. Returns the folder they are in.
fn build(root: &Path) -> Result<PathBuf, String> {
    let triple = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let mut build = command(root, "cargo");
    build.args(["build", "--quiet", "--locked", "--release", "--manifest-path", "fuzz/Cargo.toml"]);
    build.args(["--features", "agent", "--target-dir", FOLDER, "--target", &triple]);
    build.env("RUSTFLAGS", COVERAGE);
    output(build)?;
    Ok(root.join(FOLDER).join(triple).join("release"))
}

/// Lets a target that is built try inputs.
fn run_one(root: &Path, programs: &Path, target: &str, seconds: u32) -> Result<(), String> {
    let (found, folder) = (format!("{FOLDER}/corpus/{target}"), format!("{FOLDER}/work"));
    for folder in [&found, &folder] {
        let made = fs::create_dir_all(root.join(folder));
        made.map_err(|error| format!("cannot make {folder}: {error}"))?;
    }
    let program = programs.join(target);
    if !program.is_file() {
        return Err(format!("there is no fuzz target {target} in fuzz/fuzz_targets"));
    }
    let mut run = command(root, program.to_str().unwrap_or_default());
    run.args([&found, &format!("fuzz/corpus/{target}")]);
    run.args([
        &format!("-max_total_time={seconds}"),
        &format!("-timeout={INPUT_SECONDS}"),
        &format!("-rss_limit_mb={MEMORY}"),
        &format!("-artifact_prefix={found}-"),
        "-print_final_stats=1",
        "-verbosity=0",
    ]);
    run.env("TMPDIR", root.join(&folder));
    let ended = run.output().map_err(|error| format!("cannot run {target}: {error}"))?;
    let text = String::from_utf8_lossy(&ended.stderr);
    if !ended.status.success() {
        return Err(format!("{target} failed:\n{text}"));
    }
    let tried = text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    match tried.map(str::trim).and_then(|number| number.parse::<u64>().ok()) {
        Some(tried) if tried > 0 => {
            say(&format!("{target}: {tried} inputs in {seconds} s, nothing found"));
            Ok(())
        }
        _ => Err(format!("{target} does not say that it tried anything:\n{text}")),
    }
}
