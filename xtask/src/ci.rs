//! All that CI runs, in the order in which it fails fastest.

use std::path::Path;

use crate::assure::{self, record};
use crate::{command, say, tidy};

/// Runs the steps; stops at the first that fails.
pub(crate) fn run(root: &Path, skip_tests: bool) -> Vec<String> {
    let steps: [(&str, &[&str]); 5] = [
        ("format", &["fmt", "--all", "--check"]),
        ("lints", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]),
        // Off by default, so that nothing else compiles it.
        (
            "the feature otel",
            &["check", "--package", "kata-operator", "--features", "otel", "--tests", "--locked"],
        ),
        // A workspace of their own, so that nothing else compiles them; what they share with this one is not
        // checked twice.
        (
            "fuzz targets",
            &[
                "check",
                "--manifest-path",
                "fuzz/Cargo.toml",
                "--features",
                "agent",
                "--locked",
                "--target-dir",
                "target",
            ],
        ),
        ("tests", &["test", "--workspace", "--locked"]),
    ];
    for (name, args) in steps {
        if name == "tests" {
            say("xtask: tidy");
            let problems = tidy::check(root);
            if !problems.is_empty() {
                return problems;
            }
            if skip_tests {
                continue;
            }
        }
        say(&format!("xtask: {name}"));
        match command(root, "cargo").args(args).status() {
            Ok(status) if status.success() => {}
            Ok(status) => {
                return vec![format!("{name}: cargo {} ended with {status}", args.join(" "))];
            }
            Err(error) => return vec![format!("{name}: cannot run cargo: {error}")],
        }
    }
    say("xtask: assure");
    if root.join(record::FILE).exists() {
        return assure::run(root, &assure::Options::sample());
    }
    say(&format!("NOTHING WAS SAMPLED: there is no {} yet", record::FILE));
    Vec::new()
}
