//! The states of a container runtime's configuration that are compared before anything is written: what runs, and what
//! is on disk, without us or with us.
//!
//! What runs is only known as far as CRI's verbose `Status` shows it: of containerd 1.6 and 1.7 all that concerns CRI,
//! of 2.0 and newer what concerns its runtimes, and not its images; of CRI-O since 1.33 its section `crio.runtime`. What
//! is on disk is what the node's own program prints; CRI-O's program prints only what differs from its defaults. What a
//! state does not say is unknown, and not equal.
//!
//! It finds differences, and must not decide what follows from them.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};
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
/// Keys that CRI-O fills in when it starts, besides those that are empty in its files.
const FILLED_IN_BY_CRIO: [&str; 5] =
    ["monitor_cgroup", "monitor_path", "monitor_env", "container_min_memory", "hooks_dir"];
/// The handler that `crio config` prints on every node. CRI-O does not offer it on nodes without the program crun.
const DEFAULT_OF_CRIO: &str = "crun";

impl Configuration {
    /// What runs.
    pub fn running(status: &CriStatus) -> Self {
        let config = status.config.as_deref();
        let config = config.and_then(|text| serde_json::from_str::<Json>(text).ok());
        // CRI-O before 1.33 reports only its pause image.
        let says = |config: &Json| ["containerd", "crio"].iter().any(|it| config.get(it).is_some());
        config.filter(says).map_or(Self::Unknown, Self::Running)
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
        let of_containerd = || at(section(table)?, &["containerd", "runtimes"]);
        let runtimes = at(table, &["crio", "runtime", "runtimes"]).or_else(of_containerd);
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
        let manager = text(table, &["crio", "runtime", "cgroup_manager"]);
        if let Some(name) = manager.filter(|name| !["systemd", "cgroupfs"].contains(name)) {
            return Some(format!("cgroup_manager is {name}, and CRI-O knows systemd and cgroupfs"));
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
        let (Self::Running(running), Self::OnDisk(table)) = (self, on_disk) else {
            return Vec::new();
        };
        let of_crio = at(table, &["crio", "runtime"]);
        let (section, running) = match of_crio {
            Some(section) => (Some(section), running.get("crio")),
            None => (section(table), Some(running)),
        };
        let mut comparison = Comparison { ours, is_crio: of_crio.is_some(), found: Vec::new() };
        if let (Some(section), Some(Json::Object(running))) = (section, running) {
            comparison.tables("", section, running);
        }
        comparison.found
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

/// The comparison of a configuration on disk with the one that runs.
struct Comparison<'a> {
    /// The handlers that are left out.
    ours: &'a BTreeSet<String>,
    is_crio: bool,
    /// The keys that differ.
    found: Vec<String>,
}

impl Comparison<'_> {
    fn tables(&mut self, key: &str, on_disk: &Table, running: &Map<String, Json>) {
        let below = |name: &str| {
            if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") }
        };
        // The names in these are data, and one that only one side has differs.
        let table = key.rsplit('.').next().unwrap_or(key);
        let is_map = ["runtimes", "options"].contains(&table);
        let (ours, is_crio) = (self.ours, self.is_crio);
        let is_left_out = |name: &String| table == "runtimes" && ours.contains(name);
        let mut pairs: Vec<(String, &Value, &Json)> = Vec::new();
        for (name, value) in on_disk.iter().filter(|(name, _)| !is_left_out(name)) {
            let filled_in: &[&str] = if is_crio { &FILLED_IN_BY_CRIO } else { &FILLED_IN };
            let is_filled_in = filled_in.contains(&name.as_str());
            let is_empty = value.as_str() == Some("");
            if (is_crio && (is_filled_in || is_empty)) || (is_filled_in && is_empty) {
                continue;
            }
            let same = |(other, _): &(&String, &Json)| {
                if is_map { *other == name } else { plain(other) == plain(name) }
            };
            match running.iter().find(same) {
                Some((_, running)) => pairs.push((below(name), value, running)),
                None if is_crio && name == DEFAULT_OF_CRIO => {}
                None if is_map => pairs.push((below(name), value, &Json::Null)),
                None => {}
            }
        }
        let is_only_there = |(name, value): &(&String, &Json)| {
            is_map && !on_disk.contains_key(*name) && !is_left_out(name) && !is_zero(value)
        };
        let only: Vec<String> =
            running.iter().filter(is_only_there).map(|(name, _)| below(name)).collect();
        for (key, on_disk, running) in pairs {
            self.values(&key, on_disk, running);
        }
        self.found.extend(only);
    }

    fn values(&mut self, key: &str, on_disk: &Value, running: &Json) {
        if let (Value::Table(on_disk), Json::Object(running)) = (on_disk, running) {
            return self.tables(key, on_disk, running);
        }
        let on_disk = serde_json::to_value(on_disk).unwrap_or_default();
        if on_disk != *running && !(is_zero(&on_disk) && is_zero(running)) {
            self.found.push(key.to_owned());
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
