//! A container runtime that reads its configuration as containerd 1.x, containerd 2.x and CRI-O do,
//! with the traps that were found in the real ones.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use kata_host::host::{CriStatus, CriVersion, Sandbox};
use toml::{Table, Value};

use crate::disk::Disk;

mod defaults;
pub(crate) mod tables;

pub use defaults::built_in_runc;
use defaults::empty_runtime;
pub(crate) use tables::PLUGINS;
use tables::{at, enter, forget_old_sections, merge, migrate, migrate_from_1, rename_section};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Containerd(u32, u32),
    Crio,
}

/// What a container runtime makes of its files that is not in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twist {
    /// Our handler is not there.
    IgnoresOurs,
    /// Our handler has another configuration.
    OtherConfiguration,
    /// Our handler has another shim.
    OtherShim,
    /// As soon as our handler is there, the default one is not.
    LosesDefault,
    /// As soon as our handler is there, the default one has another shim.
    ChangesDefault,
    /// Our handler is there, also if no file names it.
    KeepsOurs,
}

/// The handler that a [`Twist`] is about.
const OURS: &str = "kata";
/// The handlers that the runtimes have by themselves.
const DEFAULTS: [&str; 2] = ["runc", "crun"];

impl Twist {
    pub(crate) fn apply(self, table: &mut Table) {
        let Some(runtimes) = runtimes(table) else { return };
        if self == Self::KeepsOurs {
            let kept = Table::from_iter([("runtime_type".to_owned(), Value::from("kept"))]);
            runtimes.entry(OURS).or_insert(Value::Table(kept));
            return;
        }
        let Some(Value::Table(ours)) = runtimes.get_mut(OURS) else { return };
        match self {
            Self::KeepsOurs => {}
            Self::IgnoresOurs => {
                runtimes.remove(OURS);
            }
            Self::OtherConfiguration => {
                if let Some(path) = ours.get_mut("runtime_config_path") {
                    *path = Value::from("/etc/other.toml");
                }
                if let Some(Value::Table(options)) = ours.get_mut("options") {
                    options.insert("ConfigPath".to_owned(), Value::from("/etc/other.toml"));
                }
            }
            Self::OtherShim => {
                ours.insert("runtime_path".to_owned(), Value::from("/usr/bin/other"));
                ours.insert("runtime_type".to_owned(), Value::from("io.containerd.other.v2"));
            }
            Self::LosesDefault => runtimes.retain(|name, _| !DEFAULTS.contains(&name)),
            Self::ChangesDefault => {
                for (name, runtime) in runtimes.iter_mut() {
                    if DEFAULTS.contains(&name.as_str())
                        && let Value::Table(runtime) = runtime
                    {
                        runtime.insert("runtime_type".to_owned(), Value::from("other"));
                    }
                }
            }
        }
    }
}

/// The handlers in a configuration, where ours are if they are there.
fn runtimes(table: &mut Table) -> Option<&mut Table> {
    let places = PLUGINS.map(|id| ["plugins", id, "containerd", "runtimes"].to_vec());
    let places = places.into_iter().chain([vec!["crio", "runtime", "runtimes"]]);
    let found: Vec<_> = places.filter(|place| at(table, place).is_some()).collect();
    let with_ours = |place: &&Vec<&str>| at(table, place).is_some_and(|it| it.contains_key(OURS));
    let place = found.iter().find(with_ours).or_else(|| found.first())?.clone();
    place.into_iter().try_fold(table, |table, name| table.get_mut(name)?.as_table_mut())
}

/// What prints the merged configuration of a file on a disk.
type Print = dyn Fn(&Disk, &str) -> Result<String, String> + Send + Sync;

/// A program that prints merged configurations in the place of the model.
#[derive(Clone)]
pub struct Printer(Arc<Print>);

impl Printer {
    pub fn new(
        print: impl Fn(&Disk, &str) -> Result<String, String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(print))
    }

    /// What it prints.
    pub fn print(&self, disk: &Disk, config: &str) -> Result<String, String> {
        (self.0)(disk, config)
    }
}

impl fmt::Debug for Printer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Printer")
    }
}

/// A container runtime.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub kind: Kind,
    pub main: String,
    pub unit: String,
    /// Where it listens, if nowhere else is to do.
    pub socket: Option<String>,
    /// Words of the unit's command.
    pub command: Vec<String>,
    /// The unit's variables, and the files with more of them.
    pub environment: Vec<String>,
    pub environment_files: Vec<String>,
    /// The version that it says it has, if it is another one than that of its kind.
    pub version: Option<String>,
    /// The folder of CRI-O's drop-ins.
    pub folder: String,
    /// The main file is rendered from this one at every start.
    pub template: Option<String>,
    /// It always reads drop-ins from this folder, key by key, also without an import.
    pub watches: Option<String>,
    /// At every start it writes what it makes of that folder into this file, which the main file imports.
    pub renders: Option<String>,
    /// The configuration that the process runs with; `None` while it is down.
    pub running: Option<Result<Table, String>>,
    /// When that was, by the clock of the disk.
    pub started: i64,
    pub restarts: u32,
    pub sandboxes: Vec<Sandbox>,
    /// A fault: the runtime never becomes ready while our handler is configured.
    pub chokes_on: Option<String>,
    /// What the program that prints CRI-O's configuration says instead of that.
    pub complains: Option<String>,
    /// A fault: the runtime does not start any more, with any configuration.
    pub broken: bool,
    /// The real program that prints its configuration, if there is one.
    pub printer: Option<Printer>,
    /// A fault: what it prints of its files is not what is in them.
    pub prints: Option<Twist>,
    /// A fault: what it runs with after a start is not what is in its files.
    pub takes_in: Option<Twist>,
    /// A fault: a start costs the sandbox of this id its life.
    pub kills: Option<String>,
    /// A fault: it says by itself, in these words, that it is not ready.
    pub unready: Option<String>,
    /// The snapshotter that it says it uses, before 2.0.
    pub snapshotter: Option<String>,
}

impl Runtime {
    pub fn new(kind: Kind) -> Self {
        let main = match kind {
            Kind::Containerd(..) => "/etc/containerd/config.toml",
            Kind::Crio => "/etc/crio/crio.conf",
        };
        Self {
            kind,
            main: main.to_owned(),
            unit: match kind {
                Kind::Containerd(..) => "containerd.service".to_owned(),
                Kind::Crio => "crio.service".to_owned(),
            },
            socket: None,
            command: vec![match kind {
                Kind::Containerd(..) => "/usr/bin/containerd".to_owned(),
                Kind::Crio => "/usr/bin/crio".to_owned(),
            }],
            environment: Vec::new(),
            environment_files: Vec::new(),
            version: None,
            folder: "/etc/crio/crio.conf.d".to_owned(),
            template: None,
            watches: None,
            renders: None,
            running: None,
            started: 0,
            restarts: 0,
            sandboxes: Vec::new(),
            chokes_on: None,
            complains: None,
            broken: false,
            printer: None,
            prints: None,
            takes_in: None,
            kills: None,
            unready: None,
            snapshotter: Some("overlayfs".to_owned()),
        }
    }

    /// The program that prints the configuration, where the distributions have it.
    pub(crate) fn program(&self) -> String {
        let data = self.main.split("/agent/").next().unwrap_or_default();
        match self.unit.split(['-', '.']).next() {
            Some("k3s") => format!("{data}/data/current/bin/containerd"),
            Some("rke2") => format!("{data}/bin/containerd"),
            _ => "/usr/bin/containerd".to_owned(),
        }
    }

    /// Reads the files as a start does. An error keeps the process from starting.
    pub fn load(&self, disk: &Disk, main: &str) -> Result<Table, String> {
        let text =
            |path: &str| disk.read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if self.kind == Kind::Crio {
            return self.load_crio(disk, main);
        }
        let migrates_files = matches!(self.kind, Kind::Containerd(2, 3..));
        let mut merged = Table::new();
        let mut read = BTreeSet::new();
        let mut pending = VecDeque::from([main.to_owned()]);
        while let Some(path) = pending.pop_front() {
            if !read.insert(path.clone()) {
                continue;
            }
            let found = text(&path);
            if found.is_none() && path != main {
                return Err(format!("open {path}: no such file"));
            }
            let mut file = parse(&found.unwrap_or_default())?;
            for import in file.get("imports").and_then(Value::as_array).into_iter().flatten() {
                pending.extend(expand(disk, &path, import.as_str().unwrap_or_default()));
            }
            if matches!(self.kind, Kind::Containerd(2.., _)) {
                migrate_from_1(&mut file);
            }
            // Since 2.3 every file by itself, and before all of them together.
            if migrates_files {
                migrate(&mut file);
            }
            self.import(&mut merged, file);
        }
        let newest = match self.kind {
            // 1.6 takes any.
            Kind::Containerd(1, 7) => 2,
            Kind::Containerd(2, 0..3) => 3,
            _ => 4,
        };
        if merged.get("version").and_then(Value::as_integer).is_some_and(|it| it > newest) {
            return Err("expected another config version".to_owned());
        }
        let is_named_as_1 = |table: &Table| table.keys().any(|name| !name.contains('.'));
        if matches!(self.kind, Kind::Containerd(1, _))
            && merged.get("version").and_then(Value::as_integer) >= Some(2)
            && merged.get("plugins").and_then(Value::as_table).is_some_and(is_named_as_1)
        {
            return Err("invalid plugin key URI".to_owned());
        }
        if let Some(folder) = &self.watches {
            merge(&mut merged, watched(disk, folder)?);
        }
        merged.remove("imports");
        Ok(self.with_defaults(merged))
    }

    /// As CRI-O does: every file below its folder, and a default handler that must be there.
    fn load_crio(&self, disk: &Disk, main: &str) -> Result<Table, String> {
        let text =
            |path: &str| disk.read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let mut merged = parse("[crio.runtime.runtimes.crun]\n")?;
        merge(&mut merged, parse(&text(main).unwrap_or_default())?);
        let prefix = format!("{}/", self.folder);
        for path in disk.all().into_keys().filter(|path| path.starts_with(&prefix)) {
            if disk.list(&path).is_none() {
                let text = text(&path).ok_or_else(|| format!("open {path}: no such file"))?;
                merge(&mut merged, parse(&text)?);
            }
        }
        let default =
            at(&merged, &["crio", "runtime"]).and_then(|it| it.get("default_runtime")?.as_str());
        match default {
            Some(name) if !handlers(&merged).contains(name) => Err(format!(
                "default_runtime set to \"{name}\", but no runtime entry table was found"
            )),
            _ => Ok(merged),
        }
    }

    /// CRI-O's process takes its files in without a restart: it lists what is in them.
    pub fn reload(&mut self, disk: &Disk) {
        self.running = Some(self.load(disk, &self.main));
    }

    fn import(&self, merged: &mut Table, file: Table) {
        let Kind::Containerd(major, _) = self.kind else { return };
        if major >= 2 {
            merge(merged, file);
            return;
        }
        // Before 2.0 a plugin's section replaces the one before it.
        for (key, value) in file {
            match (key.as_str(), value) {
                ("plugins", Value::Table(sections)) => {
                    let plugins = merged
                        .entry("plugins")
                        .or_insert_with(|| Value::Table(Table::new()))
                        .as_table_mut();
                    if let Some(plugins) = plugins {
                        plugins.extend(sections);
                    }
                }
                (_, value) => {
                    merged.insert(key, value);
                }
            }
        }
    }

    /// The configuration with what the container runtime adds by itself.
    ///
    /// The runtime of its own is there unless 1.x has a table of runtimes, and always in 2.x. Of each runtime
    /// all keys are there that the version knows, and no others.
    fn with_defaults(&self, mut table: Table) -> Table {
        let Kind::Containerd(major, minor) = self.kind else { return table };
        let id = if major >= 2 { PLUGINS[0] } else { PLUGINS[1] };
        if major < 2 {
            rename_section(&mut table);
        } else if minor >= 3 || table.get("version").and_then(Value::as_integer) == Some(2) {
            migrate(&mut table);
        } else {
            forget_old_sections(&mut table);
        }
        let given = at(&table, &["plugins", id, "containerd", "runtimes"]).cloned();
        let mut runtimes = Table::new();
        if major >= 2 || given.is_none() {
            runtimes.insert("runc".to_owned(), Value::Table(built_in_runc(major, minor)));
        }
        for (name, runtime) in given.into_iter().flatten() {
            let mut whole = match runtimes.remove(&name) {
                Some(Value::Table(built_in)) => built_in,
                Some(_) | None => empty_runtime(major, minor),
            };
            let Value::Table(mut runtime) = runtime else { continue };
            runtime.retain(|key, _| whole.contains_key(key));
            merge(&mut whole, runtime);
            runtimes.insert(name, Value::Table(whole));
        }
        if let Some(containerd) = enter(&mut table, &["plugins", id, "containerd"]) {
            containerd.insert("runtimes".to_owned(), Value::Table(runtimes));
            containerd.entry("default_runtime_name").or_insert(Value::from("runc"));
        }
        // Older schemas are carried over.
        let version = table.get("version").and_then(Value::as_integer).unwrap_or_default();
        table
            .insert("version".to_owned(), Value::from(version.max(if major >= 2 { 3 } else { 2 })));
        table
    }

    /// Writes what the watched folder adds to the defaults.
    fn render(&self, disk: &mut Disk) {
        let (Some(folder), Some(rendered)) = (&self.watches, &self.renders) else { return };
        let mut table = self.with_defaults(Table::new());
        if let Ok(drop_ins) = watched(disk, folder) {
            merge(&mut table, drop_ins);
            disk.write(rendered, table.to_string().as_bytes(), 0o644).unwrap();
        }
    }

    pub fn start(&mut self, disk: &mut Disk) {
        self.render(disk);
        if let Some(template) = &self.template {
            let text = disk.read(template).unwrap();
            disk.write(&self.main, &text, 0o644).unwrap();
        }
        let main = self.main.clone();
        self.restarts += 1;
        self.started = disk.tick();
        for sandbox in &mut self.sandboxes {
            sandbox.ready &= self.kills.as_ref() != Some(&sandbox.id);
        }
        self.running = match self.load(disk, &main) {
            Err(_) => None,
            Ok(_) if self.broken => None,
            Ok(mut table) => {
                let handlers = handlers(&table);
                let default = default_runtime(&table);
                let disabled = table.get("disabled_plugins").and_then(Value::as_array);
                let is_cri =
                    |plugin: &Value| plugin.as_str().is_some_and(|name| PLUGINS.contains(&name));
                let dead = disabled.is_some_and(|plugins| plugins.iter().any(is_cri))
                    || default.is_some_and(|name| !handlers.contains(name))
                    || self.chokes_on.as_ref().is_some_and(|name| handlers.contains(name));
                if let Some(twist) = self.takes_in {
                    twist.apply(&mut table);
                }
                Some(if dead { Err("invalid plugin config".to_owned()) } else { Ok(table) })
            }
        };
    }

    pub fn version(&self) -> CriVersion {
        let (name, version) = match self.kind {
            Kind::Containerd(major, minor) => ("containerd", format!("v{major}.{minor}.9")),
            Kind::Crio => ("cri-o", "1.34.1".to_owned()),
        };
        CriVersion { name: name.to_owned(), version: self.version.clone().unwrap_or(version) }
    }

    pub fn status(&self, table: &Table) -> CriStatus {
        let names = handlers(table);
        let places = PLUGINS.map(|id| at(table, &["plugins", id]));
        let section = places.into_iter().flatten().find(|it| it.contains_key("containerd"));
        let mut config = section.map_or_else(|| serde_json::json!({"containerd": {}}), reported);
        // Since 2.0 it is a setting of another plugin.
        if matches!(self.kind, Kind::Containerd(1, _))
            && config["containerd"]["snapshotter"].is_null()
        {
            config["containerd"]["snapshotter"] = serde_json::json!(self.snapshotter);
        }
        let config = config.to_string();
        match self.kind {
            Kind::Containerd(major, _) => CriStatus {
                runtime_ready: self.unready.is_none(),
                message: self.unready.clone().unwrap_or_default(),
                handlers: if major >= 2 {
                    names.into_iter().chain([String::new()]).collect()
                } else {
                    Vec::new()
                },
                config: Some(config),
            },
            Kind::Crio => CriStatus {
                runtime_ready: true,
                message: String::new(),
                handlers: names.into_iter().collect(),
                config: if self.version().version.starts_with("1.32.") {
                    Some("{\"sandboxImage\": \"\"}".to_owned())
                } else {
                    at(table, &["crio", "runtime", "runtimes"]).map(reported_by_crio)
                },
            },
        }
    }
}

fn parse(text: &str) -> Result<Table, String> {
    text.parse::<Table>().map_err(|error| error.message().to_owned())
}

/// A section as CRI reports it: its keys are spelled otherwise, but for those that are data.
fn reported(section: &Table) -> serde_json::Value {
    let mut all = serde_json::Map::new();
    for (name, value) in section {
        let is_map = ["runtimes", "options"].contains(&name.as_str());
        let value = match value {
            Value::Table(table) if name == "options" => serde_json::json!(table),
            Value::Table(table) if is_map => table
                .iter()
                .map(|(name, value)| {
                    (name.clone(), value.as_table().map_or_else(Default::default, reported))
                })
                .collect::<serde_json::Map<_, _>>()
                .into(),
            Value::Table(table) => reported(table),
            value => serde_json::json!(value),
        };
        let mut words = name.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        let name = words.fold(first, |name, word| {
            let (letter, rest) = word.split_at(word.len().min(1));
            name + &letter.to_uppercase() + rest
        });
        all.insert(name, value);
    }
    all.into()
}

/// The runtimes as CRI-O reports them, whose keys Go spells.
fn reported_by_crio(runtimes: &Table) -> String {
    let of = |runtime: &Value| {
        let text = |key: &str| runtime.get(key).and_then(Value::as_str).unwrap_or_default();
        serde_json::json!({
            "RuntimeType": text("runtime_type"),
            "RuntimePath": text("runtime_path"),
            "RuntimeConfigPath": text("runtime_config_path"),
        })
    };
    let all = runtimes.iter().map(|(name, runtime)| (name.clone(), of(runtime)));
    let all = all.collect::<serde_json::Map<_, _>>();
    serde_json::json!({"sandboxImage": "example.invalid/pause:1", "crio": {"Runtimes": all}})
        .to_string()
}

/// All drop-ins of a folder, key by key.
fn watched(disk: &Disk, folder: &str) -> Result<Table, String> {
    let mut merged = Table::new();
    for name in disk.list(folder).unwrap_or_default() {
        let bytes = disk.read(&format!("{folder}/{name}")).unwrap_or_default();
        merge(&mut merged, parse(&String::from_utf8_lossy(&bytes))?);
    }
    Ok(merged)
}

/// The files that an import stands for.
fn expand(disk: &Disk, parent: &str, import: &str) -> Vec<String> {
    let import = match (import.starts_with('/'), parent.rsplit_once('/')) {
        (false, Some((folder, _))) => format!("{folder}/{}", import.trim_start_matches("./")),
        _ => import.to_owned(),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in import.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    let import = format!("/{}", parts.join("/"));
    if !import.contains('*') {
        return vec![import];
    }
    let pattern = glob::Pattern::new(&import).unwrap();
    let separated =
        glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
    let found = disk.all().into_keys().filter(|path| pattern.matches_with(path, separated));
    found.filter(|path| disk.read(path).is_some()).collect()
}

/// The runtime for pods that name none, which must be there.
fn default_runtime(table: &Table) -> Option<&str> {
    PLUGINS.iter().find_map(|id| {
        at(table, &["plugins", id, "containerd"])?.get("default_runtime_name")?.as_str()
    })
}

pub fn handlers(table: &Table) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for id in PLUGINS {
        names.extend(
            at(table, &["plugins", id, "containerd", "runtimes"])
                .into_iter()
                .flatten()
                .map(|(name, _)| name.clone()),
        );
    }
    names.extend(
        at(table, &["crio", "runtime", "runtimes"])
            .into_iter()
            .flatten()
            .map(|(name, _)| name.clone()),
    );
    names
}
