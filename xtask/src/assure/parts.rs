//! What a part of a whole run found, kept below `target/assure` so that a whole run can be done in pieces.
//!
//! What is kept names the sources that it was found in, and is of no use for any others.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Part;
use crate::{command, output};

/// What the sources of the operator, of its tests and of the seeded bugs are identified by.
const SOURCES: [&str; 5] =
    ["HEAD:Cargo.lock", "HEAD:Cargo.toml", BUGS, "HEAD:crates", "HEAD:rust-toolchain.toml"];
/// Those that are for the seeded bugs alone.
const BUGS: &str = "HEAD:assurance";

/// How long a part took, and when.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Took {
    /// The part.
    pub(crate) part: Part,
    /// Seconds, builds included.
    pub(crate) seconds: u64,
    /// Whether it ran by itself, before the run that wrote the record and on the same sources.
    pub(crate) earlier: bool,
    /// The commit that it ran on, if it ran by itself on a later one than the record names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<String>,
}

/// What a part found.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Kept<T> {
    sources: Vec<String>,
    seconds: u64,
    found: T,
}

/// The hashes of the committed sources that a part is about.
pub(crate) fn sources(root: &Path, part: Part) -> Result<Vec<String>, String> {
    let mut git = command(root, "git");
    let about = |source: &&str| part == Part::Mutants || *source != BUGS;
    git.arg("rev-parse").args(SOURCES.into_iter().filter(about));
    Ok(output(git)?.lines().map(str::to_owned).collect())
}

fn file(root: &Path, part: Part) -> std::path::PathBuf {
    root.join("target/assure").join(format!("whole-{}.json", part.name()))
}

/// Keeps what a part found.
pub(crate) fn keep<T: Serialize>(
    root: &Path,
    part: Part,
    sources: &[String],
    seconds: u64,
    found: T,
) -> Result<(), String> {
    let path = file(root, part);
    let kept = Kept { sources: sources.to_vec(), seconds, found };
    let text = serde_json::to_string(&kept)
        .map_err(|error| format!("cannot express what {} found: {error}", part.name()))?;
    fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// What a part found earlier in these very sources, and the seconds that it took.
pub(crate) fn kept<T: for<'de> Deserialize<'de>>(
    root: &Path,
    part: Part,
    sources: &[String],
) -> Option<(T, u64)> {
    let text = fs::read_to_string(file(root, part)).ok()?;
    let kept: Kept<T> = serde_json::from_str(&text).ok()?;
    let mut pairs = kept.sources.iter().zip(sources);
    let same = kept.sources.len() == sources.len()
        && pairs.all(|(before, now)| before == now || is_equal(root, part, before, now));
    same.then_some((kept.found, kept.seconds))
}

/// Whether two trees differ in nothing that a part is about: no seeded bug is in the program of the
/// episodes and the model, and none of its tests.
fn is_equal(root: &Path, part: Part, before: &str, now: &str) -> bool {
    let mut git = command(root, "git");
    git.args(["diff", "--quiet", before, now, "--", ".", ":!kata-assure"]);
    part == Part::Mutants && git.status().is_ok_and(|status| status.success())
}
