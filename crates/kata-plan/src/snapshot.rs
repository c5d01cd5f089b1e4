//! What was observed, as the decision's only input, and which further reads a decision can ask for.
//!
//! The shell fills a [`Snapshot`] from its caches, asks [`crate::needs`], reads what is asked, and
//! repeats until nothing is asked any more. It never decides what to read by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::node_task::{NodeAction, NodeReport};
use kata_api::{
    ContainerRuntimeConfig, KataConfig, KataNode, MachineConfig, MachineConfigPool, names,
};
use serde_json::Value;

use crate::object::{Kind, ObjectRef};
use crate::observed::Observed;

/// The cluster, as far as the decision needs it. The order of lists means nothing.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The time of the decision.
    pub now: Timestamp,
    /// Whether the reads below may be older than the last write.
    pub freshness: Freshness,
    /// Settings of the operator that the decision depends on.
    pub options: Options,
    /// All KataConfigs. If they cannot be read there is nothing to decide.
    pub configs: Vec<KataConfig>,
    /// KataConfigs and nodes that exist and cannot be understood; they are in no other list.
    pub unreadable: Vec<UnreadableObject>,
    /// All nodes, shared with the cache that they come from.
    pub nodes: Observed<Vec<Arc<NodeFacts>>>,
    /// All MachineConfigPools.
    pub pools: Observed<Vec<MachineConfigPool>>,
    /// MachineConfigs by name, as [`crate::needs`] asks for them: our own, and rendered ones.
    /// `Known(None)` is one that does not exist. Rendered ones never change, so they may be kept.
    pub machine_configs: BTreeMap<String, Observed<Option<MachineConfig>>>,
    /// The data of the ConfigMap [`kata_api::names::FEATURE_GATES`]; `Known(None)` if there is none.
    pub feature_gates: Observed<Option<BTreeMap<String, String>>>,
    /// The data of the ConfigMap [`kata_api::names::IMAGE_MODE_CONFIG`]; `Known(None)` if there is none.
    pub image_mode: Observed<Option<BTreeMap<String, String>>>,
    /// All ContainerRuntimeConfigs.
    pub container_runtime_configs: Observed<Vec<ContainerRuntimeConfig>>,
    /// All RuntimeClasses.
    pub runtime_classes: Observed<Vec<RuntimeClass>>,
    /// All KataNodes.
    pub kata_nodes: Observed<Vec<Arc<KataNode>>>,
    /// What kata-monitor has in the cluster, from watch caches.
    pub monitor: MonitorObjects,
    /// The Jobs of the node agent, on [`Platform::Kubernetes`].
    pub jobs: JobObjects,
    /// Sandboxed pods, by the scope that [`Need::Pods`] asked for. Read past any cache, always.
    pub pods: BTreeMap<PodScope, Observed<Vec<SandboxedPod>>>,
    /// What holds up the drain of a node, by node, as [`Need::DrainBlockers`] asked.
    pub drain_blockers: BTreeMap<String, Observed<Vec<DrainBlocker>>>,
}

/// An object that exists and cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableObject {
    /// The object.
    pub object: ObjectRef,
    /// When it was created, if at least that can be told.
    pub created: Option<Timestamp>,
    /// What is wrong with it.
    pub error: String,
}

/// What kata-monitor has in the cluster: objects of ours by name, trimmed by
/// [`crate::validate::content`].
#[derive(Clone, Debug, PartialEq)]
pub struct MonitorObjects {
    /// The DaemonSet [`kata_api::names::MONITOR`] in the operator's namespace.
    pub daemon_set: Observed<Option<Value>>,
    /// The SecurityContextConstraints [`kata_api::names::MONITOR_CONSTRAINTS`]; `None` if the API
    /// server does not serve the kind.
    pub constraints: Option<Observed<Option<Value>>>,
}

impl MonitorObjects {
    /// Neither of them exists.
    pub fn absent() -> Self {
        Self { daemon_set: Observed::Known(None), constraints: Some(Observed::Known(None)) }
    }
}

/// The Jobs of the node agent in the operator's namespace, and their pods.
#[derive(Clone, Debug, PartialEq)]
pub struct JobObjects {
    /// The Jobs, made by [`crate::validate::node_job`].
    pub jobs: Observed<Vec<NodeJob>>,
    /// Their pods, made by [`crate::validate::job_pod`].
    pub pods: Observed<Vec<JobPod>>,
}

impl JobObjects {
    /// There is none.
    pub fn absent() -> Self {
        Self { jobs: Observed::Known(Vec::new()), pods: Observed::Known(Vec::new()) }
    }
}

/// A Job of the node agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeJob {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The node that it is for.
    pub node: String,
    /// The uid of that node.
    pub node_uid: String,
    /// What it is to do.
    pub action: NodeAction,
    /// The digest of the wanted state.
    pub state: String,
    /// The digest of the node's facts that it was made for.
    pub facts: String,
    /// Its number on the node.
    pub number: i64,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// How it ended, if it did.
    pub end: Option<JobEnd>,
}

/// The end of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobEnd {
    /// The reason of the condition `Failed`, such as `DeadlineExceeded`; `None` if it is complete.
    pub failed: Option<String>,
    /// What the condition says.
    pub message: String,
    /// When.
    pub at: Option<Timestamp>,
}

/// A pod of such a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPod {
    /// Its name.
    pub name: String,
    /// The name of its Job.
    pub job: String,
    /// The node that it is for, whether or not it is bound to it.
    pub node: String,
    /// Whether it may change the node.
    pub changes: bool,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Whether its phase is `Succeeded` or `Failed`.
    pub finished: bool,
    /// Why it cannot be scheduled, if so.
    pub unschedulable: Option<String>,
    /// Since when it waits for its next container, as long as none runs and the one that carries the task out
    /// has not begun: since the last one ended, or since it was scheduled, or, if that is not known, created.
    pub waits_since: Option<Timestamp>,
    /// The container that cannot start, if one cannot.
    pub stuck: Option<StuckContainer>,
    /// Whether the container that carries the task out has begun.
    pub started: bool,
    /// The report in its termination message: `None` if there is none, an error if it cannot be read.
    pub report: Option<Result<NodeReport, String>>,
    /// How the containers ended that failed, such as `stage: exit code 1: no space left on device`.
    pub failures: Vec<String>,
}

impl JobPod {
    /// Whether it waits for something that may never come, and nothing of it has touched the node.
    pub fn is_waiting(&self) -> bool {
        !self.started && !self.finished && (self.stuck.is_some() || self.unschedulable.is_some())
    }
}

/// A container that waits for something that may never come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckContainer {
    /// Its name.
    pub container: String,
    /// Its image.
    pub image: String,
    /// The kubelet's reason, such as `ImagePullBackOff`.
    pub reason: String,
    /// The kubelet's message.
    pub message: String,
}

/// Who changes the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Platform {
    /// The Machine Config Operator.
    #[default]
    OpenShift,
    /// Jobs of the operator.
    Kubernetes,
}

/// How old the reads of a snapshot may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Freshness {
    /// From watch caches: may be older than our own last write.
    Cached,
    /// KataConfigs, pools, our MachineConfig, ContainerRuntimeConfigs, RuntimeClasses and the Jobs of the
    /// node agent with their pods were read for this pass without a `resourceVersion`; nodes and KataNodes, of which there may be thousands, come
    /// from watch caches. A step about one node may rely on that if its request is refused when the
    /// node is not as it was seen ([`NodeFacts::resource_version`]).
    Objects,
    /// KataConfigs, nodes, pools, our MachineConfig, ContainerRuntimeConfigs, RuntimeClasses and
    /// KataNodes were read for this pass without a `resourceVersion`.
    Quorum,
}

/// Settings of the operator that the decision depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Who changes the nodes.
    pub platform: Platform,
    /// The image of the operator, which has the node agent; `None` if it is not known.
    pub agent_image: Option<String>,
    /// The image that the runtime's files come from if the KataConfig names none.
    pub payload_image: String,
    /// How often a node is compared with what is installed on it.
    pub inspect_every: Duration,
    /// How long a drain may take before it is called blocked.
    pub drain_blocked_after: Duration,
    /// How long any other step of a node's change may take before somebody has to look.
    pub step_slow_after: Duration,
    /// How long a node that was verified may be NotReady before its label goes.
    pub not_ready_grace: Duration,
    /// When to decide again, if something is waited on and nothing is seen to change.
    pub look_again: Duration,
    /// The operator's namespace, where its ConfigMaps are and kata-monitor runs.
    pub namespace: String,
    /// The image of kata-monitor; `None` if it shall not run.
    pub monitor_image: Option<String>,
}

impl Snapshot {
    /// The objects of a kind that cannot be understood, by name.
    pub(crate) fn unreadable(&self, kind: Kind) -> Vec<&UnreadableObject> {
        let mut found: Vec<&UnreadableObject> =
            self.unreadable.iter().filter(|found| found.object.kind == kind).collect();
        found.sort_by(|a, b| a.object.cmp(&b.object));
        found
    }

    /// Whether there is such a node that cannot be understood.
    pub(crate) fn is_unreadable_node(&self, name: &str) -> bool {
        self.unreadable
            .iter()
            .any(|found| found.object.kind == Kind::Node && found.object.name == name)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            platform: Platform::OpenShift,
            agent_image: None,
            payload_image: names::PAYLOAD_IMAGE.to_owned(),
            inspect_every: Duration::from_hours(6),
            drain_blocked_after: Duration::from_mins(10),
            step_slow_after: Duration::from_mins(30),
            not_ready_grace: Duration::from_secs(60),
            look_again: Duration::from_mins(5),
            namespace: names::NAMESPACE.to_owned(),
            monitor_image: None,
        }
    }
}

/// A node, trimmed to what matters; made by [`NodeFacts::from`](crate::validate).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The version of the object in which all these facts were seen first. A later version that
    /// differs only in what is not kept here, such as a heartbeat, changes nothing.
    pub resource_version: String,
    /// All its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations of the Machine Config Operator (`machineconfiguration.openshift.io/`).
    pub annotations: BTreeMap<String, String>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Its condition `Ready`.
    pub ready: Readiness,
    /// The handlers that its container runtime advertises; `None` if the kubelet reports none, which
    /// an older kubelet does too and which therefore says nothing.
    pub runtime_handlers: Option<BTreeSet<String>>,
    /// Its operating system (`linux`, `windows`).
    pub operating_system: String,
    /// The container runtime and its version.
    pub container_runtime_version: String,
    /// The kernel's version.
    pub kernel_version: String,
    /// Changes with every boot.
    pub boot_id: String,
    /// When the object was created.
    pub created: Option<Timestamp>,
    /// Whether the object is being deleted.
    pub deleting: bool,
}

impl NodeFacts {
    /// Whether these are the same facts, seen in the same or another version of the object.
    pub fn same_facts(&self, other: &Self) -> bool {
        let Self {
            name,
            uid,
            resource_version: _,
            labels,
            annotations,
            unschedulable,
            taints,
            ready,
            runtime_handlers,
            operating_system,
            container_runtime_version,
            kernel_version,
            boot_id,
            created,
            deleting,
        } = self;
        *name == other.name
            && *uid == other.uid
            && *labels == other.labels
            && *annotations == other.annotations
            && *unschedulable == other.unschedulable
            && *taints == other.taints
            && *ready == other.ready
            && *runtime_handlers == other.runtime_handlers
            && *operating_system == other.operating_system
            && *container_runtime_version == other.container_runtime_version
            && *kernel_version == other.kernel_version
            && *boot_id == other.boot_id
            && *created == other.created
            && *deleting == other.deleting
    }
}

/// The condition `Ready` of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// `None` if the condition is absent or `Unknown`.
    pub status: Option<bool>,
    /// The condition's reason.
    pub reason: String,
    /// The condition's message.
    pub message: String,
    /// When the condition's status changed last.
    pub since: Option<Timestamp>,
}

/// A pod that uses one of the RuntimeClasses in question.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SandboxedPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its RuntimeClass.
    pub runtime_class: String,
    /// The node that it is bound to, if it is.
    pub node: Option<String>,
    /// Its controller, such as `ReplicaSet web-5d4`.
    pub owner: Option<String>,
    /// Whether its phase is `Succeeded` or `Failed`: nothing of it runs any more.
    pub finished: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// A pod that cannot be evicted from a node that is being drained.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DrainBlocker {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The PodDisruptionBudget that allows no disruption; `None` if the pod is just slow to end.
    pub budget: Option<String>,
}

/// Which pods a read covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodScope {
    /// All pods of the cluster.
    Cluster,
    /// The pods that are bound to this node.
    Node(String),
}

/// A read that the decision wants before it is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A MachineConfig by name, into [`Snapshot::machine_configs`].
    MachineConfig {
        /// Its name.
        name: String,
    },
    /// What is listed at [`Freshness::Objects`], again and past any cache: the decision would disturb
    /// single nodes, and must not do so on an old spec or an old pool. What is in [`Snapshot::pods`]
    /// and [`Snapshot::drain_blockers`] is dropped, and asked for again if it matters.
    Objects,
    /// What is listed at [`Freshness::Quorum`], again and past any cache: the decision would disturb a
    /// node or delete something, and must not do so on old data. What is in [`Snapshot::pods`] and
    /// [`Snapshot::drain_blockers`] is dropped, and asked for again if it matters.
    Quorum,
    /// Sandboxed pods, past any cache, into [`Snapshot::pods`].
    Pods {
        /// Where to look.
        scope: PodScope,
        /// The RuntimeClasses whose pods count; other pods need not be kept.
        classes: BTreeSet<String>,
    },
    /// What holds up the drain of a node (see [`crate::validate::drain_blockers`]), into
    /// [`Snapshot::drain_blockers`].
    DrainBlockers {
        /// The node's name.
        node: String,
    },
}
