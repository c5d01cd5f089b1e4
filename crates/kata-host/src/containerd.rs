//! containerd's configuration: what its main file imports, our drop-in, and whether the merged result
//! is the old one plus ours.
//!
//! Facts that rule here, all tested with containerd 1.6.20, 1.7.24 and 2.1.9:
//! in 1.x a drop-in replaces the whole section of a plugin, and a table of runtimes replaces the one that
//! containerd has by itself; a drop-in keyed for another schema than the main file's is silently ignored, but
//! 2.x reads one of schema 3 beside a main file of schema 2; a `version` in a drop-in makes 2.x ignore the
//! main file; and a literal import that does not exist keeps every version from starting, while a glob
//! without a match does not.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};
use toml_edit::{Array, DocumentMut, Item};

use crate::header;
use crate::plan::Handler;

mod merged;
mod schema;

pub use merged::{Live, built_in_runtimes, compare, live};
pub use schema::Schema;

/// A file that every containerd reads as an empty configuration: what `config dump` prints of it is what
/// containerd has by itself.
pub const EMPTY_FILE: &str = "/dev/null";

/// What is known of a main configuration file.
#[derive(Clone, Debug, PartialEq)]
pub struct MainConfig {
    /// Its schema.
    pub schema: Schema,
    /// Its imports as they are written.
    pub imports: Vec<String>,
    /// Its section of the plugin with the runtimes.
    section: Option<Table>,
    /// Handlers that it configures.
    pub handlers: BTreeSet<String>,
}

impl MainConfig {
    /// Whether the file has a table of runtimes. If it has none, the runtimes are those that containerd has by
    /// itself.
    pub fn has_runtimes(&self) -> bool {
        self.section.as_ref().and_then(runtimes).is_some()
    }
}

/// Understands a main configuration file; `None` is one that does not exist.
/// `major` is containerd's major version, which decides what an absent file means.
///
/// # Errors
/// If it is no TOML, or has a schema that we do not know.
pub fn main_config(text: Option<&str>, major: u32) -> Result<MainConfig, String> {
    let default = if major >= 2 { Schema::V3 } else { Schema::V2 };
    let Some(text) = text else {
        return Ok(MainConfig {
            schema: default,
            imports: Vec::new(),
            section: None,
            handlers: BTreeSet::new(),
        });
    };
    let table: Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let schema = match table.get("version").map(Value::as_integer) {
        // containerd takes a file without a version for one of schema 1, also one of comments only. containerd 2
        // carries it over, but loses the section of its plugin `cri`.
        None if major >= 2 && !table.contains_key("plugins") => default,
        None | Some(Some(1)) => Schema::V1,
        Some(Some(2)) => Schema::V2,
        Some(Some(3)) => Schema::V3,
        Some(Some(4)) => Schema::V4,
        Some(_) => return Err("its version is none of 1, 2, 3 and 4".to_owned()),
    };
    if schema == Schema::V1 && major >= 2 {
        return Err("it is of version 1, of which containerd 2 does not read all plugins: replace it by what \
                    `containerd config migrate` prints"
            .to_owned());
    }
    let imports = match table.get("imports") {
        None => Vec::new(),
        Some(Value::Array(imports)) => imports
            .iter()
            .map(|import| import.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or("its imports are not strings")?,
        Some(_) => return Err("its imports are no list".to_owned()),
    };
    let section = section(&table, schema).cloned();
    let handlers = section.as_ref().and_then(runtimes).map(keys).unwrap_or_default();
    Ok(MainConfig { schema, imports, section, handlers })
}

fn section(table: &Table, schema: Schema) -> Option<&Table> {
    table.get("plugins")?.as_table()?.get(schema.plugin())?.as_table()
}

fn runtimes(section: &Table) -> Option<&Table> {
    section.get("containerd")?.as_table()?.get("runtimes")?.as_table()
}

fn keys(table: &Table) -> BTreeSet<String> {
    table.keys().cloned().collect()
}

/// The handlers that a drop-in configures, and whether it has a section of the plugin with the runtimes.
///
/// # Errors
/// If it is no TOML.
pub fn drop_in_handlers(text: &str) -> Result<(BTreeSet<String>, bool), String> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let mut handlers = BTreeSet::new();
    let mut found = false;
    // Schema 4 has the plugin of schema 3.
    for schema in [Schema::V1, Schema::V2, Schema::V3] {
        if let Some(section) = section(&table, schema) {
            found = true;
            handlers.extend(runtimes(section).map(keys).unwrap_or_default());
        }
    }
    Ok((handlers, found))
}

/// The snapshotter that a file names for all images: of containerd 2, or of the schema before.
pub fn snapshotter(text: &str) -> Option<String> {
    let table: Table = text.parse().ok()?;
    let plugins = table.get("plugins")?;
    let images = || plugins.get("io.containerd.cri.v1.images")?.get("snapshotter");
    let before = || plugins.get(Schema::V2.plugin())?.get("containerd")?.get("snapshotter");
    images().or_else(before)?.as_str().map(str::to_owned)
}

/// The folder of the first import that takes every `*.toml` of a folder.
/// Relative imports are relative to the folder of the main file.
pub fn imported_folder(main: &str, imports: &[String]) -> Option<String> {
    imports.iter().find_map(|import| {
        let folder = import.strip_suffix("/*.toml")?;
        if folder.contains(['*', '?', '[', '{', '$']) || folder.split('/').any(|part| part == "..")
        {
            return None;
        }
        let folder = folder.trim_start_matches("./");
        Some(if folder.starts_with('/') {
            folder.to_owned()
        } else {
            format!("{}/{folder}", crate::paths::parent(main).trim_end_matches('/'))
        })
    })
}

/// Adds an import to a main file, and leaves every other byte's meaning alone.
///
/// # Errors
/// If the file is no TOML, or its imports are no list.
pub fn add_import(text: Option<&str>, schema: Schema, import: &str) -> Result<String, String> {
    let Some(text) = text else {
        let version = schema.version();
        return Ok(format!("version = {version}\nimports = [{}]\n", Value::from(import)));
    };
    let mut document: DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| error.message().to_owned())?;
    match document.get_mut("imports") {
        None => {
            let mut imports = Array::new();
            imports.push(import);
            document.insert("imports", toml_edit::value(imports));
        }
        Some(Item::Value(toml_edit::Value::Array(imports))) => imports.push(import),
        Some(_) => return Err("its imports are no list".to_owned()),
    }
    Ok(document.to_string())
}

/// A main file with exactly these imports.
///
/// # Errors
/// If the file is no TOML.
pub fn with_imports(
    text: Option<&str>,
    schema: Schema,
    imports: &[String],
) -> Result<String, String> {
    let mut document: DocumentMut = match text {
        None => DocumentMut::new(),
        Some(text) => {
            text.parse().map_err(|error: toml_edit::TomlError| error.message().to_owned())?
        }
    };
    if document.is_empty() {
        document.insert("version", toml_edit::value(schema.version()));
    }
    document.remove("imports");
    if !imports.is_empty() {
        document.insert("imports", toml_edit::value(imports.iter().collect::<Array>()));
    }
    Ok(document.to_string())
}

/// Takes an import out again, from a file that somebody else has changed since.
///
/// # Errors
/// If the file is no TOML.
pub fn remove_import(text: &str, import: &str) -> Result<String, String> {
    let mut document: DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| error.message().to_owned())?;
    let empty = match document.get_mut("imports").and_then(Item::as_array_mut) {
        None => return Ok(text.to_owned()),
        Some(imports) => {
            imports.retain(|value| value.as_str() != Some(import));
            imports.is_empty()
        }
    };
    if empty {
        document.remove("imports");
    }
    Ok(document.to_string())
}

/// The schema that our drop-in is written in, which is the main file's but for two cases. `others` are the texts
/// of the drop-ins of others.
///
/// containerd 2.0 to 2.2 merges files of schema 2, and carries settings of images over from the section of
/// runtimes only if that has a table of runtimes (`migrateConfig` in `plugins/cri/images/plugin.go`). If there
/// is none yet, a table of ours in schema 2 would bring settings into effect that were not before.
/// It also ignores a table of runtimes of schema 2 beside one of schema 3.
pub fn drop_in_schema<'a>(
    main: &MainConfig,
    version: (u32, u32),
    others: impl Iterator<Item = &'a str>,
) -> Schema {
    if version.0 < 2 || main.schema != Schema::V2 {
        return main.schema;
    }
    let others: Vec<Table> = others.filter_map(|text| text.parse().ok()).collect();
    let of = |schema| others.iter().filter_map(move |table| section(table, schema));
    let mut old = of(Schema::V2).chain(main.section.as_ref());
    let has_runtimes = old.clone().any(|section| runtimes(section).is_some());
    let has_images = old.any(has_image_settings);
    if of(Schema::V3).any(|section| runtimes(section).is_some()) || (has_images && !has_runtimes) {
        Schema::V3
    } else {
        Schema::V2
    }
}

/// Whether a section of schema 2 has settings of images among those of the runtimes.
fn has_image_settings(section: &Table) -> bool {
    let names = ["snapshotter", "disable_snapshot_annotations", "discard_unpacked_layers"];
    let containerd = section.get("containerd").and_then(Value::as_table);
    containerd.is_some_and(|table| names.iter().any(|name| table.contains_key(*name)))
}

/// Our drop-in, deterministic. `version` is containerd's, and `built_in` are the runtimes that it has by itself.
///
/// On containerd 1.x it has a copy of the main file's whole section, since it replaces that section. If that
/// has no table of runtimes, it has a copy of `built_in` as well, since ours would be the only one otherwise.
pub fn drop_in(
    main: &MainConfig,
    schema: Schema,
    version: (u32, u32),
    built_in: &Table,
    handlers: &BTreeMap<String, Handler>,
) -> String {
    let replaces = version.0 < 2;
    let mut section =
        if replaces { main.section.clone().unwrap_or_default() } else { Table::new() };
    within(&mut section, "containerd", |containerd| {
        within(containerd, "runtimes", |runtimes| {
            if replaces && !main.has_runtimes() {
                runtimes.extend(built_in.clone());
            }
            for (name, handler) in handlers {
                runtimes.insert(name.clone(), Value::Table(runtime(handler, version)));
            }
        });
    });
    let plugins = Table::from_iter([(schema.plugin().to_owned(), Value::Table(section))]);
    let body = Table::from_iter([("plugins".to_owned(), Value::Table(plugins))]);
    header::add(&toml::to_string(&body).unwrap_or_default())
}

fn within(parent: &mut Table, name: &str, change: impl FnOnce(&mut Table)) {
    let mut table = match parent.remove(name) {
        Some(Value::Table(table)) => table,
        Some(_) | None => Table::new(),
    };
    change(&mut table);
    parent.insert(name.to_owned(), Value::Table(table));
}

fn runtime(handler: &Handler, version: (u32, u32)) -> Table {
    let Handler { runtime_type, runtime_path, config_path } = handler;
    let strings =
        |list: &[&str]| Value::Array(list.iter().map(|text| Value::from(*text)).collect());
    let mut table = Table::from_iter([
        ("privileged_without_host_devices".to_owned(), Value::from(true)),
        ("pod_annotations".to_owned(), strings(&["io.katacontainers.*"])),
        (
            "container_annotations".to_owned(),
            strings(&["io.kubernetes.container.terminationMessage*"]),
        ),
        (
            "options".to_owned(),
            Value::Table(Table::from_iter([(
                "ConfigPath".to_owned(),
                Value::from(config_path.as_str()),
            )])),
        ),
    ]);
    if version < (1, 7) {
        // containerd 1.6 does not honour runtime_path, and takes a path for the type.
        table.insert("runtime_type".to_owned(), Value::from(runtime_path.as_str()));
    } else {
        table.insert("runtime_type".to_owned(), Value::from(runtime_type.as_str()));
        table.insert("runtime_path".to_owned(), Value::from(runtime_path.as_str()));
    }
    table
}
