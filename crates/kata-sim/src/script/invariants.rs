//! What must hold of a cluster at every moment, whatever happens to it: the operator's promises, seen
//! from the store and the hosts.
//!
//! It knows nothing of the operator's plans or judgement.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kata_api::names::{self, node_job};
use serde_json::Value;
use simcluster::Simulation;
use simcluster::api::{Event, EventKind};
use simcluster::resource::{MACHINECONFIGPOOLS, MACHINECONFIGS, NODES, PODS, RUNTIMECLASSES};
use simcluster::world::Platform;
use simcluster::world::crio::Handler;

/// How long a running operator may take to see that a node is not usable any more.
const GRACE: SignedDuration = SignedDuration::from_secs(20);

/// The checker, and what it has to remember.
#[derive(Debug, Default)]
pub(crate) struct Invariants {
    /// The revision up to which the log was checked.
    seen: Option<u64>,
    /// Since when a node carries a mark that it should not carry, while the operator runs.
    wrongly_marked: BTreeMap<String, Timestamp>,
    /// What was told already.
    told: BTreeSet<String>,
}

impl Invariants {
    /// Takes no notice of what happened up to a revision: the script itself did it.
    pub(crate) fn skip(&mut self, revision: u64) {
        self.seen = Some(revision);
    }

    /// What is broken and was not told before.
    pub(crate) fn check(&mut self, sim: &Simulation, now: Timestamp, up: bool) -> Vec<String> {
        let revision = sim.api.store.revision();
        let seen = self.seen.replace(revision).unwrap_or(revision);
        let mut broken: Vec<String> = sim
            .api
            .store
            .events_after(seen)
            .into_iter()
            .flatten()
            .filter_map(|event| of_change(sim, event))
            .collect();
        broken.extend(pods_without_runtime(sim));
        broken.extend(crowded_nodes(sim));
        let disturbed = !up || sim.frontend.faults.rules().next().is_some();
        broken.extend(self.marks(sim, now, disturbed));
        broken.retain(|text| self.told.insert(text.clone()));
        broken
    }

    /// Nodes that stay marked as usable and are not.
    fn marks(&mut self, sim: &Simulation, now: Timestamp, disturbed: bool) -> Vec<String> {
        let mut broken = Vec::new();
        let mut wrong = BTreeMap::new();
        for node in sim.api.list(&NODES) {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            let usable = node["spec"]["unschedulable"] != true && has_runtime(sim, name);
            if disturbed || usable || !is_marked(&node) {
                continue;
            }
            let since = self.wrongly_marked.get(name).copied().unwrap_or(now);
            if now.duration_since(since) > GRACE {
                broken.push(format!(
                    "node {name} keeps {}, and is cordoned or has no runtime",
                    names::RUNTIME_LABEL
                ));
            }
            wrong.insert(name.to_owned(), since);
        }
        self.wrongly_marked = wrong;
        broken
    }
}

fn is_marked(node: &Value) -> bool {
    node["metadata"]["labels"][names::RUNTIME_LABEL] == names::RUNTIME_LABEL_VERIFIED
}

/// Whether the host behind a node has the runtime; one that is down counts as it was.
fn has_runtime(sim: &Simulation, node: &str) -> bool {
    sim.world.hosts.get(node).is_none_or(|host| match host.platform() {
        Platform::OpenShift => host.extensions.contains(names::EXTENSION),
        Platform::Kubernetes => host.handlers.values().any(Handler::is_vm),
    })
}

/// Nodes on which two Jobs of the node agent are at work.
fn crowded_nodes(sim: &Simulation) -> Vec<String> {
    let mut by_node: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in sim.api.list(&PODS) {
        let metadata = &pod["metadata"];
        let ours = metadata["labels"][node_job::COMPONENT_LABEL] == node_job::COMPONENT;
        let over = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if let (true, false, Some(node)) = (ours, over, pod["spec"]["nodeName"].as_str()) {
            let name = metadata["name"].as_str().unwrap_or_default();
            by_node.entry(node.to_owned()).or_default().push(name.to_owned());
        }
    }
    let crowded = by_node.into_iter().filter(|(_, pods)| pods.len() > 1);
    crowded.map(|(node, pods)| format!("on node {node} are {}", pods.join(" and "))).collect()
}

fn on_pool(sim: &Simulation) -> Option<String> {
    let prefix = format!("{}{}-", names::mco::RENDERED_PREFIX, names::POOL);
    sim.api.list(&NODES).iter().find_map(|node| {
        let annotations = &node["metadata"]["annotations"];
        [names::mco::CURRENT_CONFIG, names::mco::DESIRED_CONFIG]
            .iter()
            .any(|key| annotations[*key].as_str().is_some_and(|config| config.starts_with(&prefix)))
            .then(|| node["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    })
}

/// Whether a pod that is not at its end names one of these classes.
fn unfinished(pod: &Value, class: &str) -> bool {
    pod["spec"]["runtimeClassName"] == *class
        && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// What a change breaks.
fn of_change(sim: &Simulation, event: &Event) -> Option<String> {
    let deleted = event.kind == EventKind::Deleted;
    let name = event.name.as_str();
    if event.resource == NODES && !deleted {
        let before = event.previous.as_ref().is_some_and(|node| is_marked(node));
        let node = &event.current;
        let ready = node["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let usable = ready && node["spec"]["unschedulable"] != true && has_runtime(sim, name);
        return (is_marked(node) && !before && !usable)
            .then(|| format!("node {name} was marked as verified, and is not usable"));
    }
    if deleted
        && ((event.resource == MACHINECONFIGPOOLS && name == names::POOL)
            || (event.resource == MACHINECONFIGS
                && names::MACHINE_CONFIGS.contains(&name)
                // Unless the other one took its place.
                && names::MACHINE_CONFIGS
                    .iter()
                    .all(|name| sim.api.get(&MACHINECONFIGS, "", name).is_none())))
    {
        return on_pool(sim)
            .map(|node| format!("{} {name} was deleted under node {node}", event.resource));
    }
    if deleted && event.resource == RUNTIMECLASSES {
        let user = sim.api.list(&PODS).into_iter().find(|pod| unfinished(pod, name))?;
        let metadata = &user["metadata"];
        return Some(format!(
            "RuntimeClass {name} was deleted under pod {}/{}",
            metadata["namespace"].as_str().unwrap_or_default(),
            metadata["name"].as_str().unwrap_or_default()
        ));
    }
    None
}

/// Sandboxed pods on nodes that have no runtime for them.
fn pods_without_runtime(sim: &Simulation) -> Vec<String> {
    let ours: BTreeSet<String> = sim
        .api
        .list(&RUNTIMECLASSES)
        .iter()
        .filter(|class| class["handler"] == names::RUNTIME_CLASS)
        .filter_map(|class| class["metadata"]["name"].as_str().map(str::to_owned))
        .chain([names::RUNTIME_CLASS.to_owned()])
        .collect();
    let mut broken = Vec::new();
    for pod in sim.api.list(&PODS) {
        let class = pod["spec"]["runtimeClassName"].as_str().unwrap_or_default();
        let Some(node) = pod["spec"]["nodeName"].as_str() else { continue };
        if ours.contains(class) && unfinished(&pod, class) && !has_runtime(sim, node) {
            broken.push(format!(
                "sandboxed pod {}/{} is on node {node}, which has no runtime",
                pod["metadata"]["namespace"].as_str().unwrap_or_default(),
                pod["metadata"]["name"].as_str().unwrap_or_default()
            ));
        }
    }
    broken
}
