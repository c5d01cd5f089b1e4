//! The document of `accept`.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::Head;
use crate::api::Gap;

/// What the proof was made with, as the cluster says it; absent where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Environment {
    /// `openshift` or `kubernetes`.
    pub(crate) platform: String,
    /// Kubernetes.
    pub(crate) kubernetes: String,
    /// The node's operating system.
    pub(crate) system: String,
    /// The node's kernel.
    pub(crate) kernel: String,
    /// The node's processor, such as `amd64`.
    pub(crate) architecture: String,
    /// The node's container runtime.
    pub(crate) container_runtime: String,
    /// Kata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kata: Option<String>,
    /// The program that is the virtual machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vmm: Option<String>,
    /// The operator's image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operator_image: Option<String>,
    /// This program.
    pub(crate) plugin: &'static str,
}

/// How a fact turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum FactResult {
    /// It is as expected.
    Held,
    /// It is not.
    Failed,
    /// It was not looked at.
    Skipped,
}

/// Something that is expected of a step, and what was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Fact {
    /// What is expected.
    pub(crate) expected: String,
    /// What was seen, or why nothing was looked at.
    pub(crate) seen: String,
    /// How it turned out.
    pub(crate) result: FactResult,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    /// Its name, which stays the same in all versions.
    pub(crate) id: &'static str,
    /// What is done.
    pub(crate) title: String,
    /// How long it took.
    pub(crate) seconds: f64,
    /// What was expected and seen.
    pub(crate) facts: Vec<Fact>,
}

/// The result of `accept`. It has no address of the cluster, so that it can be sent to others.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AcceptReport {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// When it began.
    #[schemars(with = "String")]
    pub(crate) time: Timestamp,
    /// Whether all steps were made and every fact held.
    pub(crate) success: bool,
    /// The node.
    pub(crate) node: String,
    /// What the proof was made with.
    pub(crate) environment: Environment,
    /// The steps in their order.
    pub(crate) steps: Vec<Step>,
    /// What could not be seen.
    pub(crate) gaps: Vec<Gap>,
}
