//! What the Machine Config Operator's objects say, as predicates on content and on each node.
//!
//! Nothing here looks at a pool's `Updating`: a cordoned node sets it, a paused pool clears it, and it
//! is stale for seconds after every change. Whether a node has Kata is what the rendered MachineConfig
//! that it runs contains.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kata_api::kata_node::NodeStep;
use kata_api::machine_config::McoCondition;
use kata_api::{ContainerRuntimeConfig, MachineConfig, MachineConfigPool, names};
use serde_json::Value;

use crate::bodies;
use crate::observed::Observed;
use crate::payload;
use crate::selector;
use crate::snapshot::{NodeFacts, Snapshot};

/// Whether a rendered MachineConfig brings Kata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// It does.
    Has,
    /// It does not.
    Lacks,
    /// It cannot be told: unreadable, gone, not named, or not read yet.
    Unknown,
}

/// Whether a node runs a configuration that brings Kata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    /// It does, whatever else is being changed.
    Yes,
    /// It does not.
    No,
    /// It is on the way to one.
    Installing,
    /// It is on the way from one.
    Removing,
    /// It cannot be told.
    Unknown,
}

/// What a rendered MachineConfig contains.
pub(crate) fn content(snapshot: &Snapshot, rendered: &str) -> Content {
    match snapshot.machine_configs.get(rendered) {
        Some(Observed::Known(Some(config)))
            if has_extension(config)
                || payload::images(snapshot).contains(config.spec.os_image_url.as_str()) =>
        {
            Content::Has
        }
        Some(Observed::Known(Some(_))) => Content::Lacks,
        Some(Observed::Known(None) | Observed::Unknown { .. }) | None => Content::Unknown,
    }
}

/// Whether a MachineConfig asks for our extension.
pub(crate) fn has_extension(config: &MachineConfig) -> bool {
    config.spec.extensions.iter().any(|extension| extension == names::EXTENSION)
}

/// CRI-O's log level under a rendered MachineConfig; `None` if its file cannot be understood.
pub(crate) fn log_level(rendered: &MachineConfig) -> Option<String> {
    let files = rendered.spec.config.as_ref().and_then(|config| config.pointer("/storage/files"));
    let file = files
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find(|file| file.get("path").and_then(Value::as_str) == Some(names::LOG_LEVEL_FILE));
    let Some(file) = file else { return Some(bodies::DEFAULT_LOG_LEVEL.to_owned()) };
    let source = file.pointer("/contents/source").and_then(Value::as_str)?;
    let bytes = BASE64.decode(source.strip_prefix("data:")?.split_once(";base64,")?.1).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "log_level").then(|| value.trim().trim_matches('"').to_owned())
    });
    // A file without a level, as for a ContainerRuntimeConfig with other settings, leaves the default.
    Some(value.unwrap_or_else(|| bodies::DEFAULT_LOG_LEVEL.to_owned()))
}

impl NodeFacts {
    fn annotation(&self, key: &str) -> &str {
        self.annotations.get(key).map_or("", String::as_str)
    }

    /// The rendered MachineConfig that the node runs; empty if none is known.
    pub(crate) fn current_config(&self) -> &str {
        self.annotation(names::mco::CURRENT_CONFIG)
    }

    /// The rendered MachineConfig that the node shall run; empty if none is known.
    pub(crate) fn desired_config(&self) -> &str {
        self.annotation(names::mco::DESIRED_CONFIG)
    }

    /// Whether the node is on no way anywhere, or has not begun.
    pub(crate) fn is_settled(&self) -> bool {
        self.current_config() == self.desired_config()
            || self.annotation(names::mco::STATE) == "Done"
    }

    /// Whether the machine-config daemon gave up for now.
    pub(crate) fn is_degraded(&self) -> bool {
        matches!(self.annotation(names::mco::STATE), "Degraded" | "Unreconcilable")
    }

    /// Why the daemon gave up.
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

    /// Whether the node's current or desired configuration is one that was rendered for `pool`.
    pub(crate) fn refers_to_pool(&self, pool: &str) -> bool {
        [self.current_config(), self.desired_config()].iter().any(|name| {
            name.strip_prefix(names::mco::RENDERED_PREFIX)
                .and_then(|rest| rest.strip_prefix(pool))
                // A pool named kata-oc-2 has configurations rendered-kata-oc-2-HASH.
                .and_then(|rest| rest.strip_prefix('-'))
                .is_some_and(|hash| !hash.contains('-'))
        })
    }

    /// Whether the node is cordoned by the Machine Config Operator and not by somebody else.
    pub(crate) fn is_cordoned_by_mco(&self) -> bool {
        let desired = self.annotation(names::mco::DESIRED_DRAIN);
        self.unschedulable
            && (desired.starts_with("drain-")
                || desired != self.annotation(names::mco::LAST_APPLIED_DRAIN)
                || !self.is_settled())
    }

    /// Whether the node runs a configuration that brings Kata.
    pub(crate) fn runs(&self, snapshot: &Snapshot) -> Runs {
        if !self.is_managed() {
            return Runs::Unknown;
        }
        let current = content(snapshot, self.current_config());
        if self.is_settled() {
            return match current {
                Content::Has => Runs::Yes,
                Content::Lacks => Runs::No,
                Content::Unknown => Runs::Unknown,
            };
        }
        match (current, content(snapshot, self.desired_config())) {
            (Content::Has, Content::Has) => Runs::Yes,
            (Content::Lacks, Content::Lacks) => Runs::No,
            (Content::Lacks, Content::Has) => Runs::Installing,
            (Content::Has, Content::Lacks) => Runs::Removing,
            (Content::Unknown, _) | (_, Content::Unknown) => Runs::Unknown,
        }
    }

    /// How far a node is whose current and desired configuration differ.
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

/// A pool's name.
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

/// Whether the pool's nodes are to get a configuration that contains our MachineConfig.
pub(crate) fn targets(snapshot: &Snapshot, pool: &MachineConfigPool, role: &str) -> bool {
    let configuration = &pool.spec.configuration;
    let merged = payload::machine_configs(snapshot).any(|(name, ours)| {
        let for_role = ours.metadata.labels.as_ref().is_some_and(|labels| {
            labels.get(names::MACHINE_CONFIG_ROLE_LABEL).is_some_and(|value| {
                value == role || (role == names::POOL && value == names::WORKER_POOL)
            })
        });
        for_role
            && ours.metadata.deletion_timestamp.is_none()
            && configuration.source.iter().any(|source| source.name == name)
    });
    merged
        && pool.metadata.deletion_timestamp.is_none()
        && content(snapshot, &configuration.name) == Content::Has
        && !is_render_degraded(pool)
}

/// Whether a MachineConfig of ours is among those that were merged into the pool's configuration.
pub(crate) fn merges_ours(pool: &MachineConfigPool) -> bool {
    let sources = &pool.spec.configuration.source;
    sources.iter().any(|source| names::MACHINE_CONFIGS.contains(&source.name.as_str()))
}

/// The operating system's image of a rendered MachineConfig; `None` if it cannot be told.
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

/// What the Machine Config Operator says on a pool condition; empty if nothing.
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

/// Whether a ContainerRuntimeConfig that failed keeps a pool from being rendered. An empty selector selects no
/// pool, and stands in the way of every one.
pub(crate) fn freezes(config: &ContainerRuntimeConfig, pool: &MachineConfigPool) -> bool {
    config.spec.machine_config_pool_selector.as_ref().is_some_and(is_empty)
        || selects_pool(config, pool)
}

/// The failure of a ContainerRuntimeConfig, which freezes the rendering of the pools that it selects. What
/// was said of an older generation says nothing.
pub(crate) fn failure(config: &ContainerRuntimeConfig) -> Option<&McoCondition> {
    let status = config.status.as_ref()?;
    let current = status.observed_generation.is_none()
        || config.metadata.generation.is_none()
        || status.observed_generation >= config.metadata.generation;
    status.conditions.last().filter(|condition| current && condition.type_ == "Failure")
}
