//! What `nodeadm` of Amazon EKS writes to containerd's main file at a boot: a template, and what the NodeConfigs of its
//! folder say, merged into that.
//!
//! It is a model of what its source says, and reads NodeConfigs as YAML, as the real one does.

pub(super) use kata_host::nodeadm::{ENABLED, FOLDER};
use toml::{Table, Value};

use crate::disk::Disk;

/// The main file after a boot of a node in memory.
pub(super) fn of_disk(template: &str, disk: &Disk) -> String {
    let mut names = disk.list(FOLDER).unwrap_or_default();
    names.sort();
    let read = |name: &String| disk.read(&format!("{FOLDER}/{name}")).unwrap_or_default();
    let texts = names.iter().map(read).map(|text| String::from_utf8_lossy(&text).into_owned());
    render(template, texts)
}

/// The main file after a boot with these NodeConfigs, in the order of their names.
///
/// # Panics
/// If the template is no TOML.
pub fn render(template: &str, configs: impl IntoIterator<Item = String>) -> String {
    let mut merged: Table = template.parse().unwrap();
    for text in configs {
        let Ok(config) = serde_saphyr::from_str::<serde_json::Value>(&text) else { continue };
        let toml = config["spec"]["containerd"]["config"].as_str().unwrap_or_default();
        if let Ok(table) = toml.parse() {
            merge(&mut merged, table);
        }
    }
    if merged == template.parse().unwrap() {
        return template.to_owned();
    }
    toml::to_string(&merged).unwrap()
}

/// Tables are merged; everything else, lists too, is replaced.
fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(into)), Value::Table(from)) => merge(into, from),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}
