//! What must be the same before and after: the objects of Kata and of the operator, and what an installation changes on nodes.
//!
//! Others change the cluster meanwhile, so objects of other programs, nodes that come and go, and what others write on nodes do not
//! count.

use std::collections::BTreeMap;

use kata_api::names;
use serde_json::Value;

use crate::api::{Api, Scope};
use crate::failure::Failure;
use crate::resource::{
    CRDS, DAEMON_SETS, DEPLOYMENTS, JOBS, KATA_CONFIGS, KATA_NODES, MACHINE_CONFIGS, NAMESPACES,
    NODES, POOLS, RUNTIME_CLASSES, RUNTIME_CONFIGS, Resource, resource,
};

/// Kinds whose objects belong to the cluster: those of Kata have it in their name, or a label of the operator.
const OF_CLUSTER: [Resource; 13] = [
    RUNTIME_CLASSES,
    KATA_CONFIGS,
    KATA_NODES,
    POOLS,
    RUNTIME_CONFIGS,
    MACHINE_CONFIGS,
    NAMESPACES,
    CRDS,
    resource("rbac.authorization.k8s.io", "v1", "clusterroles"),
    resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings"),
    resource("scheduling.k8s.io", "v1", "priorityclasses"),
    resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"),
    resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings"),
];
/// Kinds whose objects belong to a namespace: those with a label of the operator.
const OF_NAMESPACES: [Resource; 5] = [
    DEPLOYMENTS,
    DAEMON_SETS,
    JOBS,
    resource("rbac.authorization.k8s.io", "v1", "roles"),
    resource("rbac.authorization.k8s.io", "v1", "rolebindings"),
];
/// Annotations of the Machine Config Operator that say what the node runs.
const OF_CONFIGURATION: [&str; 2] = [names::mco::CURRENT_CONFIG, names::mco::STATE];

/// What there is, as texts by what they describe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inventory {
    entries: BTreeMap<String, String>,
    nodes: Vec<String>,
}

impl Inventory {
    /// Reads it; `node` is looked at more closely than others.
    ///
    /// # Errors
    /// If a kind may not be listed: then it would not be known whether something of it stays.
    pub(super) async fn read(api: &Api, node: &str) -> Result<Self, Failure> {
        let mut entries = BTreeMap::new();
        for (kinds, by_name) in [(&OF_CLUSTER[..], true), (&OF_NAMESPACES[..], false)] {
            for kind in kinds {
                let labels = format!("{}={}", names::PART_OF, names::PRODUCT);
                let labels = (!by_name).then_some(labels.as_str());
                let objects =
                    api.list::<Value>(*kind, Scope { labels, ..Scope::default() }).await?;
                objects.listed("compare with afterwards", &kind.qualified())?;
                let counts =
                    |object: &&Value| (!by_name || is_of_kata(object)) && !is_probe(object);
                for object in objects.items().iter().filter(counts) {
                    entries.insert(format!("{} {}", kind.qualified(), name(object)), String::new());
                }
            }
        }
        let nodes = api.list::<Value>(NODES, Scope::default()).await?;
        nodes.listed("compare with afterwards", "nodes")?;
        for object in nodes.items() {
            add_node(&mut entries, object, name(object) == node);
        }
        Ok(Self { entries, nodes: nodes.items().iter().map(name).collect() })
    }

    /// How many things are compared.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What `after` has that this one has not, lacks, or has otherwise; of nodes that are in both.
    pub(super) fn differences(&self, after: &Self) -> Vec<String> {
        let is_in_both = |key: &str| match key.split_once(" of node ") {
            Some((_, node)) => [self, after].iter().all(|it| it.nodes.iter().any(|it| it == node)),
            None => true,
        };
        let new = after.entries.iter().filter(|(key, _)| !self.entries.contains_key(*key));
        let new = new.filter(|(key, _)| is_in_both(key)).map(|(key, _)| format!("{key} is new"));
        let before = self.entries.iter().filter(|(key, _)| is_in_both(key));
        let other = before.filter_map(|(key, value)| match after.entries.get(key) {
            None => Some(format!("{key} is gone")),
            Some(now) if now != value => Some(format!("{key} was {value} and is {now}")),
            Some(_) => None,
        });
        new.chain(other).collect()
    }
}

fn name(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    match text("namespace") {
        "" => text("name").to_owned(),
        namespace => format!("{namespace}/{}", text("name")),
    }
}

fn is_of_kata(object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    // The namespace with the pods goes last.
    labels[names::ACCEPT_LABEL].is_null()
        && (name(object).contains("kata")
            || labels[names::PART_OF] == names::PRODUCT
            || labels[names::MANAGED_BY] == names::PRODUCT)
}

/// Whether it is a probe of `verify`, which vanishes by itself.
fn is_probe(object: &Value) -> bool {
    object["metadata"]["labels"]["app.kubernetes.io/component"] == "probe"
}

fn add_node(entries: &mut BTreeMap<String, String>, object: &Value, closely: bool) {
    let node = name(object);
    for field in ["labels", "annotations"] {
        for (key, value) in object["metadata"][field].as_object().into_iter().flatten() {
            let counts =
                key.contains("kata") || (closely && OF_CONFIGURATION.contains(&key.as_str()));
            if counts && key != names::ACCEPT_LABEL {
                entries.insert(format!("{field} {key} of node {node}"), value.to_string());
            }
        }
    }
    let taints = object["spec"]["taints"].as_array().into_iter().flatten();
    for taint in taints.filter_map(|taint| taint["key"].as_str()).filter(|it| it.contains("kata")) {
        entries.insert(format!("taint {taint} of node {node}"), String::new());
    }
    if closely {
        let cordoned = object["spec"]["unschedulable"].as_bool().unwrap_or_default();
        entries.insert(format!("unschedulable of node {node}"), cordoned.to_string());
        let handlers = object["status"]["runtimeHandlers"].as_array().into_iter().flatten();
        let mut handlers: Vec<&str> =
            handlers.filter_map(|handler| handler["name"].as_str()).collect();
        // Container runtimes report them in any order.
        handlers.sort_unstable();
        let handlers = handlers.join(" ").trim().to_owned();
        entries.insert(format!("runtime handlers of node {node}"), handlers);
    }
}
