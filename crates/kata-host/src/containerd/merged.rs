//! What containerd makes of all its files: `config dump` before and after, and what CRI reports of the
//! configuration that is live.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use super::schema::Schema;
use crate::host::CriStatus;
use crate::plan::Handler;

/// What a container runtime offers now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Its handlers, without the nameless default one.
    pub handlers: BTreeSet<String>,
    /// What it says of each, if it says it.
    pub configured: BTreeMap<String, Handler>,
}

/// Understands the answer to CRI's `Status`: containerd 1.x shows its handlers only in its configuration.
pub fn live(status: &CriStatus) -> Live {
    let mut live = Live {
        handlers: status.handlers.iter().filter(|name| !name.is_empty()).cloned().collect(),
        configured: BTreeMap::new(),
    };
    let config: serde_json::Value = status
        .config
        .as_deref()
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let runtimes = config.get("containerd").and_then(|containerd| containerd.get("runtimes"));
    for (name, runtime) in runtimes.and_then(serde_json::Value::as_object).into_iter().flatten() {
        let text = |value: Option<&serde_json::Value>| {
            value.and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
        };
        live.handlers.insert(name.clone());
        live.configured.insert(
            name.clone(),
            Handler {
                runtime_type: text(runtime.get("runtimeType")),
                runtime_path: text(runtime.get("runtimePath")),
                config_path: text(
                    runtime.get("options").and_then(|options| options.get("ConfigPath")),
                ),
            },
        );
    }
    // CRI-O reports them since 1.33, as Go spells them.
    let runtimes = config.get("crio").and_then(|crio| crio.get("Runtimes"));
    for (name, runtime) in runtimes.and_then(serde_json::Value::as_object).into_iter().flatten() {
        let text = |key: &str| {
            runtime.get(key).and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
        };
        live.configured.insert(
            name.clone(),
            Handler {
                runtime_type: text("RuntimeType"),
                runtime_path: text("RuntimePath"),
                config_path: text("RuntimeConfigPath"),
            },
        );
    }
    live
}

/// Whether the merged configuration is the old one, but for our handlers.
///
/// # Errors
/// A sentence that names the first key that differs, or the handler that is missing.
pub fn compare(
    before: &str,
    after: &str,
    ours: &BTreeMap<String, Handler>,
    gone: &BTreeSet<String>,
) -> Result<(), String> {
    let (before, after) = (parse(before)?, parse(after)?);
    for (name, handler) in ours {
        let Some(runtime) = runtime(&after, name) else {
            return Err(format!("the handler {name} does not take effect"));
        };
        let path = runtime
            .get("options")
            .and_then(|options| options.get("ConfigPath"))
            .and_then(Value::as_str);
        let has = |key: &str| runtime.get(key).and_then(Value::as_str).unwrap_or_default();
        let shim = [has("runtime_path"), has("runtime_type")].contains(&&*handler.runtime_path);
        if path != Some(&handler.config_path) || !shim {
            return Err(format!("the handler {name} takes effect with other paths"));
        }
    }
    for name in gone {
        if runtime(&after, name).is_some() {
            return Err(format!("the handler {name} is still configured by another file"));
        }
    }
    others_differ(before, after, ours, gone).map_or(Ok(()), Err)
}

/// Whether two merged configurations differ in what is not about our handlers.
///
/// # Errors
/// A sentence that names the first key that differs.
pub fn compare_others(
    before: &str,
    after: &str,
    ours: &BTreeMap<String, Handler>,
    gone: &BTreeSet<String>,
) -> Result<(), String> {
    others_differ(parse(before)?, parse(after)?, ours, gone).map_or(Ok(()), Err)
}

fn others_differ(
    mut before: Table,
    mut after: Table,
    ours: &BTreeMap<String, Handler>,
    gone: &BTreeSet<String>,
) -> Option<String> {
    for table in [&mut before, &mut after] {
        table.remove("imports");
        for name in ours.keys().chain(gone) {
            remove_runtime(table, name);
        }
    }
    let key = difference("", &Value::Table(before), &Value::Table(after))?;
    Some(format!("the key {key} would change"))
}

/// The runtimes in what `config dump` prints of an empty file: those that containerd has by itself.
///
/// # Errors
/// If it is no TOML.
pub fn built_in_runtimes(dump: &str) -> Result<Table, String> {
    let table = parse(dump)?;
    Ok(runtimes(&table).cloned().unwrap_or_default())
}

fn parse(dump: &str) -> Result<Table, String> {
    dump.parse::<Table>().map_err(|error| format!("its output is no TOML: {}", error.message()))
}

const PLUGINS: [Schema; 3] = [Schema::V3, Schema::V2, Schema::V1];

fn runtimes(table: &Table) -> Option<&Table> {
    let plugins = table.get("plugins")?;
    let of = |schema: &Schema| plugins.get(schema.plugin())?.get("containerd")?.get("runtimes");
    PLUGINS.iter().find_map(of)?.as_table()
}

fn runtime<'a>(table: &'a Table, name: &str) -> Option<&'a Value> {
    PLUGINS.iter().find_map(|schema| {
        table.get("plugins")?.get(schema.plugin())?.get("containerd")?.get("runtimes")?.get(name)
    })
}

fn remove_runtime(table: &mut Table, name: &str) {
    for schema in PLUGINS {
        let runtimes = table
            .get_mut("plugins")
            .and_then(|plugins| plugins.get_mut(schema.plugin()))
            .and_then(|section| section.get_mut("containerd"))
            .and_then(|containerd| containerd.get_mut("runtimes"))
            .and_then(Value::as_table_mut);
        if let Some(runtimes) = runtimes {
            runtimes.remove(name);
        }
    }
}

/// The first key in which two values differ.
fn difference(key: &str, before: &Value, after: &Value) -> Option<String> {
    match (before, after) {
        (Value::Table(before), Value::Table(after)) => {
            let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            names.into_iter().find_map(|name| {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                match (before.get(name), after.get(name)) {
                    (Some(before), Some(after)) => difference(&key, before, after),
                    // An empty table says nothing.
                    (Some(Value::Table(table)), None) | (None, Some(Value::Table(table)))
                        if table.is_empty() =>
                    {
                        None
                    }
                    _ => Some(key),
                }
            })
        }
        _ if before == after => None,
        _ => Some(key.to_owned()),
    }
}
