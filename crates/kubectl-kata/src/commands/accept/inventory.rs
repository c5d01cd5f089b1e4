//! What must be the same before and after: the objects that an installation of Kata brings or changes, and how nodes look to
//! the API server.
//!
//! Others change the cluster meanwhile. So it has what could be of Kata, and of nodes what schedulers and people see; not their
//! heartbeats, and not the objects of other programs.

use std::collections::BTreeMap;

use kata_api::names;
use serde_json::Value;

use crate::api::{Api, Read, Scope};
use crate::failure::Failure;
use crate::resource::{
    CRDS, DAEMON_SETS, DEPLOYMENTS, JOBS, KATA_CONFIGS, KATA_NODES, MACHINE_CONFIGS, NAMESPACES,
    NODES, POOLS, RUNTIME_CLASSES, RUNTIME_CONFIGS, Resource, resource,
};

/// Kinds of which every object counts.
const ALL: [Resource; 5] = [RUNTIME_CLASSES, KATA_CONFIGS, KATA_NODES, POOLS, RUNTIME_CONFIGS];
/// Kinds of which those of Kata count, by their name or label.
const OF_KATA: [Resource; 14] = [
    NAMESPACES,
    CRDS,
    MACHINE_CONFIGS,
    DEPLOYMENTS,
    DAEMON_SETS,
    JOBS,
    resource("rbac.authorization.k8s.io", "v1", "clusterroles"),
    resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings"),
    resource("rbac.authorization.k8s.io", "v1", "roles"),
    resource("rbac.authorization.k8s.io", "v1", "rolebindings"),
    resource("scheduling.k8s.io", "v1", "priorityclasses"),
    resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies"),
    resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings"),
    resource("security.openshift.io", "v1", "securitycontextconstraints"),
];
/// Annotations of the Machine Config Operator that say what a node runs; others tell of its updates.
const OF_CONFIGURATION: [&str; 2] = [names::mco::CURRENT_CONFIG, names::mco::STATE];

/// What there is, as texts by what they describe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inventory(BTreeMap<String, String>);

impl Inventory {
    /// Reads it; `node` is looked at more closely than others.
    pub(super) async fn read(api: &Api, node: &str) -> Result<Self, Failure> {
        let mut entries = BTreeMap::new();
        for (kinds, all) in [(&ALL[..], true), (&OF_KATA[..], false)] {
            for kind in kinds {
                let Read::Known(objects) = api.list::<Value>(*kind, Scope::default()).await? else {
                    continue;
                };
                let counts = |object: &&Value| all || (is_of_kata(object) && !is_probe(object));
                for object in objects.iter().filter(counts) {
                    entries.insert(format!("{} {}", kind.qualified(), name(object)), String::new());
                }
            }
        }
        for object in api.list::<Value>(NODES, Scope::default()).await?.items() {
            add_node(&mut entries, object, name(object) == node);
        }
        Ok(Self(entries))
    }

    /// How many things are compared.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// What `after` has that this one has not, lacks, or has otherwise.
    pub(super) fn differences(&self, after: &Self) -> Vec<String> {
        let new = after.0.keys().filter(|key| !self.0.contains_key(*key));
        let other = self.0.iter().filter_map(|(key, value)| match after.0.get(key) {
            None => Some(format!("{key} is gone")),
            Some(now) if now != value => Some(format!("{key} was {value} and is {now}")),
            Some(_) => None,
        });
        new.map(|key| format!("{key} is new")).chain(other).collect()
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
    name(object).contains("kata")
        || object["metadata"]["labels"][names::PART_OF] == names::PRODUCT
        || object["metadata"]["labels"][names::MANAGED_BY] == names::PRODUCT
}

/// Whether it is a probe of `verify`, which vanishes by itself.
fn is_probe(object: &Value) -> bool {
    object["metadata"]["labels"]["app.kubernetes.io/component"] == "probe"
}

fn add_node(entries: &mut BTreeMap<String, String>, object: &Value, closely: bool) {
    let node = name(object);
    for field in ["labels", "annotations"] {
        for (key, value) in object["metadata"][field].as_object().into_iter().flatten() {
            let counts = (closely && field == "labels")
                || key.contains("kata")
                || OF_CONFIGURATION.contains(&key.as_str());
            // The label of the run itself goes last.
            if counts && key != names::ACCEPT_LABEL {
                entries.insert(format!("{field} {key} of node {node}"), value.to_string());
            }
        }
    }
    let mut add =
        |what: &str, value: String| entries.insert(format!("{what} of node {node}"), value);
    let taints = object["spec"]["taints"].as_array().into_iter().flatten();
    // The node controller sets and removes its own.
    let taints: Vec<&Value> = taints
        .filter(|taint| {
            !taint["key"].as_str().is_some_and(|key| key.starts_with("node.kubernetes.io/"))
        })
        .collect();
    add("taints", format!("{taints:?}"));
    let cordoned = object["spec"]["unschedulable"].as_bool().unwrap_or_default();
    add("unschedulable", cordoned.to_string());
    if closely {
        let handlers = object["status"]["runtimeHandlers"].as_array().into_iter().flatten();
        let handlers: Vec<&str> =
            handlers.map(|handler| handler["name"].as_str().unwrap_or_default()).collect();
        add("runtime handlers", handlers.join(", "));
    }
}
