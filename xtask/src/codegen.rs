//! The generated files under `deploy/`: what the operator's binary prints is what is committed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::pictures::PICTURES;
use crate::{command, output, say};

/// Each generated file and the words after `kata-operator` that print it.
const FILES: [(&str, &[&str]); 4] = [
    ("deploy/crds.yaml", &["crd"]),
    ("deploy/operator.yaml", &["manifests"]),
    ("deploy/monitoring/alerts.yaml", &["alerts"]),
    ("deploy/monitoring/dashboard.json", &["dashboards"]),
];
/// Each generated folder and the word after `kata-operator` that writes it.
const FOLDERS: [(&str, &str); 2] =
    [("deploy/helm/kata-operator", "helm"), ("deploy/olm", "bundle")];
/// Where folders are generated to be compared.
const SCRATCH: &str = "target/codegen";

/// Writes the files, or with `check` names those that are stale.
pub(crate) fn run(root: &Path, check: bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (file, words) in FILES {
        match generate(root, words) {
            Ok(fresh) => compare(root, file, Some(&fresh), check, &mut problems),
            Err(error) => problems.push(error),
        }
    }
    for picture in &PICTURES {
        compare(root, picture.file, Some(&picture.svg()), check, &mut problems);
    }
    for (folder, word) in FOLDERS {
        if let Err(error) = whole(root, folder, word, check, &mut problems) {
            problems.push(error);
        }
    }
    problems
}

fn generate(root: &Path, words: &[&str]) -> Result<String, String> {
    let mut cargo = command(root, "cargo");
    cargo.args([
        "run",
        "--quiet",
        "--locked",
        "--package",
        "kata-operator",
        "--bin",
        "kata-operator",
        "--",
    ]);
    cargo.args(words);
    output(cargo)
}

/// A folder that the operator's binary writes as a whole: a file that it does not write is stale too.
fn whole(
    root: &Path,
    folder: &str,
    word: &str,
    check: bool,
    problems: &mut Vec<String>,
) -> Result<(), String> {
    let scratch = root.join(SCRATCH).join(word);
    if scratch.exists() {
        fs::remove_dir_all(&scratch)
            .map_err(|error| format!("cannot empty {}: {error}", scratch.display()))?;
    }
    generate(root, &[word, "--to", &scratch.to_string_lossy()])?;
    let failed = |error| format!("cannot list the files of {folder}: {error}");
    let fresh = files(&scratch).map_err(failed)?;
    let committed = files(&root.join(folder)).map_err(failed)?;
    for name in fresh.union(&committed) {
        let text = if fresh.contains(name) {
            let path = scratch.join(name);
            Some(
                fs::read_to_string(&path)
                    .map_err(|error| format!("cannot read {}: {error}", path.display()))?,
            )
        } else {
            None
        };
        compare(root, &format!("{folder}/{}", name.display()), text.as_deref(), check, problems);
    }
    Ok(())
}

/// The files in a folder and those below it, relative to it.
fn files(folder: &Path) -> std::io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        let here = folder.join(&below);
        if !here.exists() {
            continue;
        }
        for entry in fs::read_dir(here)? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else {
                found.insert(path);
            }
        }
    }
    Ok(found)
}

/// Makes a file what it should be (gone, if `fresh` is nothing), or with `check` says that it is not.
fn compare(root: &Path, file: &str, fresh: Option<&str>, check: bool, problems: &mut Vec<String>) {
    let path = root.join(file);
    let committed = fs::read_to_string(&path).ok();
    if committed.as_deref() == fresh {
        return;
    }
    if check {
        problems.push(format!("{file} is stale: run `cargo xtask codegen` and commit it"));
        return;
    }
    let done = match fresh {
        Some(text) => write(&path, text),
        None => fs::remove_file(&path),
    };
    match done {
        Ok(()) => say(&format!("{} {file}", if fresh.is_some() { "wrote" } else { "removed" })),
        Err(error) => problems.push(format!("cannot write {file}: {error}")),
    }
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}
