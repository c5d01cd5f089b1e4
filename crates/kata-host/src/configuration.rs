//! The states of containerd's configuration that are compared before anything is written: what runs, and what is on
//! disk, without us or with us.
//!
//! What runs is only known as far as CRI's verbose `Status` shows it: of containerd 1.6 and 1.7 all that concerns CRI,
//! of 2.0 and newer what concerns its runtimes, and not its images. What is on disk is what the node's own program
//! prints. What a state does not say is unknown, and not equal.
//!
//! It finds differences, and must not decide what follows from them.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use toml::{Table, Value};

use crate::containerd::Schema;
use crate::host::CriStatus;

/// A configuration in one of its states, as far as that is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Configuration {
    /// What CRI reports of the process that runs: the section of CRI.
    Running(Json),
    /// What the program prints of the files.
    OnDisk(Table),
    /// It cannot be asked for.
    Unknown,
}

/// The plugins whose absence leaves the kubelet without CRI.
const CRI: [&str; 4] = [
    "cri",
    "io.containerd.grpc.v1.cri",
    "io.containerd.cri.v1.runtime",
    "io.containerd.cri.v1.images",
];
const SNAPSHOTTERS: &str = "io.containerd.snapshotter.v1.";
/// Keys that containerd fills in after it has read them.
const FILLED_IN: [&str; 2] = ["sandbox_mode", "sandboxer"];

impl Configuration {
    /// What runs.
    pub fn running(status: &CriStatus) -> Self {
        let config = status.config.as_deref().and_then(|text| serde_json::from_str(text).ok());
        config.map_or(Self::Unknown, Self::Running)
    }

    /// What a program printed.
    ///
    /// # Errors
    /// If it is no TOML.
    pub fn printed(dump: &str) -> Result<Self, String> {
        if dump.trim().is_empty() {
            return Err("the program printed nothing".to_owned());
        }
        let table = dump.parse::<Table>();
        table
            .map(Self::OnDisk)
            .map_err(|error| format!("the program's output is no TOML: {}", error.message()))
    }

    /// The handlers of a configuration on disk; `None` if it is not known.
    pub fn handlers(&self) -> Option<BTreeSet<String>> {
        let Self::OnDisk(table) = self else { return None };
        let runtimes = section(table).and_then(|section| at(section, &["containerd", "runtimes"]));
        Some(runtimes.map(|runtimes| runtimes.keys().cloned().collect()).unwrap_or_default())
    }

    /// Why a start with this configuration and the handlers `ours` would leave the node without CRI, as far as it shows:
    /// the program prints such a configuration without complaint.
    pub fn cannot_start(&self, ours: &BTreeSet<String>) -> Option<String> {
        let Self::OnDisk(table) = self else { return None };
        let disabled = table.get("disabled_plugins").and_then(Value::as_array);
        let disabled = disabled.into_iter().flatten().filter_map(Value::as_str);
        if let Some(plugin) = disabled.into_iter().find(|plugin| CRI.contains(plugin)) {
            return Some(format!("disabled_plugins has {plugin}, without which there is no CRI"));
        }
        let containerd = section(table).and_then(|section| at(section, &["containerd"]))?;
        let name = text(containerd, &["default_runtime_name"]).unwrap_or_default();
        // The deprecated table adds a runtime of its own.
        let other = text(containerd, &["default_runtime", "runtime_type"]).unwrap_or_default();
        let runtimes = at(containerd, &["runtimes"]);
        if !name.is_empty()
            && other.is_empty()
            && !ours.contains(name)
            && !runtimes.is_some_and(|runtimes| runtimes.contains_key(name))
        {
            return Some(format!("default_runtime_name is {name}, and no runtime has that name"));
        }
        let images = ["plugins", "io.containerd.cri.v1.images", "snapshotter"];
        let snapshotter = text(table, &images).or_else(|| text(containerd, &["snapshotter"]))?;
        let plugins = at(table, &["plugins"])?;
        let mut there = plugins.keys().filter_map(|id| id.strip_prefix(SNAPSHOTTERS)).peekable();
        let proxied = at(table, &["proxy_plugins"]).is_some_and(|it| it.contains_key(snapshotter));
        // A program that prints none of its snapshotters says nothing of this one.
        let is_known = there.peek().is_some() && !snapshotter.is_empty() && !proxied;
        (is_known && !there.any(|name| name == snapshotter))
            .then(|| format!("snapshotter is {snapshotter}, and no plugin has that name"))
    }

    /// The keys in which what runs differs from what is on disk, except for the handlers `ours`: those of which both
    /// say something.
    pub fn differences(&self, on_disk: &Self, ours: &BTreeSet<String>) -> Vec<String> {
        let mut found = Vec::new();
        let (Self::Running(running), Self::OnDisk(table)) = (self, on_disk) else { return found };
        if let (Some(section), Json::Object(_)) = (section(table), running) {
            let mut section = section.clone();
            let mut running = running.clone();
            let runtimes = section.get_mut("containerd").and_then(|it| it.get_mut("runtimes"));
            if let Some(runtimes) = runtimes.and_then(Value::as_table_mut) {
                runtimes.retain(|name, _| !ours.contains(name));
            }
            let runtimes = running.get_mut("containerd").and_then(|it| it.get_mut("runtimes"));
            if let Some(runtimes) = runtimes.and_then(Json::as_object_mut) {
                runtimes.retain(|name, _| !ours.contains(name));
            }
            compare("", &Value::Table(section), &running, &mut found);
        }
        found
    }
}

/// The section of CRI with the runtimes.
fn section(table: &Table) -> Option<&Table> {
    let has_runtimes = |section: &&Table| section.contains_key("containerd");
    let of = |schema: Schema| at(table, &["plugins", schema.plugin()]).filter(has_runtimes);
    [Schema::V3, Schema::V2, Schema::V1].into_iter().find_map(of)
}

fn at<'a>(table: &'a Table, path: &[&str]) -> Option<&'a Table> {
    path.iter().try_fold(table, |table, name| table.get(*name)?.as_table())
}

fn text<'a>(table: &'a Table, path: &[&str]) -> Option<&'a str> {
    let (last, path) = path.split_last()?;
    at(table, path)?.get(*last)?.as_str()
}

/// Files spell a key `runtime_type`, and CRI the same one `runtimeType`, or as Go does.
fn plain(key: &str) -> String {
    key.chars().filter(|letter| *letter != '_').map(|letter| letter.to_ascii_lowercase()).collect()
}

/// Adds the keys in which a value on disk differs from the one that runs.
fn compare(key: &str, on_disk: &Value, running: &Json, found: &mut Vec<String>) {
    match (on_disk, running) {
        (Value::Table(on_disk), Json::Object(running)) => {
            let below = |name: &str| {
                if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
            };
            // The names in these are data, and one that only one side has differs.
            let is_map = ["runtimes", "options"].contains(&key.rsplit('.').next().unwrap_or(key));
            for (name, value) in on_disk {
                if FILLED_IN.contains(&name.as_str()) && value.as_str() == Some("") {
                    continue;
                }
                let same = |(other, _): &(&String, &Json)| {
                    if is_map { *other == name } else { plain(other) == plain(name) }
                };
                match running.iter().find(same) {
                    Some((_, running)) => compare(&below(name), value, running, found),
                    None if is_map => compare(&below(name), value, &Json::Null, found),
                    None => {}
                }
            }
            let only = running.iter().filter(|(name, _)| is_map && !on_disk.contains_key(*name));
            found.extend(only.filter(|(_, value)| !is_zero(value)).map(|(name, _)| below(name)));
        }
        _ => {
            let on_disk = serde_json::to_value(on_disk).unwrap_or_default();
            if on_disk != *running && !(is_zero(&on_disk) && is_zero(running)) {
                found.push(key.to_owned());
            }
        }
    }
}

/// What Go prints in one way or another of what was never set.
fn is_zero(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::Bool(value) => !value,
        Json::Number(value) => value.as_f64() == Some(0.0),
        Json::String(value) => value.is_empty(),
        Json::Array(values) => values.is_empty(),
        Json::Object(values) => values.values().all(is_zero),
    }
}
