//! `docs/developers/findings.md`: every code of the catalogue has a test or a scenario that brings it about, and the
//! fault of the simulator with which it can be tried, where there is one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use kata_api::Code;
use kubectl_kata::arguments::Arguments;
use simcluster::world::NodeFault;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(repository().join(path)).ok()
}

/// The rows of the page: code, reason, what brings it about, fault.
fn rows() -> BTreeMap<String, [String; 3]> {
    let page = read("docs/developers/findings.md").unwrap();
    page.lines()
        .filter(|line| line.starts_with("| KATA"))
        .map(|line| {
            let cells: Vec<String> = line
                .trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().replace('`', ""))
                .collect();
            let [code, reason, shown, fault] = cells.as_slice() else { panic!("{line}") };
            (code.clone(), [reason.clone(), shown.clone(), fault.clone()])
        })
        .collect()
}

/// What a row names: the text in which the code has to be, and the text in which the fault has to be.
fn evidence(shown: &str) -> Option<(String, String)> {
    let words: Vec<&str> = shown.split(' ').collect();
    match words.as_slice() {
        ["scenario", name] => {
            let path = format!("crates/kata-sim/tests/scenarios/{name}");
            Some((read(&format!("{path}.out"))?, read(&format!("{path}.txt"))?))
        }
        [krate, "it", test] => {
            let (module, name) = test.rsplit_once("::")?;
            let file = module.replace("::", "/");
            let text = read(&format!("crates/{krate}/tests/it/{file}.rs"))?;
            let snapshot =
                read(&format!("crates/{krate}/tests/it/snapshots/it__{module}__{name}.snap"));
            if let Some(snapshot) = snapshot {
                assert!(text.contains(&format!("{name}: ")), "{shown}: there is no such case");
                return Some((snapshot, text));
            }
            let (_, body) = text.split_once(&format!("fn {name}("))?;
            let (body, _) = body.split_once("\n}\n")?;
            // A test may take what it expects from a function that it calls.
            Some((body.to_owned(), text))
        }
        _ => None,
    }
}

#[test]
fn every_code_is_brought_about_by_a_test_that_is_named() {
    let rows = rows();
    let mut wrong = Vec::new();
    for code in Code::ALL {
        let entry = code.entry();
        let Some([named, shown, fault]) = rows.get(entry.code) else {
            wrong.push(format!("{} {} has no row", entry.code, entry.reason));
            continue;
        };
        if named != entry.reason {
            wrong.push(format!("{} is {}, and not {named}", entry.code, entry.reason));
        }
        let Some((text, how)) = evidence(shown) else {
            wrong.push(format!("{}: there is no {shown}", entry.code));
            continue;
        };
        let (code, reason) = (entry.code.to_owned(), entry.reason);
        let says = [code, format!("Code::{reason}"), format!("\"{reason}\"")];
        if !says.iter().any(|word| text.contains(word)) {
            wrong.push(format!("{}: {shown} does not say it", entry.code));
        }
        if fault == "-" {
            continue;
        }
        if fault.parse::<NodeFault>().is_err() {
            wrong.push(format!("{}: {fault} is no fault", entry.code));
        } else if !how.contains(fault.split('=').next().unwrap_or_default()) {
            wrong.push(format!("{}: {shown} does not use {fault}", entry.code));
        }
    }
    for code in rows.keys() {
        if !Code::ALL.iter().any(|known| known.entry().code == code) {
            wrong.push(format!("{code} is not in the catalogue"));
        }
    }
    assert!(wrong.is_empty(), "docs/developers/findings.md:\n{}", wrong.join("\n"));
}

/// Each code has a command, and those of this program are ones that it takes.
#[test]
fn the_commands_of_codes_can_be_typed() {
    for code in Code::ALL {
        assert!(!code.commands().is_empty(), "{code}");
        for command in code.commands() {
            let is_complete = !command.contains("POD") || command.ends_with(" -n NAMESPACE");
            assert!(is_complete || command.contains("POOL"), "{code}: {command}");
            let Some(words) = command.strip_prefix("kubectl kata ") else {
                let is_of_the_cluster =
                    ["kubectl ", "oc "].iter().any(|it| command.starts_with(it));
                assert!(is_of_the_cluster, "{code}: {command}");
                continue;
            };
            let words = std::iter::once("kubectl-kata").chain(words.split(' '));
            if let Err(error) = Arguments::try_parse_from(words) {
                panic!("{code}: {command}: {error}");
            }
        }
    }
}
