//! The runtimes that containerd has by itself, as the real programs print them.

use std::sync::LazyLock;

use toml::{Table, Value};

use super::tables::{PLUGINS, at};

/// What real programs print of an empty configuration; each stands for the later ones up to the next.
const RECORDED: [((u32, u32), &str); 3] = [
    ((1, 6), include_str!("../../recorded/containerd-1.6.toml")),
    ((1, 7), include_str!("../../recorded/containerd-1.7.toml")),
    ((2, 1), include_str!("../../recorded/containerd-2.1.toml")),
];

/// The runtime that each of them has by itself, read once: a sweep needs it some hundred thousand times.
static RUNC: LazyLock<Vec<((u32, u32), Table)>> = LazyLock::new(|| {
    let runc = |text: &str| {
        let dump: Table = text.parse().unwrap();
        let runtimes = |id| at(&dump, &["plugins", id, "containerd", "runtimes"]);
        let found = PLUGINS.into_iter().find_map(runtimes);
        found.unwrap()["runc"].as_table().unwrap().clone()
    };
    RECORDED.iter().map(|(release, text)| (*release, runc(text))).collect()
});

/// The runtime that containerd has by itself.
pub fn built_in_runc(major: u32, minor: u32) -> Table {
    let found = RUNC.iter().rev().find(|(release, _)| *release <= (major, minor));
    found.unwrap_or(&RUNC[0]).1.clone()
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
