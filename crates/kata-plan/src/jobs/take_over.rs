//! Which nodes and RuntimeClasses of kata-deploy, upstream's installer, can become ours.
//!
//! Source of the labels: `tools/packaging/kata-deploy` of Kata Containers 4.1. Plans no steps; the node agent decides by
//! the files of a node.

use kata_api::{Code, names};

use crate::assessment::Assessment;
use crate::classes;
use crate::configs::config_ref;
use crate::report::Finding;
use crate::snapshot::NodeFacts;

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

/// The finding that RuntimeClasses of kata-deploy have no counterpart in `spec.runtimes`: their pods could not start on
/// nodes that were taken over.
pub(super) fn incomplete(base: &Assessment) -> Option<Finding> {
    base.config.spec.take_over?;
    // Where installOn does not match, the handler would go from under the pods that the class sends there.
    let is_named = |name: &str, handler: &str| {
        let mut runtimes = base.runtimes.iter().filter(|it| it.install_on.is_none());
        runtimes.any(|it| it.name == name && it.effective_handler() == handler)
    };
    let absent: Vec<(&str, &str)> = base
        .classes
        .iter()
        .filter(|class| classes::is_of_kata_deploy(class))
        .map(|class| (class.metadata.name.as_deref().unwrap_or_default(), class.handler.as_str()))
        .filter(|(name, handler)| !is_named(name, handler))
        .collect();
    if absent.is_empty() {
        return None;
    }
    let entries: Vec<String> = absent
        .iter()
        .map(|(name, handler)| {
            if name == handler {
                format!("{{name: {name}}}")
            } else {
                format!("{{name: {name}, handler: {handler}}}")
            }
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
