//! The repository's files, and stock programs that read them.
//!
//! Real helm, checkov, promtool and lua are those that `KATA_TEST_HELM`, `KATA_TEST_CHECKOV`, `KATA_TEST_PROMTOOL` and
//! `KATA_TEST_LUA` name.
//! A test that needs one is ignored unless it is asked for, and then fails without it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The text of a file of the repository.
pub(crate) fn read(file: &str) -> String {
    let path = repository().join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The names of the files in a folder of the repository.
pub(crate) fn names(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(repository().join(folder)).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The documents of a YAML text.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    all.into_iter().filter(|object| !object.is_null()).collect()
}

/// The first place where two values differ, and both sides.
pub(crate) fn difference(left: &Value, right: &Value) -> Option<String> {
    let below = |key: &str, left: &Value, right: &Value| {
        difference(left, right).map(|found| format!(".{key}{found}"))
    };
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            keys.into_iter().find_map(|key| below(key, &left[key], &right[key]))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            (0..a.len()).find_map(|place| below(&place.to_string(), &a[place], &b[place]))
        }
        // YAML has one kind of number.
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => None,
        _ => (left != right).then(|| format!(": {left} is not {right}")),
    }
}

/// The program that an environment variable names.
#[expect(clippy::disallowed_methods, reason = "the caller chooses the program to test with")]
pub(crate) fn program(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable).filter(|path| !path.is_empty());
    path.unwrap_or_else(|| panic!("{variable} names no program; `. .ci/tools` sets it")).into()
}

/// The standard output of a program; its standard error if it fails.
#[expect(clippy::disallowed_methods, reason = "the test is about what the real program does")]
pub(crate) fn output(program: &Path, words: &[&str]) -> Result<String, String> {
    let ended = Command::new(program).current_dir(repository()).args(words).output().unwrap();
    if ended.status.success() {
        Ok(String::from_utf8(ended.stdout).unwrap())
    } else {
        Err(String::from_utf8_lossy(&ended.stderr).into_owned())
    }
}
