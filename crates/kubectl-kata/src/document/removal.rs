//! The document of `uninstall --dry-run`.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Head, PodRow, Problem};
use crate::api::Gap;
use crate::disruption::Disruption;

/// A KataConfig that becomes active when the one before is gone.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Successor {
    /// Its name.
    pub(crate) name: String,
    /// The nodes that it selects; absent if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nodes: Option<Vec<String>>,
}

/// The result of `uninstall --dry-run`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UninstallPlan {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// Whether nothing stands in the way.
    pub(crate) success: bool,
    /// The KataConfig.
    pub(crate) config: Option<String>,
    /// Whether it is being deleted already.
    pub(crate) deleting: bool,
    /// Sandboxed pods that stand in the way, or with `--evict-pods` would be evicted.
    pub(crate) pods: Vec<PodRow>,
    /// What makes such pods again when they are deleted or evicted, as `Deployment namespace/name`.
    pub(crate) controllers: Vec<String>,
    /// Nodes that would lose Kata.
    pub(crate) nodes: Vec<String>,
    /// What the removal does to these nodes and to pods on them; absent if the nodes cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) disruption: Option<Disruption>,
    /// Objects that would be deleted, as `Kind/name`.
    pub(crate) objects: Vec<String>,
    /// The nodes that would lose the labels that `kubectl kata install` gave them.
    pub(crate) labelled: Vec<String>,
    /// The namespace of the operator that would be removed; absent if it stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operator_namespace: Option<String>,
    /// The KataConfig that becomes active then; absent if there is no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) successor: Option<Successor>,
    /// What stands in the way.
    pub(crate) problems: Vec<Problem>,
    /// What could not be seen.
    pub(crate) gaps: Vec<Gap>,
}
