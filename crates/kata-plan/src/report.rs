//! What there is to say: findings, what is waited on, how far each node is, status and Events.
//!
//! Conditions, Events, logs, the plugin and `--dry-run` all render these values; nobody else
//! formulates a reason.

use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use kata_api::kata_node::{HostStatus, NodeStep, Phase};
use kata_api::{Code, KataConfigStatus, Severity};
use serde_json::Value;

use crate::object::ObjectRef;
use crate::plan::Plan;

/// The decision about a snapshot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// What to do.
    pub plan: Plan,
    /// What to say.
    pub report: Report,
    /// When to decide again, even if nothing is seen to change; `None` if only a change matters.
    pub look_again: Option<Duration>,
}

/// What there is to say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What is not as it should be, worst first.
    pub findings: Vec<Finding>,
    /// Why what is still to be done is not done in this pass.
    pub waiting_on: Vec<WaitingOn>,
    /// How far each node is that has, gets or loses Kata, by name.
    pub nodes: Vec<NodeReport>,
    /// The status of the active KataConfig; `None` if there is no KataConfig.
    pub status: Option<StatusReport>,
    /// The statuses of the KataConfigs that are not active.
    pub other_configs: Vec<StatusReport>,
    /// Events to create, each exactly once.
    pub events: Vec<EventToSend>,
}

impl Report {
    /// Whether `nodes` are all there are: after a read that failed none is told, and none is known to
    /// be gone.
    pub fn knows_nodes(&self) -> bool {
        let unread = |finding: &Finding| {
            matches!(finding.code, Code::ReadFailed | Code::MachineConfigOperatorNotReady)
        };
        !self.nodes.is_empty() || !self.findings.iter().any(unread)
    }
}

/// Something that is not as it should be, or that somebody may wonder about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The entry of the catalogue.
    pub code: Code,
    /// The object that it is about.
    pub subject: ObjectRef,
    /// What holds, with the names of the objects; a sentence.
    pub message: String,
    /// What to do, with the names of the objects; a sentence.
    pub fix: String,
}

/// A step that could not be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepFailure {
    /// The object that should have been written.
    pub object: ObjectRef,
    /// What the API server said.
    pub error: String,
    /// Whether it was carried out, and is undone by somebody else again and again; then `error` is the whole
    /// sentence.
    pub undone: bool,
}

/// Something that must happen before the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingOn {
    /// What kind of thing.
    pub what: Waiting,
    /// The object that has to change.
    pub subject: ObjectRef,
    /// What is waited for, with the names of the objects; no full stop.
    pub message: String,
}

/// The kinds of things that are waited on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiting {
    /// This pass's own writes.
    OwnWrites,
    /// A read that failed.
    Read,
    /// The Machine Config Operator renders the pool's configuration.
    Render,
    /// A node is being changed, or waits for its turn.
    Node,
    /// Sandboxed pods end.
    Pods,
    /// An object that was deleted is gone.
    Deletion,
}

/// How far a node is.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeReport {
    /// The node's name.
    pub node: String,
    /// The node's uid.
    pub uid: String,
    /// Whether the node shall have Kata.
    pub wanted: bool,
    /// How far it is.
    pub phase: Phase,
    /// What happens on it, if something does.
    pub step: Option<NodeStep>,
    /// When phase and step began, as far as it is known.
    pub since: Option<Timestamp>,
    /// What holds it up, if something does.
    pub code: Option<Code>,
    /// What is going on, in a few words; empty if there is nothing to say.
    pub message: String,
    /// What Jobs did on it, where Jobs change the nodes.
    pub host: Option<Box<HostStatus>>,
}

/// The status of a KataConfig.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusReport {
    /// The KataConfig.
    pub config: ObjectRef,
    /// The whole status.
    pub status: KataConfigStatus,
    /// The merge patch for `/status` that brings it about; `None` if it is so already.
    pub patch: Option<Value>,
}

/// How soon a status has to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Only words changed: how far a node is, or how many pods are left.
    Words,
    /// Nodes are in another list.
    Lists,
    /// A condition changed, or what others wait for.
    Conditions,
}

impl StatusReport {
    /// How soon the status has to be written, given the one that is there.
    pub fn urgency(&self, written: Option<&KataConfigStatus>) -> Urgency {
        let Some(written) = written else { return Urgency::Conditions };
        let conditions = |status: &KataConfigStatus| -> Vec<(String, String, String)> {
            let list = status.conditions.iter();
            list.map(|it| (it.type_.clone(), it.status.clone(), it.reason.clone())).collect()
        };
        let new = &self.status;
        if new.observed_generation != written.observed_generation
            || new.runtime_classes != written.runtime_classes
            || new.waiting_for_mco_to_start != written.waiting_for_mco_to_start
            || conditions(new) != conditions(written)
        {
            Urgency::Conditions
        } else if new.kata_nodes != written.kata_nodes {
            Urgency::Lists
        } else {
            Urgency::Words
        }
    }
}

/// An Event (`events.k8s.io/v1`, namespace `default`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventToSend {
    /// A name that is the same for the same transition, so that a repeated create is refused with 409
    /// AlreadyExists, which is success.
    pub name: String,
    /// The object that it is about.
    pub regarding: ObjectRef,
    /// The other object that it concerns, if any.
    pub related: Option<ObjectRef>,
    /// Whether it is of type `Warning`, else `Normal`.
    pub warning: bool,
    /// The reason, CamelCase.
    pub reason: String,
    /// What the operator did or saw; the field `action`.
    pub action: String,
    /// The text, at most 1,024 bytes.
    pub note: String,
}

impl Finding {
    /// A finding with the catalogue's fix.
    pub fn new(code: Code, subject: ObjectRef, message: String) -> Self {
        Self { code, subject, message, fix: code.entry().fix.to_owned() }
    }

    /// The order of findings: worst first, then by code and object.
    pub(crate) fn rank(&self) -> (Reverse<Severity>, bool, Code, &ObjectRef) {
        let entry = self.code.entry();
        // What holds back every node comes before what holds back one of them.
        (Reverse(entry.severity), self.code != Code::RolloutPaused, self.code, &self.subject)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = self.code.entry();
        write!(f, "{} {}: {}: {}", entry.code, entry.reason, self.subject, self.message)
    }
}
