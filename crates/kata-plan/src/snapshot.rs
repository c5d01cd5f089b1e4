//! The observed state of the cluster, which is the decision's only input, and the reads that a decision can
//! request.
//!
//! The caller fills a [`Snapshot`] from its caches, calls [`crate::needs`], makes these reads, and repeats
//! until no read is left. It never decides by itself what to read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::node_task::{NodeAction, NodeReport};
use kata_api::{
    ContainerRuntimeConfig, KataConfig, KataNode, MachineConfig, MachineConfigPool, names,
};
use serde_json::Value;

use crate::job_limits::JobLimits;
use crate::object::{Kind, ObjectRef};
use crate::observed::Observed;

/// How long after its creation a node with a startup taint counts as new. An older node may have got the taint while pods
/// ran on it.
const NEW_FOR: SignedDuration = SignedDuration::from_hours(1);

/// The observed state of the cluster, as far as the decision needs it. The order of lists does not matter.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The time of the decision, by the API server's clock.
    pub now: Timestamp,
    /// By how much that clock is ahead of the operator's own.
    pub server_ahead: SignedDuration,
    /// Whether the reads below may be older than the operator's last write.
    pub freshness: Freshness,
    /// Settings of the operator that the decision depends on.
    pub options: Options,
    /// All KataConfigs. A caller that cannot list them makes no snapshot.
    pub configs: Vec<KataConfig>,
    /// Objects of the listed kinds that exist but cannot be parsed; they are in no other list.
    pub unreadable: Vec<UnreadableObject>,
    /// All nodes, shared with their watch cache.
    pub nodes: Observed<Vec<Arc<NodeFacts>>>,
    /// All MachineConfigPools.
    pub pools: Observed<Vec<MachineConfigPool>>,
    /// MachineConfigs by name, as [`crate::needs`] requests them: the operator's and rendered ones.
    /// `Known(None)` is one that does not exist. Rendered ones never change, so the caller may keep them.
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
    /// The objects of kata-monitor, from watch caches.
    pub monitor: MonitorObjects,
    /// The Jobs of the node agent, on [`Platform::Kubernetes`].
    pub jobs: JobObjects,
    /// Sandboxed pods, by the scope that [`Need::Pods`] requested. Never read from a cache.
    pub pods: BTreeMap<PodScope, Observed<Vec<SandboxedPod>>>,
    /// The pods that block the drain of a node, by node, as [`Need::DrainBlockers`] requested.
    pub drain_blockers: BTreeMap<String, Observed<Vec<DrainBlocker>>>,
    /// Whether a namespace exists, by name, as [`Need::Namespace`] requested.
    pub namespaces: BTreeMap<String, Observed<bool>>,
}

/// An object that exists but cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableObject {
    pub object: ObjectRef,
    /// When it was created, if its metadata can be parsed.
    pub created: Option<Timestamp>,
    /// Why it cannot be parsed.
    pub error: String,
}

/// The objects of kata-monitor, trimmed by [`crate::validate::strip_server_fields`].
#[derive(Clone, Debug, PartialEq)]
pub struct MonitorObjects {
    /// The DaemonSet [`kata_api::names::MONITOR`] in the operator's namespace.
    pub daemon_set: Observed<Option<Value>>,
    /// The SecurityContextConstraints [`kata_api::names::MONITOR_CONSTRAINTS`]; `None` if the API
    /// server does not serve the kind.
    pub constraints: Option<Observed<Option<Value>>>,
}

impl MonitorObjects {
    /// Neither object exists.
    pub fn absent() -> Self {
        Self { daemon_set: Observed::Known(None), constraints: Some(Observed::Known(None)) }
    }
}

/// The Jobs of the node agent in the operator's namespace, and their pods.
#[derive(Clone, Debug, PartialEq)]
pub struct JobObjects {
    /// The Jobs, parsed by [`crate::validate::node_job`].
    pub jobs: Observed<Vec<NodeJob>>,
    /// Jobs that exist but cannot be parsed.
    pub unreadable: Vec<UnreadableJob>,
    /// Their pods, parsed by [`crate::validate::job_pod`].
    pub pods: Observed<Vec<JobPod>>,
}

impl JobObjects {
    /// There are no Jobs and no pods of Jobs.
    pub fn absent() -> Self {
        Self::new(Observed::Known(Vec::new()), Observed::Known(Vec::new()))
    }

    /// Separates the Jobs that cannot be parsed from the others.
    pub fn new(
        jobs: Observed<Vec<Result<NodeJob, UnreadableJob>>>,
        pods: Observed<Vec<JobPod>>,
    ) -> Self {
        let mut unreadable = Vec::new();
        let jobs = jobs.map(|all| {
            let readable = all.into_iter().filter_map(|job| match job {
                Ok(job) => Some(job),
                Err(job) => {
                    unreadable.push(job);
                    None
                }
            });
            readable.collect()
        });
        Self { jobs, unreadable, pods }
    }
}

/// A Job of the node agent that cannot be parsed: another version of the operator created it, or
/// another client changed its annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableJob {
    pub name: String,
    pub uid: String,
    /// The node on which it runs.
    pub node: String,
    /// Why it cannot be parsed.
    pub error: String,
}

/// A Job of the node agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeJob {
    pub name: String,
    pub uid: String,
    /// The node on which it runs.
    pub node: String,
    pub node_uid: String,
    pub action: NodeAction,
    pub desired_state_digest: String,
    /// The digest of the node's facts when the Job was created.
    pub node_facts_digest: String,
    /// The image of the payload that it stages, as it was asked for.
    pub payload_image: Option<String>,
    /// Counts the Jobs of the node.
    pub number: i64,
    pub created: Option<Timestamp>,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
    /// That it is suspended, and who did that, as the predicate of a sentence.
    pub held: Option<String>,
    /// How it ended; `None` while it runs.
    pub end: Option<JobEnd>,
}

impl NodeJob {
    /// When it ended, or may have. That is not before it was created and not after `now`, both by the API server's clock:
    /// the clock of the machine that wrote [`JobEnd::time`] may differ. If it is ahead, this is `now` for as long.
    pub(crate) fn ended_at(&self, now: Timestamp) -> Option<Timestamp> {
        let at = self.end.as_ref()?.time?;
        Some(self.created.map_or(at, |created| at.max(created)).min(now))
    }
}

/// The end of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobEnd {
    /// The reason of the condition `Failed`, such as `DeadlineExceeded`; `None` if it is complete.
    pub failed: Option<String>,
    /// The condition's message.
    pub message: String,
    /// When the condition changed, by the clock of who wrote it; see [`NodeJob::ended_at`].
    pub time: Option<Timestamp>,
    /// Whether the Job controller has counted a pod of the Job that ended or was deleted.
    pub had_pod: bool,
}

/// A pod of a Job of the node agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPod {
    pub name: String,
    /// The name of its Job.
    pub job: String,
    /// The node of its Job, even if the pod is not scheduled yet.
    pub node: String,
    pub may_change_node: bool,
    pub created: Option<Timestamp>,
    /// Whether its phase is `Succeeded` or `Failed`.
    pub finished: bool,
    /// That it has scheduling gates, as the predicate of a sentence.
    pub held: Option<String>,
    /// The scheduler's message, if the pod cannot be scheduled.
    pub unschedulable: Option<String>,
    /// Since when it waits for its next container: since the previous container ended, or since the pod was
    /// scheduled or, if that is not known or earlier by another machine's clock, created. `None` if a container
    /// runs, or if the node agent has started.
    pub waits_since: Option<Timestamp>,
    /// The container that cannot start, if there is one.
    pub stuck: Option<StuckContainer>,
    /// Whether the node agent's container has started.
    pub started: bool,
    /// The digest of the image from which it staged a payload, as the kubelet reports it.
    pub staged: Option<String>,
    /// The report in its termination message: `None` if there is none, an error if it cannot be parsed.
    pub report: Option<Result<NodeReport, String>>,
    /// How each failed container ended, such as `stage ended with exit code 1: no space left on device`.
    pub failures: Vec<String>,
}

impl JobPod {
    /// Whether it waits for an image or for the scheduler, and has not changed the node.
    pub fn is_waiting(&self) -> bool {
        !self.started && !self.finished && (self.stuck.is_some() || self.unschedulable.is_some())
    }
}

/// A container that may never start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckContainer {
    pub container: String,
    pub image: String,
    /// The image that the operator asked for, if it is of another repository.
    pub asked_for: Option<String>,
    /// The kubelet's reason, such as `ImagePullBackOff`.
    pub reason: String,
    /// The kubelet's message.
    pub message: String,
}

/// Whether a reason of the kubelet says that a container waits for its image.
pub fn is_pull(reason: &str) -> bool {
    matches!(
        reason,
        "ErrImagePull"
            | "ImagePullBackOff"
            | "InvalidImageName"
            | "ErrImageNeverPull"
            | "RegistryUnavailable"
            | "ImageInspectError"
            | "SignatureValidationFailed"
    )
}

impl StuckContainer {
    /// Whether the container waits for its image.
    pub fn is_pull(&self) -> bool {
        is_pull(&self.reason)
    }

    /// That its image cannot be pulled, and why.
    pub(crate) fn pull(&self) -> String {
        let Self { image, reason, .. } = self;
        let why = self.asked_for.as_ref().map(|asked| {
            format!("; the operator requested {asked}, so something replaced the image, such as an admission webhook")
        });
        let why = why.unwrap_or_default();
        format!("image {image} cannot be pulled: {reason}{}{why}", self.detail())
    }

    /// The kubelet's message with a colon before it, or an empty text.
    pub(crate) fn detail(&self) -> String {
        if self.message.is_empty() { String::new() } else { format!(": {}", self.message) }
    }
}

/// The back end that changes the nodes.
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
    /// From watch caches, which may be older than the operator's last write.
    Cached,
    /// KataConfigs, pools, the operator's MachineConfigs, ContainerRuntimeConfigs, RuntimeClasses and the
    /// Jobs of the node agent with their pods were read for this pass without a `resourceVersion`. Nodes
    /// and KataNodes, of which there may be thousands, come from watch caches. That is enough for a step
    /// about one node if the API server refuses its request once the node has changed
    /// ([`NodeFacts::resource_version`]).
    Objects,
    /// As [`Freshness::Objects`], and nodes and KataNodes were read for this pass without a
    /// `resourceVersion`, too.
    Quorum,
}

/// Settings of the operator that the decision depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub platform: Platform,
    /// The image of the operator, which contains the node agent; `None` if it is not known.
    pub agent_image: Option<String>,
    /// The name of the extension of the operating system with Kata; `None` means by the operating system.
    pub extension: Option<String>,
    /// What a container of a Job may use at most.
    pub job_limits: JobLimits,
    /// The image with the runtime's files, if the KataConfig names none.
    pub payload_image: String,
    /// How often a Job inspects what is installed on a node.
    pub inspect_every: Duration,
    /// How long a drain may take before the operator reports it as blocked.
    pub drain_blocked_after: Duration,
    /// How long any other step of a node's change may take before the operator reports it.
    pub step_slow_after: Duration,
    /// For how long a written KataNode may show an old step and old details while its node is being changed. A step may
    /// have begun this much earlier than its `since`.
    pub steps_published_after: Duration,
    /// After how long to requeue while the operator waits and no watch event arrives.
    pub requeue_after: Duration,
    /// The operator's namespace, which also contains its ConfigMaps, its Jobs and kata-monitor.
    pub namespace: String,
    /// The image of kata-monitor; `None` if kata-monitor is disabled.
    pub monitor_image: Option<String>,
}

impl Snapshot {
    /// The objects of a kind that cannot be parsed, sorted by name.
    pub(crate) fn unreadable(&self, kind: Kind) -> Vec<&UnreadableObject> {
        let mut found: Vec<&UnreadableObject> =
            self.unreadable.iter().filter(|found| found.object.kind == kind).collect();
        found.sort_by(|a, b| a.object.cmp(&b.object));
        found
    }

    /// Whether the object of this kind and name cannot be parsed.
    pub(crate) fn is_unreadable(&self, kind: Kind, name: &str) -> bool {
        self.unreadable.iter().any(|found| found.object.kind == kind && found.object.name == name)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            platform: Platform::OpenShift,
            agent_image: None,
            extension: None,
            job_limits: JobLimits::default(),
            payload_image: names::PAYLOAD_IMAGE.to_owned(),
            inspect_every: Duration::from_hours(6),
            drain_blocked_after: Duration::from_mins(10),
            step_slow_after: Duration::from_mins(30),
            steps_published_after: Duration::from_mins(2),
            requeue_after: Duration::from_mins(5),
            namespace: names::NAMESPACE.to_owned(),
            monitor_image: None,
        }
    }
}

/// The fields of a Node that the decision reads; see [`crate::validate`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFacts {
    pub name: String,
    pub uid: String,
    /// The first version of the object that had all these facts. A later version that differs only in other
    /// fields, such as a heartbeat, does not change it.
    pub resource_version: String,
    pub labels: BTreeMap<String, String>,
    /// The annotations of the Machine Config Operator (`machineconfiguration.openshift.io/`).
    pub annotations: BTreeMap<String, String>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// The taints that the decision reads; see [`crate::validate::kept_taints`].
    pub taints: Vec<Taint>,
    pub ready: Readiness,
    /// Those of the conditions `DiskPressure` and `NetworkUnavailable` that are not `False`. The Machine
    /// Config Operator reads them and `Ready`.
    pub failing_conditions: BTreeSet<String>,
    /// The handlers that the kubelet reports; `None` if it reports none. An older kubelet never reports
    /// any, so `None` does not mean that a handler is missing.
    pub runtime_handlers: Option<BTreeSet<String>>,
    /// `linux` or `windows`.
    pub operating_system: String,
    /// Such as `containerd://2.1.4`.
    pub container_runtime_version: String,
    pub kernel_version: String,
    /// Such as `Red Hat Enterprise Linux CoreOS 9.6`.
    pub os_image: String,
    pub allocatable: Allocatable,
    /// A new one with every boot.
    pub boot_id: String,
    pub created: Option<Timestamp>,
    /// Whether the object has a deletion timestamp.
    pub deleting: bool,
}

impl NodeFacts {
    /// Whether the node has the taint of an earlier release.
    pub(crate) fn has_leaving_taint(&self) -> bool {
        self.taints.iter().any(|taint| taint.key == names::LEAVING_TAINT)
    }

    /// Whether a startup taint keeps pods off the node.
    pub(crate) fn has_startup_taint(&self) -> bool {
        let keeps_off = |taint: &Taint| taint.effect != "PreferNoSchedule";
        let mut taints = self.taints.iter().filter(|taint| keeps_off(taint));
        taints.any(|taint| names::STARTUP_TAINTS.contains(&taint.key.as_str()))
    }

    /// Whether the node has no pod of a service: a startup taint keeps pods off, and the node is new or the taint also
    /// evicts.
    pub(crate) fn has_no_service_pods(&self, now: Timestamp) -> bool {
        let is_new = self.created.is_some_and(|created| now.duration_since(created) < NEW_FOR);
        let is_startup = |taint: &&Taint| names::STARTUP_TAINTS.contains(&taint.key.as_str());
        let evicts = self.taints.iter().filter(is_startup).any(|taint| taint.effect == "NoExecute");
        self.has_startup_taint() && (is_new || evicts)
    }

    /// Whether the node has the label of nodes that have Kata.
    pub(crate) fn has_runtime_label(&self) -> bool {
        self.labels.get(names::RUNTIME_LABEL).map(String::as_str)
            == Some(names::RUNTIME_LABEL_VERIFIED)
    }

    /// Whether the node has the label of one of our RuntimeClasses.
    pub(crate) fn has_class_label(&self) -> bool {
        self.labels.keys().any(|key| key.starts_with(names::CLASS_LABEL_PREFIX))
    }

    /// Whether kata-deploy installed Kata on the node, or we did where it had.
    pub(crate) fn is_of_kata_deploy(&self) -> bool {
        self.labels.contains_key(names::KATA_DEPLOY_LABEL)
    }

    /// Whether the node's kubelet reports a handler.
    pub(crate) fn reports(&self, handler: &str) -> bool {
        self.runtime_handlers.as_ref().is_some_and(|reported| reported.contains(handler))
    }

    /// Whether the node's kubelet reports a handler, or reports no handlers at all.
    pub(crate) fn offers(&self, handler: &str) -> bool {
        self.runtime_handlers.as_ref().is_none_or(|reported| reported.contains(handler))
    }

    /// Whether the facts are equal. The versions of the two objects may differ.
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
            failing_conditions,
            runtime_handlers,
            operating_system,
            container_runtime_version,
            kernel_version,
            os_image,
            allocatable,
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
            && *failing_conditions == other.failing_conditions
            && *runtime_handlers == other.runtime_handlers
            && *operating_system == other.operating_system
            && *container_runtime_version == other.container_runtime_version
            && *kernel_version == other.kernel_version
            && *os_image == other.os_image
            && *allocatable == other.allocatable
            && *boot_id == other.boot_id
            && *created == other.created
            && *deleting == other.deleting
    }

    /// Whether the change from `old` is only progress of a change that the Machine Config Operator makes: it has not
    /// ended, and it changes only what the operator reports.
    pub fn is_progress_since(&self, old: &Self) -> bool {
        !self.is_settled()
            && !self.is_degraded()
            && self.labels == old.labels
            && self.deleting == old.deleting
            && self.uid == old.uid
            && (self.unschedulable == old.unschedulable || !self.has_runtime_label())
    }
}

/// What pods may use of a node; `None` if its status does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocatable {
    /// In thousandths of a CPU.
    pub cpu: Option<i64>,
    /// In bytes.
    pub memory: Option<i64>,
    pub pods: Option<i64>,
}

/// The condition `Ready` of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// `None` if the condition is absent or `Unknown`.
    pub status: Option<bool>,
    pub reason: String,
    pub message: String,
    /// When the condition's status last changed.
    pub since: Option<Timestamp>,
}

/// A pod with a RuntimeClass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SandboxedPod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub runtime_class: String,
    /// The node that it is bound to; `None` if it is not scheduled yet.
    pub node: Option<String>,
    /// Its controller, such as `StatefulSet db`.
    pub owner: Option<String>,
    /// Whether its phase is `Succeeded` or `Failed`, so that none of its containers runs any more.
    pub finished: bool,
    /// Whether it has a deletion timestamp.
    pub deleting: bool,
}

/// A pod that cannot be evicted from a node that is being drained.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DrainBlocker {
    pub namespace: String,
    pub pod: String,
    /// The PodDisruptionBudget that allows no disruption; `None` if the pod was deleted and has not ended.
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

/// A read that the decision requires first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A MachineConfig by name, into [`Snapshot::machine_configs`].
    MachineConfig { name: String },
    /// A fresh read of the objects that [`Freshness::Objects`] names, past any cache: the decision would
    /// disrupt single nodes, and must not do so on an old spec or an old pool. The caller clears
    /// [`Snapshot::pods`] and [`Snapshot::drain_blockers`]; the decision requests them again if it needs
    /// them.
    Objects,
    /// A fresh read of the objects that [`Freshness::Quorum`] names, past any cache: the decision would
    /// disrupt nodes or delete objects, and must not do so on old data. The caller clears
    /// [`Snapshot::pods`] and [`Snapshot::drain_blockers`]; the decision requests them again if it needs
    /// them.
    Quorum,
    /// Sandboxed pods, past any cache, into [`Snapshot::pods`].
    Pods {
        scope: PodScope,
        /// The RuntimeClasses whose pods count; the caller may leave out other pods.
        classes: BTreeSet<String>,
    },
    /// The pods that block the drain of a node (see [`crate::validate::drain_blockers`]), into
    /// [`Snapshot::drain_blockers`].
    DrainBlockers { node: String },
    /// Whether a namespace exists, into [`Snapshot::namespaces`].
    Namespace { name: String },
}
