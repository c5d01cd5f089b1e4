//! The labels by which RuntimeClasses select nodes: the runtime label and a key of each class.
//!
//! The back ends decide whether a node gets or loses them; this module makes steps of these decisions.

use std::collections::{BTreeMap, BTreeSet};

use kata_api::names;

use crate::assessment::{Assessment, LabelDecision, NodeAssessment};
use crate::classes::is_our_class;
use crate::draft::Draft;
use crate::plan::{Action, OnFailure};

/// Sets the labels on nodes that have Kata, and removes them from nodes that do not.
pub(super) fn update_labels(cluster: &Assessment, out: &mut Draft) {
    let classes = labelled_classes(cluster);
    for node in &cluster.nodes {
        let (wanted, reason) = match node.label {
            LabelDecision::Keep => continue,
            LabelDecision::Set => {
                let why = if node.wanted { "it has Kata" } else { "a sandboxed pod runs on it" };
                (labels_of_served(cluster, &classes, node), why)
            }
            LabelDecision::Clear if node.wanted => (Vec::new(), "it does not have Kata"),
            LabelDecision::Clear => (Vec::new(), "no sandboxed pod is left"),
        };
        let labels = &node.facts.labels;
        let is_own = |key: &str| {
            (key == names::RUNTIME_LABEL && !node.keeps_runtime_label)
                || key.starts_with(names::CLASS_LABEL_PREFIX)
        };
        let stale =
            labels.keys().filter(|key| is_own(key) && wanted.iter().all(|(kept, _)| kept != key));
        let remove: BTreeSet<String> = stale.cloned().collect();
        let set: BTreeMap<String, String> = wanted
            .iter()
            .filter(|(key, value)| labels.get(*key).map(String::as_str) != Some(value))
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        if set.is_empty() && remove.is_empty() {
            continue;
        }
        out.push(
            Action::LabelNode {
                node: node.object(),
                seen: node.version(),
                set,
                needs_fresh_classes: (!node.wanted && remove.contains(names::RUNTIME_LABEL))
                    || node
                        .leaving_classes
                        .iter()
                        .any(|class| remove.contains(&names::class_label(class))),
                remove,
            },
            // The next steps of this node are planned once the labels have been observed.
            OnFailure::Continue,
            reason,
        );
    }
}

/// A RuntimeClass whose nodes have a label for it.
struct LabelledClass<'a> {
    name: &'a str,
    handler: &'a str,
    key: String,
}

/// The RuntimeClasses of kata-operator that are there, and those of the KataConfig that are not.
fn labelled_classes(cluster: &Assessment) -> Vec<LabelledClass<'_>> {
    // A class that is there with another handler needs that one.
    let is_new = |name: &str| !cluster.class(name).is_some_and(is_our_class);
    let named = cluster.runtimes.iter().filter(|runtime| is_new(&runtime.name));
    let named = named.map(|runtime| (runtime.name.as_str(), runtime.effective_handler()));
    let existing =
        cluster.classes.iter().filter(|class| is_our_class(class)).map(|class| {
            (class.metadata.name.as_deref().unwrap_or_default(), class.handler.as_str())
        });
    let all = named.chain(existing);
    all.map(|(name, handler)| LabelledClass { name, handler, key: names::class_label(name) })
        .collect()
}

/// The labels of a node that has Kata. A class that the KataConfig no longer names keeps its key until the
/// class is deleted, and one that leaves the node until none of its pods is left there: a kubelet that restarts fails
/// running pods whose node selector no longer matches.
fn labels_of_served<'a>(
    cluster: &Assessment,
    classes: &'a [LabelledClass<'_>],
    node: &NodeAssessment,
) -> Vec<(&'a str, &'static str)> {
    let served = classes
        .iter()
        .filter(|class| node.offers(class.handler) && serves(cluster, node, class))
        .map(|class| (class.key.as_str(), names::CLASS_LABEL_SERVED));
    [(names::RUNTIME_LABEL, names::RUNTIME_LABEL_VERIFIED)].into_iter().chain(served).collect()
}

/// Whether the pods of a class may run on a wanted node, or do.
fn serves(cluster: &Assessment, node: &NodeAssessment, class: &LabelledClass<'_>) -> bool {
    if !node.wanted || node.classes.contains(class.name) {
        return true;
    }
    match cluster.pods.on_node(&node.facts.name) {
        Ok(pods) => pods.iter().any(|pod| pod.runtime_class == class.name),
        Err(_) => node.facts.labels.contains_key(&class.key),
    }
}
