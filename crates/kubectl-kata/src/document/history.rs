//! The documents about what happened on nodes: `history` and `report`.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::Head;
use crate::api::Gap;

/// A step of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StepTime {
    /// Its name, such as `Draining`.
    pub(crate) name: String,
    /// When it began.
    #[schemars(with = "String")]
    pub(crate) began: Timestamp,
    /// How long it took, or takes so far.
    pub(crate) seconds: i64,
}

/// How a change ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ChangeResult {
    /// The node is as it should be.
    Done,
    /// The change failed.
    Failed,
    /// It ended before it was done: the node waits again.
    Stopped,
    /// It goes on.
    UnderWay,
}

impl ChangeResult {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::UnderWay => "under way",
        }
    }
}

/// A change of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeChange {
    /// `install`, `update` or `remove`. On OpenShift every change by the Machine Config Operator of a node with Kata is
    /// an update.
    pub(crate) kind: &'static str,
    /// How it ended.
    pub(crate) result: ChangeResult,
    /// When it began.
    #[schemars(with = "String")]
    pub(crate) began: Timestamp,
    /// How long it took, or takes so far.
    pub(crate) seconds: i64,
    /// The version of Kata that the node has since it became Ready, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kata_version: Option<String>,
    /// Whether its beginning is not recorded any more, so that it took longer.
    pub(crate) partial: bool,
    /// Its steps. Up to two minutes of one (of a reboot: half a minute) may be part of the one before, and a shorter one may
    /// not appear.
    pub(crate) steps: Vec<StepTime>,
}

/// What happened on a node.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeHistory {
    /// The node.
    pub(crate) name: String,
    /// Its last changes, oldest first.
    pub(crate) changes: Vec<NodeChange>,
}

/// The result of `history`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HistoryReport {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// The nodes that have, get or lose Kata.
    pub(crate) items: Vec<NodeHistory>,
    /// What could not be seen.
    pub(crate) gaps: Vec<Gap>,
}
