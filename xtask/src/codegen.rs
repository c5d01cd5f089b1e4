//! The generated files under `deploy/`: what the operator's binary prints is what is committed.

use std::fs;
use std::path::Path;

use crate::{command, output, say};

/// Each generated file and the words after `kata-operator` that print it.
const FILES: [(&str, &[&str]); 2] =
    [("deploy/crds.yaml", &["crd"]), ("deploy/operator.yaml", &["manifests"])];

/// Writes the files, or with `check` names those that are stale.
pub(crate) fn run(root: &Path, check: bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (file, words) in FILES {
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
        let fresh = match output(cargo) {
            Ok(text) => text,
            Err(error) => {
                problems.push(error);
                continue;
            }
        };
        let path = root.join(file);
        let committed = fs::read_to_string(&path).unwrap_or_default();
        if committed == fresh {
            continue;
        }
        if check {
            problems.push(format!("{file} is stale: run `cargo xtask codegen` and commit it"));
        } else if let Err(error) = write(&path, &fresh) {
            problems.push(format!("cannot write {file}: {error}"));
        } else {
            say(&format!("wrote {file}"));
        }
    }
    problems
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}
