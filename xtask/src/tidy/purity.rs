//! Pure crates: clippy refuses files, environment, clocks, processes, randomness, threads and the network
//! there. This checks that clippy is told so.

use std::fs;
use std::path::Path;

use crate::assure::catalogue::files;

/// The crates whose functions depend on nothing but their arguments.
const PURE: [&str; 3] = ["kata-api", "kata-host", "kata-plan"];
/// The configuration of clippy: the root's, and in a pure crate its own, which replaces the root's.
const FILE: &str = "clippy.toml";

/// Checks the configuration of clippy in every pure crate, and that no source switches it off.
pub(super) fn check(root: &Path) -> Vec<String> {
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    let mut problems = Vec::new();
    let everywhere = match read(&root.join(FILE)) {
        Ok(text) => text,
        Err(error) => return vec![error],
    };
    let folders = PURE.map(|name| root.join("crates").join(name));
    let own: Vec<Result<String, String>> =
        folders.iter().map(|folder| read(&folder.join(FILE))).collect();
    for (name, text) in PURE.iter().zip(&own) {
        match text {
            Ok(text) => problems.extend(missing(name, &everywhere, text)),
            Err(error) => problems.push(error.clone()),
        }
    }
    if own.windows(2).any(|pair| matches!(pair, [a, b] if a != b)) {
        problems.push(format!("the pure crates differ in their {FILE}: link them to one file"));
    }
    for folder in folders {
        let sources = files(&folder.join("src")).unwrap_or_default();
        let switched = sources.into_iter().filter(|source| {
            fs::read_to_string(source).unwrap_or_default().contains("clippy::disallowed_")
        });
        problems.extend(switched.map(|source| {
            format!("{}: a pure crate makes no exception from {FILE}", source.display())
        }));
    }
    problems
}

/// The root's entries that a crate's file lacks. An entry is a line.
fn missing(name: &str, everywhere: &str, own: &str) -> Vec<String> {
    let is_entry = |line: &&str| line.starts_with("    {") || line.contains(" = true");
    let entries = everywhere.lines().filter(is_entry);
    entries
        .filter(|entry| own.lines().all(|line| line != *entry))
        .map(|entry| format!("crates/{name}/{FILE} lacks {:?} of the root's", entry.trim()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_root_that_a_pure_crate_lacks_is_a_problem() {
        let root = "allow-x = true\nlist = [\n    { path = \"a\" },\n    { path = \"b\" },\n]\n";
        let own = "allow-x = true\nlist = [\n    { path = \"b\" },\n    { path = \"c\" },\n]\n";
        assert_eq!(missing("p", root, own).len(), 1);
        assert_eq!(missing("p", root, root), [""; 0]);
    }
}
