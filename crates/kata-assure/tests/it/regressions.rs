//! Plans that once broke a promise, each of which stays fixed.

use std::fs;
use std::path::Path;

use kata_assure::judge::References;
use kata_assure::plan::Plan;

#[test]
fn plans_that_once_broke_a_promise_keep_all_of_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    let references = References::default();
    for file in files {
        for line in fs::read_to_string(&file).unwrap().lines() {
            let plan: Plan = serde_json::from_str(line).unwrap();
            let outcome = references.judge(&plan, false, true).unwrap();
            assert!(outcome.broken.is_empty(), "{}: {line}\n{:#?}", file.display(), outcome.broken);
        }
    }
}
