//! The generated files under `deploy/` and `docs/`: what the programs print is what is committed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::book;
use crate::pictures::PICTURES;
use crate::reference;
use crate::{command, output, say};

/// Each generated file, the program that prints it, and the words after its name.
const FILES: [(&str, &str, &[&str]); 5] = [
    ("deploy/crds.yaml", "kata-operator", &["crd"]),
    ("deploy/operator.yaml", "kata-operator", &["manifests"]),
    ("deploy/monitoring/alerts.yaml", "kata-operator", &["alerts"]),
    ("deploy/monitoring/dashboard.json", "kata-operator", &["dashboards"]),
    ("docs/cli.md", "kubectl-kata", &["__reference"]),
];
/// Each generated folder and the word after `kata-operator` that writes it.
const FOLDERS: [(&str, &str); 2] =
    [("deploy/helm/kata-operator", "helm"), ("deploy/olm", "bundle")];
/// Each generated folder of pages, the words after `kubectl-kata` that print them all, and the ending of
/// their names. A line `# NAME` begins a page; whether it is part of it is the last word here.
const PAGES: [(&str, &[&str], &str, bool); 2] = [
    ("docs/codes", &["codes", "-o", "markdown"], "md", true),
    ("docs/schema", &["__schema"], "json", false),
];
/// Where folders are generated to be compared.
const SCRATCH: &str = "target/codegen";

/// Writes the files, or with `check` names those that are stale.
pub(crate) fn run(root: &Path, check: bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (file, program, words) in FILES {
        match generate(root, program, words) {
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
    for (folder, words, ending, titled) in PAGES {
        let printed = generate(root, "kubectl-kata", words).and_then(|text| {
            let pages = pages(&text, ending, titled);
            let committed = files(&root.join(folder))
                .map_err(|error| format!("cannot list the files of {folder}: {error}"))?;
            Ok((pages, committed))
        });
        let (pages, committed) = match printed {
            Ok(printed) => printed,
            Err(error) => {
                problems.push(error);
                continue;
            }
        };
        let names: BTreeSet<PathBuf> = pages.keys().map(PathBuf::from).chain(committed).collect();
        for name in names {
            let text = pages.get(name.to_string_lossy().as_ref());
            let file = format!("{folder}/{}", name.display());
            compare(root, &file, text.map(String::as_str), check, &mut problems);
        }
    }
    match reference::pages() {
        Ok(pages) => {
            for (name, text) in pages {
                let file = format!("docs/reference/{name}");
                compare(root, &file, Some(&text), check, &mut problems);
            }
        }
        Err(error) => problems.push(error),
    }
    // Last, because it has the titles of the pages.
    match book::summary(root) {
        Ok(text) => compare(root, book::SUMMARY, Some(&text), check, &mut problems),
        Err(error) => problems.push(error),
    }
    problems
}

/// The pages of a text, by the names of their files.
fn pages(text: &str, ending: &str, titled: bool) -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    let mut current: Option<(String, String)> = None;
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            pages.extend(current.take());
            let name = title.split(' ').next().unwrap_or_default();
            current = Some((format!("{name}.{ending}"), String::new()));
            if !titled {
                continue;
            }
        }
        if let Some((_, page)) = &mut current {
            page.push_str(line);
            page.push('\n');
        }
    }
    pages.extend(current);
    pages
}

fn generate(root: &Path, program: &str, words: &[&str]) -> Result<String, String> {
    let mut cargo = command(root, "cargo");
    cargo.args(["run", "--quiet", "--locked", "--package", program, "--bin", program, "--"]);
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
    generate(root, "kata-operator", &[word, "--to", &scratch.to_string_lossy()])?;
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
