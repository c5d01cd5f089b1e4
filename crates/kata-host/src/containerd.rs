//! containerd's configuration: what its main file imports, our drop-in, and whether the merged result
//! is the old one plus ours.
//!
//! Facts that rule here, tested with containerd 1.6.20, 1.7.24 and 2.1.9; what is said of 2.3 was read in its
//! source:
//!
//! - 1.x: the last file that has a `version` decides the schema of all.
//! - Files are read in the order of the imports,
//!   those of an import after all imports of the main file.
//! - 1.x: the section of a plugin replaces that of every file before, and counts only under the id of the
//!   schema. A table of runtimes replaces the one that containerd has by itself.
//! - 2.0 to 2.2: all files are merged key by key, and then migrated to schema 3 if the last version of 2 or more
//!   is 2. If no file has such a version, sections of CRI under the ids of schemas 1 and 2 are ignored; otherwise
//!   both ids mean the same. Runtimes under the id of schema 3 hide those under the older ids. Settings of images
//!   beside the runtimes of schema 2 are migrated only if there is a table of runtimes.
//! - Since 2.3 every file is migrated by itself and then merged.
//! - A literal import that does not exist keeps every version from starting, while a glob without a match does
//!   not.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};
use toml_edit::{Array, DocumentMut, Item};

use crate::header;
use crate::paths;
use crate::plan::Handler;

mod merged;
mod schema;

pub use merged::{Live, built_in_runtimes, compare, compare_others, live};
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
    /// Handlers that it configures.
    pub handlers: BTreeSet<String>,
}

/// What our drop-in is added to: the files that are read before it, as far as they matter to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Base {
    /// The schema whose plugin our drop-in has to name.
    pub schema: Schema,
    /// The section of that plugin which is in effect before our drop-in is read.
    section: Option<Table>,
}

impl Base {
    /// The base of a plain main file of this schema without a section of CRI.
    pub fn plain(schema: Schema) -> Self {
        Self { schema, section: None }
    }

    /// The base of all files that are read, in their order, with whether each is read after our drop-in.
    /// `version` is containerd's; a file that is no TOML is left out.
    pub fn of<'a>(files: impl Iterator<Item = (&'a str, bool)>, version: (u32, u32)) -> Self {
        let files: Vec<(Table, bool)> =
            files.filter_map(|(text, after)| Some((text.parse().ok()?, after))).collect();
        let has_runtimes = |schema| {
            files.iter().any(|(table, _)| section(table, schema).and_then(runtimes).is_some())
        };
        let has_old_runtimes = has_runtimes(Schema::V1) || has_runtimes(Schema::V2);
        let mut versions = files.iter().filter_map(|(table, _)| table.get("version")?.as_integer());
        let schema = if version.0 < 2 {
            match versions.next_back() {
                Some(2..) => Schema::V2,
                None if files.is_empty() => Schema::V2,
                _ => Schema::V1,
            }
        } else {
            match versions.rfind(|version| *version >= 2) {
                Some(2) if version.1 < 3 && !has_runtimes(Schema::V3) && has_old_runtimes => {
                    Schema::V2
                }
                _ => Schema::V3,
            }
        };
        let before = files.iter().filter(|(_, after)| !after);
        let section = before.filter_map(|(table, _)| section(table, schema)).next_back().cloned();
        Self { schema, section }
    }

    /// The handlers in its table of runtimes; `None` if it has none.
    pub fn handlers(&self) -> Option<BTreeSet<String>> {
        self.section.as_ref().and_then(runtimes).map(keys)
    }

    /// Whether our drop-in has a copy of the section. On containerd 1.x it replaces the section. A containerd 2 merges
    /// both, but it may be replaced by a 1.x, which reads the same files if they are of schema 2.
    pub fn is_copied(&self, version: (u32, u32)) -> bool {
        version.0 < 2 || (self.schema == Schema::V2 && self.has_runtimes())
    }

    /// Whether it has a table of runtimes. If it has none, the runtimes are those that containerd has by itself.
    pub fn has_runtimes(&self) -> bool {
        self.section.as_ref().and_then(runtimes).is_some()
    }
}

/// Understands a main configuration file; `None` is one that does not exist.
/// `major` is containerd's major version, which decides what an absent file means.
///
/// # Errors
/// If it is no TOML, has a schema that we do not know, or imports that are no list of strings.
pub fn main_config(text: Option<&str>, major: u32) -> Result<MainConfig, String> {
    let default = if major >= 2 { Schema::V3 } else { Schema::V2 };
    let Some(text) = text else {
        return Ok(MainConfig { schema: default, imports: Vec::new(), handlers: BTreeSet::new() });
    };
    let table: Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let schema = match table.get("version").map(Value::as_integer) {
        // containerd 1.x takes a file without a version for one of schema 1, also one of comments only.
        None if major >= 2 => default,
        None | Some(Some(1)) => Schema::V1,
        Some(Some(2)) => Schema::V2,
        Some(Some(3)) => Schema::V3,
        Some(Some(4)) => Schema::V4,
        Some(_) => return Err("its version is none of 1, 2, 3 and 4".to_owned()),
    };
    let imports = imports(&table)?;
    let handlers = if major < 2 {
        section(&table, schema).and_then(runtimes).map(keys).unwrap_or_default()
    } else {
        handlers_of(&table)
    };
    Ok(MainConfig { schema, imports, handlers })
}

fn imports(table: &Table) -> Result<Vec<String>, String> {
    match table.get("imports") {
        None => Ok(Vec::new()),
        Some(Value::Array(imports)) => imports
            .iter()
            .map(|import| import.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or_else(|| "its imports are not strings".to_owned()),
        Some(_) => Err("its imports are no list".to_owned()),
    }
}

/// The imports of a drop-in. One that cannot be parsed has none; the preflight reports it.
pub fn drop_in_imports(text: &str) -> Vec<String> {
    text.parse().ok().and_then(|table: Table| imports(&table).ok()).unwrap_or_default()
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

/// The handlers that a drop-in configures, under the plugin of any schema.
///
/// # Errors
/// If it is no TOML.
pub fn drop_in_handlers(text: &str) -> Result<BTreeSet<String>, String> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    Ok(handlers_of(&table))
}

fn handlers_of(table: &Table) -> BTreeSet<String> {
    // Schema 4 has the plugin of schema 3.
    let sections = [Schema::V1, Schema::V2, Schema::V3].into_iter();
    let runtimes = sections.filter_map(|schema| runtimes(section(table, schema)?));
    runtimes.flat_map(keys).collect()
}

/// The handlers of a file that are copies of what our drop-in has: with our shim and our configuration of that handler.
pub(crate) fn copies(text: &str) -> BTreeSet<String> {
    let table: Table = text.parse().unwrap_or_default();
    let is_ours = |name: &str, runtime: &Value| {
        let key = |key: &str| runtime.get(key).and_then(Value::as_str).unwrap_or_default();
        let path = runtime.get("options").and_then(|options| options.get("ConfigPath"));
        let shim = [key("runtime_path"), key("runtime_type")].into_iter().any(paths::is_current);
        shim && path.and_then(Value::as_str) == Some(&paths::configuration(name))
    };
    let sections = [Schema::V1, Schema::V2, Schema::V3].into_iter();
    let all = sections.filter_map(|schema| runtimes(section(&table, schema)?)).flatten();
    all.filter(|(name, runtime)| is_ours(name, runtime)).map(|(name, _)| name.clone()).collect()
}

/// Whether a file has a section that containerd 1.x takes for that of CRI.
pub fn has_section_of_1(text: &str) -> bool {
    text.parse::<Table>().is_ok_and(|table| {
        [Schema::V1, Schema::V2].into_iter().any(|schema| section(&table, schema).is_some())
    })
}

/// The snapshotter that a file names for all images: of containerd 2, or of the schema before.
pub fn snapshotter(text: &str) -> Option<String> {
    let table: Table = text.parse().ok()?;
    let plugins = table.get("plugins")?;
    let images = || plugins.get("io.containerd.cri.v1.images")?.get("snapshotter");
    let before = || plugins.get(Schema::V2.plugin())?.get("containerd")?.get("snapshotter");
    images().or_else(before)?.as_str().map(str::to_owned)
}

/// Adds an import to a main file, and leaves every other byte's meaning alone. A file that was not there gets a version
/// that containerd 1.x and 2.x read.
///
/// # Errors
/// If the file is no TOML, or its imports are no list.
pub fn add_import(text: Option<&str>, import: &str) -> Result<String, String> {
    let Some(text) = text else {
        return Ok(format!("version = 2\nimports = [{}]\n", Value::from(import)));
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

/// Takes an import out again, from a file that another program has changed since.
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

/// Takes imports out of a main file, as they are written, and adds one.
///
/// # Errors
/// If the file is no TOML, or its imports are no list.
pub fn replace_imports(text: &str, gone: &[String], added: Option<&str>) -> Result<String, String> {
    let text = gone.iter().try_fold(text.to_owned(), |text, it| remove_import(&text, it))?;
    match added {
        Some(import) => add_import(Some(&text), import),
        None => Ok(text),
    }
}

/// Takes an import out of a main file, and adds those that it does not have.
///
/// # Errors
/// If the file is no TOML, or its imports are no list.
pub fn exchange_imports(
    text: &str,
    gone: Option<&str>,
    added: &[String],
) -> Result<String, String> {
    let text = match gone {
        Some(import) => remove_import(text, import)?,
        None => text.to_owned(),
    };
    let has = drop_in_imports(&text);
    let added = added.iter().filter(|import| !has.contains(import));
    added.into_iter().try_fold(text, |text, import| add_import(Some(&text), import))
}

/// Our drop-in, deterministic. `version` is containerd's, and `built_in` are the runtimes that it has by itself.
///
/// It has a copy of the whole section that is in effect before it where [`Base::is_copied`] says so. If that has no table
/// of runtimes, it has a copy of `built_in` as well, since ours would be the only one otherwise.
pub fn drop_in(
    base: &Base,
    version: (u32, u32),
    built_in: &Table,
    handlers: &BTreeMap<String, Handler>,
) -> String {
    let copies = base.is_copied(version);
    let mut section = if copies { base.section.clone().unwrap_or_default() } else { Table::new() };
    within(&mut section, "containerd", |containerd| {
        within(containerd, "runtimes", |runtimes| {
            if copies && !base.has_runtimes() {
                runtimes.extend(built_in.clone());
            }
            for (name, handler) in handlers {
                runtimes.insert(name.clone(), Value::Table(runtime(handler, version)));
            }
        });
    });
    let plugins = Table::from_iter([(base.schema.plugin().to_owned(), Value::Table(section))]);
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
