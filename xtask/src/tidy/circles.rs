//! No circles of imports between the files of a crate: of two files, at most one imports the other, directly
//! or through others. So a file can be read, moved and tested with only what it imports.
//!
//! This reads paths, not Rust: what begins with `crate`, `super`, `self` or a child module. Declaring a module
//! imports nothing, and neither does its unit tests at the end of its file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::assure::catalogue::files;

/// The crates that are checked.
const CRATES: [&str; 7] = [
    "kata-api",
    "kata-host",
    "kata-manifests",
    "kata-node-agent",
    "kata-operator",
    "kata-plan",
    "kata-sim",
];

/// What each module imports. A module is named by its path below the crate, the root by nothing.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Checks the crates.
pub(super) fn check(root: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    for name in CRATES {
        let found = match read(root, name) {
            Ok(sources) => circles(&imports(&sources)),
            Err(error) => {
                problems.push(error);
                continue;
            }
        };
        problems.extend(found.iter().map(|circle| {
            let files: Vec<String> = circle.iter().map(|module| file(module)).collect();
            format!("{name}: these files import each other in a circle: {}", files.join(", "))
        }));
    }
    problems
}

/// The file of a module, as one reads it in a message.
fn file(module: &str) -> String {
    if module.is_empty() {
        "lib.rs".to_owned()
    } else {
        format!("{}.rs", module.replace("::", "/"))
    }
}

/// The texts of a crate's modules. Those of its program are not of the crate.
fn read(root: &Path, name: &str) -> Result<BTreeMap<String, String>, String> {
    let folder = root.join("crates").join(name).join("src");
    let mut sources = BTreeMap::new();
    for path in files(&folder)? {
        let Some(module) = path.strip_prefix(&folder).ok().and_then(|inside| inside.to_str())
        else {
            continue;
        };
        let Some(module) = module.strip_suffix(".rs") else { continue };
        let text = fs::read_to_string(&path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let module = if module == "lib" { String::new() } else { module.replace('/', "::") };
        sources.insert(module, text);
    }
    Ok(sources)
}

/// What each module imports of the others.
fn imports(sources: &BTreeMap<String, String>) -> Imports {
    let exists = |module: &str| sources.contains_key(module);
    let mut imports = Imports::new();
    for (module, text) in sources {
        let mut imported = BTreeSet::new();
        for path in paths(&code(text)) {
            let target = resolve(module, &path, exists);
            imported.extend(target.filter(|target| target != module));
        }
        imports.insert(module.clone(), imported);
    }
    imports
}

/// The text without comments, and without the unit tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Every path in a text, with each branch of `{…}` as a path of its own.
fn paths(text: &str) -> Vec<Vec<String>> {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut paths = Vec::new();
    let mut path: Vec<String> = Vec::new();
    // Whether the path goes on after `::`.
    let mut open = false;
    // For each open brace, the path that it branches; none, if it opens a block.
    let mut braces: Vec<Option<Vec<String>>> = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let length = rest.find(|letter| !is_name(letter)).unwrap_or(rest.len());
        if length > 0 {
            if !open {
                paths.push(std::mem::take(&mut path));
                path = braces.last().cloned().flatten().unwrap_or_default();
            }
            path.push(rest[..length].to_owned());
            open = false;
            rest = &rest[length..];
            continue;
        }
        if let Some(after) = rest.strip_prefix("::") {
            open = true;
            rest = after;
            continue;
        }
        match letter {
            '*' if open => path.push("*".to_owned()),
            '{' if open => braces.push(Some(std::mem::take(&mut path))),
            '{' => braces.push(None),
            '}' => drop(braces.pop()),
            _ => {}
        }
        if !letter.is_whitespace() {
            paths.push(std::mem::take(&mut path));
            open = false;
        }
        rest = &rest[letter.len_utf8()..];
    }
    paths.push(path);
    paths
}

/// The module that a path in another one leads into.
fn resolve(module: &str, path: &[String], exists: impl Fn(&str) -> bool) -> Option<String> {
    let join = |base: &str, name: &str| {
        if base.is_empty() { name.to_owned() } else { format!("{base}::{name}") }
    };
    let (first, parts) = path.split_first()?;
    // As in `pub(crate)`.
    if parts.is_empty() {
        return None;
    }
    let mut place = match first.as_str() {
        "crate" => String::new(),
        "self" => module.to_owned(),
        "super" => parent(module),
        name if exists(&join(module, name)) => join(module, name),
        _ => return None,
    };
    for part in parts {
        let next = if part == "super" { parent(&place) } else { join(&place, part) };
        if part != "super" && !exists(&next) {
            break;
        }
        place = next;
    }
    Some(place)
}

fn parent(module: &str) -> String {
    module.rsplit_once("::").map_or_else(String::new, |(parent, _)| parent.to_owned())
}

/// The modules that import each other, one list for each circle.
fn circles(imports: &Imports) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&String> = imports.get(from).into_iter().flatten().collect();
        while let Some(module) = next.pop() {
            if seen.insert(module.clone()) {
                next.extend(imports.get(module).into_iter().flatten());
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        imports.keys().map(|module| (module, reached(module))).collect();
    let mut circles = BTreeSet::new();
    for (module, there) in &reached {
        let back = |other: &&String| reached.get(other).is_some_and(|back| back.contains(*module));
        let circle: BTreeSet<String> = there.iter().filter(back).cloned().collect();
        if !circle.is_empty() {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles of a crate with these modules.
    fn found(sources: &[(&str, &str)]) -> Vec<Vec<String>> {
        let sources =
            sources.iter().map(|(module, text)| ((*module).to_owned(), (*text).to_owned()));
        let circles = circles(&imports(&sources.collect()));
        circles.into_iter().map(|circle| circle.into_iter().collect()).collect()
    }

    #[test]
    fn modules_that_import_each_other_are_a_circle() {
        let a = ("a", "use crate::b::B;");
        assert_eq!(found(&[a, ("b", "fn f() -> crate::a::A {}")]), [["a", "b"]]);
        assert_eq!(
            found(&[a, ("b", "use super::c::C;"), ("c", "use crate::a;")]),
            [["a", "b", "c"]]
        );
        assert_eq!(found(&[a, ("b", "use crate::{x::{X, Y}, a::A};"), ("x", "")]), [["a", "b"]]);
        assert_eq!(
            found(&[a, ("b", "use crate::{\n    c::C,\n    a,\n};"), ("c", "")]),
            [["a", "b"]]
        );
    }

    #[test]
    fn a_child_that_imports_its_parent_is_a_circle_if_the_parent_imports_it() {
        let child = ("a::b", "use super::A;");
        assert_eq!(found(&[("a", "mod b;\nfn f() { b::g() }"), child]), [["a", "a::b"]]);
        assert_eq!(found(&[("a", "mod b;\nstruct A;"), child]), [[""; 0]; 0]);
        assert_eq!(found(&[("", "mod a;\npub use a::A;"), ("a", "use crate::B;")]), [["", "a"]]);
    }

    #[test]
    fn comments_and_unit_tests_import_nothing() {
        let a = ("a", "use crate::b::B;");
        assert_eq!(
            found(&[a, ("b", "// see crate::a\n/// [`crate::a::A`]\nstruct B;")]),
            [[""; 0]; 0]
        );
        let tests = "struct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n";
        assert_eq!(found(&[a, ("b", tests)]), [[""; 0]; 0]);
    }
}
