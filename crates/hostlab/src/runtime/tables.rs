//! Tables of a configuration: by path, merged, and carried over from one schema to the next.

use toml::{Table, Value};

/// The plugins that have the runtimes, by schema, the newest first.
pub(crate) const PLUGINS: [&str; 3] =
    ["io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri"];

/// The table at a path, which is made if it is not there.
pub(super) fn enter<'a>(table: &'a mut Table, path: &[&str]) -> Option<&'a mut Table> {
    path.iter().try_fold(table, |table, name| {
        table.entry(*name).or_insert_with(|| Value::Table(Table::new())).as_table_mut()
    })
}

/// The table at a path.
pub(super) fn at<'a>(table: &'a Table, path: &[&str]) -> Option<&'a Table> {
    path.iter().try_fold(table, |table, name| table.get(*name)?.as_table())
}

/// Merges a table into another one, key by key.
pub(crate) fn merge(into: &mut Table, from: Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(into)), Value::Table(from)) => merge(into, from),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// Before 2.0 a section is that of CRI under the name of its file's schema, and under no other one.
pub(super) fn rename_section(table: &mut Table) {
    let version = table.get("version").and_then(Value::as_integer);
    let Some(plugins) = table.get_mut("plugins").and_then(Value::as_table_mut) else { return };
    plugins.remove(PLUGINS[0]);
    let old = plugins.remove(PLUGINS[2]);
    if version.unwrap_or(1) < 2 {
        plugins.remove(PLUGINS[1]);
        plugins.extend(old.map(|section| (PLUGINS[1].to_owned(), section)));
    }
}

/// Containerd 2 gives a section of schema 1 the name of schema 2, and forgets the version of its file.
pub(super) fn migrate_from_1(table: &mut Table) {
    if table.get("version").and_then(Value::as_integer).unwrap_or_default() >= 2 {
        return;
    }
    table.remove("version");
    if let Some(plugins) = table.get_mut("plugins").and_then(Value::as_table_mut)
        && let Some(section) = plugins.remove(PLUGINS[2])
    {
        plugins.entry(PLUGINS[1]).or_insert(section);
    }
}

/// Containerd 2.0 to 2.2 carries over what is of schema 2, and nothing else.
pub(super) fn forget_old_sections(table: &mut Table) {
    if let Some(plugins) = table.get_mut("plugins").and_then(Value::as_table_mut) {
        plugins.remove(PLUGINS[1]);
        plugins.remove(PLUGINS[2]);
    }
}

/// Brings what schema 2 says of runtimes, and of images beside them, to where containerd 2 has it. A table of
/// runtimes is there or not as a whole, and without one the settings of images are ignored.
pub(super) fn migrate(table: &mut Table) {
    let Some(plugins) = table.get_mut("plugins").and_then(Value::as_table_mut) else { return };
    let old = plugins.get_mut(PLUGINS[1]).and_then(Value::as_table_mut);
    let Some(Value::Table(mut containerd)) = old.and_then(|old| old.remove("containerd")) else {
        return;
    };
    let has_runtimes = containerd.contains_key("runtimes");
    for name in ["snapshotter", "disable_snapshot_annotations", "discard_unpacked_layers"] {
        if let Some(value) = containerd.remove(name)
            && has_runtimes
            && let Some(images) = enter(plugins, &["io.containerd.cri.v1.images"])
        {
            images.insert(name.to_owned(), value);
        }
    }
    let runtimes = containerd.get_mut("runtimes").and_then(Value::as_table_mut);
    for (_, runtime) in runtimes.into_iter().flat_map(|all| all.iter_mut()) {
        if let Some(runtime) = runtime.as_table_mut()
            && let Some(mode) = runtime.remove("sandbox_mode")
        {
            runtime.insert("sandboxer".to_owned(), mode);
        }
    }
    if let Some(new) = enter(plugins, &[PLUGINS[0], "containerd"]) {
        for (name, value) in containerd {
            new.entry(name).or_insert(value);
        }
    }
}
