//! The truth table of conditions: the situations of a KataConfig, and the conditions and alerts of each.
//!
//! Only the table: kata-plan decides which row applies, and `docs/reference/conditions.md` prints all rows.

use crate::Code;
use crate::conditions::{ALERTS, DEGRADED, DELETION_BLOCKED, READY, STALLED};

/// The situation of a KataConfig. The first one that applies counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Situation {
    /// An older KataConfig is the active one.
    NotActive,
    /// It is being deleted, and the operator could not read what it needs for long.
    DeletionUnreadableForLong,
    /// It is being deleted, and the operator cannot read what it needs.
    DeletionUnreadable,
    /// The operator could not read what it needs for long.
    UnreadableForLong,
    /// The operator cannot read what it needs.
    Unreadable,
    /// It is being deleted; sandboxed pods, a failed read or a paused pool block the deletion.
    DeletionHeld,
    /// It is being deleted, and manual action is required.
    DeletionStuck,
    /// It is being deleted.
    Deleting,
    /// No node is selected, and none is leaving.
    NothingSelected,
    /// Every node has Kata as the spec asks.
    Serving,
    /// Nodes are being changed.
    RollingOut,
    /// The admin paused the roll-out.
    Paused,
    /// No node makes progress, and something failed or hangs.
    Failed,
    /// No node makes progress, and manual action is required or a wait exceeds its limit.
    Held,
    /// No node makes progress, and every wait is within its limit.
    Waiting,
    /// There is nothing to change, and a selected node does not have Kata, or may not have it.
    NotServing,
}

/// The value of Ready in a situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// `False`.
    False,
    /// `Unknown`, or `False` if the reason is known.
    Unknown,
    /// `True` if every selected node has Kata as the spec asks.
    IfCurrent,
    /// `True` if every selected node has Kata, in any version.
    IfInstalled,
    /// `True`.
    True,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The situation.
    pub situation: Situation,
    /// Its name.
    pub name: &'static str,
    /// When it applies; a sentence.
    pub when: &'static str,
    /// The value of Ready.
    pub ready: Readiness,
    /// Whether Reconciling is True; it is absent otherwise.
    pub reconciling: bool,
    /// Whether Stalled is True; it is absent otherwise.
    pub stalled: bool,
    /// Whether Degraded is always True. If not, it is True if something failed.
    pub degraded: bool,
    /// Whether DeletionBlocked is True; `None` if it is absent.
    pub deletion_blocked: Option<bool>,
}

impl Row {
    /// The alerts that fire if the situation lasts, in addition to that of Degraded if something failed.
    pub fn alerts(&self) -> impl Iterator<Item = &'static str> {
        let applies = |condition: &str| match condition {
            READY => self.ready == Readiness::Unknown,
            STALLED => self.stalled,
            DEGRADED => self.degraded,
            DELETION_BLOCKED => self.deletion_blocked == Some(true),
            _ => false,
        };
        ALERTS.into_iter().filter(move |it| applies(it.condition)).map(|it| it.alert)
    }
}

impl Situation {
    /// Its row of the table.
    pub fn row(self) -> &'static Row {
        let place = SITUATIONS.iter().position(|row| row.situation == self).unwrap_or_default();
        &SITUATIONS[place]
    }
}

/// A row in which nothing is True.
const ROW: Row = Row {
    situation: Situation::Serving,
    name: "",
    when: "",
    ready: Readiness::False,
    reconciling: false,
    stalled: false,
    degraded: false,
    deletion_blocked: None,
};

/// The table, in the order in which the situations are tested.
pub const SITUATIONS: [Row; 16] = [
    Row {
        situation: Situation::NotActive,
        name: "not active",
        when: "An older KataConfig exists.",
        stalled: true,
        ..ROW
    },
    Row {
        situation: Situation::DeletionUnreadableForLong,
        name: "deletion unreadable for long",
        when: "It is being deleted, and the operator could not read what it needs for ten minutes, or cannot before an \
               admin acts. `InProgress` and `Degraded` are Unknown.",
        ready: Readiness::Unknown,
        stalled: true,
        deletion_blocked: Some(true),
        ..ROW
    },
    Row {
        situation: Situation::DeletionUnreadable,
        name: "deletion unreadable",
        when: "It is being deleted, and the operator cannot read what it needs. All other conditions keep their value.",
        ready: Readiness::Unknown,
        deletion_blocked: Some(true),
        ..ROW
    },
    Row {
        situation: Situation::UnreadableForLong,
        name: "unreadable for long",
        when: "The operator could not read what it needs for ten minutes, or cannot before an admin acts. `InProgress` \
               and `Degraded` are Unknown.",
        ready: Readiness::Unknown,
        stalled: true,
        ..ROW
    },
    Row {
        situation: Situation::Unreadable,
        name: "unreadable",
        when: "The operator cannot read what it needs. All other conditions keep their value.",
        ready: Readiness::Unknown,
        ..ROW
    },
    Row {
        situation: Situation::DeletionHeld,
        name: "deletion held",
        when: "It is being deleted, and sandboxed pods remain, a read fails, or a paused pool keeps every node from \
               being changed.",
        reconciling: true,
        deletion_blocked: Some(true),
        ..ROW
    },
    Row {
        situation: Situation::DeletionStuck,
        name: "deletion stuck",
        when: "It is being deleted, no node makes progress, and something failed, requires manual action or exceeds \
               its limit.",
        stalled: true,
        deletion_blocked: Some(true),
        ..ROW
    },
    Row {
        situation: Situation::Deleting,
        name: "deleting",
        when: "It is being deleted.",
        reconciling: true,
        deletion_blocked: Some(false),
        ..ROW
    },
    Row {
        situation: Situation::NothingSelected,
        name: "nothing selected",
        when: "No node is selected, and none is leaving.",
        stalled: true,
        ..ROW
    },
    Row {
        situation: Situation::Serving,
        name: "serving",
        when: "Every selected node has Kata as the spec asks, the RuntimeClasses exist, and no node is leaving.",
        ready: Readiness::True,
        ..ROW
    },
    Row {
        situation: Situation::RollingOut,
        name: "rolling out",
        when: "A node is being changed and makes progress, or the operator writes the next step.",
        ready: Readiness::IfCurrent,
        reconciling: true,
        ..ROW
    },
    Row {
        situation: Situation::Paused,
        name: "paused",
        when: "The admin paused the rest of the roll-out, with `spec.rollout.paused` or `spec.paused` of the pool.",
        ready: Readiness::IfInstalled,
        ..ROW
    },
    Row {
        situation: Situation::Failed,
        name: "failed or hung",
        when: "No node makes progress, and a node failed or hangs, or another finding of severity error stops the rest.",
        ready: Readiness::IfCurrent,
        stalled: true,
        degraded: true,
        ..ROW
    },
    Row {
        situation: Situation::Held,
        name: "held",
        when: "No node makes progress, and manual action is required or a wait exceeds its limit.",
        ready: Readiness::IfCurrent,
        stalled: true,
        ..ROW
    },
    Row {
        situation: Situation::Waiting,
        name: "waiting",
        when: "No node makes progress, but every wait (for another node, a pool, an image, a node that is not Ready) is \
               within its limit.",
        ready: Readiness::IfCurrent,
        reconciling: true,
        ..ROW
    },
    Row {
        situation: Situation::NotServing,
        name: "not serving",
        when: "The operator has nothing to change, and a selected node has just lost Kata, or its state is unknown.",
        ..ROW
    },
];

/// The effect of a finding on the remaining work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The finding delays nothing.
    Nothing,
    /// The admin stopped the work on purpose.
    Pauses,
    /// The finding delays work and is expected to end by itself, within its limit.
    Waits,
    /// The finding stops work until an admin acts.
    Holds,
}

/// The effect of a finding with this code on the remaining work.
pub fn effect(code: Code) -> Effect {
    match code {
        Code::PeerPodsUnsupported
        | Code::SelectorIgnored
        | Code::WorkersNotCovered
        | Code::NodeInOtherPool
        | Code::UnsupportedNode
        | Code::InvalidLogLevel
        | Code::RuntimeClassInUse
        | Code::RolloutNotHonoured
        | Code::ForeignRuntimeLabel
        | Code::AdoptedOverhead
        | Code::SettingsNotHonoured
        | Code::SettingUnknown
        | Code::ForeignSettings
        | Code::LostAtReboot
        | Code::RuntimeWithoutNodes
        | Code::GuestPullMissing
        | Code::OtherInstaller
        | Code::NoStartupTaint
        | Code::PoolUnfit
        | Code::LabelsLost
        | Code::LabelsSetByLabeller
        | Code::OtherRollout
        | Code::ClockSkew
        | Code::ConstraintsNotServed => Effect::Nothing,
        Code::PoolPaused | Code::RolloutPaused => Effect::Pauses,
        Code::PodsStillRunning
        | Code::PodsOnLeavingNode
        | Code::NodeNotReady
        | Code::NodeStateUnknown
        | Code::ReadFailed
        | Code::WriteFailed
        | Code::PolicyOfOtherVersion
        | Code::NodeJobFailed
        | Code::NodeJobVanished
        | Code::NodeJobTimedOut
        | Code::NodeJobNoReport
        | Code::NodeJobNotStarted
        | Code::NodeJobUnschedulable
        | Code::NodeJobImage
        | Code::NodeJobWithoutPod
        | Code::SandboxesOnNode
        | Code::NodeDrifted => Effect::Waits,
        _ => Effect::Holds,
    }
}
