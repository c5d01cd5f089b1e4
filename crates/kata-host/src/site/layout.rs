//! Where each distribution keeps its container runtime's configuration, socket and program, and which socket its
//! kubelet uses: by arguments, variables of the unit, and configuration files.

use std::collections::BTreeMap;

use super::kind::{Distribution, Site};
use super::services::{Program, Service};
use crate::crio_folder;
use crate::host::{Host, HostResult};
use crate::paths;

/// Where k0s keeps what it makes anew at every start.
pub(crate) const K0S_RUN: &str = "/run/k0s/";

/// Where k3s and RKE2 write containerd's configuration, below their data directory.
pub(crate) const RANCHER_MAIN: &str = "/agent/etc/containerd/config.toml";

/// Where a service that is a container runtime keeps things.
pub(super) fn site(
    host: &mut dyn Host,
    service: &Service,
    distribution: Distribution,
) -> HostResult<Site> {
    let unit = Some(service.name.clone());
    let (command, variables) = service.command(host)?;
    let command = command.as_slice();
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
            let variable = format!("{}_DATA_DIR", name.to_uppercase());
            let data = match option(command, &["-d", "--data-dir"])
                .or_else(|| variables.get(&variable).map(String::as_str))
            {
                Some(data) => Some(data.to_owned()),
                None => configured(host, name, command, &variables, "data-dir")?,
            };
            let data = data.filter(|data| data.starts_with('/'));
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
            socket: format!(
                "{}/containerd.sock",
                option(command, &["--run-dir"]).unwrap_or("/run/k0s").trim_end_matches('/')
            ),
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
        Distribution::Crio => {
            // A flag wins over its variable, and both over a key.
            let given = |flags: &[&str], variable: &str| {
                let variable = variables.get(variable).map(String::as_str);
                option(command, flags).or(variable).map(str::to_owned)
            };
            let main = given(&["-c", "--config"], "CONTAINER_CONFIG");
            let main = main.unwrap_or_else(|| "/etc/crio/crio.conf".to_owned());
            let drop_ins = given(&["-d", "--config-dir"], "CONTAINER_CONFIG_DIR")
                .unwrap_or_else(|| paths::parent(paths::CRIO_DROP_IN).to_owned());
            let drop_ins = drop_ins.trim_end_matches('/').to_owned();
            let socket = match given(&["--listen"], "CONTAINER_LISTEN") {
                Some(socket) => Some(socket),
                None => crio_listen(host, &main, &drop_ins)?,
            };
            let socket = socket.as_deref().and_then(self::socket);
            Site {
                distribution,
                unit,
                socket: socket.unwrap_or_else(|| "/run/crio/crio.sock".to_owned()),
                main,
                editable: None,
                drop_ins,
                program: None,
            }
        }
    })
}

/// Where CRI-O's files say that it listens; the last one counts.
fn crio_listen(host: &mut dyn Host, main: &str, drop_ins: &str) -> HostResult<Option<String>> {
    let drop_ins = crio_folder::read(host, drop_ins)?.files.into_iter().map(|(path, _)| path);
    let mut listen = None;
    for path in std::iter::once(main.to_owned()).chain(drop_ins) {
        let text = host.read(&path)?.unwrap_or_default();
        listen = listen_key(&text).or(listen);
    }
    Ok(listen)
}

fn listen_key(text: &[u8]) -> Option<String> {
    let table: toml::Table = std::str::from_utf8(text).ok()?.parse().ok()?;
    table.get("crio")?.get("api")?.get("listen")?.as_str().map(str::to_owned)
}

/// Where containerd's main file says that it listens. A file that is no TOML is complained of elsewhere.
fn grpc_address(text: &[u8]) -> Option<String> {
    let table: toml::Table = std::str::from_utf8(text).ok()?.parse().ok()?;
    // Since its schema 4, the setting of a plugin.
    let plugin = || table.get("plugins")?.get("io.containerd.server.v1.grpc");
    let address = table.get("grpc").or_else(plugin)?.get("address")?.as_str()?;
    address.starts_with('/').then(|| address.to_owned())
}

/// The value that a configuration file of k3s or RKE2 has for an option; of several files the last one counts.
fn configured(
    host: &mut dyn Host,
    name: &str,
    command: &[String],
    variables: &BTreeMap<String, String>,
    key: &str,
) -> HostResult<Option<String>> {
    let variable = format!("{}_CONFIG_FILE", name.to_uppercase());
    let main = option(command, &["-c", "--config"])
        .or_else(|| variables.get(&variable).map(String::as_str));
    let main = main.map_or_else(|| format!("/etc/rancher/{name}/config.yaml"), str::to_owned);
    let folder = format!("{main}.d");
    let is_yaml = |name: &String| name.ends_with(".yaml") || name.ends_with(".yml");
    last_of_files(host, main, Some(&folder), is_yaml, key)
}

/// The value of a key at the top of YAML files: a file, and those of a folder, of which the last one counts.
fn last_of_files(
    host: &mut dyn Host,
    main: String,
    folder: Option<&str>,
    counts: impl Fn(&String) -> bool,
    key: &str,
) -> HostResult<Option<String>> {
    let mut files = vec![main];
    if let Some(folder) = folder {
        let names = host.list(folder)?.unwrap_or_default();
        files.extend(names.into_iter().filter(counts).map(|name| format!("{folder}/{name}")));
    }
    let mut found = None;
    for file in files {
        let text = host.read(&file)?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        found = text.lines().rev().find_map(|line| value(line, key)).or(found);
    }
    Ok(found)
}

/// The value of a line `KEY: VALUE` of a YAML file.
fn value(line: &str, key: &str) -> Option<String> {
    let value = line.strip_prefix(key)?.strip_prefix(':')?.split(" #").next()?.trim();
    let value = value.trim_matches(['"', '\'']);
    (!value.is_empty()).then(|| value.to_owned())
}

/// The socket of the container runtime that a kubelet uses, or a distribution with a kubelet, by its arguments and
/// configuration files; `None` if they do not name one, or if its path cannot be known.
pub(super) fn endpoint(host: &mut dyn Host, service: &Service) -> HostResult<Option<String>> {
    let (command, variables) = service.command(host)?;
    let argument = option(&command, &["--container-runtime-endpoint"]).map(str::to_owned);
    let url = match service.program {
        Program::Kubelet if argument.is_none() => kubelet_configuration(host, &command)?,
        Program::Kubelet => argument,
        Program::Runtime(distribution @ (Distribution::K3s | Distribution::Rke2)) => {
            let name = if distribution == Distribution::Rke2 { "rke2" } else { "k3s" };
            match argument {
                Some(url) => Some(url),
                None if command.iter().any(|word| word == "--docker") => {
                    Some("/run/k3s/cri-dockerd/cri-dockerd.sock".to_owned())
                }
                None => configured(host, name, &command, &variables, "container-runtime-endpoint")?,
            }
        }
        Program::Runtime(Distribution::K0s) => option(&command, &["--cri-socket"])
            .map(|socket| socket.trim_start_matches("remote:").to_owned()),
        Program::Runtime(_) => None,
    };
    Ok(url.as_deref().and_then(socket))
}

/// The endpoint in the kubelet's configuration file, or in the drop-ins of that file.
fn kubelet_configuration(host: &mut dyn Host, command: &[String]) -> HostResult<Option<String>> {
    let is_path = |path: &&str| path.starts_with('/');
    let Some(file) = option(command, &["--config"]).filter(is_path) else { return Ok(None) };
    let folder = option(command, &["--config-dir"]).filter(is_path);
    let is_config = |name: &String| name.ends_with(".conf");
    last_of_files(host, file.to_owned(), folder, is_config, "containerRuntimeEndpoint")
}

/// The path of a socket, of which a URL and a link of `/var/run` are other spellings.
fn socket(url: &str) -> Option<String> {
    let path = url.strip_prefix("unix:").unwrap_or(url);
    let path = path.strip_prefix("//").unwrap_or(path);
    let path = path
        .strip_prefix("/var/run/")
        .map_or_else(|| path.to_owned(), |rest| format!("/run/{rest}"));
    (path.starts_with('/') && !path.contains('$')).then_some(path)
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
