//! The sandboxed pods that were read.
//!
//! A read that failed, or that was not made, never counts as an empty list.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::KataConfig;
use kata_api::kata_config::RuntimeSpec;

use crate::classes::is_our_class;
use crate::object::Kind;
use crate::observed::Observed;
use crate::snapshot::{Need, PodScope, SandboxedPod, Snapshot};

/// The sandboxed pods that were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct SandboxedPods {
    /// The RuntimeClasses whose pods the runtime runs, the operator's and foreign ones.
    classes: BTreeSet<String>,
    /// The RuntimeClasses of kata-operator. Pods of the others count only on [`SandboxedPods::nodes`].
    own_classes: BTreeSet<String>,
    /// The nodes on which kata-operator installs Kata, did so, or removes it.
    nodes: BTreeSet<String>,
    read: BTreeMap<PodScope, Observed<Vec<SandboxedPod>>>,
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
        let kata_nodes = snapshot.kata_nodes.known().into_iter().flatten().filter(|it| {
            // Nothing of a foreign class is taken away there.
            !it.status.as_ref().is_some_and(|status| status.provided)
        });
        let mut classes = sandbox_classes(config, existing);
        // It may name a handler of the KataConfig.
        let unreadable = snapshot.unreadable(Kind::RuntimeClass);
        classes.extend(unreadable.into_iter().map(|found| found.object.name.clone()));
        Self {
            classes,
            own_classes: own_classes(config, existing),
            nodes: kata_nodes.map(|it| it.spec.node_name.clone()).collect(),
            read: snapshot.pods.clone(),
        }
    }

    /// Also counts pods of foreign RuntimeClasses on this node.
    pub(crate) fn include_node(&mut self, name: &str) {
        self.nodes.insert(name.to_owned());
    }

    /// The read of the pods in this scope.
    pub(crate) fn need(&self, scope: PodScope) -> Need {
        Need::Pods { scope, classes: self.classes.clone() }
    }

    /// The unfinished pods on a node, sorted. If the whole cluster was read too, that read counts: it is the later one, or a
    /// remembered one. Such a one is never empty, so it holds up every removal, but may not show where a pod runs.
    pub(crate) fn on_node(&self, node: &str) -> Result<Vec<&SandboxedPod>, NotRead<'_>> {
        let whole = self.read.get(&PodScope::Cluster);
        let pods = known(whole.or_else(|| self.read.get(&PodScope::Node(node.to_owned()))))?;
        Ok(self.counted(pods, |pod| pod.node.as_deref() == Some(node)))
    }

    /// The unfinished pods of the cluster, sorted, including those that are not scheduled yet.
    pub(crate) fn in_cluster(&self) -> Result<Vec<&SandboxedPod>, NotRead<'_>> {
        Ok(self.counted(known(self.read.get(&PodScope::Cluster))?, |_| true))
    }

    fn counted<'a>(
        &self,
        pods: &'a [SandboxedPod],
        keep: impl Fn(&SandboxedPod) -> bool,
    ) -> Vec<&'a SandboxedPod> {
        let counts = |pod: &SandboxedPod| {
            self.own_classes.contains(&pod.runtime_class)
                || self.classes.contains(&pod.runtime_class)
                    && pod.node.as_ref().is_some_and(|node| self.nodes.contains(node))
        };
        let mut counted: Vec<&SandboxedPod> =
            pods.iter().filter(|pod| !pod.finished && counts(pod) && keep(pod)).collect();
        counted.sort();
        counted
    }
}

fn known(read: Option<&Observed<Vec<SandboxedPod>>>) -> Result<&[SandboxedPod], NotRead<'_>> {
    match read {
        Some(Observed::Known(pods)) => Ok(pods),
        Some(Observed::Unknown { error, .. }) => Err(NotRead::Failed(error)),
        None => Err(NotRead::NotAsked),
    }
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
