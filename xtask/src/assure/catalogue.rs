//! The catalogue of seeded bugs under `assurance/mutants/`: reading it, checking it against the tree, and
//! applying a bug to a text. Runs nothing.
//!
//! A bug is a replacement of one text by another and not a patch, because that survives unrelated edits:
//! the text to find has no context and no line number, white space does not count, so that neither
//! indentation nor where a line is broken matters, and code may move to another file of its crate.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Where the catalogue is.
const FOLDER: &str = "assurance/mutants";
/// How many bugs there must be at least.
const FEWEST: usize = 30;

/// A seeded bug.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    /// Its name, unique in the catalogue.
    pub(crate) id: String,
    /// The classes of bugs and the properties that it stands for, such as `B1` and `S13`.
    pub(crate) class: Vec<String>,
    /// What goes wrong with it, in a sentence.
    pub(crate) breaks: String,
    /// What to change.
    pub(crate) edits: Vec<Edit>,
    /// The tests that must fail with it, and pass without it.
    pub(crate) killers: Vec<Killer>,
}

/// A text to replace, which must be there exactly once.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    /// The crate in whose sources it is.
    #[serde(rename = "in")]
    pub(crate) package: String,
    /// What to find; white space does not count.
    pub(crate) find: String,
    /// What to put there.
    pub(crate) replace: String,
}

/// A test, written `CRATE TARGET NAME`, such as `kata-plan it journeys::drift_is_put_back`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(try_from = "String")]
pub(crate) struct Killer {
    /// The crate.
    pub(crate) package: String,
    /// `it` for the integration tests, `lib` for the unit tests.
    pub(crate) target: String,
    /// The test's name with its modules.
    pub(crate) test: String,
}

impl TryFrom<String> for Killer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            [package, target @ ("it" | "lib"), test] => Ok(Self {
                package: (*package).to_owned(),
                target: (*target).to_owned(),
                test: (*test).to_owned(),
            }),
            _ => Err(format!("{text:?} is not `CRATE it TEST` or `CRATE lib TEST`")),
        }
    }
}

impl std::fmt::Display for Killer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.package, self.target, self.test)
    }
}

/// Reads the catalogue, in the order of files and entries.
pub(crate) fn read(root: &Path) -> Result<Vec<Mutant>, String> {
    let folder = root.join(FOLDER);
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("cannot read {FOLDER}: {error}"))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| format!("cannot read {FOLDER}: {error}"))?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    let mut mutants = Vec::new();
    for file in files {
        let name = file.display();
        let text =
            fs::read_to_string(&file).map_err(|error| format!("cannot read {name}: {error}"))?;
        let more: Vec<Mutant> = serde_saphyr::from_str(&text)
            .map_err(|error| format!("{name} is no list of seeded bugs: {error}"))?;
        mutants.extend(more);
    }
    Ok(mutants)
}

/// What is wrong with the catalogue, without running anything: each bug must apply to the tree as it is,
/// and its killers must be there.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let mutants = match read(root) {
        Ok(mutants) => mutants,
        Err(error) => return vec![error],
    };
    let mut problems = Vec::new();
    if mutants.len() < FEWEST {
        problems.push(format!("{FOLDER}: {} seeded bugs, at least {FEWEST} wanted", mutants.len()));
    }
    let mut ids = BTreeSet::new();
    for mutant in &mutants {
        let id = &mutant.id;
        let mut problem = |text: String| problems.push(format!("{FOLDER}: {id}: {text}"));
        if !ids.insert(id) {
            problem("there is another of this name".to_owned());
        }
        if id.is_empty() || !id.chars().all(|c| c.is_ascii_lowercase() || c == '-') {
            problem("a name has lower-case letters and hyphens".to_owned());
        }
        if mutant.class.is_empty() || mutant.breaks.is_empty() {
            problem("say which class it is of and what it breaks".to_owned());
        }
        if mutant.edits.iter().any(|edit| edit.find.trim() == edit.replace.trim()) {
            problem("an edit changes nothing".to_owned());
        }
        if mutant.edits.is_empty() || mutant.killers.is_empty() {
            problem("it needs an edit and a test that kills it".to_owned());
        }
        for edit in &mutant.edits {
            if let Err(error) = edit.find(root) {
                problem(format!("{error}; adapt the seeded bug to the code"));
            }
        }
        for killer in &mutant.killers {
            if !exists(root, killer) {
                problem(format!("there is no test {killer}; name one that kills it"));
            }
        }
    }
    problems
}

impl Edit {
    /// Finds the text in the crate: the file, from the root, and what it is with the bug in it.
    pub(crate) fn find(&self, root: &Path) -> Result<(String, String), String> {
        let sources = format!("crates/{}/src", self.package);
        let mut found = Vec::new();
        for path in files(&root.join(&sources))? {
            let text = fs::read_to_string(&path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
            found.extend(self.apply(&text).into_iter().map(|mutated| (name.clone(), mutated)));
        }
        let times = found.len();
        match (times, found.pop()) {
            (1, Some(found)) => Ok(found),
            _ => Err(format!(
                "the text {:?} is {times} times in {sources}, and must be once",
                self.find.trim()
            )),
        }
    }

    /// The text with the bug in it, once for each place at which it can be.
    fn apply(&self, text: &str) -> Vec<String> {
        let wanted: Vec<char> = self.find.chars().filter(|c| !c.is_whitespace()).collect();
        let dense: Vec<(usize, char)> =
            text.char_indices().filter(|(_, c)| !c.is_whitespace()).collect();
        if wanted.is_empty() {
            return Vec::new();
        }
        dense
            .windows(wanted.len())
            .filter(|window| window.iter().map(|(_, c)| c).eq(&wanted))
            .filter_map(|window| Some((window.first()?.0, window.last()?)))
            .map(|(begin, (last, c))| {
                [&text[..begin], self.replace.trim(), &text[last + c.len_utf8()..]].concat()
            })
            .collect()
    }
}

/// All files below a folder, by path; none if there is no such folder.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed =
        |path: &Path, error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let entry = entry.map_err(|error| failed(&folder, error))?;
            let kind = entry.file_type().map_err(|error| failed(&entry.path(), error))?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a test seems to be there; running it shows whether it is.
pub(crate) fn exists(root: &Path, killer: &Killer) -> bool {
    let mut modules: Vec<&str> = killer.test.split("::").collect();
    let Some(name) = modules.pop() else { return false };
    let base = root.join("crates").join(&killer.package);
    let base = base.join(if killer.target == "it" { "tests/it" } else { "src" });
    // A module of unit tests may be at the end of its parent's file.
    let inner = modules.len().saturating_sub(1);
    [modules.join("/"), modules[..inner].join("/")].iter().any(|path| {
        let text = fs::read_to_string(base.join(format!("{path}.rs"))).unwrap_or_default();
        text.contains(&format!("fn {name}(")) || text.contains(&format!("    {name}: "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(find: &str, replace: &str) -> Edit {
        Edit { package: String::new(), find: find.to_owned(), replace: replace.to_owned() }
    }

    #[test]
    fn a_text_is_found_wherever_its_lines_are_broken() {
        let text = "fn a() {\n    if x\n        && y {\n        b();\n    }\n}\n";
        let mutated = edit("if x && y {", "if x {").apply(text);
        assert_eq!(mutated, ["fn a() {\n    if x {\n        b();\n    }\n}\n"]);
    }

    #[test]
    fn every_place_counts() {
        assert_eq!(edit("c", "d").apply("a b a").len(), 0);
        assert_eq!(edit("a", "d").apply("a b a"), ["d b a", "a b d"]);
        assert_eq!(edit(" \n", "d").apply("a b a").len(), 0);
    }

    #[test]
    fn a_killer_is_three_words() {
        let killer = Killer::try_from("kata-plan it cases::idle".to_owned());
        assert_eq!(
            killer.map(|killer| killer.to_string()).as_deref(),
            Ok("kata-plan it cases::idle")
        );
        assert!(Killer::try_from("kata-plan cases::idle".to_owned()).is_err());
    }
}
