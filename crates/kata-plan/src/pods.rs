//! The sandboxed pods that were read.
//!
//! A read that failed, or that was not made, never counts as an empty list.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::KataConfig;
use kata_api::kata_config::RuntimeSpec;
use kata_api::node_task::EarlierRelease;

use crate::classes::is_our_class;
use crate::object::Kind;
use crate::observed::Observed;
use crate::snapshot::{Need, PodScope, SandboxedPod, Snapshot};

/// The sandboxed pods that were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct SandboxedPods {
    /// The RuntimeClasses whose pods the runtime runs, the operator's and foreign ones.
    classes: BTreeSet<String>,
    /// The RuntimeClasses of kata-operator.
    own_classes: BTreeSet<String>,
    /// The nodes with pods of other RuntimeClasses, and whether these pods count: kata-operator installs Kata there, did
    /// so, or removes it.
    with_foreign_pods: BTreeMap<String, bool>,
    /// The pods of kata-deploy that a deletion gives back with their nodes, as KataNodes list them.
    given_back: BTreeSet<String>,
    /// The nodes of kata-deploy that a deletion leaves as they are, since nothing of ours is on them.
    left_alone: BTreeSet<String>,
    /// The read of the whole cluster, or its error.
    whole: Option<Result<PodList, String>>,
    /// The reads of single nodes, by the node.
    of_nodes: BTreeMap<String, Result<PodList, String>>,
}

/// The unfinished pods of one read whose RuntimeClasses are in [`SandboxedPods::classes`] or
/// [`SandboxedPods::own_classes`], sorted.
#[derive(Clone, Debug, Default)]
struct PodList {
    pods: Vec<SandboxedPod>,
    /// The pods on each node, by their places in the list.
    on_node: BTreeMap<String, Vec<usize>>,
}

/// Why the pods are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRead<'a> {
    /// The read was not made in this pass.
    NotAsked,
    /// The read failed with this error.
    Failed(&'a str),
}

impl SandboxedPods {
    /// The pods of a snapshot, for its active KataConfig.
    pub(crate) fn of(snapshot: &Snapshot, config: &KataConfig) -> Self {
        let existing = snapshot.runtime_classes.known().map_or(&[][..], Vec::as_slice);
        let mut classes = sandbox_classes(config, existing);
        // It may name a handler of the KataConfig.
        let unreadable = snapshot.unreadable(Kind::RuntimeClass);
        classes.extend(unreadable.into_iter().map(|found| found.object.name.clone()));
        let mut all = Self {
            own_classes: own_classes(config, existing),
            classes,
            given_back: given_back(snapshot, config),
            left_alone: left_alone(snapshot, config),
            ..Self::default()
        };
        for (scope, read) in &snapshot.pods {
            let list = match read {
                Observed::Known(pods) => Ok(all.list(pods)),
                Observed::Unknown { error, .. } => Err(error.clone()),
            };
            match scope {
                PodScope::Cluster => all.whole = Some(list),
                PodScope::Node(node) => {
                    all.of_nodes.insert(node.clone(), list);
                }
            }
        }
        for kata_node in snapshot.kata_nodes.known().into_iter().flatten() {
            // Nothing of a foreign class is taken away from a provided node.
            if !kata_node.status.as_ref().is_some_and(|status| status.provided) {
                all.include_node(&kata_node.spec.node_name);
            }
        }
        all
    }

    /// The list of a read. The nodes of its pods of other RuntimeClasses are remembered.
    fn list(&mut self, read: &[SandboxedPod]) -> PodList {
        let is_sandboxed = |pod: &&SandboxedPod| {
            self.classes.contains(&pod.runtime_class)
                || self.own_classes.contains(&pod.runtime_class)
        };
        let pods = read.iter().filter(|pod| !pod.finished).filter(is_sandboxed);
        let mut list = PodList { pods: pods.cloned().collect(), ..PodList::default() };
        list.pods.sort();
        for (place, pod) in list.pods.iter().enumerate() {
            let Some(node) = &pod.node else { continue };
            list.on_node.entry(node.clone()).or_default().push(place);
            if !self.own_classes.contains(&pod.runtime_class) {
                self.with_foreign_pods.entry(node.clone()).or_default();
            }
        }
        list
    }

    /// Also counts pods of foreign RuntimeClasses on this node.
    pub(crate) fn include_node(&mut self, name: &str) {
        if let Some(counts) = self.with_foreign_pods.get_mut(name) {
            *counts = true;
        }
    }

    /// The read of the pods in this scope.
    pub(crate) fn need(&self, scope: PodScope) -> Need {
        Need::Pods { scope, classes: self.classes.clone() }
    }

    /// The unfinished pods on a node, sorted. If the whole cluster was read too, that read counts: it is the later one, or a
    /// remembered one. Such a one is never empty, so it holds up every removal, but may not show where a pod runs.
    pub(crate) fn on_node(&self, node: &str) -> Result<Vec<&SandboxedPod>, NotRead<'_>> {
        let list = known(self.whole.as_ref().or_else(|| self.of_nodes.get(node)))?;
        let places = list.on_node.get(node).into_iter().flatten();
        let pods = places.filter_map(|place| list.pods.get(*place));
        Ok(pods.filter(|pod| self.counts(pod)).collect())
    }

    /// The unfinished pods of the cluster, sorted, including those that are not scheduled yet.
    pub(crate) fn in_cluster(&self) -> Result<Vec<&SandboxedPod>, NotRead<'_>> {
        let list = known(self.whole.as_ref())?;
        Ok(list.pods.iter().filter(|pod| self.counts(pod)).collect())
    }

    /// Whether [`Self::in_cluster`] has no pod; it is asked for each node.
    pub(crate) fn cluster_is_free(&self) -> Result<bool, NotRead<'_>> {
        Ok(!known(self.whole.as_ref())?.pods.iter().any(|pod| self.counts(pod)))
    }

    fn counts(&self, pod: &SandboxedPod) -> bool {
        let is_left_alone = |node| self.left_alone.contains(node);
        if self.given_back.contains(EarlierRelease::listed(&pod.uid))
            || pod.node.as_ref().is_some_and(is_left_alone)
        {
            return false;
        }
        let on_counted = |node| self.with_foreign_pods.get(node).is_some_and(|counts| *counts);
        self.own_classes.contains(&pod.runtime_class) || pod.node.as_ref().is_some_and(on_counted)
    }
}

fn known(read: Option<&Result<PodList, String>>) -> Result<&PodList, NotRead<'_>> {
    match read {
        Some(Ok(list)) => Ok(list),
        Some(Err(error)) => Err(NotRead::Failed(error)),
        None => Err(NotRead::NotAsked),
    }
}

/// The pods, as KataNodes list them, that run from the payload of kata-deploy: a deletion with `spec.takeOver` brings that
/// back, so they hold up nothing.
pub(crate) fn given_back(snapshot: &Snapshot, config: &KataConfig) -> BTreeSet<String> {
    if config.spec.take_over.is_none() || config.metadata.deletion_timestamp.is_none() {
        return BTreeSet::new();
    }
    let kata_nodes = snapshot.kata_nodes.known().into_iter().flatten();
    let hosts = kata_nodes.filter_map(|kata_node| kata_node.status.as_ref()?.host.as_ref());
    let releases = hosts.flat_map(|host| &host.earlier).filter(|release| release.of_kata_deploy);
    releases.flat_map(|release| release.pods.iter().cloned()).collect()
}

/// The nodes of kata-deploy on which nothing of ours is, in a deletion.
fn left_alone(snapshot: &Snapshot, config: &KataConfig) -> BTreeSet<String> {
    if config.metadata.deletion_timestamp.is_none() {
        return BTreeSet::new();
    }
    let kata_nodes = snapshot.kata_nodes.known().into_iter().flatten();
    let ours: BTreeSet<&str> = kata_nodes
        .filter(|kata_node| {
            let host = kata_node.status.as_ref().and_then(|status| status.host.as_ref());
            host.is_none_or(|host| host.installed.is_some() || host.may_have_artifacts)
        })
        .map(|kata_node| kata_node.spec.node_name.as_str())
        .collect();
    let jobs = snapshot.jobs.jobs.known().into_iter().flatten();
    let running = jobs.filter(|job| job.end.is_none());
    let changed: BTreeSet<&str> = running.map(|job| job.node.as_str()).collect();
    let nodes = snapshot.nodes.known().into_iter().flatten();
    let nodes = nodes.filter(|node| node.is_of_kata_deploy());
    let names = nodes.map(|node| node.name.as_str());
    names
        .filter(|name| !ours.contains(name) && !changed.contains(name))
        .map(str::to_owned)
        .collect()
}

/// Every RuntimeClass whose pods the runtime runs: those that kata-operator offers or offered, and foreign
/// ones that name one of its handlers.
pub fn sandbox_classes(config: &KataConfig, existing: &[RuntimeClass]) -> BTreeSet<String> {
    let runtimes = config.spec.effective_runtimes();
    let handlers: BTreeSet<&str> = runtimes.iter().map(RuntimeSpec::effective_handler).collect();
    let mut classes: BTreeSet<String> =
        runtimes.iter().map(|runtime| runtime.name.clone()).collect();
    classes.extend(config.status.iter().flat_map(|status| status.runtime_classes.iter().cloned()));
    classes.extend(
        existing
            .iter()
            .filter(|class| handlers.contains(class.handler.as_str()) || is_our_class(class))
            .filter_map(|class| class.metadata.name.clone()),
    );
    classes
}

/// The RuntimeClasses that kata-operator offers or offered. A foreign class that has one of these names is
/// excluded.
pub(crate) fn own_classes(config: &KataConfig, existing: &[RuntimeClass]) -> BTreeSet<String> {
    let runtimes = config.spec.effective_runtimes();
    let mut own: BTreeSet<String> = runtimes.into_iter().map(|runtime| runtime.name).collect();
    own.extend(config.status.iter().flat_map(|status| status.runtime_classes.iter().cloned()));
    for class in existing {
        let name = class.metadata.name.clone().unwrap_or_default();
        if is_our_class(class) {
            own.insert(name);
        } else {
            own.remove(&name);
        }
    }
    own
}
