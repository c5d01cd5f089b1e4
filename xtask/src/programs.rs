//! Builds programs of the workspace, each crate once.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{command, output};

/// How programs are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// As `cargo test --workspace` does, so that after it nothing is left to build.
    Test,
    /// Optimized.
    Release,
}

/// Builds programs; returns where each is.
pub(crate) fn build(
    root: &Path,
    profile: Profile,
    names: &[&str],
) -> Result<BTreeMap<String, PathBuf>, String> {
    let mut cargo = command(root, "cargo");
    cargo.args(["build", "--quiet", "--locked", "--message-format=json"]);
    match profile {
        // A test in the selection makes cargo activate the features of dev-dependencies.
        Profile::Test => cargo.args(["--profile", "test", "--bench", "scale"]),
        Profile::Release => cargo.arg("--release"),
    };
    for name in names {
        cargo.args(["--bin", name]);
    }
    let built = executables(&output(cargo)?);
    match names.iter().find(|name| !built.contains_key(**name)) {
        None => Ok(built),
        Some(name) => Err(format!("cargo names no executable for {name}")),
    }
}

/// Where programs are, from what cargo prints with `--message-format=json`.
pub(crate) fn executables(printed: &str) -> BTreeMap<String, PathBuf> {
    printed
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["kind"][0] == "bin")
        .filter_map(|message| {
            let name = message["target"]["name"].as_str()?.to_owned();
            Some((name, message["executable"].as_str()?.into()))
        })
        .collect()
}
