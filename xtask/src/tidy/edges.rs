//! Which crate may depend on which: the tables of ARCHITECTURE.md against the manifests and the sources.
//!
//! The tables are the only place that lists edges; nothing here names a crate of the first one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::packages;
use crate::assure::catalogue::files;

const DOCUMENT: &str = "ARCHITECTURE.md";
/// How the table of crates begins.
const CRATES: &str = "| Crate | May depend on |";
/// How the table of programs and tests begins.
const PARTS: &str = "| Part | May also depend on |";
/// What begins the first cell of a row of [`PARTS`].
const TESTS: &str = "tests of ";
const PROGRAM: &str = "program of ";

/// Edges by the crate that they begin at.
type Edges = BTreeMap<String, BTreeSet<String>>;

/// What the document allows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Allowed {
    /// What each crate may depend on.
    crates: Edges,
    /// What its program may name besides, and its library must not.
    programs: Edges,
    /// What its tests may depend on besides.
    tests: Edges,
}

/// Checks every edge between crates of this repository.
pub(super) fn check(root: &Path, metadata: &Value) -> Vec<String> {
    let text = fs::read_to_string(root.join(DOCUMENT)).unwrap_or_default();
    let allowed = match read(&text) {
        Ok(allowed) => allowed,
        Err(error) => return vec![error],
    };
    let mut problems = compare(&allowed, &manifests(metadata));
    for (name, foreign) in &allowed.programs {
        match library(root, name) {
            Ok(library) => problems.extend(named(&library, foreign)),
            Err(error) => problems.push(error),
        }
    }
    problems
}

/// Reads the two tables.
fn read(text: &str) -> Result<Allowed, String> {
    let mut allowed = Allowed::default();
    for (first, second) in rows(text, CRATES)? {
        if let [name] = code(first).as_slice() {
            allowed.crates.insert(name.clone(), code(second).into_iter().collect());
        }
    }
    for (first, second) in rows(text, PARTS)? {
        let edges = if first.starts_with(TESTS) {
            &mut allowed.tests
        } else if first.starts_with(PROGRAM) {
            &mut allowed.programs
        } else {
            return Err(format!(
                "{DOCUMENT}: {first:?} does not begin with {TESTS:?} or {PROGRAM:?}"
            ));
        };
        for name in code(first) {
            edges.entry(name).or_default().extend(code(second));
        }
    }
    Ok(allowed)
}

/// The first two cells of each row of the table that begins so.
fn rows<'a>(text: &'a str, header: &str) -> Result<Vec<(&'a str, &'a str)>, String> {
    let lines = text.lines().skip_while(|line| !line.starts_with(header));
    let rows: Vec<(&str, &str)> = lines
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .filter_map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            Some((cells.next()?, cells.next()?))
        })
        .collect();
    if rows.is_empty() {
        return Err(format!("{DOCUMENT} has no table that begins with {header:?}"));
    }
    Ok(rows)
}

/// The texts between backticks.
fn code(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The edges of the crates' manifests: of the crates, and of their tests alone.
fn manifests(metadata: &Value) -> (Edges, Edges) {
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let members: BTreeSet<String> = packages(metadata).map(name).collect();
    let (mut crates, mut tests) = (Edges::new(), Edges::new());
    for package in packages(metadata) {
        let from = name(package);
        crates.entry(from.clone()).or_default();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let edges = if dependency["kind"] == "dev" { &mut tests } else { &mut crates };
            if members.contains(&name(dependency)) {
                edges.entry(from.clone()).or_default().insert(name(dependency));
            }
        }
    }
    (crates, tests)
}

/// What manifests and tables do not have in common.
fn compare(allowed: &Allowed, (crates, tests): &(Edges, Edges)) -> Vec<String> {
    let mut problems = Vec::new();
    let none = BTreeSet::new();
    let of = |edges: &Edges, name: &str| edges.get(name).unwrap_or(&none).clone();
    for (name, used) in crates {
        let Some(may) = allowed.crates.get(name) else {
            problems.push(format!("crate {name} is not in the table of {DOCUMENT}"));
            continue;
        };
        let may: BTreeSet<String> = may.union(&of(&allowed.programs, name)).cloned().collect();
        for target in used.difference(&may) {
            problems.push(format!("{name} depends on {target}, which {DOCUMENT} does not allow"));
        }
        for target in may.difference(used) {
            problems.push(format!(
                "{DOCUMENT} allows {name} to depend on {target}, which it does not: remove it there"
            ));
        }
        let used: BTreeSet<String> = of(tests, name).difference(&may).cloned().collect();
        let may = of(&allowed.tests, name);
        for target in used.difference(&may) {
            problems.push(format!(
                "tests of {name} depend on {target}, which {DOCUMENT} does not allow"
            ));
        }
        for target in may.difference(&used) {
            problems.push(format!(
                "{DOCUMENT} allows tests of {name} to depend on {target}, which they do not: \
                 remove it there"
            ));
        }
    }
    let rows = allowed.crates.keys().chain(allowed.programs.keys()).chain(allowed.tests.keys());
    for name in rows.filter(|name| !crates.contains_key(*name)) {
        problems.push(format!("{DOCUMENT} has a row for {name}, and there is no such crate"));
    }
    problems
}

/// The files of a crate's library, with their texts: all but `main.rs` and its own modules.
fn library(root: &Path, name: &str) -> Result<Vec<(String, String)>, String> {
    let folder = root.join("crates").join(name).join("src");
    let main = fs::read_to_string(folder.join("main.rs"))
        .map_err(|error| format!("cannot read main.rs of {name}: {error}"))?;
    let mut program = vec!["main.rs".to_owned()];
    for line in main.lines() {
        if let Some(module) = line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
            program.extend([format!("{module}.rs"), format!("{module}/")]);
        }
    }
    let mut library = Vec::new();
    for path in files(&folder)? {
        let inside = path.strip_prefix(&folder).unwrap_or(&path).display().to_string();
        if program.iter().any(|part| inside == *part || inside.starts_with(part.as_str())) {
            continue;
        }
        let text = fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        library.push((format!("crates/{name}/src/{inside}"), text));
    }
    Ok(library)
}

/// The files of a library that name a crate which only its program may name.
fn named(library: &[(String, String)], foreign: &BTreeSet<String>) -> Vec<String> {
    let mut problems = Vec::new();
    for (file, text) in library {
        for name in foreign.iter().filter(|name| text.contains(&name.replace('-', "_"))) {
            problems.push(format!("{file} names {name}, which only the program may do"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
| Crate | May depend on | Never contains |
|---|---|---|
| `a` | - | x |
| `b` | `a` | `y` |

| Part | May also depend on |
|---|---|
| program of `b` | `c` |
| tests of `a` | `b` |
";

    fn edges(edges: &[(&str, &[&str])]) -> Edges {
        let set = |targets: &[&str]| targets.iter().map(|target| (*target).to_owned()).collect();
        edges.iter().map(|(name, targets)| ((*name).to_owned(), set(targets))).collect()
    }

    #[test]
    fn the_tables_are_read() {
        let allowed = Allowed {
            crates: edges(&[("a", &[]), ("b", &["a"])]),
            programs: edges(&[("b", &["c"])]),
            tests: edges(&[("a", &["b"])]),
        };
        assert_eq!(read(TEXT), Ok(allowed));
        assert!(read("# Architecture").is_err());
    }

    #[test]
    fn an_edge_in_only_one_of_table_and_manifest_is_a_problem() {
        let allowed = read(TEXT).unwrap_or_default();
        let crates = edges(&[("a", &[]), ("b", &["a", "c"])]);
        let tests = edges(&[("a", &["b"])]);
        assert_eq!(compare(&allowed, &(crates.clone(), tests.clone())), [""; 0]);
        let more = edges(&[("a", &["b"]), ("b", &["a", "c"]), ("d", &[])]);
        assert_eq!(compare(&allowed, &(more, tests.clone())).len(), 2, "edge, crate");
        let fewer = edges(&[("b", &["a"])]);
        assert_eq!(compare(&allowed, &(fewer, tests)).len(), 3, "program, crate, its tests");
        assert_eq!(compare(&allowed, &(crates, Edges::new())).len(), 1, "test edge");
    }

    #[test]
    fn a_library_that_names_what_only_its_program_may_name_is_a_problem() {
        let library = [("x.rs".to_owned(), "use c_d::e;".to_owned())];
        let foreign = |name: &str| BTreeSet::from([name.to_owned()]);
        assert_eq!(named(&library, &foreign("c-d")).len(), 1);
        assert_eq!(named(&library, &foreign("e-f")).len(), 0);
    }
}
