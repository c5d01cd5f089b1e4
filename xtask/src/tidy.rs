//! The house rules that no compiler checks.
//!
//! Each rule is a function from the tree to sentences that name the file and the fix.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::assure::{catalogue, record};
use crate::{book, codegen, command, output};

mod circles;
mod edges;
mod links;
mod purity;
mod words;

/// Foreign crates that a crate must not depend on, directly or through others: what would let I/O,
/// threads or a clock into a pure crate, and an API client into a node Job.
const FORBIDDEN: [(&str, &[&str]); 5] = [
    ("kata-api", &["tokio", "kube-client", "kube-runtime", "hyper", "tracing"]),
    ("kata-host", &["tokio", "kube-client", "kube-runtime", "hyper", "tracing", "rand"]),
    ("kata-manifests", &["tokio", "kube-client", "kube-runtime", "hyper"]),
    ("kata-node-agent", &["kube-client", "kube-runtime"]),
    ("kata-plan", &["tokio", "kube-client", "kube-runtime", "hyper", "tracing", "rand"]),
];

/// Lines that a source file may have, tests included.
const MAX_LINES: usize = 1_000;

/// Checks every rule.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    match sources(root) {
        Ok(files) => files.iter().for_each(|file| problems.extend(source_rules(root, file))),
        Err(error) => problems.push(error),
    }
    match metadata(root) {
        Ok(metadata) => {
            problems.extend(edges::check(root, &metadata));
            problems.extend(lints(&metadata));
            problems.extend(untested_targets(root, &metadata));
        }
        Err(error) => problems.push(error),
    }
    problems.extend(forbidden(root));
    problems.extend(purity::check(root));
    problems.extend(circles::check(root));
    problems.extend(catalogue::check(root));
    problems.extend(record::check(root));
    problems.extend(links::check(root));
    problems.extend(words::check(root));
    problems.extend(book::check(root));
    problems.extend(codegen::run(root, true));
    problems
}

/// The Rust files that git tracks.
fn sources(root: &Path) -> Result<Vec<String>, String> {
    let mut git = command(root, "git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"]);
    Ok(output(git)?.lines().map(str::to_owned).collect())
}

fn source_rules(root: &Path, file: &str) -> Vec<String> {
    let Ok(text) = fs::read_to_string(root.join(file)) else {
        // Deleted and not yet committed.
        return Vec::new();
    };
    let mut problems = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        problems
            .push(format!("{file} has {lines} lines, at most {MAX_LINES} are allowed: split it"));
    }
    if !text.starts_with("//!") {
        problems.push(format!(
            "{file} does not begin with `//!`: say what it is for and what it must not do"
        ));
    }
    if file.ends_with("/mod.rs") {
        problems.push(format!("{file}: use `foo.rs` beside `foo/`"));
    }
    let stem = Path::new(file).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if ["utils", "util", "common", "helpers", "manager", "imp"].contains(&stem) {
        problems.push(format!("{file}: a module is named after what it holds"));
    }
    for (number, line) in text.lines().enumerate() {
        if line.ends_with([' ', '\t']) {
            problems.push(format!("{file}:{}: white space at the end of the line", number + 1));
        }
        if line.contains(concat!("TO", "DO")) || line.contains(concat!("FIX", "ME")) {
            problems.push(format!("{file}:{}: file an issue instead", number + 1));
        }
    }
    problems
}

fn metadata(root: &Path) -> Result<Value, String> {
    let mut cargo = command(root, "cargo");
    cargo.args(["metadata", "--format-version", "1", "--no-deps", "--locked"]);
    serde_json::from_str(&output(cargo)?)
        .map_err(|error| format!("cannot read cargo metadata: {error}"))
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().into_iter().flatten()
}

fn lints(metadata: &Value) -> Vec<String> {
    packages(metadata)
        .filter_map(|package| package["manifest_path"].as_str())
        .filter(|path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            !text.contains("[lints]\nworkspace = true")
        })
        .map(|path| format!("{path} lacks `[lints]` with `workspace = true`"))
        .collect()
}

/// `test = false` in a manifest, which saves building a library a second time, is right as long as there is no test in
/// it: one would silently not run.
fn untested_targets(root: &Path, metadata: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    for package in packages(metadata) {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().unwrap_or(root).join("src");
        let has_tests = catalogue::files(&folder).unwrap_or_default().iter().any(|file| {
            let text = fs::read_to_string(file).unwrap_or_default();
            text.contains("#[test]") || text.contains("#[tokio::test")
        });
        let targets = package["targets"].as_array().into_iter().flatten();
        let is_tested = |target: &Value| {
            let path = target["src_path"].as_str().unwrap_or_default();
            target["test"] == true && Path::new(path).starts_with(&folder)
        };
        let name = &package["name"];
        match (has_tests, targets.into_iter().any(is_tested)) {
            (true, false) => problems.push(format!(
                "{name}: a test in src does not run, since its manifest says `test = false`"
            )),
            (false, true) => problems.push(format!(
                "{name}: there is no test in src: add `test = false` to [lib] and [[bin]] of its manifest"
            )),
            _ => {}
        }
    }
    problems
}

fn forbidden(root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, foreign) in FORBIDDEN {
        let mut cargo = command(root, "cargo");
        cargo.args([
            "tree",
            "--locked",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
            "--package",
            name,
        ]);
        match output(cargo) {
            Ok(tree) => {
                let used: BTreeSet<&str> =
                    tree.lines().filter_map(|line| line.split(' ').next()).collect();
                problems.extend(
                    foreign.iter().filter(|dependency| used.contains(*dependency)).map(
                        |dependency| {
                            format!("{name} must not depend on {dependency}, directly or not")
                        },
                    ),
                );
            }
            Err(error) => problems.push(error),
        }
    }
    problems
}
