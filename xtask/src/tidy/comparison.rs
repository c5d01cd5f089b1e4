//! The comparison with the Go operator: every row is there, and every test that it names exists.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::assure::catalogue::{Killer, exists};

const PAGE: &str = "docs/developers/lessons-osc.md";
const SCENARIOS: &str = "crates/kata-sim/tests/scenarios";
/// What is numbered, and up to where.
const ROWS: [(&str, u32); 3] = [("D", 46), ("P", 29), ("M", 9)];

/// The comparison with the installer of the Kata project, whose rows have no numbers of ours.
const INSTALLER_PAGE: &str = "docs/developers/lessons-kata-deploy.md";

/// What is wrong with the pages.
pub(super) fn check(root: &Path) -> Vec<String> {
    let mut wrong = match fs::read_to_string(root.join(PAGE)) {
        Ok(text) => problems(root, &text),
        Err(error) => vec![format!("cannot read {PAGE}: {error}")],
    };
    match fs::read_to_string(root.join(INSTALLER_PAGE)) {
        Ok(text) => wrong.extend(unproven(root, &text)),
        Err(error) => wrong.push(format!("cannot read {INSTALLER_PAGE}: {error}")),
    }
    wrong
}

/// Rows of the installer's page whose last cell neither names tests that exist nor says why there is none.
fn unproven(root: &Path, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let cell = line.trim_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
        if cell == "Shown by" {
            continue;
        }
        let named: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        let reason = cell.strip_prefix("Not covered: ").is_some_and(|why| why.ends_with('.'));
        if named.is_empty() && !reason {
            problems.push(format!("{INSTALLER_PAGE}: a row names no test: {line}"));
        }
        for name in named {
            let known = match name.strip_prefix("scenario ") {
                Some(script) => root.join(SCENARIOS).join(format!("{script}.txt")).is_file(),
                None => Killer::try_from(name.to_owned()).is_ok_and(|test| exists(root, &test)),
            };
            if !known {
                problems.push(format!("{INSTALLER_PAGE}: there is no test {name}"));
            }
        }
    }
    problems
}

fn problems(root: &Path, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let mut rows: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> =
            line.trim_matches('|').split(" | ").map(|cell| cell.trim_matches([' ', '|'])).collect();
        let Some((id, rest)) = cells.split_first() else { continue };
        if *id == "Id" {
            continue;
        }
        if rows.insert(id, rest.to_vec()).is_some() {
            problems.push(format!("{PAGE}: {id} has two rows"));
        }
    }
    for id in
        ROWS.iter().flat_map(|(letter, last)| (1..=*last).map(move |n| format!("{letter}{n}")))
    {
        match rows.get(id.as_str()).map(Vec::as_slice) {
            Some([wrong, holds, shown]) if !wrong.is_empty() && !holds.is_empty() => {
                problems.extend(evidence(root, &id, holds, shown));
            }
            Some(_) => problems.push(format!("{PAGE}: the row of {id} needs four cells")),
            None => problems.push(format!("{PAGE}: there is no row of {id}")),
        }
    }
    problems
}

/// A row names tests, or says why it cannot occur.
fn evidence(root: &Path, id: &str, holds: &str, shown: &str) -> Vec<String> {
    let named: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
    if named.is_empty() && (holds != "-" || !shown.ends_with('.')) {
        return vec![format!("{PAGE}: {id} names no test and gives no reason")];
    }
    let unknown = |name: &&&str| match name.strip_prefix("scenario ") {
        Some(script) => !root.join(SCENARIOS).join(format!("{script}.txt")).is_file(),
        None => !Killer::try_from((**name).to_owned()).is_ok_and(|test| exists(root, &test)),
    };
    named
        .iter()
        .filter(unknown)
        .map(|name| format!("{PAGE}: {id} names the test {name}, which does not exist"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
    }

    #[test]
    fn every_row_of_the_page_is_well_founded() {
        assert_eq!(check(root()), [""; 0]);
    }

    #[test]
    fn a_row_without_evidence_and_a_test_that_is_not_there_are_told() {
        let about = |shown: &str| evidence(root(), "D1", "Something.", shown);
        assert_eq!(about("`kata-plan it cases::idle`").len(), 0);
        assert_eq!(about("`scenario no-kvm`").len(), 0);
        assert_eq!(about("`kata-plan it cases::no_such_case`, `scenario none`").len(), 2);
        assert_eq!(about("Out of scope.").len(), 1);
        assert_eq!(evidence(root(), "D1", "-", "Out of scope.").len(), 0);
    }

    #[test]
    fn a_row_that_is_missing_or_twice_is_told() {
        let text =
            "| Id | a | b | c |\n|---|---|---|---|\n| D1 | a | - | b. |\n| D1 | a | - | b. |\n";
        let problems = problems(root(), text);
        assert_eq!(problems.len(), 1 + 46 + 29 + 9 - 1);
        assert!(problems[0].ends_with("D1 has two rows"));
    }
}
