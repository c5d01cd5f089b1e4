//! Every link from a page of the repository to another, or to a heading of one, leads somewhere; every file that
//! ARCHITECTURE.md names exists.
//!
//! Links to other hosts are not followed: nothing here may depend on a network.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::{command, output};

/// Checks the links of every Markdown file that git knows.
pub(super) fn check(root: &Path) -> Vec<String> {
    let mut git = command(root, "git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "*.md"]);
    let pages = match output(git) {
        Ok(pages) => pages,
        Err(error) => return vec![error],
    };
    let dead = pages.lines().flat_map(|page| dead(root, Path::new(page)));
    dead.chain(missing_files(root)).collect()
}

/// The files in the page that names many of them without a link. Those of a crate are named from `crates/`.
const NAMES_FILES: &str = "ARCHITECTURE.md";

fn missing_files(root: &Path) -> Vec<String> {
    let Ok(text) = fs::read_to_string(root.join(NAMES_FILES)) else {
        return vec![format!("cannot read {NAMES_FILES}")];
    };
    let words = text.split('`').skip(1).step_by(2);
    let is_file = |word: &&str| word.ends_with(".rs") || word.ends_with(".md");
    let exists = |word: &str| root.join(word).exists() || root.join("crates").join(word).exists();
    let missing = words.filter(is_file).filter(|word| !exists(word));
    missing.map(|word| format!("{NAMES_FILES} names {word}, which does not exist")).collect()
}

fn dead(root: &Path, page: &Path) -> Vec<String> {
    // One that is deleted and not yet committed has no links.
    let Ok(text) = fs::read_to_string(root.join(page)) else { return Vec::new() };
    let folder = page.parent().unwrap_or_else(|| Path::new(""));
    let mut problems = Vec::new();
    for (line, link) in links(&text) {
        if link.contains("://") || link.starts_with("mailto:") {
            continue;
        }
        let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
        let target = if file.is_empty() { page.to_owned() } else { plain(&folder.join(file)) };
        let here = page.display();
        if !root.join(&target).exists() {
            problems.push(format!(
                "{here}:{line}: {link} leads nowhere: there is no {}",
                target.display()
            ));
        } else if page.starts_with("docs") && !target.starts_with("docs") {
            problems.push(format!("{here}:{line}: {link} leads out of docs: a book has only that"));
        } else if !heading.is_empty() && !headings(root, &target).contains(heading) {
            problems.push(format!("{here}:{line}: {} has no heading #{heading}", target.display()));
        }
    }
    problems
}

/// The targets of all links and pictures outside code, with the number of their line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in prose(text) {
        let mut rest = text;
        while let Some(at) = rest.find("](") {
            rest = rest.get(at + 2..).unwrap_or_default();
            let Some(end) = rest.find(')') else { break };
            found.push((line, rest.get(..end).unwrap_or_default().to_owned()));
        }
    }
    found
}

/// The lines outside code blocks, from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// The anchors that a renderer makes of the headings of a page.
fn headings(root: &Path, page: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(root.join(page)).unwrap_or_default();
    let mut found = BTreeSet::new();
    for (_, line) in prose(&text) {
        let Some(heading) = line.strip_prefix('#') else { continue };
        let anchor: String = heading
            .trim_start_matches('#')
            .trim()
            .chars()
            .filter_map(|letter| match letter {
                ' ' => Some('-'),
                '-' | '_' => Some(letter),
                letter if letter.is_alphanumeric() => Some(letter.to_ascii_lowercase()),
                _ => None,
            })
            .collect();
        found.insert(anchor);
    }
    found
}

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}
