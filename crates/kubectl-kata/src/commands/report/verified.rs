//! What `kubectl kata verify` proved, from the file that it wrote. The page only repeats it.

use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;

use crate::failure::Failure;

/// As `kubectl kata verify -o json` prints it.
#[derive(Deserialize)]
pub(super) struct Verified {
    kind: String,
    cluster: String,
    pub(super) time: Timestamp,
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
    /// If it cannot be read, is something else, or is about another API server.
    pub(super) fn read(path: &Path, cluster: &str) -> Result<Self, Failure> {
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
        // Contexts have the names that each user gives them.
        let server = |place: &str| place.split(" (").next().map(str::to_owned);
        if server(&verified.cluster) != server(cluster) {
            return Err(Failure::Usage(format!(
                "--verified {}: it is about {}, and this report is about {cluster}; run `kubectl kata verify -o json` with \
                 the kubeconfig of this report",
                path.display(),
                verified.cluster
            )));
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
            "inconclusive" => "not known: the probe gave no proof",
            other => other,
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
