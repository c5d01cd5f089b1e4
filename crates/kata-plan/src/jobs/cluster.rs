//! The cluster while it is assessed: what this back end knows of each node, what is due on it, and what the rollout
//! permits.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use kata_api::kata_node::{JobOutcome, NodeStep};
use kata_api::node_task::NodeAction;

use super::desired::{self, Desired, NodeState};
use super::record::{self, NodeRecord};
use crate::assessment::{Assessment, NodeAssessment};
use crate::snapshot::Snapshot;

/// The kubelet's label for the architecture of a node.
const ARCHITECTURE: &str = "kubernetes.io/arch";

/// The cluster, with the state of this back end.
#[derive(Debug)]
pub(super) struct Cluster<'a> {
    pub(super) snapshot: &'a Snapshot,
    /// The part that does not depend on the back end. It has no nodes until [`super::assess::assess`] adds them.
    pub(super) base: Assessment,
    pub(super) desired: Desired,
    pub(super) nodes: Vec<Host<'a>>,
    /// The nodes whose system or cloud provides Kata; no Job runs there.
    pub(super) provided: Vec<NodeAssessment>,
    pub(super) rollout: Rollout,
    /// Whether a deletion may create its Jobs; see [`super::removal`].
    pub(super) may_remove: bool,
    /// Name and uid of the Jobs whose nodes are not assessed.
    pub(super) orphaned_jobs: Vec<(String, String)>,
}

impl Cluster<'_> {
    pub(super) fn now(&self) -> Timestamp {
        self.base.now
    }

    /// Whether the rollout may remove Kata from a leaving node. In a deletion [`super::removal`] has the pods on the node read
    /// before its Job.
    pub(super) fn is_clear(&self, host: &Host<'_>) -> bool {
        if self.base.deleting {
            return self.may_remove;
        }
        let pods = self.base.pods.on_node(&host.node.facts.name);
        !host.node.has_runtime_label && pods.is_ok_and(|pods| pods.is_empty())
    }
}

/// A node, with the state of this back end.
#[derive(Clone, Debug)]
pub(super) struct Host<'a> {
    pub(super) node: NodeAssessment,
    pub(super) record: NodeRecord<'a>,
    /// See [`Host::facts_digest`].
    pub(super) known_facts_digest: OnceCell<String>,
    pub(super) due: Due,
    /// Whether the rollout permits [`Host::due`] now.
    pub(super) permitted: bool,
    /// Whether the same change was rolled back or refused before, and is not retried.
    pub(super) given_up: bool,
    /// The desired state of the node.
    pub(super) desired: Arc<NodeState>,
    /// Installed handlers that the kubelet does not report.
    pub(super) missing: Vec<String>,
    /// Whether the kubelet should have reported them by now.
    pub(super) overdue: bool,
    /// Whether the node carries the runtime label and offers the handlers, but its KataNode has no record
    /// of it.
    pub(super) is_unrecorded: bool,
}

impl Host<'_> {
    /// Whether the last change left the node in its desired state.
    pub(super) fn is_current(&self) -> bool {
        self.record.status.installed.as_ref() == Some(&self.desired.state)
    }

    /// Whether a Job with this action runs.
    pub(super) fn runs(&self, action: NodeAction) -> bool {
        self.record.running.is_some_and(|(job, _)| job.action == action)
    }

    /// Whether the preflight also stages the payload: the node has another payload, which stays in use
    /// until the change itself begins.
    pub(super) fn stages_ahead(&self) -> bool {
        self.record.status.installed.is_some()
    }

    /// Whether a Job changes the node, or a pod of a deleted Job may still do so.
    pub(super) fn is_changing(&self) -> bool {
        self.runs(NodeAction::Install)
            || self.runs(NodeAction::Remove)
            || self.record.has_orphaned_change()
    }

    /// The digest of the node's facts; see [`desired::facts_digest`].
    pub(super) fn facts_digest(&self) -> &str {
        self.known_facts_digest.get_or_init(|| {
            let retry = record::retry_annotation(self.node.previous.as_deref());
            desired::facts_digest(&self.node.facts, retry)
        })
    }

    /// The number of the next Job.
    pub(super) fn next_number(&self) -> i64 {
        let recorded = self.record.status.job.as_ref().map_or(0, |job| job.number);
        recorded.saturating_add(1)
    }

    /// The step of the Job that changes the node. A removal stages nothing.
    pub(super) fn job_step(&self) -> NodeStep {
        if self.runs(NodeAction::Remove) {
            return NodeStep::Changing;
        }
        let started = self.record.running.and_then(|(_, pod)| pod).is_some_and(|pod| pod.started);
        if started { NodeStep::Changing } else { NodeStep::Staging }
    }

    /// Whether the result of the last Job is unknown.
    pub(super) fn is_unknown(&self) -> bool {
        self.record.status.job.as_ref().is_some_and(record::is_lost)
    }

    /// Whether a change failed and could not be rolled back.
    pub(super) fn is_broken(&self) -> bool {
        let last = self.record.status.job.as_ref();
        last.is_some_and(|last| last.outcome == Some(JobOutcome::Unsafe))
    }
}

/// What is due on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing, until something changes.
    Nothing,
    /// A Job that changes nothing.
    Check(NodeAction),
    /// A Job that changes the node.
    Change(NodeAction),
    /// A retry, not before this time.
    RetryAt(Timestamp),
    /// The kubelet has to report the handlers.
    AwaitKubelet,
}

/// The architecture that a node's kubelet reports.
pub(super) fn architecture(host: &Host<'_>) -> String {
    host.node.facts.labels.get(ARCHITECTURE).cloned().unwrap_or_default()
}

/// Which nodes may be changed now.
#[derive(Clone, Debug, Default)]
pub(super) struct Rollout {
    /// How many nodes may be unavailable at once.
    pub(super) limit: usize,
    /// The nodes that are unavailable, or are being changed, by name.
    pub(super) unavailable: Vec<String>,
    /// By desired state, the nodes on which the change failed, if there are enough to stop the rollout of that state.
    pub(super) stopped_by: BTreeMap<String, Vec<String>>,
    /// By desired state, the nodes on which the change could not even start, if there are enough to try no others:
    /// only these are tried again.
    pub(super) held_by: BTreeMap<String, Vec<String>>,
    /// By desired state and architecture, a node that found the payload unusable: it is unusable on the others, too.
    pub(super) unusable_payload: BTreeMap<(String, String), String>,
    /// The nodes that are skipped for that reason, with the node that found it.
    pub(super) skipped: BTreeMap<String, String>,
    /// `spec.rollout.paused`.
    pub(super) paused: bool,
    /// Whether the settings of a runtime are invalid, so that Kata is only removed.
    pub(super) removes_only: bool,
    /// The nodes that may get their next Job now.
    pub(super) permitted: BTreeSet<String>,
    /// The permitted nodes that are available now and are about to become unavailable.
    pub(super) leaving_service: Vec<String>,
    /// The nodes that have to wait, and why. It does not contain a node whose reason is in a finding: the
    /// rollout [is stopped](Self::is_stopped), or the node itself has a finding.
    pub(super) waiting: BTreeMap<String, WaitReason>,
}

impl Rollout {
    /// Whether the next change of a node is stopped for a reason that a finding names. Only spec.rollout.paused stops
    /// removals.
    pub(super) fn is_stopped(&self, host: &Host<'_>) -> bool {
        let stops_installs = self.removes_only || self.stopped_by.contains_key(&host.desired.state);
        self.paused || (host.node.wanted && stops_installs)
    }

    /// Whether a node is not tried, since the change could not start on others.
    pub(super) fn is_held(&self, host: &Host<'_>) -> bool {
        let tried = self.held_by.get(&host.desired.state);
        tried.is_some_and(|tried| !tried.contains(&host.node.facts.name))
    }

    /// The node that found the payload unusable for a node like this one.
    pub(super) fn found_unusable(&self, host: &Host<'_>) -> Option<&String> {
        self.unusable_payload.get(&(host.desired.state.clone(), architecture(host)))
    }
}

/// Why a node has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WaitReason {
    /// The maximum number of nodes is unavailable, or is about to be.
    MaxUnavailable,
    /// The change has not succeeded on any node yet, and another node tries it first.
    Canary,
    /// The maximum number of nodes has staged, or stages, the payload of its next change.
    StagingLimit,
    /// The maximum number of nodes is being checked.
    CheckLimit,
}
