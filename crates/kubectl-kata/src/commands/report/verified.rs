//! What `kubectl kata verify` proved, from the file that it wrote. The page only repeats it.

use std::path::Path;

use serde::Deserialize;

use crate::failure::Failure;

/// As `kubectl kata verify -o json` prints it.
#[derive(Deserialize)]
pub(super) struct Verified {
    kind: String,
    pub(super) simulated: bool,
    pub(super) verdicts: Vec<Verdict>,
}

/// The verdict about a node or a pod.
#[derive(Deserialize)]
pub(super) struct Verdict {
    pub(super) subject: String,
    result: String,
    signals: Vec<Signal>,
    problems: Vec<Problem>,
}

#[derive(Deserialize)]
struct Signal {
    name: String,
    verdict: String,
    meaning: String,
}

#[derive(Deserialize)]
struct Problem {
    id: String,
    message: String,
}

impl Verified {
    /// Reads such a file.
    ///
    /// # Errors
    /// If it cannot be read, or is something else.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Failure::File { path: path.to_owned(), source })?;
        let other = |why: String| {
            Failure::Usage(format!(
                "--verified {}: this is not what `kubectl kata verify -o json` prints: {why}",
                path.display()
            ))
        };
        let verified: Self =
            serde_json::from_str(&text).map_err(|error| other(error.to_string()))?;
        if verified.kind != "VerifyReport" {
            return Err(other(format!("its kind is {}", verified.kind)));
        }
        Ok(verified)
    }
}

impl Verdict {
    pub(super) fn is_isolated(&self) -> bool {
        self.result == "isolated"
    }

    /// The verdict in words.
    pub(super) fn text(&self) -> &str {
        match self.result.as_str() {
            "isolated" => "sandboxed: runs on a kernel of its own",
            "notIsolated" => "not sandboxed: runs on the node's kernel",
            "probeFailed" => "the probe did not run",
            _ => "cannot be told",
        }
    }

    /// What it rests on: the signals that prove it, or else the problems.
    pub(super) fn grounds(&self) -> String {
        let signals = self.signals.iter().filter(|signal| signal.verdict == "pass");
        let grounds: Vec<String> = if self.is_isolated() {
            signals.map(|signal| format!("{}: {}", signal.name, signal.meaning)).collect()
        } else {
            let problems = self.problems.iter();
            problems.map(|problem| format!("{} {}", problem.id, problem.message)).collect()
        };
        grounds.join("; ")
    }
}
