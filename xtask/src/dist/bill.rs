//! What is compiled into the binaries, as a list that machines read.

use std::path::Path;

use serde_json::{Value, json};

use super::machine::Machine;
use super::{BINARIES, VERSION};
use crate::{command, output};

/// Everything that is compiled into the binaries, as CycloneDX.
pub(super) fn of_materials(root: &Path, machine: Machine) -> Result<String, String> {
    let mut tree = command(root, "cargo");
    tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none", "--target"]);
    tree.arg(machine.triple());
    tree.args(["--format", "{p}|{l}"]);
    for (name, _) in BINARIES {
        tree.args(["--package", name]);
    }
    let listed = output(tree)?;
    let mut found: Vec<(String, String, String)> = listed
        .lines()
        .filter_map(|line| {
            let (package, license) = line.split_once('|')?;
            let mut words = package.split(' ');
            let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
            let license = license.trim_end_matches(" (*)");
            Some((name.to_owned(), version.to_owned(), license.to_owned()))
        })
        .collect();
    found.sort();
    found.dedup();
    let components: Vec<Value> = found
        .iter()
        .map(|(name, version, license)| {
            json!({
                "type": "library",
                "name": name,
                "version": version,
                "purl": format!("pkg:cargo/{name}@{version}"),
                "licenses": [{"expression": license.replace('/', " OR ")}],
            })
        })
        .collect();
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {
            "type": "application", "name": "kata-operator", "version": VERSION,
            "licenses": [{"expression": "Apache-2.0"}],
        }},
        "components": components,
    });
    let mut text = serde_json::to_string_pretty(&bill).map_err(|error| error.to_string())?;
    text.push('\n');
    Ok(text)
}
