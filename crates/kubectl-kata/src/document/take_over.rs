//! The document of `takeover plan`.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::Head;
use crate::api::Gap;

/// A node on which kata-deploy installed Kata.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TakeOverNode {
    /// Its name.
    pub(crate) name: String,
    /// Whether its handlers are the operator's already.
    pub(crate) taken_over: bool,
    /// Why it cannot be taken over, as far as its Node says; absent if nothing there says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) obstacle: Option<String>,
}

/// The result of `takeover plan`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TakeOverPlan {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// Whether `takeover begin` can stop kata-deploy, or it is stopped already.
    pub(crate) success: bool,
    /// Whether kata-deploy is stopped.
    pub(crate) stopped: bool,
    /// The Helm release of kata-deploy, as `namespace/name`; absent if Helm did not install it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) release: Option<String>,
    /// The nodes on which it installed Kata.
    pub(crate) nodes: Vec<TakeOverNode>,
    /// Its RuntimeClasses.
    pub(crate) runtime_classes: Vec<String>,
    /// What `takeover begin` would do, in this order.
    pub(crate) steps: Vec<String>,
    /// What to know before.
    pub(crate) notes: Vec<String>,
    /// Why `takeover begin` would refuse; absent if it would not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<String>,
    /// The KataConfig that takes the nodes over.
    pub(crate) kata_config: Value,
    /// What could not be seen.
    pub(crate) gaps: Vec<Gap>,
}
