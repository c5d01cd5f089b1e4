//! Words that make a sentence hard to read, and what to write instead: in every page, and in the crates whose text
//! was rewritten.
//!
//! It reads words, not meaning: a sentence without them can still be bad.

use std::fs;
use std::path::Path;

use crate::{command, output};

/// A word and its replacement.
const WORDS: [(&str, &str); 12] = [
    ("tell", "say, report, show"),
    ("tells", "says, reports, shows"),
    ("told", "said, reported, shown"),
    ("telling", "saying, reporting"),
    ("nobody", "the client, user or program that is meant"),
    ("somebody", "the client, user or program that is meant"),
    ("whoever", "the client, user or program that is meant"),
    ("whatever", "any, every"),
    ("shall", "the present tense, or must"),
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
];
/// Where the words are not allowed, as git names files. A crate is added once it has none left.
const PLACES: [&str; 12] = [
    "*.md",
    "crates/fakeshim/*.rs",
    "crates/hostlab/*.rs",
    "crates/kata-api/*.rs",
    "crates/kata-assure/*.rs",
    "crates/kata-connect/*.rs",
    "crates/kata-host/*.rs",
    "crates/kata-manifests/*.rs",
    "crates/kata-node-agent/*.rs",
    "crates/kata-operator/*.rs",
    "crates/kata-plan/*.rs",
    "crates/kata-sim/*.rs",
];

/// Sentences with the file, the line, the word, and its replacement.
pub(super) fn check(root: &Path) -> Vec<String> {
    let mut git = command(root, "git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]).args(PLACES);
    let files = match output(git) {
        Ok(files) => files,
        Err(error) => return vec![error],
    };
    let mut problems = Vec::new();
    for file in files.lines() {
        // A file that was deleted and not yet committed.
        let Ok(text) = fs::read_to_string(root.join(file)) else { continue };
        for (number, line) in text.lines().enumerate() {
            for (word, instead) in found(line) {
                let number = number + 1;
                problems.push(format!("{file}:{number}: instead of {word:?} write: {instead}"));
            }
        }
    }
    problems
}

/// The words of the list in a line.
fn found(line: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let line = line.to_lowercase();
    WORDS.iter().filter(move |(word, _)| {
        line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == *word)
    })
}

#[cfg(test)]
mod tests {
    use super::found;

    #[test]
    fn words_are_found_as_whole_words_in_any_case() {
        let words = |line: &str| found(line).map(|(word, _)| *word).collect::<Vec<_>>();
        assert_eq!(words("Whoever reads this, is told nothing."), ["told", "whoever"]);
        assert_eq!(words("`it_is_told` and the shallow intellect"), Vec::<&str>::new());
    }
}
