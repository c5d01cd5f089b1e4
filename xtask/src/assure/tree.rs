//! The copy of the tree that seeded bugs are put into, and how it is built and tested.
//!
//! The copy has a build directory of its own, which stays warm between bugs and runs. Nothing outside
//! `target/assure` is written.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::catalogue::{Edit, Killer, files};
use crate::{command, output};

/// How much longer the tests of a seeded bug may run than all tests of that binary that must fail took without any: with
/// some bugs the operator goes round in circles.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// How long all of them may run without any seeded bug.
pub(crate) const LIMIT_OF_ALL: Duration = Duration::from_mins(10);
/// The crate whose tests take minutes without optimization. For the others, optimizing takes longer than it saves.
const OPTIMIZED: &str = "kata-host";
/// How often to look whether a test has ended.
const LOOK: Duration = Duration::from_millis(20);

/// The copy.
pub(crate) struct Tree {
    root: PathBuf,
    copy: PathBuf,
    target: PathBuf,
}

/// A file that a seeded bug is in, and what it was without it.
pub(crate) struct Undo {
    path: PathBuf,
    before: String,
}

/// What became of the tests that were run.
#[derive(Debug, Default)]
pub(crate) struct Tested {
    /// The tests that passed.
    pub(crate) passed: BTreeSet<String>,
    /// The tests that failed, or that had not ended at the time limit.
    pub(crate) failed: BTreeSet<String>,
}

impl Tree {
    /// Brings the copy up to date with the tree.
    pub(crate) fn copy(root: &Path) -> Result<Self, String> {
        let base = root.join("target").join("assure");
        let tree =
            Self { root: root.to_owned(), copy: base.join("copy"), target: base.join("build") };
        let mut git = command(root, "git");
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = output(git)?;
        let wanted: BTreeSet<&str> = listed.split('\0').filter(|name| !name.is_empty()).collect();
        for name in &wanted {
            tree.restore(name)?;
        }
        for found in files(&tree.copy)? {
            let name = found.strip_prefix(&tree.copy).unwrap_or(&found);
            if !name.to_str().is_some_and(|name| wanted.contains(name)) {
                fs::remove_file(&found).map_err(|error| failed("remove", &found, &error))?;
            }
        }
        tree.seed()?;
        Ok(tree)
    }

    /// Links what the tree's own build made of foreign crates into the copy's, if that has nothing yet.
    fn seed(&self) -> Result<(), String> {
        if self.target.exists() {
            return Ok(());
        }
        let Some(profile) =
            std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned))
        else {
            return Ok(());
        };
        for part in ["build", "deps", ".fingerprint"] {
            for file in files(&profile.join(part))? {
                let name = file.strip_prefix(&profile).unwrap_or(&file);
                let link = self.target.join("debug").join(name);
                if let Some(folder) = link.parent() {
                    fs::create_dir_all(folder).map_err(|error| failed("make", folder, &error))?;
                }
                // Another build may be removing files; what is missing is built again.
                if fs::hard_link(&file, &link).is_err() {
                    continue;
                }
            }
        }
        Ok(())
    }

    /// Puts the tree's version of a file into the copy; one that is the same is not touched.
    fn restore(&self, name: &str) -> Result<(), String> {
        let (from, to) = (self.root.join(name), self.copy.join(name));
        let Ok(text) = fs::read(&from) else {
            // Deleted and not yet committed.
            return Ok(());
        };
        if fs::read(&to).is_ok_and(|there| there == text) {
            return Ok(());
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(|error| failed("make", folder, &error))?;
        }
        fs::write(&to, text).map_err(|error| failed("write", &to, &error))
    }

    /// Puts a seeded bug into the copy; returns what to give to [`Tree::undo`].
    pub(crate) fn apply(&self, edits: &[Edit]) -> Result<Vec<Undo>, String> {
        let mut changed = Vec::new();
        let applied = edits.iter().try_for_each(|edit| {
            let (file, mutated) = edit.find(&self.copy)?;
            let path = self.copy.join(&file);
            let before =
                fs::read_to_string(&path).map_err(|error| failed("read", &path, &error))?;
            fs::write(&path, mutated).map_err(|error| failed("write", &path, &error))?;
            changed.push(Undo { path, before });
            Ok(())
        });
        match applied {
            Ok(()) => Ok(changed),
            Err(error) => {
                self.undo(changed)?;
                Err(error)
            }
        }
    }

    /// Takes a seeded bug out of the copy. Not from the tree, where work may be going on.
    pub(crate) fn undo(&self, changed: Vec<Undo>) -> Result<(), String> {
        changed.into_iter().rev().try_for_each(|Undo { path, before }| {
            fs::write(&path, before).map_err(|error| failed("write", &path, &error))
        })
    }

    /// Builds the tests of a crate, and returns their binary; `Err` is what the compiler says.
    pub(crate) fn build(&self, package: &str, target: &str) -> Result<PathBuf, String> {
        let mut cargo = command(&self.copy, "cargo");
        cargo.args(["test", "--no-run", "--quiet", "--locked", "--message-format=json"]);
        cargo.args(["--package", package]);
        if package != OPTIMIZED {
            cargo.args(["--profile", "dev"]);
        }
        match target {
            "lib" => cargo.arg("--lib"),
            test => cargo.args(["--test", test]),
        };
        cargo.env("CARGO_TARGET_DIR", &self.target);
        // What is built again and again is small: incremental builds take a third of the time.
        cargo.env("CARGO_INCREMENTAL", "1").env("CARGO_PROFILE_DEV_DEBUG", "false");
        let built = cargo.output().map_err(|error| format!("cannot run cargo: {error}"))?;
        let messages: Vec<Value> = String::from_utf8_lossy(&built.stdout)
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        if !built.status.success() {
            let errors: Vec<&str> = messages
                .iter()
                .filter(|message| message["message"]["level"] == "error")
                .filter_map(|message| message["message"]["rendered"].as_str())
                .collect();
            let other = String::from_utf8_lossy(&built.stderr);
            return Err(format!("{}{other}", errors.concat()));
        }
        let kind = if target == "lib" { "lib" } else { "test" };
        messages
            .iter()
            .filter(|message| {
                message["profile"]["test"] == true
                    && message["target"]["kind"]
                        .as_array()
                        .is_some_and(|kinds| kinds.iter().any(|of| of == kind))
                    && (kind == "lib" || message["target"]["name"] == target)
            })
            .find_map(|message| message["executable"].as_str())
            .map(PathBuf::from)
            .ok_or_else(|| format!("cargo names no binary for the tests {target} of {package}"))
    }

    /// Runs tests of a binary: the given ones, or all. What has not ended after `limit` fails.
    pub(crate) fn test(
        &self,
        binary: &Path,
        package: &str,
        tests: &[&Killer],
        limit: Duration,
    ) -> Result<Tested, String> {
        let folder = self.copy.join("crates").join(package);
        let log = self.target.join("tests.log");
        let file = fs::File::create(&log).map_err(|error| failed("write", &log, &error))?;
        let binary = binary.to_str().unwrap_or_default();
        let mut run = command(&folder, binary);
        run.args(["--test-threads=2", "--exact"]);
        run.args(tests.iter().map(|killer| killer.test.as_str()));
        run.env("INSTA_UPDATE", "no").env("INSTA_WORKSPACE_ROOT", &self.copy);
        run.env("CARGO_MANIFEST_DIR", &folder).env("RUST_BACKTRACE", "0");
        run.stdin(Stdio::null()).stdout(file).stderr(Stdio::null());
        let mut child = run.spawn().map_err(|error| format!("cannot run {binary}: {error}"))?;
        let begun = Instant::now();
        let in_time = loop {
            match child.try_wait() {
                Ok(Some(_)) => break true,
                Ok(None) if begun.elapsed() < limit => std::thread::sleep(LOOK),
                Ok(None) => break false,
                Err(error) => return Err(format!("cannot wait for {binary}: {error}")),
            }
        };
        if !in_time {
            // It may have ended by itself just now.
            child
                .kill()
                .and_then(|()| child.wait())
                .map_err(|error| failed("end", &log, &error))?;
        }
        let text = fs::read_to_string(&log).map_err(|error| failed("read", &log, &error))?;
        let mut tested = outcomes(&text);
        if !in_time {
            // What has not ended is caught in a loop.
            for killer in tests.iter().filter(|killer| !tested.passed.contains(&killer.test)) {
                tested.failed.insert(killer.test.clone());
            }
        }
        Ok(tested)
    }
}

/// What the test harness printed for each test.
fn outcomes(text: &str) -> Tested {
    let mut tested = Tested::default();
    for line in text.lines() {
        let Some((name, outcome)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        else {
            continue;
        };
        match outcome {
            "ok" => tested.passed.insert(name.to_owned()),
            "FAILED" => tested.failed.insert(name.to_owned()),
            _ => false,
        };
    }
    tested
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {what} {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_and_failed_tests_are_told_apart() {
        let tested =
            outcomes("running 3 tests\ntest a::b ... ok\ntest c ... FAILED\ntest d ... ignored\n");
        assert_eq!(tested.passed.into_iter().collect::<Vec<_>>(), ["a::b"]);
        assert_eq!(tested.failed.into_iter().collect::<Vec<_>>(), ["c"]);
    }
}
