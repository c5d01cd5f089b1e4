//! The documentation as a book: its table of contents, and the rules that keep its pages readable, found
//! and tested.
//!
//! mdbook is not needed, and not run, for any of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::{command, output};

/// The table of contents.
pub(crate) const SUMMARY: &str = "docs/SUMMARY.md";

/// The page below which the pages of all codes are.
const CODES: &str = "reference/findings";
/// The pages of each part, below `docs`. Their titles are those of the pages.
const PARTS: [(&str, &[&str]); 6] = [
    (
        "Begin",
        &[
            "try",
            "walkthrough",
            "use-sandboxes",
            "faq",
            "concepts",
            "compared-with-osc",
            "compared-with-kata-deploy",
        ],
    ),
    (
        "Install and operate",
        &[
            "install",
            "install-openshift",
            "install-kubeadm",
            "install-k3s",
            "install-eks",
            "install-kubernetes",
            "provided-nodes",
            "agent-sandboxes",
            "size-and-tune",
            "air-gapped",
            "accept",
            "support-matrix",
            "production-checklist",
            "upgrade",
            "uninstall",
            "migrate",
            "monitor",
        ],
    ),
    (
        "When something is wrong",
        &[
            "troubleshooting",
            "alerts",
            "runbooks/KataOperatorDown",
            "runbooks/KataOperatorForbidden",
            "runbooks/KataConfigUnreadable",
            "runbooks/KataRolloutStalled",
            "runbooks/KataConfigDegraded",
            "runbooks/KataNodeDegraded",
            "runbooks/KataDeletionBlocked",
        ],
    ),
    ("Security", &["security", "permissions", "privileges"]),
    (
        "Reference",
        &[
            "reference/KataConfig",
            "reference/KataNode",
            "reference/conditions",
            "reference/eligibility",
            "reference/events",
            "reference/findings",
            "cli",
            "metrics",
            "api-policy",
        ],
    ),
    (
        "For developers",
        &[
            "developers/testing",
            "developers/node-agent",
            "developers/findings",
            "developers/simulation",
            "developers/scenarios",
            "developers/assurance",
            "developers/seeded-bugs",
            "developers/performance",
            "developers/release",
        ],
    ),
];
/// What a block of a page may be; docs/README.md says what is done with each.
const FENCES: [&str; 9] =
    ["console", "diff", "json", "lua", "promql", "sh", "text", "toml", "yaml"];

/// The table of contents, as mdbook reads it.
///
/// # Errors
/// If a page does not exist or has no title.
pub(crate) fn summary(root: &Path) -> Result<String, String> {
    let mut text = "# Summary\n\n[Documentation](README.md)\n".to_owned();
    for (part, pages) in PARTS {
        text.push_str(&format!("\n# {part}\n\n"));
        for page in pages {
            text.push_str(&entry(root, "", &format!("{page}.md"))?);
            if *page == CODES {
                for code in tracked(root, "docs/codes/*.md")? {
                    text.push_str(&entry(root, "  ", code.trim_start_matches("docs/"))?);
                }
            }
        }
    }
    Ok(text)
}

fn entry(root: &Path, indent: &str, page: &str) -> Result<String, String> {
    let path = root.join("docs").join(page);
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let title = text.lines().next().and_then(|line| line.strip_prefix("# "));
    let title = title.ok_or_else(|| format!("docs/{page} does not begin with its title"))?;
    Ok(format!("{indent}- [{title}]({page})\n"))
}

fn tracked(root: &Path, pattern: &str) -> Result<Vec<String>, String> {
    let mut git = command(root, "git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", pattern]);
    let listed = output(git)?;
    let mut files: Vec<String> = listed.lines().map(str::to_owned).collect();
    // Deleted and not yet committed.
    files.retain(|file| root.join(file).exists());
    files.sort();
    files.dedup();
    Ok(files)
}

/// Checks that every page is in the book and in the index, and that every block says what it is.
pub(crate) fn check(root: &Path) -> Vec<String> {
    let pages = match tracked(root, "*.md") {
        Ok(pages) => pages,
        Err(error) => return vec![error],
    };
    let known: BTreeSet<String> =
        PARTS.iter().flat_map(|(_, pages)| *pages).map(|page| format!("docs/{page}.md")).collect();
    let index = fs::read_to_string(root.join("docs/README.md")).unwrap_or_default();
    let mut problems = Vec::new();
    for page in &pages {
        let Ok(text) = fs::read_to_string(root.join(page)) else { continue };
        problems.extend(blocks(page, &text));
        let Some(name) = page.strip_prefix("docs/") else { continue };
        if name.starts_with("codes/") || ["README.md", "SUMMARY.md"].contains(&name) {
            continue;
        }
        if !known.contains(page) {
            problems.push(format!("{page} is in no part of the book: add it in xtask/src/book.rs"));
        }
        if !index.contains(&format!("({name})")) {
            problems.push(format!("{page} is not in the index docs/README.md"));
        }
    }
    problems
}

/// What is wrong with the blocks of a page.
fn blocks(page: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut inside = false;
    for (number, line) in (1..).zip(text.lines()) {
        let Some(kind) = line.trim_start().strip_prefix("```") else { continue };
        inside = !inside;
        if inside && !FENCES.contains(&kind) {
            let allowed = FENCES.join(", ");
            problems.push(format!("{page}:{number}: a block is one of {allowed}, not {kind:?}"));
        }
    }
    if inside {
        problems.push(format!("{page}: the last block does not end"));
    }
    problems
}
