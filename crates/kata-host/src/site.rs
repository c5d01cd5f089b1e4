//! Which container runtime a node has, and where its configuration, socket and unit are.
//!
//! The units of systemd say which distribution it is; its version comes from CRI. Nothing is guessed
//! from version strings, which distributions change (k3s dropped its name from them).

use serde::{Deserialize, Serialize};

use crate::environment;
use crate::host::{Host, HostError, HostResult};
use crate::paths;

/// The kinds of container runtime that we know how to configure.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distribution {
    /// containerd as its own project or a Linux distribution ships it.
    Containerd,
    /// The containerd of k3s.
    K3s,
    /// The containerd of RKE2.
    Rke2,
    /// The containerd of k0s.
    K0s,
    /// The containerd of MicroK8s.
    Microk8s,
    /// CRI-O.
    Crio,
}

/// A container runtime on a node.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its kind.
    pub distribution: Distribution,
    /// The unit to restart; `None` if the runtime reads changes by itself.
    pub unit: Option<String>,
    /// Its CRI socket.
    pub socket: String,
    /// The configuration file that it is started with.
    pub main: String,
    /// The file to which an import may be added; `None` if the import must be there already.
    pub editable: Option<String>,
    /// The folder for a drop-in if the configuration imports none.
    pub drop_ins: String,
    /// The program that prints the merged configuration, if there is one.
    pub program: Option<String>,
}

impl Site {
    /// Whether a drop-in replaces the whole section of a plugin: containerd before 2.0 does that, and k0s
    /// merges drop-ins key by key before its containerd reads them.
    pub(crate) fn replaces_sections(&self, version: (u32, u32)) -> bool {
        version.0 < 2 && !matches!(self.distribution, Distribution::Crio | Distribution::K0s)
    }
}

/// Units in the order in which they are looked for: those of a distribution win over plain ones.
const UNITS: [(&str, Distribution); 9] = [
    ("rke2-agent.service", Distribution::Rke2),
    ("rke2-server.service", Distribution::Rke2),
    ("k3s-agent.service", Distribution::K3s),
    ("k3s.service", Distribution::K3s),
    ("k0sworker.service", Distribution::K0s),
    ("k0scontroller.service", Distribution::K0s),
    ("snap.microk8s.daemon-containerd.service", Distribution::Microk8s),
    ("containerd.service", Distribution::Containerd),
    ("crio.service", Distribution::Crio),
];

/// Why the container runtime cannot be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SiteError {
    /// systemd cannot be asked.
    #[error(transparent)]
    Systemd(HostError),
    /// A configuration file that says where things are cannot be read.
    #[error(transparent)]
    File(HostError),
}

/// Finds the container runtime. `hint` is the Node's `containerRuntimeVersion`, which decides between
/// containerd and CRI-O if both run.
///
/// # Errors
/// If systemd cannot be asked, or a file that counts cannot be read.
pub fn find(host: &mut dyn Host, hint: Option<&str>) -> Result<Option<Site>, SiteError> {
    let mut found = Vec::new();
    for (name, distribution) in UNITS {
        let skipped = match (distribution, hint) {
            (Distribution::Crio, Some(hint)) => !hint.starts_with("cri-o"),
            (_, Some(hint)) => hint.starts_with("cri-o"),
            (_, None) => false,
        };
        if skipped {
            continue;
        }
        let Some(unit) = host.unit(name).map_err(SiteError::Systemd)? else { continue };
        let command = environment::command(host, &unit).map_err(SiteError::File);
        let site = command
            .and_then(|command| site(host, name, distribution, &command).map_err(SiteError::File));
        // A plain one beside a distribution that is being started is another runtime. Whether the
        // distribution's serves already is what CRI tells.
        let plain = matches!(distribution, Distribution::Containerd | Distribution::Crio);
        if unit.active || (unit.changing && !plain) {
            return site.map(Some);
        }
        // What does not run may have left files that cannot be read.
        found.push(site);
    }
    // None is active. A single one that is there may be down because of its configuration.
    let mut found = found.into_iter();
    found.next().filter(|_| found.next().is_none()).transpose()
}

/// Where k0s keeps what it makes anew at every start.
pub(crate) const K0S_RUN: &str = "/run/k0s/";

/// Where k3s and RKE2 write containerd's configuration, below their data directory.
pub(crate) const RANCHER_MAIN: &str = "/agent/etc/containerd/config.toml";

fn site(
    host: &mut dyn Host,
    unit: &str,
    distribution: Distribution,
    command: &[String],
) -> HostResult<Site> {
    let unit = Some(unit.to_owned());
    let config = option(command, &["-c", "--config"]).map(str::to_owned);
    let program = command.first().cloned();
    Ok(match distribution {
        Distribution::Containerd => {
            let main = config.unwrap_or_else(|| "/etc/containerd/config.toml".to_owned());
            let socket = match option(command, &["-a", "--address"]) {
                Some(socket) => Some(socket.to_owned()),
                None => host.read(&main)?.and_then(|text| grpc_address(&text)),
            };
            Site {
                distribution,
                unit,
                socket: socket.unwrap_or_else(|| "/run/containerd/containerd.sock".to_owned()),
                editable: Some(main.clone()),
                drop_ins: format!("{}/conf.d", paths::parent(&main).trim_end_matches('/')),
                main,
                program: program.or_else(|| Some("/usr/bin/containerd".to_owned())),
            }
        }
        Distribution::K3s | Distribution::Rke2 => {
            // Each links to the folder of its version: k3s `data/current`, RKE2 the folder of programs.
            let (name, programs) = match distribution {
                Distribution::Rke2 => ("rke2", "bin"),
                _ => ("k3s", "data/current/bin"),
            };
            let data = match option(command, &["-d", "--data-dir"]) {
                Some(data) => Some(data.to_owned()),
                None => configured_data_dir(host, name)?,
            };
            let data = data.unwrap_or_else(|| format!("/var/lib/rancher/{name}"));
            let data = data.trim_end_matches('/');
            let main = format!("{data}{RANCHER_MAIN}");
            Site {
                distribution,
                unit,
                socket: "/run/k3s/containerd/containerd.sock".to_owned(),
                editable: None,
                drop_ins: format!("{main}.d"),
                main,
                program: Some(format!("{data}/{programs}/containerd")),
            }
        }
        Distribution::K0s => Site {
            distribution,
            // k0s watches the folder and restarts its containerd by itself.
            unit: None,
            socket: "/run/k0s/containerd.sock".to_owned(),
            main: "/etc/k0s/containerd.toml".to_owned(),
            editable: None,
            drop_ins: "/etc/k0s/containerd.d".to_owned(),
            program: None,
        },
        Distribution::Microk8s => {
            let folder = "/var/snap/microk8s/current/args";
            Site {
                distribution,
                unit,
                socket: "/var/snap/microk8s/common/run/containerd.sock".to_owned(),
                main: format!("{folder}/containerd.toml"),
                editable: Some(format!("{folder}/containerd-template.toml")),
                drop_ins: format!("{folder}/containerd.d"),
                program: None,
            }
        }
        Distribution::Crio => Site {
            distribution,
            unit,
            socket: "/run/crio/crio.sock".to_owned(),
            main: config.unwrap_or_else(|| "/etc/crio/crio.conf".to_owned()),
            editable: None,
            drop_ins: paths::parent(paths::CRIO_DROP_IN).to_owned(),
            program: None,
        },
    })
}

/// Where containerd's main file says that it listens. A file that is no TOML is complained of elsewhere.
fn grpc_address(text: &[u8]) -> Option<String> {
    let table: toml::Table = std::str::from_utf8(text).ok()?.parse().ok()?;
    // Since its schema 4, the setting of a plugin.
    let plugin = || table.get("plugins")?.get("io.containerd.server.v1.grpc");
    let address = table.get("grpc").or_else(plugin)?.get("address")?.as_str()?;
    address.starts_with('/').then(|| address.to_owned())
}

/// The data directory that the configuration files of k3s or RKE2 name; of several the last one counts.
fn configured_data_dir(host: &mut dyn Host, name: &str) -> HostResult<Option<String>> {
    let main = format!("/etc/rancher/{name}/config.yaml");
    let folder = format!("{main}.d");
    let mut files = vec![main];
    let names = host.list(&folder)?.unwrap_or_default();
    let yaml = |name: &String| name.ends_with(".yaml") || name.ends_with(".yml");
    files.extend(names.into_iter().filter(yaml).map(|name| format!("{folder}/{name}")));
    let mut found = None;
    for file in files {
        let text = host.read(&file)?.unwrap_or_default();
        found = String::from_utf8_lossy(&text).lines().rev().find_map(data_dir).or(found);
    }
    Ok(found)
}

/// The value of a line `data-dir: VALUE` of a YAML file.
fn data_dir(line: &str) -> Option<String> {
    let value =
        line.strip_prefix("data-dir:")?.split(" #").next()?.trim().trim_matches(['"', '\'']);
    value.starts_with('/').then(|| value.to_owned())
}

/// The value of an option in a command line, as `--name value` or `--name=value`.
fn option<'a>(command: &'a [String], names: &[&str]) -> Option<&'a str> {
    command.iter().enumerate().find_map(|(index, word)| {
        names.iter().find_map(|name| {
            if word == name {
                return command.get(index + 1).map(String::as_str);
            }
            word.strip_prefix(name)?.strip_prefix('=')
        })
    })
}
