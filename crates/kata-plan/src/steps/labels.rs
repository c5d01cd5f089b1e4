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
    for node in &cluster.nodes {
        let (set, remove, reason) = match node.label {
            LabelDecision::Keep => continue,
            LabelDecision::Set => {
                let why = if node.wanted { "it has Kata" } else { "a sandboxed pod runs on it" };
                (labels_of_served(cluster, node), BTreeSet::new(), why)
            }
            LabelDecision::Clear if node.wanted => {
                (BTreeMap::new(), BTreeSet::from([names::RUNTIME_LABEL]), "it does not have Kata")
            }
            LabelDecision::Clear => (
                BTreeMap::new(),
                BTreeSet::from([names::RUNTIME_LABEL]),
                "no sandboxed pod is left",
            ),
        };
        let stale =
            node.facts.labels.keys().filter(|key| {
                key.starts_with(names::CLASS_LABEL_PREFIX) && !set.contains_key(*key)
            });
        let remove: BTreeSet<String> = remove
            .into_iter()
            .filter(|key| node.facts.labels.contains_key(*key))
            .map(str::to_owned)
            .chain(stale.cloned())
            .collect();
        let set: BTreeMap<String, String> = set
            .into_iter()
            .filter(|(key, value)| node.facts.labels.get(key) != Some(value))
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

/// The labels of a node that has Kata. A class that the KataConfig no longer names keeps its key until the
/// class is deleted, and one that leaves the node until none of its pods is left there: a kubelet that restarts fails
/// running pods whose node selector no longer matches.
fn labels_of_served(cluster: &Assessment, node: &NodeAssessment) -> BTreeMap<String, String> {
    // A class that is there with another handler needs that one.
    let is_new = |name: &str| !cluster.class(name).is_some_and(is_our_class);
    let named = cluster.runtimes.iter().filter(|runtime| is_new(&runtime.name));
    let named = named.map(|runtime| (runtime.name.as_str(), runtime.effective_handler()));
    let existing =
        cluster.classes.iter().filter(|class| is_our_class(class)).map(|class| {
            (class.metadata.name.as_deref().unwrap_or_default(), class.handler.as_str())
        });
    let mut labels = BTreeMap::from([(
        names::RUNTIME_LABEL.to_owned(),
        names::RUNTIME_LABEL_VERIFIED.to_owned(),
    )]);
    labels.extend(
        named
            .chain(existing)
            .filter(|(class, handler)| node.offers(handler) && serves(cluster, node, class))
            .map(|(class, _)| (names::class_label(class), names::CLASS_LABEL_SERVED.to_owned())),
    );
    labels
}

/// Whether the pods of a class may run on a wanted node, or do.
fn serves(cluster: &Assessment, node: &NodeAssessment, class: &str) -> bool {
    if !node.wanted || node.classes.contains(class) {
        return true;
    }
    match cluster.pods.on_node(&node.facts.name) {
        Ok(pods) => pods.iter().any(|pod| pod.runtime_class == class),
        Err(_) => node.facts.labels.contains_key(&names::class_label(class)),
    }
}
