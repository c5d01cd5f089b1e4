//! CRI-O's drop-in.
//!
//! It has our handlers and nothing else: no option of all containers, no log level of CRI-O.
//! CRI-O is restarted and not reloaded: after SIGHUP it lists handlers that it does not run (cri-o #10202).

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use crate::header;
use crate::paths;
use crate::plan::Handler;

/// Our drop-in, deterministic.
pub fn drop_in(handlers: &BTreeMap<String, Handler>) -> String {
    let mut runtimes = Table::new();
    for (name, Handler { runtime_type: _, runtime_path, config_path }) in handlers {
        runtimes.insert(
            name.clone(),
            Value::Table(Table::from_iter([
                ("runtime_path".to_owned(), Value::from(runtime_path.as_str())),
                ("runtime_type".to_owned(), Value::from("vm")),
                ("runtime_root".to_owned(), Value::from("/run/vc")),
                ("runtime_config_path".to_owned(), Value::from(config_path.as_str())),
                ("privileged_without_host_devices".to_owned(), Value::from(true)),
            ])),
        );
    }
    let nest =
        |name: &str, table: Table| Table::from_iter([(name.to_owned(), Value::Table(table))]);
    let body = nest("crio", nest("runtime", nest("runtimes", runtimes)));
    header::add(&toml::to_string(&body).unwrap_or_default())
}

/// The handlers that a configuration file of CRI-O has.
///
/// # Errors
/// If it is no TOML.
pub fn handlers(text: &str) -> Result<BTreeSet<String>, String> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let runtimes = value(&table, ["runtime", "runtimes"]).and_then(Value::as_table);
    Ok(runtimes.map(|runtimes| runtimes.keys().cloned().collect()).unwrap_or_default())
}

/// The handlers of a file that are copies of what our drop-in has: with our shim and our configuration of that handler.
pub(crate) fn copies(text: &str) -> BTreeSet<String> {
    let table: Table = text.parse().unwrap_or_default();
    let runtimes = value(&table, ["runtime", "runtimes"]).and_then(Value::as_table);
    let is_ours = |name: &str, runtime: &Value| {
        let key = |key: &str| runtime.get(key).and_then(Value::as_str).unwrap_or_default();
        paths::is_current(key("runtime_path"))
            && key("runtime_config_path") == paths::configuration(name)
    };
    let all = runtimes.into_iter().flatten();
    all.filter(|(name, runtime)| is_ours(name, runtime)).map(|(name, _)| name.clone()).collect()
}

/// The handler that a file makes the default one.
pub(crate) fn default_runtime(text: &str) -> Option<String> {
    value(&text.parse().ok()?, ["runtime", "default_runtime"])?.as_str().map(str::to_owned)
}

/// The value of a key in a section.
fn value<'a>(table: &'a Table, [section, key]: [&str; 2]) -> Option<&'a Value> {
    table.get("crio")?.get(section)?.get(key)
}
