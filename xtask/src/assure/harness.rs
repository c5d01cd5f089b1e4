//! Builds and runs `kata-assure`, and reads what it found. What it runs is its own business.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::EPISODES_OF_A_SAMPLE;
use crate::programs::{self, Profile};
use crate::{command, output, say};

/// The program that runs the parts.
const PROGRAM: &str = "kata-assure";

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything, with an optimised binary.
    Whole,
    /// A sample that this number chooses, with the binary that the tests were built with.
    Sample(u64),
}

/// The binary of `kata-assure`.
pub(crate) struct Harness {
    binary: PathBuf,
    folder: PathBuf,
    threads: usize,
    extent: Extent,
}

impl Harness {
    /// Builds it.
    pub(crate) fn build(root: &Path, extent: Extent, threads: usize) -> Result<Self, String> {
        say("assure: building kata-assure");
        let profile = match extent {
            Extent::Whole => Profile::Release,
            Extent::Sample(_) => Profile::Test,
        };
        let binary =
            programs::build(root, profile, &[PROGRAM])?.remove(PROGRAM).unwrap_or_default();
        let folder = root.join("target").join("assure");
        fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        Ok(Self { binary, folder, threads, extent })
    }

    /// The pieces of the episodes: arguments for each. A whole run has one for each workload, of which the largest
    /// takes eight minutes on two processors.
    pub(crate) fn episode_shards(&self) -> Result<Vec<Vec<String>>, String> {
        if let Extent::Sample(_) = self.extent {
            return Ok(vec![Vec::new()]);
        }
        let mut list = command(&self.folder, self.binary.to_str().unwrap_or_default());
        list.arg("workloads");
        Ok(output(list)?
            .lines()
            .map(|name| vec!["--workload".to_owned(), name.to_owned()])
            .collect())
    }

    /// Runs a piece of the episodes under faults.
    pub(crate) fn episodes(&self, shard: &[String]) -> Result<Value, String> {
        let mut arguments = shard.to_vec();
        if let Extent::Sample(seed) = self.extent {
            let (seed, budget) = (seed.to_string(), EPISODES_OF_A_SAMPLE.as_secs().to_string());
            let sample = ["--sample", "1", "--seed", &seed, "--budget", &budget];
            arguments.extend(sample.map(str::to_owned));
        }
        let found = self.run("episodes", &arguments)?;
        let number = |key: &str| found[key].as_u64().unwrap_or_default();
        if number("crash_points") + number("fault_plans") == 0 {
            return Err("no plan ran".to_owned());
        }
        Ok(found)
    }

    /// Enumerates the states of the model.
    pub(crate) fn model(&self) -> Result<Value, String> {
        let arguments = match self.extent {
            Extent::Whole => Vec::new(),
            Extent::Sample(_) => vec!["--sample".to_owned()],
        };
        self.run("model", &arguments)
    }

    /// Ends the node agent at every call, and gives its parsers many inputs.
    pub(crate) fn agents(&self) -> Result<Value, String> {
        let arguments = match self.extent {
            Extent::Whole => Vec::new(),
            Extent::Sample(_) => vec!["--sample".to_owned()],
        };
        self.run("agents", &arguments)
    }

    /// Runs a part; one that finds failures ends with 1 and writes what it found all the same.
    fn run(&self, part: &str, arguments: &[String]) -> Result<Value, String> {
        say(&format!("assure: {part}"));
        let file = self.folder.join(format!("{part}.json"));
        if file.exists() {
            fs::remove_file(&file)
                .map_err(|error| format!("cannot remove {}: {error}", file.display()))?;
        }
        let mut run = command(&self.folder, self.binary.to_str().unwrap_or_default());
        run.arg(part).args(arguments).args(["--threads", &self.threads.to_string(), "--json"]);
        run.arg(&file);
        let status = run.status().map_err(|error| format!("cannot run {part}: {error}"))?;
        let text = fs::read_to_string(&file)
            .map_err(|error| format!("{part} ended with {status} and wrote nothing: {error}"))?;
        serde_json::from_str(&text).map_err(|error| format!("{part} wrote no JSON: {error}"))
    }
}
