//! What a handler needs beside the payload: the configuration of its shim with the paths of this node.
//!
//! Upstream's configurations name files below `/opt/kata`. A release names those of one payload version,
//! so that a running sandbox keeps its own files when another version becomes current.

use std::collections::BTreeMap;

use toml_edit::{DocumentMut, value};

use kata_api::node_task::{NodeTask, TaskHandler};

use crate::digest::hex;
use crate::paths;
use crate::payload::{Payload, TREE};
use crate::plan::{Content, Handler};
use crate::settings::{Settings, UnknownSetting};
use crate::site::Distribution;

/// Where upstream's files are, as its configurations say.
const UPSTREAM: &str = "/opt/kata/";
/// Counted up when the same inputs give other files.
const RENDERING: u32 = 2;
/// The kubelet's folder where it is not `/var/lib/kubelet`: k0s, and `args/kubelet` of MicroK8s.
const K0S_KUBELET: &str = "/var/lib/k0s/kubelet";
const MICROK8S_KUBELET: &str = "/var/snap/microk8s/common/var/lib/kubelet";

/// A release: its name, its files, and what the container runtime's configuration must say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Release {
    /// Its name, which follows from its content.
    pub(crate) name: String,
    /// Its files and links by relative path.
    pub(crate) content: BTreeMap<String, Content>,
    /// The handlers.
    pub(crate) handlers: BTreeMap<String, Handler>,
    /// The handlers of the task that it leaves out: the payload's image does not have their shims.
    pub(crate) left_out: Vec<TaskHandler>,
    /// The settings that the payload's configurations do not have, with their handlers.
    pub(crate) unknown_settings: Vec<(String, UnknownSetting)>,
}

impl Release {
    /// Its folder.
    pub(crate) fn folder(&self) -> String {
        format!("{}/{}", paths::RELEASES, self.name)
    }
}

/// Why there is no release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseError {
    /// The payload does not have this shim.
    Shim(String),
    /// The configuration of this shim cannot be understood, and why.
    Configuration(String, String),
    /// The settings of this handler do not fit the configuration of its shim, and why.
    Settings(String, String),
}

/// The release that a task asks for. `configurations` has upstream's text by shim, `installed` the handlers that
/// the node has from us. One of those is never left out: its pods would be lost.
pub(crate) fn release(
    task: &NodeTask,
    payload: &Payload,
    configurations: &BTreeMap<String, String>,
    distribution: Option<Distribution>,
    installed: &BTreeMap<String, Handler>,
) -> Result<Release, ReleaseError> {
    let kubelet = match distribution {
        Some(Distribution::K0s) => Some(K0S_KUBELET),
        Some(Distribution::Microk8s) => Some(MICROK8S_KUBELET),
        _ => None,
    };
    let has =
        |shim: &String| payload.manifest.shim(shim).is_some() && configurations.contains_key(shim);
    let (present, absent): (Vec<_>, Vec<_>) =
        task.handlers.iter().cloned().partition(|handler| has(&handler.shim));
    // A shim that was not asked for may be in the image and not have been unpacked.
    let is_needed = |handler: &&TaskHandler| {
        present.is_empty()
            || installed.contains_key(&handler.name)
            || !payload.stage.shims.contains(&handler.shim)
    };
    if let Some(handler) = absent.iter().find(is_needed) {
        return Err(ReleaseError::Shim(handler.shim.clone()));
    }
    let version = format!("{}/{}/{TREE}/", paths::VERSIONS, payload.id());
    let level = task.log_level.as_deref().unwrap_or_default();
    let identity = format!(
        "{RENDERING} {} {level} {} {}",
        payload.stage.digest,
        kubelet.unwrap_or_default(),
        identity_of(&present)
    );
    let name: String = hex(identity.as_bytes()).chars().take(12).collect();
    let folder = format!("{}/{name}", paths::RELEASES);
    let mut content = BTreeMap::from([(
        "payload".to_owned(),
        Content::Link { target: format!("../../versions/{}/{TREE}", payload.id()) },
    )]);
    let mut handlers = BTreeMap::new();
    let mut unknown_settings = Vec::new();
    for TaskHandler { name, shim, config } in &present {
        let (Some(found), Some(text)) = (payload.manifest.shim(shim), configurations.get(shim))
        else {
            return Err(ReleaseError::Shim(shim.clone()));
        };
        // Not through `current`: a running sandbox keeps to its own version.
        let wrapper = format!("{folder}/etc/{name}/qemu");
        let firmware = |program: &str| firmware(payload, program);
        let wanted = Wanted {
            version: &version,
            log_level: task.log_level.as_deref(),
            kubelet,
            wrapper: &wrapper,
            firmware: &firmware,
        };
        let misfit = |reason| ReleaseError::Settings(name.clone(), reason);
        let settings = config.as_deref().map(Settings::parse).transpose().map_err(misfit)?;
        let broken = |reason| ReleaseError::Configuration(shim.clone(), reason);
        let text = match &settings {
            None => text.clone(),
            Some(settings) => {
                let mut document = parse(text).map_err(broken)?;
                let file = format!("configuration-{shim}.toml");
                let unknown = settings.merge(&mut document, &file).map_err(misfit)?;
                unknown_settings.extend(unknown.into_iter().map(|key| (name.clone(), key)));
                check_files(settings, payload).map_err(misfit)?;
                document.to_string()
            }
        };
        let rendered = configuration(&text, settings.as_ref(), &wanted).map_err(broken)?;
        if let Some((original, firmware)) = rendered.wrapped {
            let text = format!("#!/bin/sh\nexec {original} -L {version}{firmware} \"$@\"\n");
            content.insert(format!("etc/{name}/qemu"), Content::File { text, mode: 0o755 });
        }
        content.insert(
            format!("etc/{name}/configuration.toml"),
            Content::File { text: rendered.text, mode: 0o644 },
        );
        handlers.insert(
            name.clone(),
            Handler {
                runtime_type: format!("io.containerd.kata-{shim}.v2"),
                runtime_path: format!("{}/payload/{}", paths::CURRENT, found.binary),
                config_path: paths::configuration(name),
            },
        );
    }
    Ok(Release { name, content, handlers, left_out: absent, unknown_settings })
}

/// Checks that the payload has the files below `/opt/kata/` that settings name.
fn check_files(settings: &Settings, payload: &Payload) -> Result<(), String> {
    for (key, text) in settings.texts() {
        let Some(file) = text.strip_prefix(UPSTREAM) else { continue };
        if !payload.manifest.entries.contains_key(file.trim_end_matches('/')) {
            return Err(format!("sets {key} to {text}, which the payload does not have"));
        }
    }
    Ok(())
}

/// The handlers as they are part of a release's name. Handlers without settings have the text of versions before there
/// were any, since another name would be another release on every node.
fn identity_of(handlers: &[TaskHandler]) -> String {
    let each: Vec<String> = handlers
        .iter()
        .map(|TaskHandler { name, shim, config }| {
            let config =
                config.as_ref().map(|config| format!(", config: {config:?}")).unwrap_or_default();
            format!("TaskHandler {{ name: {name:?}, shim: {shim:?}{config} }}")
        })
        .collect();
    format!("[{}]", each.join(", "))
}

/// Where the firmware of a QEMU is in the payload; outside `/opt/kata` the configuration has to name it. Each of upstream's
/// builds has its own: that of `qemu-system-x86_64-snp-experimental` is in `share/kata-qemu-snp-experimental`.
fn firmware(payload: &Payload, program: &str) -> Option<String> {
    let build = paths::name(program).strip_prefix("qemu-system-")?;
    let suffix = build.find('-').and_then(|at| build.get(at..)).unwrap_or_default();
    [suffix, ""]
        .into_iter()
        .map(|suffix| format!("share/kata-qemu{suffix}/qemu"))
        .find(|folder| payload.manifest.entries.contains_key(folder))
}

/// What a configuration has to contain.
struct Wanted<'a> {
    /// The folder of the payload.
    version: &'a str,
    log_level: Option<&'a str>,
    /// The kubelet's folder, if it is not where it is elsewhere.
    kubelet: Option<&'a str>,
    /// What is started instead of QEMU.
    wrapper: &'a String,
    /// Where the firmware of a QEMU is, if the configuration has to name it.
    firmware: &'a dyn Fn(&str) -> Option<String>,
}

struct Rendered {
    text: String,
    /// The program that the wrapper starts and the folder of its firmware, if there is a wrapper.
    wrapped: Option<(String, String)>,
}

fn parse(text: &str) -> Result<DocumentMut, String> {
    text.parse().map_err(|error: toml_edit::TomlError| error.message().to_owned())
}

/// Renders a configuration into which the settings have been merged; what they set is not replaced by the log level.
fn configuration(
    text: &str,
    settings: Option<&Settings>,
    wanted: &Wanted<'_>,
) -> Result<Rendered, String> {
    let mut document = parse(&text.replace(UPSTREAM, wanted.version))?;
    let is_set = |path: &[&str]| settings.is_some_and(|settings| settings.has(path));
    let debug = wanted.log_level.map(|level| matches!(level, "debug" | "trace"));
    let mut wrapped = None;
    if let Some(hypervisors) =
        document.get_mut("hypervisor").and_then(|item| item.as_table_like_mut())
    {
        for (name, section) in hypervisors.iter_mut() {
            let Some(section) = section.as_table_like_mut() else { continue };
            if let Some(debug) = debug
                && !is_set(&["hypervisor", name.get(), "enable_debug"])
            {
                section.insert("enable_debug", value(debug));
            }
            let path = section.get("path").and_then(|item| item.as_str()).map(str::to_owned);
            // Another QEMU than the payload's has firmware of its own.
            let path = path.filter(|path| name.get() == "qemu" && path.starts_with(wanted.version));
            if let Some(path) = path
                && let Some(firmware) = (wanted.firmware)(&path)
            {
                let wrapper = wanted.wrapper;
                section.insert("path", value(wrapper));
                if let Some(valid) =
                    section.get_mut("valid_hypervisor_paths").and_then(|item| item.as_array_mut())
                {
                    valid.push(wrapper);
                }
                wrapped = Some((path, firmware));
            }
        }
    }
    // Configurations of older versions do not have it, and would not use it.
    let runtime = document.get_mut("runtime").and_then(|item| item.as_table_like_mut());
    if let (Some(kubelet), Some(runtime)) = (wanted.kubelet, runtime)
        && runtime.contains_key("kubelet_root_dir")
        && !is_set(&["runtime", "kubelet_root_dir"])
    {
        runtime.insert("kubelet_root_dir", value(kubelet));
    }
    if let Some(debug) = debug {
        for path in [&["runtime"][..], &["agent", "kata"]] {
            let section = path.iter().try_fold(document.as_item_mut(), |item, name| {
                item.as_table_like_mut().and_then(|table| table.get_mut(name))
            });
            if let Some(section) = section.and_then(|item| item.as_table_like_mut())
                && !is_set(&[path, &["enable_debug"]].concat())
            {
                section.insert("enable_debug", value(debug));
            }
        }
    }
    Ok(Rendered { text: document.to_string(), wrapped })
}

#[cfg(test)]
mod tests {
    use super::{TaskHandler, identity_of};

    /// A release has this text in its name: another one would rename the releases of all nodes.
    #[test]
    fn handlers_without_settings_have_the_identity_that_they_always_had() {
        let mut handlers: Vec<TaskHandler> = [("kata", "qemu"), ("kata-clh", "clh")]
            .map(|(name, shim)| TaskHandler {
                name: name.to_owned(),
                shim: shim.to_owned(),
                config: None,
            })
            .into();
        let before = "[TaskHandler { name: \"kata\", shim: \"qemu\" }, TaskHandler { name: \"kata-clh\", shim: \"clh\" }]";
        assert_eq!(identity_of(&handlers), before);
        handlers[1].config = Some("[runtime]".to_owned());
        assert_ne!(identity_of(&handlers), before);
    }
}
