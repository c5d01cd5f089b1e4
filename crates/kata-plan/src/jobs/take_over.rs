//! Which nodes and RuntimeClasses of kata-deploy, upstream's installer, can become ours.
//!
//! Source of the labels: `tools/packaging/kata-deploy` of Kata Containers 4.1. Plans no steps; the node agent decides by
//! the files of a node.

use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::kata_config::{OverheadSpec, RuntimeSpec};
use kata_api::{Code, names};

use crate::assessment::Assessment;
use crate::classes;
use crate::configs::config_ref;
use crate::report::Finding;
use crate::snapshot::NodeFacts;

/// Why a node of kata-deploy cannot be taken over, as far as its Node says.
pub fn take_over_obstacle(node: &NodeFacts) -> Option<String> {
    let version = node.container_runtime_version.strip_prefix("containerd://");
    let major = version.and_then(|it| it.trim_start_matches('v').split('.').next()?.parse().ok());
    if major.is_none_or(|major: u32| major < 2) {
        return Some(format!(
            "its container runtime is {}, and only containerd 2 or newer can be taken over",
            node.container_runtime_version
        ));
    }
    obstacle(node, names::RUNTIME_LABEL)
}

/// Why a node on which another installer is active, by this label, cannot be taken over.
pub(super) fn obstacle(node: &NodeFacts, label: &str) -> Option<String> {
    let its = |key: &&String| key.starts_with(names::KATA_DEPLOY_LABEL_PREFIX);
    if let Some(label) = node.labels.keys().filter(its).find(|key| *key != names::KATA_DEPLOY_LABEL)
    {
        return Some(format!(
            "it carries the label {label}, and only a kata-deploy without a suffix can be taken over"
        ));
    }
    // Without it nothing says whose the other label is, so that it would be taken for ours and removed.
    if !node.is_of_kata_deploy() {
        return Some(format!(
            "it carries the label {label}, and not {}, by which nodes of kata-deploy 4.1 and newer are known",
            names::KATA_DEPLOY_LABEL
        ));
    }
    // "false" is on a node that it has begun with.
    let unfinished = [names::KATA_DEPLOY_LABEL, names::RUNTIME_LABEL].into_iter().find(|key| {
        node.labels.get(*key).is_some_and(|value| value != names::RUNTIME_LABEL_VERIFIED)
    })?;
    Some(format!(
        "kata-deploy has not finished it: its label {unfinished} is {}",
        node.labels.get(unfinished).map(String::as_str).unwrap_or_default()
    ))
}

/// The entries that `spec.runtimes` needs, so that each RuntimeClass of kata-deploy is served on the nodes that are taken
/// over, as it is served now.
pub fn runtimes_to_add(runtimes: &[RuntimeSpec], classes: &[RuntimeClass]) -> Vec<RuntimeSpec> {
    // Where installOn does not match, the handler would go from under the pods that the class sends there.
    let is_named = |class: &&RuntimeClass| {
        let mut runtimes = runtimes.iter().filter(|it| it.install_on.is_none());
        runtimes.any(|it| {
            class.metadata.name.as_ref() == Some(&it.name)
                && it.effective_handler() == class.handler
        })
    };
    let absent = classes.iter().filter(|class| classes::is_of_kata_deploy(class));
    absent.filter(|class| !is_named(class)).map(runtime_of).collect()
}

/// What kata-deploy appends to a handler whose configuration is for debugging.
const VARIANTS: [&str; 2] = ["-debug", "-devkit"];

/// A runtime with the name, the handler and the scheduling of a RuntimeClass of kata-deploy.
fn runtime_of(class: &RuntimeClass) -> RuntimeSpec {
    let name = class.metadata.name.clone().unwrap_or_default();
    let scheduling = class.scheduling.clone().unwrap_or_default();
    let mut node_selector = scheduling.node_selector.unwrap_or_default();
    node_selector.remove(names::RUNTIME_LABEL);
    node_selector.retain(|key, _| !key.starts_with(names::KATA_DEPLOY_LABEL_PREFIX));
    let mut resources = class.overhead.clone().and_then(|it| it.pod_fixed).unwrap_or_default();
    let (cpu, memory) = (resources.remove("cpu"), resources.remove("memory"));
    let overhead = OverheadSpec { cpu, memory, resources };
    // Variants of a shim that differ in its configuration only.
    let shim = class.handler.strip_prefix("kata-").and_then(|shim| {
        VARIANTS.into_iter().find_map(|variant| shim.strip_suffix(variant)).map(str::to_owned)
    });
    RuntimeSpec {
        shim,
        handler: (class.handler != name).then(|| class.handler.clone()),
        overhead: (overhead != OverheadSpec::default()).then_some(overhead),
        tolerations: scheduling.tolerations.unwrap_or_default(),
        node_selector,
        name,
        ..RuntimeSpec::default()
    }
}

/// The finding that RuntimeClasses of kata-deploy have no counterpart in `spec.runtimes`: their pods could not start on
/// nodes that were taken over.
pub(super) fn incomplete(base: &Assessment) -> Option<Finding> {
    base.config.spec.take_over?;
    let absent = runtimes_to_add(&base.runtimes, &base.classes);
    if absent.is_empty() {
        return None;
    }
    let entries: Vec<String> = absent
        .iter()
        .map(|RuntimeSpec { name, handler, .. }| match handler {
            None => format!("{{name: {name}}}"),
            Some(handler) => format!("{{name: {name}, handler: {handler}}}"),
        })
        .collect();
    let message = format!(
        "no node is taken over or gets Kata, since RuntimeClasses of kata-deploy have no entry in spec.runtimes, or one with \
         installOn; add: {}",
        entries.join(", ")
    );
    Some(Finding::new(Code::TakeOverIncomplete, config_ref(&base.config), message))
}

/// Whether the runtime label of a node is that of kata-deploy, so that it stays. Until Kata is installed there by us it is,
/// also after takeOver was dropped.
pub(super) fn keeps_runtime_label(base: &Assessment, node: &NodeFacts, is_installed: bool) -> bool {
    node.is_of_kata_deploy() && (base.config.spec.take_over.is_some() || !is_installed)
}

/// Whether a node goes back to kata-deploy as it is, since takeOver was dropped before it was taken over.
pub(super) fn was_not_taken(base: &Assessment, node: &NodeFacts, is_installed: bool) -> bool {
    node.is_of_kata_deploy() && base.config.spec.take_over.is_none() && !is_installed
}
