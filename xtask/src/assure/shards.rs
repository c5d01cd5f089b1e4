//! The pieces of the campaign that are run one after another, ten minutes each at the most. What a piece found is
//! kept below `target/assure`, so that a run that was interrupted goes on with the next one.
//!
//! What is kept names the sources that it was found in, and is of no use for any others.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Part;
use crate::{command, output, say};

/// What the sources of the operator, of its tests and of the seeded bugs are identified by.
const SOURCES: [&str; 5] =
    ["HEAD:Cargo.lock", "HEAD:Cargo.toml", BUGS, "HEAD:crates", "HEAD:rust-toolchain.toml"];
/// Those that are for the seeded bugs alone.
const BUGS: &str = "HEAD:assurance";

/// How long a part took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Took {
    /// The part.
    pub(crate) part: Part,
    /// Seconds, builds included.
    pub(crate) seconds: u64,
}

/// What a shard found.
#[derive(Debug, Serialize, Deserialize)]
struct Kept<T> {
    sources: Vec<String>,
    seconds: u64,
    found: T,
}

/// Runs shards, or takes over what they found before.
pub(super) struct Shards<'a> {
    root: &'a Path,
    /// Whether a shard is whole and its sources are committed; nothing else is kept.
    keeps: bool,
    seconds: BTreeMap<Part, u64>,
}

impl<'a> Shards<'a> {
    pub(super) fn new(root: &'a Path, keeps: bool) -> Self {
        Self { root, keeps, seconds: BTreeMap::new() }
    }

    /// What a shard of a part finds. It is kept if it is `sound`.
    pub(super) fn run<T: Serialize + DeserializeOwned>(
        &mut self,
        part: Part,
        name: &str,
        sound: impl Fn(&T) -> bool,
        work: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        let file = self.root.join(format!("target/assure/shards/{}-{name}.json", part.name()));
        let sources = if self.keeps { Some(sources(self.root, part)?) } else { None };
        let kept = sources.as_ref().and_then(|sources| read(self.root, &file, part, sources));
        let (found, seconds) = match kept {
            Some(Kept { found, seconds, .. }) => {
                say(&format!("assure: {} {name}: kept from a run of {seconds} s", part.name()));
                (found, seconds)
            }
            None => {
                let begun = Instant::now();
                let found = work()?;
                let seconds = begun.elapsed().as_secs();
                if let Some(sources) = sources.filter(|_| sound(&found)) {
                    write(&file, &Kept { sources, seconds, found: &found })?;
                }
                (found, seconds)
            }
        };
        *self.seconds.entry(part).or_default() += seconds;
        Ok(found)
    }

    /// How long the parts took, whenever their shards ran.
    pub(super) fn took(&self) -> Vec<Took> {
        self.seconds.iter().map(|(part, seconds)| Took { part: *part, seconds: *seconds }).collect()
    }
}

/// The hashes of the committed sources that a part is about.
fn sources(root: &Path, part: Part) -> Result<Vec<String>, String> {
    let mut git = command(root, "git");
    let about = |source: &&str| part == Part::Mutants || *source != BUGS;
    git.arg("rev-parse").args(SOURCES.into_iter().filter(about));
    Ok(output(git)?.lines().map(str::to_owned).collect())
}

fn write<T: Serialize>(file: &PathBuf, kept: &Kept<T>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", file.display());
    let text = serde_json::to_string(kept)
        .map_err(|error| format!("cannot express {}: {error}", file.display()))?;
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(file, text).map_err(failed)
}

/// What a shard found earlier in these very sources.
fn read<T: DeserializeOwned>(
    root: &Path,
    file: &Path,
    part: Part,
    sources: &[String],
) -> Option<Kept<T>> {
    let text = fs::read_to_string(file).ok()?;
    let kept: Kept<T> = serde_json::from_str(&text).ok()?;
    let mut pairs = kept.sources.iter().zip(sources);
    let same = kept.sources.len() == sources.len()
        && pairs.all(|(before, now)| before == now || is_equal(root, part, before, now));
    same.then_some(kept)
}

/// Whether two trees differ in nothing that a part is about: no seeded bug is in the program of the
/// episodes and the model, and none of its tests.
fn is_equal(root: &Path, part: Part, before: &str, now: &str) -> bool {
    let mut git = command(root, "git");
    git.args(["diff", "--quiet", before, now, "--", ".", ":!kata-assure"]);
    part == Part::Mutants && git.status().is_ok_and(|status| status.success())
}
