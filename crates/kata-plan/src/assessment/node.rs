//! A node that has, gets or loses Kata, as a back end assesses it, and its state in a few words.
//! It decides nothing about the node.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use kata_api::kata_node::{HostStatus, NodeStep, Phase};
use kata_api::{Code, KataNode};

use crate::object::{Kind, ObjectRef};
use crate::report::Finding;
use crate::snapshot::NodeFacts;

/// A node that has, gets or loses Kata.
#[derive(Clone, Debug)]
pub(crate) struct NodeAssessment {
    pub(crate) facts: Arc<NodeFacts>,
    /// The node's KataNode as it was last written.
    pub(crate) previous: Option<Arc<KataNode>>,
    /// Whether the node should have Kata.
    pub(crate) wanted: bool,
    /// Whether the node's system or cloud provides Kata, so that the operator only labels the node.
    pub(crate) provided: bool,
    /// Whether the node is in the operator's pool, or is claimed.
    pub(crate) joined: bool,
    /// Whether the node has the label of nodes with Kata. If that is kata-deploy's as well, whether it has one of our classes.
    pub(crate) has_runtime_label: bool,
    /// Whether the node was kata-deploy's, whose label stays.
    pub(crate) keeps_runtime_label: bool,
    pub(crate) label: LabelDecision,
    pub(crate) kata: KataState,
    /// Whether the node has Kata, but not with the desired settings and version. It runs
    /// sandboxed pods meanwhile.
    pub(crate) behind: bool,
    /// Whether the change in progress updates Kata on the node, and is not made for another reason.
    pub(crate) is_being_updated: bool,
    /// Whether the back end removes Kata from the node once no sandboxed pod is left.
    pub(crate) wants_removal: bool,
    /// Why the node is no longer wanted.
    pub(crate) leave_reason: LeaveReason,
    /// When the node loses Kata, or one of its runtimes, because a selector no longer matches it.
    pub(crate) leaves_at: Option<Timestamp>,
    /// The RuntimeClasses whose pods the node should run.
    pub(crate) classes: Arc<BTreeSet<String>>,
    /// RuntimeClasses whose pods the node should not run any more, and whose handlers it keeps until none is left.
    pub(crate) leaving_classes: BTreeSet<String>,
    /// Whether the node has to complete another change first.
    pub(crate) has_earlier_change: bool,
    pub(crate) phase: Phase,
    pub(crate) step: Option<NodeStep>,
    /// Since when the node is in its phase and at its step.
    pub(crate) since: Timestamp,
    /// Why the node makes no progress, or takes no pods.
    pub(crate) finding: Option<Finding>,
    /// Why the node is in the phase `Failed`.
    pub(crate) failure: String,
    /// Whether the node's change failed so often, or has been stuck for so long, that it is not expected to
    /// succeed without an admin.
    pub(crate) has_failed: bool,
    /// Whether the finding has lasted longer than it should.
    pub(crate) is_overdue: bool,
    /// Whether the finding comes from a change that failed before and is retried.
    pub(crate) is_tried_again: bool,
    pub(crate) offered: OfferedHandlers,
    /// The handlers for the status of its KataNode if its kubelet reports none.
    pub(crate) recorded_handlers: BTreeSet<String>,
    /// Whether this version of the operator understands the node's KataNode, and may update it.
    pub(crate) is_understood: bool,
    /// The results of Jobs on the node, for the status of its KataNode.
    pub(crate) record: Option<Arc<HostStatus>>,
    /// When something is due on the node even if no watch event arrives.
    pub(crate) due: Option<Timestamp>,
}

/// The handlers that a node offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OfferedHandlers {
    /// Those that its kubelet reports; all if it reports none.
    Reported,
    /// Those that its kubelet reports; none if it reports none. Nothing else says what a provided node has.
    OnlyReported,
    /// Those of its record, except these, which its kubelet does not report.
    Recorded { except: Vec<String> },
}

/// Why a node is no longer wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LeaveReason {
    /// The KataConfig no longer selects it.
    #[default]
    Deselected,
    /// `spec.providedNodes` no longer selects it.
    NoLongerProvided,
    /// `spec.providedNodes` selects it now, so that what the operator installed goes.
    NowProvided,
}

/// Whether a node has Kata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KataState {
    /// It has Kata, even if it is being changed.
    Installed,
    /// It does not have Kata.
    Absent,
    /// It is getting Kata.
    Installing,
    /// It is losing Kata.
    Removing,
    /// It is not known whether it has Kata.
    Unknown,
}

/// What the operator does with the runtime label of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LabelDecision {
    Set,
    Clear,
    Keep,
}

impl NodeAssessment {
    /// A node of which only the Node object and its record are known. The back end sets the rest.
    pub(crate) fn new(
        facts: &Arc<NodeFacts>,
        previous: Option<&Arc<KataNode>>,
        now: Timestamp,
    ) -> Self {
        Self {
            facts: Arc::clone(facts),
            previous: previous.cloned(),
            wanted: false,
            provided: false,
            joined: false,
            has_runtime_label: facts.has_runtime_label(),
            keeps_runtime_label: false,
            label: LabelDecision::Keep,
            kata: KataState::Absent,
            behind: false,
            is_being_updated: false,
            wants_removal: false,
            leave_reason: LeaveReason::Deselected,
            leaves_at: None,
            classes: Arc::default(),
            leaving_classes: BTreeSet::new(),
            has_earlier_change: false,
            phase: Phase::Unknown,
            step: None,
            since: now,
            finding: None,
            failure: String::new(),
            has_failed: false,
            is_overdue: false,
            is_tried_again: false,
            offered: OfferedHandlers::Reported,
            recorded_handlers: BTreeSet::new(),
            is_understood: true,
            record: None,
            due: None,
        }
    }

    /// The resourceVersion of the node when its facts were read; `None` if it is not known.
    pub(crate) fn version(&self) -> Option<String> {
        Some(self.facts.resource_version.clone()).filter(|version| !version.is_empty())
    }

    pub(crate) fn object(&self) -> ObjectRef {
        ObjectRef::new(Kind::Node, &self.facts.name, Some(&self.facts.uid))
    }

    /// Whether Kata was not installed yet, according to the node's KataNode.
    pub(crate) fn was_installing(&self) -> bool {
        let before = self.previous.as_ref().and_then(|previous| previous.status.as_ref());
        before.is_none_or(|before| matches!(before.phase, Phase::Waiting | Phase::Installing))
    }

    /// Whether a change of the node is in progress.
    pub(crate) fn in_flight(&self) -> bool {
        self.step.is_some_and(|step| !matches!(step, NodeStep::Verifying | NodeStep::Confirming))
            && self.phase != Phase::Failed
    }

    /// Whether the next step of the node depends on its sandboxed pods.
    pub(crate) fn needs_pod_list(&self) -> bool {
        self.wants_removal || !self.leaving_classes.is_empty()
    }

    /// Whether sandboxed pods may run on the node.
    pub(super) fn may_run_pods(&self) -> bool {
        self.joined || self.has_runtime_label || self.kata != KataState::Absent && !self.wanted
    }

    /// Whether the node offers a handler, or its handlers are not known.
    pub(crate) fn offers(&self, handler: &str) -> bool {
        match &self.offered {
            OfferedHandlers::Reported => self.facts.offers(handler),
            OfferedHandlers::OnlyReported => self.facts.reports(handler),
            OfferedHandlers::Recorded { except } => {
                let is = |name: &String| name == handler;
                let is_recorded = self.record.as_ref().is_some_and(|it| it.handlers.iter().any(is));
                is_recorded && !except.iter().any(is)
            }
        }
    }

    /// The version of Kata on the node, if a Job reported it.
    pub(crate) fn kata_version(&self) -> Option<&str> {
        self.record.as_ref()?.kata_version.as_deref()
    }

    /// The node and its state in a few words, such as `worker-1 draining (2/6)`.
    pub(crate) fn brief(&self) -> String {
        format!("{} {}", self.facts.name, self.state())
    }

    /// The state in a few words, such as `draining (2/6)`.
    pub(crate) fn state(&self) -> String {
        let code = self.finding.as_ref().map(|finding| finding.code);
        let state = match (self.phase, self.step) {
            (Phase::Unknown, _) => "in an unknown state",
            (Phase::Failed, _) => "failed",
            (Phase::Ready, Some(NodeStep::Staging)) if self.has_runtime_label => {
                return "ready while its next payload is staged".to_owned();
            }
            (Phase::Ready, _) if self.has_runtime_label && self.behind => "ready and to be updated",
            (Phase::Ready, _) if self.has_runtime_label => "ready",
            (Phase::Ready, _) => "being labelled",
            (Phase::NotReady, _) if code == Some(Code::HandlerMissing) => {
                return "without handler".to_owned();
            }
            (Phase::NotReady, _) if code == Some(Code::HandlersNotReported) => {
                return "without a report of its handlers".to_owned();
            }
            (_, None) if code == Some(Code::NodeCordoned) => "cordoned",
            (_, None) if code == Some(Code::NodeNotReady) => "not Ready",
            (Phase::WaitingToRemove, _) if code == Some(Code::PodsOnLeavingNode) => {
                "blocked by sandboxed pods"
            }
            (Phase::WaitingToRemove, _) if self.has_earlier_change => {
                "waiting for an earlier change"
            }
            (Phase::Waiting, Some(NodeStep::Preflight)) => "being checked",
            (Phase::Waiting | Phase::WaitingToRemove, _) => "waiting",
            (_, Some(NodeStep::Targeted)) => "targeted",
            (_, Some(NodeStep::Draining)) => "draining",
            (_, Some(NodeStep::Applying)) => "applying",
            (_, Some(NodeStep::Rebooting)) => "rebooting",
            (_, Some(NodeStep::Finishing)) => "finishing",
            (_, Some(NodeStep::Verifying)) => "verifying",
            (_, Some(NodeStep::Preflight)) => "being checked",
            (_, Some(NodeStep::Staging)) => "staging",
            (_, Some(NodeStep::Changing)) => "changing",
            (_, Some(NodeStep::Confirming)) => "confirming",
            (Phase::NotReady, None) if self.facts.unschedulable => "cordoned",
            (Phase::NotReady, None) if !self.has_runtime_label => "without label",
            (Phase::NotReady, None) => "not Ready",
            (Phase::Installing | Phase::Updating | Phase::Removing, None) => "being changed",
        };
        let step = match (self.phase, self.step) {
            (
                Phase::Installing | Phase::Updating | Phase::Removing | Phase::NotReady,
                Some(step),
            )
            | (Phase::Waiting, Some(step @ NodeStep::Preflight)) => {
                format!(" ({}/{})", step.number(), step.count())
            }
            _ => String::new(),
        };
        format!("{state}{step}")
    }
}
