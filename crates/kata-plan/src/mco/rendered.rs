//! Predicates on pools, on rendered MachineConfigs and on the Machine Config Operator's annotations of
//! nodes.
//!
//! A node has Kata if the rendered MachineConfig that it runs contains Kata. No predicate reads a pool's
//! `Updating`: a cordoned node sets it, a paused pool clears it, and it is stale for seconds after every
//! change.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kata_api::kata_node::NodeStep;
use kata_api::machine_config::McoCondition;
use kata_api::{ContainerRuntimeConfig, MachineConfig, MachineConfigPool, names};
use serde_json::Value;

use super::installed::{self, is_extension};
use crate::assessment::KataState;
use crate::configs::Configs;
use crate::log_level::DEFAULT_LOG_LEVEL;
use crate::observed::Observed;
use crate::selector;
use crate::snapshot::{Need, NodeFacts, Snapshot};

/// Whether a rendered MachineConfig contains Kata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Has,
    Lacks,
    /// The MachineConfig is unreadable, gone, not named or not read yet.
    Unknown,
}

/// Whether the rendered MachineConfig of this name contains Kata.
pub(crate) fn content(snapshot: &Snapshot, rendered: &str) -> Content {
    match snapshot.machine_configs.get(rendered) {
        Some(Observed::Known(Some(config)))
            if has_extension(snapshot, config)
                || installed::images(snapshot).contains(config.spec.os_image_url.as_str()) =>
        {
            Content::Has
        }
        Some(Observed::Known(Some(_))) => Content::Lacks,
        Some(Observed::Known(None) | Observed::Unknown { .. }) | None => Content::Unknown,
    }
}

/// Whether a rendered MachineConfig is known to contain Kata.
pub(crate) fn contains_kata(snapshot: &Snapshot, rendered: &str) -> bool {
    content(snapshot, rendered) == Content::Has
}

/// Whether a MachineConfig installs Kata as an extension, under any name that one of ours gives it.
pub(crate) fn has_extension(snapshot: &Snapshot, config: &MachineConfig) -> bool {
    let custom = snapshot.options.extension.as_deref();
    config
        .spec
        .extensions
        .iter()
        .any(|extension| is_extension(extension) || custom == Some(extension.as_str()))
}

/// CRI-O's log level in a rendered MachineConfig; `None` if its file cannot be parsed.
pub(crate) fn log_level(rendered: &MachineConfig) -> Option<String> {
    let files = rendered.spec.config.as_ref().and_then(|config| config.pointer("/storage/files"));
    let file = files
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find(|file| file.get("path").and_then(Value::as_str) == Some(names::LOG_LEVEL_FILE));
    let Some(file) = file else { return Some(DEFAULT_LOG_LEVEL.to_owned()) };
    let source = file.pointer("/contents/source").and_then(Value::as_str)?;
    let bytes = BASE64.decode(source.strip_prefix("data:")?.split_once(";base64,")?.1).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "log_level").then(|| value.trim().trim_matches('"').to_owned())
    });
    // A file without a level, as of a ContainerRuntimeConfig with other settings, means the default.
    Some(value.unwrap_or_else(|| DEFAULT_LOG_LEVEL.to_owned()))
}

impl NodeFacts {
    fn annotation(&self, key: &str) -> &str {
        self.annotations.get(key).map_or("", String::as_str)
    }

    /// The rendered MachineConfig that the node runs; empty if none is known.
    pub(crate) fn current_config(&self) -> &str {
        self.annotation(names::mco::CURRENT_CONFIG)
    }

    /// The rendered MachineConfig that the node should run; empty if none is known.
    pub(crate) fn desired_config(&self) -> &str {
        self.annotation(names::mco::DESIRED_CONFIG)
    }

    /// Whether the node has its desired configuration, or has not begun to change.
    pub(crate) fn is_settled(&self) -> bool {
        self.current_config() == self.desired_config()
            || self.annotation(names::mco::STATE) == "Done"
    }

    /// The configuration that the machine-config daemon is at or failed at, by its last request to the drain controller; empty
    /// once it is done. The node may have been rebooted into it, although both annotations already name another one.
    fn attempted_config(&self) -> &str {
        if self.annotation(names::mco::STATE) == "Done" {
            return "";
        }
        let request = self.annotation(names::mco::DESIRED_DRAIN);
        let config = request.strip_prefix("uncordon-").or_else(|| request.strip_prefix("drain-"));
        config.unwrap_or_default()
    }

    /// Whether the node's machine-config daemon failed.
    pub(crate) fn is_degraded(&self) -> bool {
        matches!(self.annotation(names::mco::STATE), "Degraded" | "Unreconcilable")
    }

    /// Why the node's machine-config daemon failed.
    pub(crate) fn degraded_reason(&self) -> &str {
        match self.annotation(names::mco::REASON) {
            "" => "the machine-config daemon gives no reason",
            reason => reason,
        }
    }

    /// Whether the Machine Config Operator manages the node.
    pub(crate) fn is_managed(&self) -> bool {
        !self.current_config().is_empty() && !self.desired_config().is_empty()
    }

    /// Whether the node's current or desired configuration is one that was rendered for `pool`, or one that it may run.
    pub(crate) fn refers_to_pool(&self, pool: &str) -> bool {
        let configs = [self.current_config(), self.desired_config(), self.attempted_config()];
        configs.iter().any(|name| {
            name.strip_prefix(names::mco::RENDERED_PREFIX)
                .and_then(|rest| rest.strip_prefix(pool))
                // A pool named kata-oc-2 has configurations rendered-kata-oc-2-HASH.
                .and_then(|rest| rest.strip_prefix('-'))
                .is_some_and(|hash| !hash.contains('-'))
        })
    }

    /// Whether the Machine Config Operator cordoned the node, and no other client.
    pub(crate) fn is_cordoned_by_mco(&self) -> bool {
        let desired = self.annotation(names::mco::DESIRED_DRAIN);
        self.unschedulable
            && (desired.starts_with("drain-")
                || desired != self.annotation(names::mco::LAST_APPLIED_DRAIN)
                || !self.is_settled())
    }

    /// Whether the node has Kata, gets it or loses it, by its current and desired configuration.
    pub(crate) fn kata_state(&self, snapshot: &Snapshot) -> KataState {
        if !self.is_managed() {
            return KataState::Unknown;
        }
        let current = content(snapshot, self.current_config());
        if self.is_settled() {
            return match current {
                Content::Has => KataState::Installed,
                Content::Lacks => KataState::Absent,
                Content::Unknown => KataState::Unknown,
            };
        }
        match (current, content(snapshot, self.desired_config())) {
            (Content::Has, Content::Has) => KataState::Installed,
            (Content::Lacks, Content::Lacks) => KataState::Absent,
            (Content::Lacks, Content::Has) => KataState::Installing,
            (Content::Has, Content::Lacks) => KataState::Removing,
            (Content::Unknown, _) | (_, Content::Unknown) => KataState::Unknown,
        }
    }

    /// The step of the node's change; `None` if its current and desired configuration are the same.
    pub(crate) fn step(&self) -> Option<NodeStep> {
        if self.current_config() == self.desired_config() {
            return None;
        }
        if self.annotation(names::mco::STATE) == "Done" {
            return Some(NodeStep::Targeted);
        }
        let desired = self.annotation(names::mco::DESIRED_DRAIN);
        Some(
            if self.annotation(names::mco::POST_CONFIG_ACTION) == "Rebooting"
                || self.ready.status != Some(true)
            {
                NodeStep::Rebooting
            } else if desired.strip_prefix("uncordon-") == Some(self.desired_config()) {
                NodeStep::Finishing
            } else if !desired.starts_with("drain-") {
                NodeStep::Targeted
            } else if desired != self.annotation(names::mco::LAST_APPLIED_DRAIN) {
                NodeStep::Draining
            } else {
                NodeStep::Applying
            },
        )
    }
}

pub(crate) fn pool_name(pool: &MachineConfigPool) -> &str {
    pool.metadata.name.as_deref().unwrap_or_default()
}

/// Whether a pool selects a node. A pool without a selector, or with an empty one, selects none.
pub(crate) fn selects(pool: &MachineConfigPool, node: &NodeFacts) -> bool {
    pool.spec
        .node_selector
        .as_ref()
        .filter(|selector| !is_empty(selector))
        .is_some_and(|selector| selector::matches(selector, &node.labels) == Ok(true))
}

fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(|labels| labels.is_empty())
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// Whether the pool's target configuration contains the operator's MachineConfig.
pub(crate) fn targets(snapshot: &Snapshot, pool: &MachineConfigPool, role: &str) -> bool {
    let configuration = &pool.spec.configuration;
    let merged = installed::machine_configs(snapshot).any(|(name, own)| {
        let for_role = own.metadata.labels.as_ref().is_some_and(|labels| {
            labels.get(names::MACHINE_CONFIG_ROLE_LABEL).is_some_and(|value| {
                value == role || (role == names::POOL && value == names::WORKER_POOL)
            })
        });
        for_role
            && own.metadata.deletion_timestamp.is_none()
            && configuration.source.iter().any(|source| source.name == name)
    });
    merged
        && pool.metadata.deletion_timestamp.is_none()
        && content(snapshot, &configuration.name) == Content::Has
        && !is_render_degraded(pool)
}

/// Whether the pool's configuration was merged from one of the operator's MachineConfigs, among others.
pub(crate) fn merges_own_config(pool: &MachineConfigPool) -> bool {
    let sources = &pool.spec.configuration.source;
    sources.iter().any(|source| names::MACHINE_CONFIGS.contains(&source.name.as_str()))
}

/// The operating system's image of a rendered MachineConfig; `None` if that was not read.
pub(crate) fn image<'a>(snapshot: &'a Snapshot, rendered: &str) -> Option<&'a str> {
    match snapshot.machine_configs.get(rendered) {
        Some(Observed::Known(Some(config))) => Some(&config.spec.os_image_url),
        _ => None,
    }
}

/// Whether the pool's MachineConfigs could not be merged.
pub(crate) fn is_render_degraded(pool: &MachineConfigPool) -> bool {
    pool.status.as_ref().and_then(|status| status.condition("RenderDegraded")) == Some(true)
}

/// The message of a pool's condition; empty if there is none.
pub(crate) fn condition_message<'a>(pool: &'a MachineConfigPool, type_: &str) -> &'a str {
    pool.status
        .iter()
        .flat_map(|status| &status.conditions)
        .find(|condition| condition.type_ == type_)
        .map_or("", |condition| condition.message.as_str())
}

/// Whether a ContainerRuntimeConfig selects a pool.
pub(crate) fn selects_pool(config: &ContainerRuntimeConfig, pool: &MachineConfigPool) -> bool {
    let labels = pool.metadata.labels.clone().unwrap_or_default();
    config
        .spec
        .machine_config_pool_selector
        .as_ref()
        .filter(|selector| !is_empty(selector))
        .is_some_and(|selector| selector::matches(selector, &labels) == Ok(true))
}

/// Whether a failed ContainerRuntimeConfig blocks the rendering of a pool. One with an empty selector
/// selects no pool, but blocks every pool.
pub(crate) fn blocks_rendering(config: &ContainerRuntimeConfig, pool: &MachineConfigPool) -> bool {
    config.spec.machine_config_pool_selector.as_ref().is_some_and(is_empty)
        || selects_pool(config, pool)
}

/// The failure of a ContainerRuntimeConfig, if it is about the current generation.
pub(crate) fn failure(config: &ContainerRuntimeConfig) -> Option<&McoCondition> {
    let status = config.status.as_ref()?;
    let current = status.observed_generation.is_none()
        || config.metadata.generation.is_none()
        || status.observed_generation >= config.metadata.generation;
    status.conditions.last().filter(|condition| current && condition.type_ == "Failure")
}

/// The operator's MachineConfigs and the rendered ones of pools and nodes, as far as they are not in the
/// snapshot.
pub(crate) fn missing_machine_configs(snapshot: &Snapshot) -> Vec<Need> {
    if Configs::of(&snapshot.configs).active.is_none() {
        return Vec::new();
    }
    let nodes = snapshot.nodes.known().into_iter().flatten();
    let pools = snapshot.pools.known().into_iter().flatten().filter(|pool| {
        matches!(pool_name(pool), names::POOL | names::WORKER_POOL | names::MASTER_POOL)
    });
    // Thousands of nodes share a few configurations.
    let mut wanted: Vec<&str> = Vec::new();
    let mut last = "";
    for name in nodes
        .flat_map(|node| [node.current_config(), node.desired_config()])
        .chain(pools.map(|pool| pool.spec.configuration.name.as_str()))
        .chain(names::MACHINE_CONFIGS)
    {
        if name != last && !name.is_empty() && !snapshot.machine_configs.contains_key(name) {
            wanted.push(name);
        }
        last = name;
    }
    wanted.sort_unstable();
    wanted.dedup();
    wanted.into_iter().map(|name| Need::MachineConfig { name: name.to_owned() }).collect()
}
