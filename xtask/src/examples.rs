//! Examples for the pages of codes: a message of each code that a recorded scenario shows.
//!
//! Nothing is made up: a code without a recording has no example.

use std::collections::BTreeMap;
use std::path::Path;

/// The folder of the recordings.
const SCENARIOS: &str = "crates/kata-sim/tests/scenarios";
/// The length of a code.
const CODE: usize = "KATA2104".len();

/// The end of a page about a code, by code.
pub(crate) fn sections(root: &Path) -> Result<BTreeMap<String, String>, String> {
    let folder = root.join(SCENARIOS);
    let failed = |error: std::io::Error| format!("cannot read {SCENARIOS}: {error}");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|ending| ending == "out") {
            files.push(path);
        }
    }
    files.sort();
    let mut sections = BTreeMap::new();
    for file in files {
        let scenario = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).map_err(failed)?;
        for line in text.lines().filter(|line| line.contains(" Ready=")) {
            for (code, message) in messages(line) {
                sections.entry(code.to_owned()).or_insert_with(|| {
                    format!(
                        "\n## Example\n\nIn the simulated scenario `{scenario}`:\n\n\
                         ```text\n{code}: {message}\n```\n"
                    )
                });
            }
        }
    }
    Ok(sections)
}

/// The codes in the message of a condition, each with its part of the message. A code within the part of another has
/// none.
fn messages(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.match_indices("KATA").filter_map(move |(at, _)| {
        let code = line.get(at..at + CODE)?;
        let message = line.get(at + CODE..)?.strip_prefix(": ")?;
        let before = line.get(..at)?;
        let is_first = before.ends_with("; ") || !before.contains("KATA");
        let is_code = code.bytes().skip("KATA".len()).all(|byte| byte.is_ascii_digit());
        let end = message.find("; KATA").unwrap_or(message.len());
        let part = message.get(..end)?;
        let part = part.split_once("; the next retry").map_or(part, |(part, _)| part);
        (is_code && is_first).then_some((code, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_own_part_of_a_message() {
        let line = "  +5s a Ready=False NodeUnfit: 0 of 2 nodes have Kata; KATA3101: node a: KATA3001: no KVM; the next \
                    retry is at 12:00; KATA1006: pool b is paused";
        let found: Vec<_> = messages(line).collect();
        assert_eq!(
            found,
            [("KATA3101", "node a: KATA3001: no KVM"), ("KATA1006", "pool b is paused")]
        );
        let first = "  +0s a Ready=False NotActive: KATA1004: b is older";
        assert_eq!(messages(first).collect::<Vec<_>>(), [("KATA1004", "b is older")]);
    }
}
