//! The document of `verify`.

use jiff::Timestamp;
use kata_api::sandbox_facts::SandboxFacts;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Head, Problem};
use crate::api::Gap;

/// What a signal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum SignalVerdict {
    /// As in a virtual machine.
    Pass,
    /// As on the node.
    Fail,
    /// It says nothing.
    Neutral,
}

/// Something by which a virtual machine and its node differ, or not.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Signal {
    /// What it is.
    pub(crate) name: &'static str,
    /// In the sandboxed pod.
    pub(crate) sandboxed: String,
    /// In the regular pod.
    pub(crate) regular: String,
    /// On the node, as the API server has it.
    pub(crate) node: String,
    /// What that says.
    pub(crate) verdict: SignalVerdict,
    /// The same in words.
    pub(crate) meaning: &'static str,
}

/// The outcome of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum VerifyResult {
    /// Proven: it runs on a kernel of its own.
    Isolated,
    /// It runs on the node's kernel.
    NotIsolated,
    /// The probe did not come to run, so sandboxed pods probably do not either.
    ProbeFailed,
    /// It is not known.
    Inconclusive,
}

/// The verdict about a node or a pod.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Verdict {
    /// What was verified, such as `node/worker-0`.
    pub(crate) subject: String,
    /// The outcome.
    pub(crate) result: VerifyResult,
    /// How long it took.
    pub(crate) seconds: f64,
    /// What was compared.
    pub(crate) signals: Vec<Signal>,
    /// What is wrong.
    pub(crate) problems: Vec<Problem>,
    /// The sandbox and its processes on the node, with `--host`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<SandboxFacts>,
    /// Whether that was asked for, and is not known.
    #[serde(skip)]
    pub(crate) host_unknown: bool,
}

/// The result of `verify`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VerifyReport {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// The API server and the context of the kubeconfig.
    pub(crate) cluster: String,
    /// When it was verified.
    #[schemars(with = "String")]
    pub(crate) time: Timestamp,
    /// Whether everything is proven to be isolated.
    pub(crate) success: bool,
    /// The verdicts.
    pub(crate) verdicts: Vec<Verdict>,
    /// What could not be seen.
    pub(crate) gaps: Vec<Gap>,
}
