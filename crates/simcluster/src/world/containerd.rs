//! The container runtime of a host, containerd 1.7 or 2: how it reads its configuration, and what CRI says of it.
//!
//! It is configured by files only, and reads them only when it starts.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use super::crio::Handler;
use super::{Host, NodeFault, Runtime};

/// The version that the kubelet reports.
pub const VERSION: &str = "2.1.4";
/// The version of the older one.
pub const OLD_VERSION: &str = "1.7.28";
/// The main configuration file.
pub const MAIN: &str = "/etc/containerd/config.toml";
/// The socket.
pub const SOCKET: &str = "/run/containerd/containerd.sock";
/// The unit.
pub const UNIT: &str = "containerd.service";
/// What the main file of a fresh host says.
pub const FRESH: &str = "version = 3\nroot = \"/var/lib/containerd\"\nstate = \"/run/containerd\"\n\n\
    [plugins.\"io.containerd.cri.v1.images\"]\n  snapshotter = \"overlayfs\"\n";

/// The version of the containerd of k3s.
pub const K3S_VERSION: &str = "2.1.4-k3s1";
/// The unit of k3s on a node that is not of the control plane.
pub const K3S_UNIT: &str = "k3s-agent.service";
/// The main configuration file that k3s writes.
pub const K3S_MAIN: &str = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml";
/// What that file begins with.
pub const K3S_IMPORTS: &str =
    "imports = [\"/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/*.toml\"]\n";

/// What the main file of a fresh host with the older one says.
pub const OLD: &str = "version = 2\nroot = \"/var/lib/containerd\"\n\n\
    [plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"registry.k8s.io/pause:3.10\"\n\
    [plugins.\"io.containerd.grpc.v1.cri\".containerd]\n  snapshotter = \"overlayfs\"\n";

/// The plugin with the handlers.
pub(super) const PLUGIN: &str = "io.containerd.cri.v1.runtime";
/// Its name in files of version 2.
pub(super) const OLD_PLUGIN: &str = "io.containerd.grpc.v1.cri";

/// What containerd adds by itself.
const DEFAULTS: &str = "runtime_type = \"io.containerd.runc.v2\"\n[options]\n\
    BinaryName = \"\"\nCriuImagePath = \"\"\nCriuPath = \"\"\nCriuWorkPath = \"\"\nIoGid = 0\n\
    IoUid = 0\nNoNewKeyring = false\nNoPivotRoot = false\nRoot = \"\"\nShimCgroup = \"\"\n\
    SystemdCgroup = false\n";

/// How a process of containerd stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct State {
    /// The merged configuration that it started with, as TOML.
    pub config: String,
    /// Why its CRI plugin does not serve, although the process runs.
    pub dead: Option<String>,
    /// Whether the process ended at once.
    pub down: bool,
    /// How often it was started.
    #[serde(default)]
    pub starts: u32,
    /// When it was last started, by the clock of the host's disk; 0 if that is not known.
    #[serde(default)]
    pub started: i64,
}

/// Reads the files as a start does.
///
/// # Errors
/// What keeps the process from starting.
pub fn load(host: &Host, main: &str) -> Result<Table, String> {
    let text = host.files.get(main).map(String::as_str).unwrap_or_default();
    load_text(host, text).map_err(|reason| format!("{main}: {reason}"))
}

/// The same with the text of a main file.
///
/// # Errors
/// What keeps the process from starting.
pub fn load_text(host: &Host, main: &str) -> Result<Table, String> {
    let old = host.runtime() == Runtime::Containerd1;
    let text = |path: &str| host.files.get(path).map(String::as_str).unwrap_or_default();
    let parse = |path: &str| -> Result<Table, String> {
        text(path).parse::<Table>().map_err(|error| format!("{path}: {}", error.message()))
    };
    let mut merged =
        main.parse::<Table>().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let version = merged.get("version").and_then(Value::as_integer);
    let imports = merged.get("imports").and_then(Value::as_array).cloned().unwrap_or_default();
    for import in imports.iter().filter_map(Value::as_str) {
        let files: Vec<String> = match import.strip_suffix("/*.toml") {
            None if host.files.contains_key(import) => vec![import.to_owned()],
            None => return Err(format!("open {import}: no such file or directory")),
            Some(folder) => host
                .files_under(&format!("{folder}/"))
                .map(|(path, _)| path.to_owned())
                .filter(|path| {
                    let name = path.rsplit('/').next().unwrap_or_default();
                    path.ends_with(".toml")
                        && !name.starts_with('.')
                        && path.len() == folder.len() + 1 + name.len()
                })
                .collect(),
        };
        for file in files {
            let mut drop_in = parse(&file)?;
            if let Some(Value::Table(plugins)) = drop_in.get_mut("plugins") {
                // A drop-in of another schema is silently not there.
                let other = if version == Some(3) { OLD_PLUGIN } else { PLUGIN };
                plugins.retain(|name, _| name != other);
                if old && let Some(Value::Table(before)) = merged.get_mut("plugins") {
                    // It replaces a plugin's whole section.
                    before.retain(|name, _| !plugins.contains_key(name));
                }
            }
            merge(&mut merged, drop_in);
        }
    }
    merged.remove("imports");
    let id = if version == Some(2) { OLD_PLUGIN } else { PLUGIN };
    let runc: Table =
        DEFAULTS.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let configured = runtimes_of(&merged, id).cloned();
    let mut runtimes = Table::new();
    if !old || configured.is_none() {
        // The older one has it only if there is no table of runtimes.
        runtimes.insert("runc".to_owned(), Value::Table(runc));
        if old {
            set_sandbox_mode(&mut runtimes, "podsandbox");
        }
    }
    merge(&mut runtimes, configured.unwrap_or_default());
    if old {
        set_sandbox_mode(&mut runtimes, "");
    }
    let nest = |name: &str, table| Table::from_iter([(name.to_owned(), Value::Table(table))]);
    let defaults = nest("plugins", nest(id, nest("containerd", nest("runtimes", runtimes))));
    merge(&mut merged, defaults);
    merged.entry("version").or_insert(Value::from(3));
    Ok(merged)
}

/// Sets the mode of sandboxes, which the older one has of each runtime, where none is set.
fn set_sandbox_mode(runtimes: &mut Table, mode: &str) {
    for runtime in runtimes.iter_mut().filter_map(|(_, runtime)| runtime.as_table_mut()) {
        runtime.entry("sandbox_mode").or_insert(Value::from(mode));
    }
}

fn runtimes_of<'a>(table: &'a Table, id: &str) -> Option<&'a Table> {
    ["plugins", id, "containerd", "runtimes"]
        .iter()
        .try_fold(table, |table, key| table.get(*key)?.as_table())
}

/// The handlers of a merged configuration: name and table.
fn configured(table: &Table) -> impl Iterator<Item = (&String, &Value)> {
    [PLUGIN, OLD_PLUGIN].into_iter().filter_map(|id| runtimes_of(table, id)).flatten()
}

fn merge(target: &mut Table, from: Table) {
    for (key, value) in from {
        match (target.get_mut(&key), value) {
            (Some(Value::Table(target)), Value::Table(from)) => merge(target, from),
            (_, value) => {
                target.insert(key, value);
            }
        }
    }
}

/// Starts the process: with the files as they are, and the faults as they are.
pub fn start(host: &mut Host) {
    let main = if host.runtime() == Runtime::K3s { K3S_MAIN } else { MAIN };
    let loaded = load(host, main);
    let starts = host.containerd.starts.saturating_add(1);
    let mut state = State { starts, started: host.disk.tick(), ..State::default() };
    host.handlers.clear();
    match loaded {
        Err(reason) => {
            state.down = true;
            state.dead = Some(reason);
        }
        Ok(table) => {
            let handlers = handlers(&table);
            let ours = handlers.values().any(Handler::is_vm);
            state.config = toml::to_string(&table).unwrap_or_default();
            let disabled = table.get("disabled_plugins").and_then(Value::as_array);
            let mut disabled = disabled.into_iter().flatten().filter_map(Value::as_str);
            if disabled.any(|plugin| [PLUGIN, OLD_PLUGIN].contains(&plugin)) {
                state.dead = Some("simulated: the plugin of CRI is disabled".to_owned());
            } else if ours && host.faults.contains(&NodeFault::RuntimeFails) {
                state.dead = Some(
                    "invalid plugin config: simulated: no snapshotter for the runtime".to_owned(),
                );
            } else if host.faults.contains(&NodeFault::HandlerMissing) {
                let plain = handlers.into_iter().filter(|(_, handler)| !handler.is_vm());
                host.handlers = plain.collect();
            } else {
                host.handlers = handlers;
            }
        }
    }
    host.containerd = state;
}

fn handlers(table: &Table) -> BTreeMap<String, Handler> {
    configured(table)
        .map(|(name, runtime)| {
            let text = |key: &str| runtime.get(key).and_then(Value::as_str).unwrap_or_default();
            let is_vm = text("runtime_type").contains("kata");
            let path = match text("runtime_path") {
                "" => "/usr/bin/containerd-shim-runc-v2",
                path => path,
            };
            let runtime_type = if is_vm { "vm" } else { "oci" };
            let handler =
                Handler { runtime_path: path.to_owned(), runtime_type: runtime_type.to_owned() };
            (name.clone(), handler)
        })
        .collect()
}

/// The names of the handlers that CRI's `Status` lists; the older one lists none.
pub fn listed(host: &Host) -> BTreeSet<String> {
    if host.runtime() == Runtime::Containerd1 {
        return BTreeSet::new();
    }
    host.handlers.keys().cloned().chain([String::new()]).collect()
}

/// `info["config"]` of CRI's `Status`, which the simulated CRI-O does not report.
pub fn verbose(host: &Host) -> Option<String> {
    if host.runtime() == Runtime::Crio {
        return None;
    }
    let table: Table = host.containerd.config.parse().ok()?;
    let runtimes: serde_json::Map<String, serde_json::Value> = configured(&table)
        .filter(|(name, _)| host.handlers.contains_key(*name))
        .map(|(name, runtime)| {
            let text = |key: &str| runtime.get(key).and_then(Value::as_str).unwrap_or_default();
            let options = runtime.get("options").and_then(Value::as_table);
            let path = options.and_then(|it| it.get("ConfigPath")).and_then(Value::as_str);
            let entry = serde_json::json!({
                "runtimeType": text("runtime_type"),
                "runtimePath": text("runtime_path"),
                "options": {"ConfigPath": path},
            });
            (name.clone(), entry)
        })
        .collect();
    Some(
        serde_json::json!({"containerd": {"defaultRuntimeName": "runc", "runtimes": runtimes}})
            .to_string(),
    )
}
