//! Runs cargo-mutants over the crates that decide: how many changes of their code do their tests notice?
//!
//! cargo-mutants changes a copy; the repository stays as it is. Its own crate is not part of this one's build:
//! `cargo install cargo-mutants --locked` brings it.

use std::fs;
use std::path::Path;

use clap::Args;
use serde_json::Value;

use crate::{command, say};

/// Below `target/`: what cargo-mutants writes, and what it builds.
const FOLDER: &str = "target/mutants";
/// The crates whose code is changed.
const CRATES: [&str; 2] = ["kata-host", "kata-plan"];
/// Longer than the tests of one crate take on a busy machine, in seconds.
const TEST_SECONDS: u32 = 300;

/// What to change.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The crate whose code is changed [default: both]
    #[arg(long, value_name = "CRATE", value_parser = CRATES)]
    package: Option<String>,
    /// A part of all changes, such as 0/20: every 20th
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Only changes of these files, such as crates/kata-host/src/header.rs
    #[arg(long, value_name = "GLOB")]
    file: Option<String>,
}

/// Says how many changes the tests noticed, and names the others. Returns why that is not known.
pub(crate) fn run(root: &Path, options: &Options) -> Vec<String> {
    let packages: Vec<&str> =
        options.package.as_deref().map_or_else(|| CRATES.to_vec(), |package| vec![package]);
    packages.into_iter().filter_map(|package| one(root, package, options).err()).collect()
}

fn one(root: &Path, package: &str, options: &Options) -> Result<(), String> {
    let output = format!("{FOLDER}/{package}");
    let made = fs::create_dir_all(root.join(&output));
    made.map_err(|error| format!("cannot make {output}: {error}"))?;
    let mut mutants = command(root, "cargo");
    mutants.args(["mutants", "--package", package, "--test-package", package]);
    mutants.args(["--output", &output, "--no-shuffle", "--colors=never"]);
    mutants.args([format!("--timeout={TEST_SECONDS}")]);
    if let Some(shard) = &options.shard {
        mutants.args(["--shard", shard, "--sharding=round-robin"]);
    }
    if let Some(file) = &options.file {
        mutants.args(["--file", file]);
    }
    // The copy has another path each time; what is not of this workspace is built once.
    mutants.env("CARGO_TARGET_DIR", root.join(FOLDER).join("build"));
    let ended = mutants.status().map_err(|error| format!("cannot run cargo mutants: {error}"))?;
    // It ends with 2 and 3 where tests did not notice a change.
    if !matches!(ended.code(), Some(0 | 2 | 3)) {
        return Err(format!("cargo mutants ended with {ended} for {package}; is it installed?"));
    }
    let file = root.join(&output).join("mutants.out/outcomes.json");
    let text = fs::read_to_string(&file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let outcomes: Value = serde_json::from_str(&text)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let count = |key: &str| outcomes[key].as_u64().unwrap_or_default();
    // A change that does not compile says nothing of the tests.
    let (noticed, missed) = (count("caught") + count("timeout"), count("missed"));
    say(&format!("{package}: {noticed} of {} changes noticed", noticed + missed));
    for outcome in outcomes["outcomes"].as_array().into_iter().flatten() {
        if outcome["summary"] == "MissedMutant" {
            say(&format!("  {}", outcome["scenario"]["Mutant"]["name"].as_str().unwrap_or("?")));
        }
    }
    Ok(())
}
