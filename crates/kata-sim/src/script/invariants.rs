//! What must hold of a cluster at every moment and after every event: the operator's promises, seen
//! from the store and the hosts.
//!
//! It knows nothing of the operator's plans or judgement.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kata_api::names::{self, node_job};
use serde_json::Value;
use simcluster::Simulation;
use simcluster::api::{Event, EventKind};
use simcluster::recorder::condition;
use simcluster::resource::{MACHINECONFIGPOOLS, MACHINECONFIGS, NODES, PODS, RUNTIMECLASSES};
use simcluster::world::crio::Handler;
use simcluster::world::{NodeFault, Platform};

/// How long a running operator may take to see that a node has lost its runtime.
const GRACE: SignedDuration = SignedDuration::from_secs(20);

/// The checker, and what it has to remember.
#[derive(Debug, Default)]
pub(crate) struct Invariants {
    /// The revision up to which the log was checked.
    seen: Option<u64>,
    /// Since when a node carries a mark that it should not carry, while the operator runs.
    wrongly_marked: BTreeMap<String, Timestamp>,
    /// Nodes that were marked since they got the runtime.
    verified: BTreeSet<String>,
    /// What was reported already.
    reported: BTreeSet<String>,
}

impl Invariants {
    /// Takes no notice of what happened up to a revision: the script itself did it.
    pub(crate) fn skip(&mut self, revision: u64) {
        self.seen = Some(revision);
    }

    /// What is broken and was not reported before.
    pub(crate) fn check(&mut self, sim: &Simulation, now: Timestamp, up: bool) -> Vec<String> {
        let revision = sim.api.store.revision();
        let seen = self.seen.replace(revision).unwrap_or(revision);
        let events: Vec<Arc<Event>> =
            sim.api.store.events_after(seen).into_iter().flatten().cloned().collect();
        let mut broken: Vec<String> =
            events.iter().filter_map(|event| self.of_change(sim, event)).collect();
        broken.extend(pods_without_runtime(sim));
        broken.extend(crowded_nodes(sim));
        let disturbed = !up || sim.frontend.faults.rules().next().is_some();
        broken.extend(self.marks(sim, now, disturbed));
        broken.retain(|text| self.reported.insert(text.clone()));
        self.verified.retain(|node| has_runtime(sim, node));
        broken
    }

    /// Nodes that stay marked and have no runtime, and to which new pods could come all the same.
    fn marks(&mut self, sim: &Simulation, now: Timestamp, disturbed: bool) -> Vec<String> {
        let mut broken = Vec::new();
        let mut wrong = BTreeMap::new();
        for node in sim.api.list(&NODES) {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            let open = is_marked(&node) && takes_pods(&node);
            if disturbed || has_runtime(sim, name) || !open {
                continue;
            }
            let since = self.wrongly_marked.get(name).copied().unwrap_or(now);
            if now.duration_since(since) > GRACE {
                broken.push(format!(
                    "node {name} keeps {}, and has no runtime",
                    names::RUNTIME_LABEL
                ));
            }
            wrong.insert(name.to_owned(), since);
        }
        self.wrongly_marked = wrong;
        broken
    }

    /// What a change breaks.
    fn of_change(&mut self, sim: &Simulation, event: &Event) -> Option<String> {
        let deleted = event.kind == EventKind::Deleted;
        let name = event.name.as_str();
        if event.resource == NODES && !deleted {
            return self.of_node(sim, event);
        }
        if event.resource == PODS && event.kind == EventKind::Modified {
            return refused_pod(sim, event);
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
            return Some(format!("RuntimeClass {name} was deleted under pod {}", full_name(&user)));
        }
        None
    }

    /// A node is marked when its runtime was verified, which takes a Ready node the first time, and keeps
    /// its mark while sandboxed pods run there.
    fn of_node(&mut self, sim: &Simulation, event: &Event) -> Option<String> {
        let (name, node) = (event.name.as_str(), &event.current);
        // The template of a node group may promise the label.
        let previous = event.previous.as_ref()?;
        match (is_marked(previous), is_marked(node)) {
            (true, false) => return pod_of_unmarked(sim, name),
            (false, true) => {}
            (true, true) | (false, false) => return None,
        }
        let ready = node["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let first = self.verified.insert(name.to_owned());
        let verified = has_runtime(sim, name) && (ready || !first);
        (!verified).then(|| format!("node {name} was marked as verified, and is not usable"))
    }
}

/// A running sandboxed pod on a node that has lost its mark, and not the use of its runtime.
fn pod_of_unmarked(sim: &Simulation, node: &str) -> Option<String> {
    let without_kvm =
        sim.world.hosts.get(node).is_some_and(|host| host.faults.contains(&NodeFault::NoKvm));
    let runs = |pod: &Value| {
        !without_kvm && pod["spec"]["nodeName"] == *node && pod["status"]["phase"] == "Running"
    };
    let pod = sim.api.list(&PODS).into_iter().find(|pod| runs(pod) && is_sandboxed(sim, pod))?;
    Some(format!("node {node} lost its mark under sandboxed pod {}", full_name(&pod)))
}

/// A sandboxed pod that ran on a node with its handler, until the kubelet did not admit it again.
fn refused_pod(sim: &Simulation, event: &Event) -> Option<String> {
    let (before, after) = (event.previous.as_ref()?, &event.current);
    let node = after["spec"]["nodeName"].as_str()?;
    let reason = after["status"]["reason"].as_str()?;
    let ran = before["status"]["phase"] == "Running" && after["status"]["phase"] == "Failed";
    let refused = matches!(reason, "NodeAffinity" | "TaintToleration");
    (ran && refused && is_sandboxed(sim, after)).then(|| {
        format!("the kubelet of node {node} failed sandboxed pod {}: {reason}", full_name(after))
    })
}

/// Whether the class of a pod is one whose handler the pod's node offers, and which makes virtual machines.
fn is_sandboxed(sim: &Simulation, pod: &Value) -> bool {
    let handler = || {
        let class = pod["spec"]["runtimeClassName"].as_str()?;
        let class = sim.api.get(&RUNTIMECLASSES, "", class)?;
        let host = sim.world.hosts.get(pod["spec"]["nodeName"].as_str()?)?;
        host.handlers.get(class["handler"].as_str()?).map(Handler::is_vm)
    };
    handler().unwrap_or(false)
}

fn full_name(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

fn is_marked(node: &Value) -> bool {
    node["metadata"]["labels"][names::RUNTIME_LABEL] == names::RUNTIME_LABEL_VERIFIED
}

/// Whether the scheduler may bind pods to a node.
fn takes_pods(node: &Value) -> bool {
    condition(node, "Ready") == "True" && node["spec"]["unschedulable"] != true
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
            let pod = full_name(&pod);
            broken.push(format!("sandboxed pod {pod} is on node {node}, which has no runtime"));
        }
    }
    broken
}
