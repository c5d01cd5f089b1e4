//! What `nodeadm` of Amazon EKS writes to containerd's main file at a boot: a template, and what the NodeConfigs of its
//! folder say, merged into that.
//!
//! It is a model of what its source says, and reads NodeConfigs as YAML, as the real one does.

use kata_host::host::FileKind;
use kata_host::nodeadm::is_config;
pub(super) use kata_host::nodeadm::{ENABLED, FOLDER};
use toml::{Table, Value};

use crate::disk::Disk;
use crate::runtime::tables::merge;

/// The main file after a boot of a node in memory.
pub(super) fn of_disk(template: &str, disk: &Disk) -> String {
    let mut names = disk.list(FOLDER).unwrap_or_default();
    names.sort();
    names.retain(|name| {
        let stat = disk.stat(&format!("{FOLDER}/{name}"));
        is_config(name) && stat.is_some_and(|stat| stat.kind == FileKind::File)
    });
    let read = |name: &String| disk.read(&format!("{FOLDER}/{name}")).unwrap_or_default();
    let texts = names.iter().map(read).map(|text| String::from_utf8_lossy(&text).into_owned());
    render(template, texts)
}

/// The main file after a boot with these NodeConfigs, in the order of their names.
///
/// # Panics
/// If anything cannot be understood, where nodeadm fails, or if nodeadm would take another: where NodeConfigs configure containerd, they have to
/// name a plugin of version 3, and must not with containerd 1.
pub fn render(template: &str, configs: impl IntoIterator<Item = String>) -> String {
    let mut merged: Table = template.parse().unwrap();
    let mut of_configs = Table::new();
    for text in configs {
        let config: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        let toml = config["spec"]["containerd"]["config"].as_str().unwrap_or_default();
        merge(&mut of_configs, toml.parse().unwrap());
    }
    if of_configs.is_empty() {
        return template.to_owned();
    }
    let text = of_configs.to_string();
    let of_version_3 =
        ["images", "runtime"].map(|name| text.contains(&format!("io.containerd.cri.v1.{name}")));
    let is_3 = merged.get("version") == Some(&Value::Integer(3));
    assert_eq!(is_3, of_version_3.contains(&true), "nodeadm would take another template: {text}");
    merge(&mut merged, of_configs);
    toml::to_string(&merged).unwrap()
}
