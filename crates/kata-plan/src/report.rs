//! The report of a decision: findings, waits, the progress of each node, status and Events.
//!
//! Conditions, Events, logs, the plugin and `--dry-run` all render these values; no other code words a
//! reason.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use kata_api::kata_config::{FindingStatus, FindingSubject};
use kata_api::kata_node::{HostStatus, NodeStep, Phase};
use kata_api::{Code, KataConfigStatus, Natural, Severity};

use crate::object::ObjectRef;
use crate::text;

/// Most bytes of a message or a fix in the status: the status is written often.
const FINDING_BYTES: usize = 1_024;

/// The report of a decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The problems, worst first.
    pub findings: Vec<Finding>,
    /// Why the remaining steps are not part of this pass.
    pub waiting_on: Vec<WaitingOn>,
    /// The progress of each node that has, gets or loses Kata, by name.
    pub nodes: Vec<NodeReport>,
    /// The status of the active KataConfig; `None` if there is no KataConfig.
    pub status: Option<StatusReport>,
    /// The statuses of the KataConfigs that are not active.
    pub other_configs: Vec<StatusReport>,
    /// The Events to create, each exactly once.
    pub events: Vec<EventToSend>,
}

impl Report {
    /// Whether `nodes` has all nodes with Kata. After a failed read it is empty, although there may be nodes.
    pub fn nodes_are_complete(&self) -> bool {
        let unread = |finding: &Finding| {
            matches!(finding.code, Code::ReadFailed | Code::MachineConfigOperatorNotReady)
        };
        !self.nodes.is_empty() || !self.findings.iter().any(unread)
    }
}

/// A problem, or a fact that an admin may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub code: Code,
    /// The object with the problem.
    pub subject: ObjectRef,
    /// The problem, with the names of the objects; a clause without a full stop.
    pub message: String,
    /// The fix; a sentence.
    pub fix: String,
}

/// A step that failed, was skipped, or is reverted by another client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepFailure {
    /// The object of the step.
    pub object: ObjectRef,
    /// The code of its finding: [`Code::WriteFailed`], [`Code::PolicyOfOtherVersion`], [`Code::WriteUndone`] or
    /// [`Code::UnsafeStepSkipped`].
    pub code: Code,
    /// The answer of the API server (the first two), or the whole message of the finding.
    pub error: String,
}

/// An event that must happen before the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingOn {
    pub what: Waiting,
    /// The object that has to change.
    pub subject: ObjectRef,
    /// The event as the end of `waiting for …`, with the names of the objects.
    pub message: String,
}

/// The kind of event that the operator waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiting {
    /// The writes of this pass.
    OwnWrites,
    /// A read that failed or has to be repeated.
    Read,
    /// The Machine Config Operator renders the pool's configuration.
    Render,
    /// A node is being changed, or waits to be changed.
    Node,
    /// Sandboxed pods end.
    Pods,
    /// A deleted object disappears.
    Deletion,
}

/// The progress of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeReport {
    /// The node's name.
    pub node: String,
    pub uid: String,
    /// Whether the node should have Kata.
    pub wanted: bool,
    /// Whether the node's system or cloud provides Kata, so that the operator does not change the node.
    pub provided: bool,
    /// Whether the node has Kata, but not in the desired state.
    pub behind: bool,
    pub phase: Phase,
    /// The step of the change in progress, if there is one.
    pub step: Option<NodeStep>,
    /// When phase and step began.
    pub since: Option<Timestamp>,
    /// When the Node was created.
    pub created: Option<Timestamp>,
    /// The code of the node's finding.
    pub code: Option<Code>,
    /// The message of the node's finding, or its state in a few words.
    pub message: String,
    /// The record of the node's Jobs, if Jobs change the nodes.
    pub host: Option<Arc<HostStatus>>,
}

/// The status of a KataConfig.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusReport {
    pub config: ObjectRef,
    /// The whole desired status.
    pub status: KataConfigStatus,
    /// Whether the KataConfig's current status differs.
    pub needs_write: bool,
}

/// How soon a status has to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Only messages or the lists of nodes changed, such as the step of a node or the number of pods left.
    Progress,
    /// The errors or warnings changed.
    Findings,
    /// A condition, or another field that clients wait for, changed.
    Conditions,
}

impl StatusReport {
    /// How soon the status has to be written, given the current one.
    pub fn urgency(&self, written: Option<&KataConfigStatus>) -> Urgency {
        let Some(written) = written else { return Urgency::Conditions };
        let conditions = |status: &KataConfigStatus| -> Vec<(String, String, String)> {
            let list = status.conditions.iter();
            list.map(|it| (it.type_.clone(), it.status.clone(), it.reason.clone())).collect()
        };
        let findings = |status: &KataConfigStatus| -> Vec<(String, FindingSubject)> {
            let list = status.findings.iter().filter(|it| it.severity != Severity::Info.as_str());
            list.map(|it| (it.code.clone(), it.subject.clone())).collect()
        };
        let counts = |status: &KataConfigStatus| {
            status.finding_counts.map(|counts| (counts.error, counts.warning))
        };
        let new = &self.status;
        if new.selectors_digest != written.selectors_digest
            || new.observed_generation != written.observed_generation
            || new.runtime_classes != written.runtime_classes
            || new.waiting_for_mco_to_start != written.waiting_for_mco_to_start
            || conditions(new) != conditions(written)
        {
            Urgency::Conditions
        } else if counts(new) != counts(written) || findings(new) != findings(written) {
            Urgency::Findings
        } else {
            Urgency::Progress
        }
    }
}

/// An Event (`events.k8s.io/v1`, namespace `default`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventToSend {
    /// A name that is the same for the same transition, so that a repeated create is refused with 409
    /// AlreadyExists, which is success.
    pub name: String,
    pub regarding: ObjectRef,
    pub related: Option<ObjectRef>,
    /// Whether its type is `Warning` instead of `Normal`.
    pub warning: bool,
    /// The reason, CamelCase.
    pub reason: String,
    pub action: String,
    /// The message, at most 1,024 bytes.
    pub note: String,
}

impl Finding {
    /// A finding with the catalogue's fix, in whose commands `NAME` is the name of the subject.
    pub fn new(code: Code, subject: ObjectRef, message: String) -> Self {
        let fix = code.entry().fix.replace("NAME", &subject.name);
        Self { code, subject, message, fix }
    }

    /// The finding as the status of a KataConfig has it.
    pub fn to_status(&self) -> FindingStatus {
        let entry = self.code.entry();
        let ObjectRef { kind, namespace, name, uid: _ } = &self.subject;
        FindingStatus {
            code: entry.code.to_owned(),
            severity: entry.severity.as_str().to_owned(),
            subject: FindingSubject {
                kind: kind.as_str().to_owned(),
                namespace: namespace.clone(),
                name: name.clone(),
            },
            message: text::cut(&self.message, FINDING_BYTES),
            fix: text::cut(&self.fix, FINDING_BYTES),
        }
    }

    /// The order of findings: worst first, then by code and object.
    pub(crate) fn rank(&self) -> impl Ord {
        let ObjectRef { kind, namespace, name, uid } = &self.subject;
        let object = (*kind, namespace, Natural(name), uid);
        // A pause affects every node, so it comes before findings of the same severity about one node.
        let is_of_one = self.code != Code::RolloutPaused;
        (Reverse(self.code.entry().severity), is_of_one, self.code, object)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = self.code.entry();
        write!(f, "{} {}: {}: {}", entry.code, entry.reason, self.subject, self.message)
    }
}
