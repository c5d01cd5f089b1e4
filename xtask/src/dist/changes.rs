//! Whether the sources are those of a version: nothing is changed, Cargo.toml names it, and the changelog has it.

use std::fs;
use std::path::Path;

use semver::Version;

use super::{VERSION, failed};
use crate::{command, output};

const CHANGELOG: &str = "CHANGELOG.md";

/// What the changelog says of a version; of a pre-release, what is not released.
///
/// # Errors
/// With a line for everything that is not as it must be.
pub(super) fn check(root: &Path, version: &str, allow_dirty: bool) -> Result<String, String> {
    let mut problems = Vec::new();
    let changed = output({
        let mut git = command(root, "git");
        git.args(["status", "--porcelain", "--untracked-files=no"]);
        git
    })?;
    if let Some(first) = changed.lines().next().filter(|_| !allow_dirty) {
        problems.push(format!(
            "{} files are not committed, the first is {}: commit them, or add --allow-dirty",
            changed.lines().count(),
            first.get(3..).unwrap_or(first)
        ));
    }
    let is_prerelease = is_prerelease(version);
    if version != VERSION && !is_prerelease {
        problems.push(format!(
            "the version is {VERSION} in Cargo.toml, not {version}: change it there (docs/developers/release.md), or write a \
             pre-release of it, such as {VERSION}-mine.1"
        ));
    }
    let path = root.join(CHANGELOG);
    let text = fs::read_to_string(&path).map_err(|error| failed("read", &path, &error))?;
    let title = if is_prerelease { "Unreleased" } else { version };
    let notes = section(&text, title);
    if notes.is_none() {
        problems.push(format!(
            "{CHANGELOG} has no section {title}: move the entries of Unreleased there, or publish a pre-release, such as \
             --version {VERSION}-mine.1"
        ));
    }
    if problems.is_empty() {
        return Ok(notes.unwrap_or_default());
    }
    Err(format!("nothing was built:\n  {}", problems.join("\n  ")))
}

/// Whether it is a pre-release of the version of the sources, by the rules of Semantic Versioning 2.0.0, which Helm and the
/// Operator Lifecycle Manager ask for. A tag has no `+`.
fn is_prerelease(version: &str) -> bool {
    let (Ok(wanted), Ok(own)) = (Version::parse(version), Version::parse(VERSION)) else {
        return false;
    };
    let is_of = (wanted.major, wanted.minor, wanted.patch) == (own.major, own.minor, own.patch);
    is_of && !wanted.pre.is_empty() && wanted.build.is_empty()
}

/// The text below a heading `## TITLE` or `## TITLE - DATE`.
fn section(text: &str, title: &str) -> Option<String> {
    let mut lines = text.lines().skip_while(|line| {
        line.strip_prefix("## ").and_then(|it| it.split(' ').next()) != Some(title)
    });
    lines.next()?;
    let lines: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
    Some(format!("{}\n", lines.join("\n").trim()))
}

#[cfg(test)]
mod tests {
    use super::{VERSION, is_prerelease, section};

    #[test]
    fn a_prerelease_is_one_of_this_version() {
        for (rest, expected) in [
            ("-mine.1", true),
            ("-rc.10", true),
            ("-x-y", true),
            ("", false),
            ("-", false),
            ("-01", false),
            ("-a..b", false),
            ("-a+b", false),
            ("+b", false),
            (".1-a", false),
        ] {
            assert_eq!(is_prerelease(&format!("{VERSION}{rest}")), expected, "{rest}");
        }
        assert!(!is_prerelease("77.0.0-mine.1"));
    }

    #[test]
    fn the_notes_are_the_section_of_the_version() {
        let text = "# Changelog\n\n## Unreleased\n\n- New\n\n## 0.2.0 - 2027-01-01\n\n- Old\n\n## 0.1.0\n- First\n";
        assert_eq!(section(text, "Unreleased").as_deref(), Some("- New\n"));
        assert_eq!(section(text, "0.2.0").as_deref(), Some("- Old\n"));
        assert_eq!(section(text, "0.1.0").as_deref(), Some("- First\n"));
        assert_eq!(section(text, "0.2"), None);
    }
}
