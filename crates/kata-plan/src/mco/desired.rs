//! The desired content of the nodes' configuration: Kata, as an extension of the operating system or in
//! another image of it, and CRI-O's log level.
//!
//! Two ConfigMaps select the payload, as in the OpenShift sandboxed containers operator 1.7 and later. If
//! they name none, or cannot be read, the installed payload stays, because a switch reboots every node.

use std::collections::BTreeMap;

use kata_api::{Code, ContainerRuntimeConfig, KataConfig, MachineConfig, names};

use super::installed::{images, machine_configs};
use super::mode::Mode;
use super::payload::Payload;
use super::{bodies, rendered};
use crate::configs::config_ref;
use crate::log_level::{DEFAULT_LOG_LEVEL, LOG_LEVELS};
use crate::object::{Kind, ObjectRef};
use crate::observed::Observed;
use crate::report::Finding;
use crate::snapshot::Snapshot;

/// The desired content of the nodes' configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Desired {
    /// How Kata gets onto the nodes; `None` if that is not known and nothing is installed.
    pub(crate) payload: Option<Payload>,
    /// CRI-O's log level; `None` if every level is accepted.
    level: Option<String>,
}

impl Desired {
    /// Whether a rendered MachineConfig that contains Kata differs from the desired content.
    pub(crate) fn is_behind(&self, snapshot: &Snapshot, rendered: &MachineConfig) -> bool {
        let payload = match &self.payload {
            None => false,
            Some(Payload::Extension { name }) => {
                !rendered.spec.extensions.contains(name)
                    || images(snapshot).contains(rendered.spec.os_image_url.as_str())
            }
            Some(Payload::Image { image, arguments }) => {
                rendered.spec.os_image_url != *image
                    || rendered::has_extension(snapshot, rendered)
                    || !arguments.iter().all(|argument| {
                        rendered.spec.kernel_arguments.iter().any(|has| has == argument)
                    })
            }
        };
        payload
            || self.level.as_ref().is_some_and(|level| {
                rendered::log_level(rendered).is_some_and(|rendered| rendered != *level)
            })
    }
}

/// The desired content of the nodes' configuration. Adds a finding if a ConfigMap is wrong.
pub(crate) fn desired(
    snapshot: &Snapshot,
    config: &KataConfig,
    mode: Mode,
    findings: &mut Vec<Finding>,
) -> Desired {
    Desired { payload: payload(snapshot, findings), level: level(snapshot, config, mode) }
}

fn payload(snapshot: &Snapshot, findings: &mut Vec<Finding>) -> Option<Payload> {
    let installed = machine_configs(snapshot)
        .find(|(_, config)| config.metadata.deletion_timestamp.is_none())
        .map(|(name, config)| match name {
            names::MACHINE_CONFIG => extension(snapshot),
            _ => Payload::Image {
                image: config.spec.os_image_url.clone(),
                arguments: config.spec.kernel_arguments.clone(),
            },
        });
    let stays =
        if installed.is_some() { "what is installed stays" } else { "nothing is installed" };
    let object = |name: &str| ObjectRef {
        namespace: Some(snapshot.options.namespace.clone()),
        ..ObjectRef::named(Kind::ConfigMap, name)
    };
    let mut unreadable = |name: &str, error: &str| {
        let object = object(name);
        let message = format!("cannot read {object}: {error}; {stays} meanwhile");
        findings.push(Finding::new(Code::ReadFailed, object, message));
    };
    let gate = match &snapshot.feature_gates {
        Observed::Known(gates) => {
            gates.as_ref().and_then(|gates| gates.get(names::IMAGE_MODE_GATE))
        }
        Observed::Unknown { error, .. } => {
            unreadable(names::FEATURE_GATES, error);
            return installed;
        }
    };
    match gate.map(|gate| gate.trim().to_ascii_lowercase()).as_deref() {
        Some("true" | "t" | "1") => {}
        Some("false" | "f" | "0") => return Some(extension(snapshot)),
        _ => return Some(installed.unwrap_or_else(|| extension(snapshot))),
    }
    let data = match &snapshot.image_mode {
        Observed::Known(data) => data,
        Observed::Unknown { error, .. } => {
            unreadable(names::IMAGE_MODE_CONFIG, error);
            return installed;
        }
    };
    let text =
        |key: &str| data.as_ref().and_then(|data| data.get(key)).map_or("", |text| text.trim());
    let image = text(names::IMAGE_KEY);
    if image.is_empty() || image.contains(char::is_whitespace) {
        let object = object(names::IMAGE_MODE_CONFIG);
        let what = match data {
            None => "does not exist",
            Some(_) if image.is_empty() => "has no osImageURL",
            Some(_) => "has an osImageURL with white space in it",
        };
        let message = format!("image mode is on, and {object} {what}; {stays} meanwhile");
        findings.push(Finding::new(Code::ImageModeIncomplete, object, message));
        return installed;
    }
    let arguments = text(names::ARGUMENTS_KEY).split_whitespace().map(str::to_owned).collect();
    Some(Payload::Image { image: image.to_owned(), arguments })
}

/// The extension, by the name that the setting gives it, or the workers' operating system. While nodes of OKD go
/// from Fedora CoreOS to CentOS Stream CoreOS, the name is that of the latter.
fn extension(snapshot: &Snapshot) -> Payload {
    let nodes = snapshot.nodes.known().into_iter().flatten();
    let mut systems = nodes
        .filter(|node| node.labels.contains_key(names::WORKER_ROLE_LABEL))
        .map(|node| node.os_image.as_str())
        .filter(|system| !system.is_empty())
        .peekable();
    let are_fedora = systems.peek().is_some() && systems.all(|system| system.starts_with("Fedora"));
    let by_system = if are_fedora { names::FEDORA_EXTENSION } else { names::EXTENSION };
    let name = snapshot.options.extension.as_deref().unwrap_or(by_system);
    Payload::Extension { name: name.to_owned() }
}

/// The desired log level of the nodes. The default level needs no ContainerRuntimeConfig of the operator,
/// so if that of another client sets a level, that level is accepted.
fn level(snapshot: &Snapshot, config: &KataConfig, mode: Mode) -> Option<String> {
    let level = config.spec.log_level.as_str();
    if !LOG_LEVELS.contains(&level)
        || (level == DEFAULT_LOG_LEVEL && others_set_level(snapshot, mode).next().is_some())
    {
        return None;
    }
    Some(level.to_owned())
}

/// ContainerRuntimeConfigs of other clients that set a log level for the nodes of the operator's pool.
fn others_set_level(
    snapshot: &Snapshot,
    mode: Mode,
) -> impl Iterator<Item = &ContainerRuntimeConfig> {
    let inherited = (mode == Mode::Pool).then_some(names::WORKER_POOL);
    let pools: Vec<_> = snapshot
        .pools
        .known()
        .into_iter()
        .flatten()
        .filter(|pool| {
            let name = rendered::pool_name(pool);
            name == mode.pool() || Some(name) == inherited
        })
        .collect();
    snapshot.container_runtime_configs.known().into_iter().flatten().filter(move |config| {
        let is_own = config.metadata.name.as_deref() == Some(names::CONTAINER_RUNTIME_CONFIG)
            && bodies::is_our_container_runtime_config(config);
        !is_own
            && config.spec.container_runtime_config.log_level.is_some()
            && pools.iter().any(|pool| rendered::selects_pool(config, pool))
    })
}

/// The findings that other ContainerRuntimeConfigs override the log level of the operator's.
pub(crate) fn level_findings(snapshot: &Snapshot, config: &KataConfig, mode: Mode) -> Vec<Finding> {
    let wanted = config.spec.log_level.as_str();
    let mut others: BTreeMap<&str, (&str, Option<&str>)> = BTreeMap::new();
    if wanted != DEFAULT_LOG_LEVEL {
        for other in others_set_level(snapshot, mode) {
            let level =
                other.spec.container_runtime_config.log_level.as_deref().unwrap_or_default();
            let name = other.metadata.name.as_deref().unwrap_or_default();
            if level != wanted {
                others.insert(name, (level, other.metadata.uid.as_deref()));
            }
        }
    }
    others
        .into_iter()
        .map(|(name, (level, uid))| {
            Finding::new(
                Code::LogLevelOverridden,
                ObjectRef::new(Kind::ContainerRuntimeConfig, name, uid),
                format!(
                    "ContainerRuntimeConfig {name} sets the log level {level} on nodes for which {} \
                     sets {wanted}",
                    config_ref(config)
                ),
            )
        })
        .collect()
}
