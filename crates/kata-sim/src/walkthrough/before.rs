//! What the cluster looked like, below the API: an inventory to compare with later, and questions to
//! the store's log that no single look at the cluster could answer.

use std::collections::BTreeMap;

use kata_api::names;
use serde_json::Value;
use simcluster::api::EventKind;
use simcluster::{Simulation, resource};

/// Kinds that come and go with the cluster's own work and with what the admin creates.
const OWN_LIFE: [&str; 4] = ["events", "leases", "pods", "namespaces"];
/// Objects that the admin created with the namespace test-kata.
const ADMINS_NAMESPACE: &str = "test-kata";
/// The label that the admin set.
const ADMINS_LABEL: &str = "kata";
/// Annotations of the Machine Config Operator that every update of a node leaves behind.
const TRACES_OF_UPDATES: [&str; 3] =
    [names::mco::DESIRED_DRAIN, names::mco::LAST_APPLIED_DRAIN, names::mco::POST_CONFIG_ACTION];

/// Everything that must be the same before and after, as texts by what they describe.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Inventory(BTreeMap<String, String>);

impl Inventory {
    /// Takes the inventory.
    pub(crate) fn take(sim: &mut Simulation) -> Self {
        let mut entries = BTreeMap::new();
        let resources: Vec<_> = sim.api.registry.iter().map(|def| def.resource.clone()).collect();
        for resource in resources {
            for object in sim.api.list(&resource) {
                let metadata = &object["metadata"];
                let namespace = metadata["namespace"].as_str().unwrap_or_default();
                let name = metadata["name"].as_str().unwrap_or_default();
                if namespace == ADMINS_NAMESPACE || OWN_LIFE.contains(&resource.plural.as_ref()) {
                    continue;
                }
                entries.insert(format!("{resource} {namespace}/{name}"), String::new());
                if resource == resource::NODES {
                    Self::node(&mut entries, name, &object);
                }
            }
        }
        for (name, host) in &sim.world.hosts {
            for (path, text) in &host.files {
                entries.insert(format!("file {name}:{path}"), text.clone());
            }
        }
        Self(entries)
    }

    fn node(entries: &mut BTreeMap<String, String>, name: &str, node: &Value) {
        for (field, values) in [
            ("label", &node["metadata"]["labels"]),
            ("annotation", &node["metadata"]["annotations"]),
        ] {
            for (key, value) in values.as_object().into_iter().flatten() {
                if key == ADMINS_LABEL || TRACES_OF_UPDATES.contains(&key.as_str()) {
                    continue;
                }
                entries.insert(format!("{field} {key} of node {name}"), value.to_string());
            }
        }
        // An empty list is none.
        let taints: Vec<&Value> = node["spec"]["taints"].as_array().into_iter().flatten().collect();
        entries.insert(format!("taints of node {name}"), format!("{taints:?}"));
        entries.insert(
            format!("finalizers of node {name}"),
            node["metadata"]["finalizers"].to_string(),
        );
        entries.insert(
            format!("handlers of node {name}"),
            node["status"]["runtimeHandlers"].to_string(),
        );
        entries.insert(
            format!("unschedulable of node {name}"),
            node["spec"]["unschedulable"].as_bool().unwrap_or_default().to_string(),
        );
    }

    /// How many things were compared.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// What `after` has that this one has not, lacks, or has otherwise.
    pub(crate) fn differences<'a>(&'a self, after: &'a Self) -> impl Iterator<Item = String> + 'a {
        let new = after
            .0
            .keys()
            .filter(|key| !self.0.contains_key(*key))
            .map(|key| format!("{key} is new"));
        let other = self.0.iter().filter_map(|(key, value)| match after.0.get(key) {
            None => Some(format!("{key} is gone")),
            Some(now) if now != value => Some(format!("{key} was {value:?} and is {now:?}")),
            Some(_) => None,
        });
        new.chain(other)
    }
}

/// Whether the RuntimeClass appeared only after a node carried the verified label.
pub(crate) fn class_came_after_node(sim: &mut Simulation) -> bool {
    let Some(events) = sim.api.store.events_after(1) else { return false };
    let mut node = false;
    for event in events {
        if event.resource == resource::NODES
            && event.current["metadata"]["labels"][names::RUNTIME_LABEL]
                == names::RUNTIME_LABEL_VERIFIED
        {
            node = true;
        }
        if event.resource == resource::RUNTIMECLASSES && event.kind == EventKind::Added {
            return node;
        }
    }
    false
}

/// The most workers that were cordoned or not Ready at one time since `revision`; `None` if the log
/// does not reach back that far.
pub(crate) fn most_unavailable_workers(sim: &mut Simulation, revision: u64) -> Option<usize> {
    let mut unavailable = BTreeMap::new();
    let mut peak = 0;
    for event in sim.api.store.events_after(revision)? {
        let node = &event.current;
        if event.resource != resource::NODES
            || node["metadata"]["labels"].get(names::WORKER_ROLE_LABEL).is_none()
        {
            continue;
        }
        let ready = node["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let cordoned = node["spec"]["unschedulable"].as_bool().unwrap_or_default();
        unavailable.insert(event.name.clone(), !ready || cordoned);
        peak = peak.max(unavailable.values().filter(|unavailable| **unavailable).count());
    }
    Some(peak)
}

/// Whether a machine-config daemon reported a failure since `revision`.
pub(crate) fn ever_degraded(sim: &mut Simulation, revision: u64) -> bool {
    sim.api.store.events_after(revision).is_none_or(|mut events| {
        events.any(|event| {
            event.resource == resource::NODES
                && matches!(
                    event.current["metadata"]["annotations"][names::mco::STATE].as_str(),
                    Some("Degraded" | "Unreconcilable")
                )
        })
    })
}

/// How many nodes run a configuration of the pool kata-oc.
pub(crate) fn nodes_on_pool_config(sim: &mut Simulation) -> usize {
    let prefix = format!("{}{}-", names::mco::RENDERED_PREFIX, names::POOL);
    sim.api
        .list(&resource::NODES)
        .iter()
        .filter(|node| {
            node["metadata"]["annotations"][names::mco::CURRENT_CONFIG]
                .as_str()
                .is_some_and(|config| config.starts_with(&prefix))
        })
        .count()
}
