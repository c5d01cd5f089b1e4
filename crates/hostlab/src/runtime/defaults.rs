//! The runtimes that containerd has by itself, as the real programs print them.

use toml::{Table, Value};

use super::tables::{PLUGINS, at};

/// What real programs print of an empty configuration; each stands for the later ones up to the next.
const RECORDED: [((u32, u32), &str); 3] = [
    ((1, 6), include_str!("../../recorded/containerd-1.6.toml")),
    ((1, 7), include_str!("../../recorded/containerd-1.7.toml")),
    ((2, 1), include_str!("../../recorded/containerd-2.1.toml")),
];

/// The runtime that containerd has by itself.
pub fn built_in_runc(major: u32, minor: u32) -> Table {
    let is_older = |recorded: &&((u32, u32), &str)| recorded.0 <= (major, minor);
    let (_, text) = RECORDED.iter().rev().find(is_older).unwrap_or(&RECORDED[0]);
    let dump: Table = text.parse().unwrap();
    let found = PLUGINS.iter().find_map(|id| at(&dump, &["plugins", id, "containerd", "runtimes"]));
    found.unwrap()["runc"].as_table().unwrap().clone()
}

/// A runtime of which a file says nothing: it has the same keys, and nothing in them.
pub(super) fn empty_runtime(major: u32, minor: u32) -> Table {
    let mut runtime = built_in_runc(major, minor);
    for (_, value) in runtime.iter_mut() {
        *value = match value {
            Value::String(_) => Value::from(""),
            Value::Boolean(_) => Value::from(false),
            Value::Integer(_) => Value::from(0),
            Value::Array(_) => Value::Array(Vec::new()),
            _ => Value::Table(Table::new()),
        };
    }
    runtime
}
