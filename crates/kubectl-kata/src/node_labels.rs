//! Labels by which a KataConfig selects nodes: the command that sets them, and the record of those that `install` set, so
//! that `uninstall` takes off these and no others. Pure.

use std::collections::BTreeMap;

use kata_api::{KataConfig, names};
use kata_plan::selector::describes_node;
use serde::{Deserialize, Serialize};

pub(crate) type Labels = BTreeMap<String, String>;

/// Labels as `KEY=VALUE`.
pub(crate) fn text(labels: &Labels, separator: &str) -> String {
    let pairs: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(separator)
}

/// The command that sets these labels; `None` if there are none, or if one of them describes the node: it would be false.
pub(crate) fn command(nodes: &str, labels: &Labels) -> Option<String> {
    let is_settable = !labels.is_empty() && !labels.keys().any(|key| describes_node(key));
    is_settable.then(|| format!("kubectl label node {nodes} {}", text(labels, " ")))
}

/// The labels that `install` set, and the nodes that had none of them before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SetLabels {
    pub(crate) labels: Labels,
    pub(crate) nodes: Vec<String>,
}

impl SetLabels {
    /// What a KataConfig records of them; `None` if it records none, or if its record was changed by hand.
    pub(crate) fn of(config: &KataConfig) -> Option<Self> {
        let annotations = config.metadata.annotations.as_ref()?;
        let record = annotations.get(names::SET_LABELS_ANNOTATION)?;
        serde_json::from_str(record).ok()
    }

    /// The command that takes them off.
    pub(crate) fn removal(&self) -> String {
        let keys: Vec<String> = self.labels.keys().map(|key| format!("{key}-")).collect();
        format!("kubectl label node {} {}", self.nodes.join(" "), keys.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_command_sets_a_label_that_describes_the_node() {
        let command = |key: &str| command("a", &[(key.to_owned(), "b".to_owned())].into());
        for key in [
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
            "node.kubernetes.io/instance-type",
            "beta.kubernetes.io/arch",
        ] {
            assert_eq!(command(key), None);
        }
        for key in [
            "kata",
            "example.com/kata",
            "notkubernetes.io/a",
            "example.node-restriction.kubernetes.io/kata",
        ] {
            assert_eq!(command(key), Some(format!("kubectl label node a {key}=b")));
        }
    }
}
