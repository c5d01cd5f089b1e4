//! The documents that `-o json` and `-o yaml` print: `cli.kata-operator.dev/v1`.
//!
//! Within a version fields are only added. `kubectl kata schema` prints their schemas.

use jiff::Timestamp;
use kata_api::kata_node::PayloadImage;
use schemars::JsonSchema;
use serde::Serialize;

use crate::api::Gap;

mod acceptance;
mod checks;
mod history;
mod lists;
mod removal;
mod take_over;
mod verdicts;

pub(crate) use acceptance::{AcceptReport, Environment, Fact, FactResult, Step};
pub(crate) use checks::{Category, Check, CheckReport, CheckResult, CheckSummary};
pub(crate) use history::{ChangeResult, HistoryReport, NodeChange, NodeHistory, StepTime};
pub(crate) use lists::{NodeList, NodeRow, PodList, PodRow};
pub(crate) use removal::{Successor, UninstallPlan};
pub(crate) use take_over::{TakeOverNode, TakeOverPlan};
pub(crate) use verdicts::{Signal, SignalVerdict, Verdict, VerifyReport, VerifyResult};

/// The version of all documents.
pub(crate) const API_VERSION: &str = "cli.kata-operator.dev/v1";

/// What every document begins with.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Head {
    /// `cli.kata-operator.dev/v1`.
    pub(crate) api_version: &'static str,
    /// The kind of document.
    pub(crate) kind: &'static str,
    /// Whether the cluster is a simulated one, so that nothing in the document was measured.
    pub(crate) simulated: bool,
}

impl Head {
    pub(crate) fn new(kind: &'static str, simulated: bool) -> Self {
        Self { api_version: API_VERSION, kind, simulated }
    }
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Problem {
    /// The code of the catalogue, such as `KATA2104`.
    pub(crate) id: String,
    /// `info`, `warning` or `error`.
    pub(crate) severity: &'static str,
    /// What it is about, such as `node/worker-1`.
    pub(crate) subject: String,
    /// What holds, with the names of the objects.
    pub(crate) message: String,
    /// What to do.
    pub(crate) fix: String,
    /// The page with more.
    pub(crate) hint: String,
    /// Who can remove the cause, where it is known: `cluster administrator` or `application team`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) who: Option<&'static str>,
}

/// A condition of the KataConfig.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConditionFacts {
    /// `True`, `False` or `Unknown`.
    pub(crate) status: String,
    /// One word.
    pub(crate) reason: String,
    /// A sentence.
    pub(crate) message: String,
    /// Since when the status is what it is.
    #[schemars(with = "String")]
    pub(crate) since: Timestamp,
}

/// The KataConfig.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConfigFacts {
    /// Its name.
    pub(crate) name: String,
    /// Its generation.
    pub(crate) generation: i64,
    /// The generation that its status speaks of.
    pub(crate) observed_generation: Option<i64>,
    /// When it was created.
    #[schemars(with = "Option<String>")]
    pub(crate) created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub(crate) deleting: bool,
    /// Its condition Ready.
    pub(crate) ready: Option<ConditionFacts>,
    /// Its condition Stalled, if it is True.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stalled: Option<ConditionFacts>,
    /// Whether `spec.rollout.paused` is set, so that no other node is changed.
    pub(crate) rollout_paused: bool,
    /// The condition that says that the administrator paused what is left to be done, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paused: Option<ConditionFacts>,
    /// How many nodes are selected.
    pub(crate) node_count: i64,
    /// How many of them can run sandboxed pods.
    pub(crate) ready_node_count: i64,
    /// How many nodes are changed at once, if the KataConfig says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_unavailable: Option<usize>,
}

/// What is installed on nodes, as the operator's Jobs reported it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InstalledPayload {
    /// How many nodes have it.
    pub(crate) nodes: usize,
    /// The version of Kata, if the payload says which it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kata_version: Option<String>,
    /// The digest of the payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
    /// The image that it came from: several if nodes got it by different references, none if its digest is unknown.
    pub(crate) images: Vec<PayloadImage>,
}

/// A RuntimeClass.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClassFacts {
    /// Its name.
    pub(crate) name: String,
    /// Whether it exists.
    pub(crate) exists: bool,
    /// Whether somebody else made it, so that it is left as it is.
    pub(crate) foreign: bool,
    /// The handler of the container runtime.
    pub(crate) handler: String,
    /// CPU that a sandbox takes on top of its containers.
    pub(crate) overhead_cpu: String,
    /// Memory that a sandbox takes on top of its containers.
    pub(crate) overhead_memory: String,
    /// The selector installOn, in the syntax of `kubectl get -l`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) install_on: Option<String>,
    /// How many nodes should have the runtime, if the operator says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node_count: Option<i64>,
    /// How many nodes can run pods of the class, if the operator says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ready_node_count: Option<i64>,
}

/// How many sandboxed pods there are.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodCounts {
    /// Running.
    pub(crate) running: usize,
    /// Not yet running.
    pub(crate) pending: usize,
    /// Failed.
    pub(crate) failed: usize,
}

/// The operator.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OperatorFacts {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its version, as its Deployment says.
    pub(crate) version: Option<String>,
    /// Pods that are ready.
    pub(crate) ready_replicas: Option<i64>,
    /// Pods that there shall be.
    pub(crate) replicas: Option<i64>,
    /// Whether the cluster's CustomResourceDefinitions are those of this version; absent if they cannot be
    /// seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) definitions_current: Option<bool>,
}

/// What the operator's Jobs on nodes last said, on clusters without the Machine Config Operator.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Inspections {
    /// Nodes that were compared with what is installed on them.
    pub(crate) nodes: usize,
    /// Nodes that have, get or lose Kata.
    pub(crate) of: usize,
    /// When the node was compared that has not been for longest.
    #[schemars(with = "Option<String>")]
    pub(crate) oldest: Option<Timestamp>,
}

/// A node in the roll-out.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeProgress {
    /// Its name.
    pub(crate) name: String,
    /// How far it is.
    pub(crate) phase: String,
    /// What happens on it, as `2/6 Draining`; empty if nothing does.
    pub(crate) step: String,
    /// When phase and step began.
    #[schemars(with = "Option<String>")]
    pub(crate) since: Option<Timestamp>,
    /// In how many seconds it is probably done; absent if nothing says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) eta_seconds: Option<i64>,
    /// Our handlers that its container runtime advertises.
    pub(crate) handlers: Vec<String>,
    /// Whether its operating system or cloud provides Kata, so that nothing is installed there.
    pub(crate) provided: bool,
    /// Whether the operator found that it can run sandboxed pods: `True`, `False` or `Unknown`.
    pub(crate) ready: String,
    /// The code of what holds it up, if anything does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    /// What is going on.
    pub(crate) message: String,
}

/// Sandboxed pods that were started with a version of Kata which their nodes do not have any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EarlierPods {
    /// The version.
    pub(crate) kata_version: String,
    /// How many pods.
    pub(crate) pods: usize,
}

/// The result of `status` and of `wait`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StatusReport {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// Whether the active KataConfig is Ready, for the generation that it has, and there is an operator.
    pub(crate) success: bool,
    /// Whether there is no operator, or none that can start, so that nothing that is waited for comes.
    #[serde(skip)]
    pub(crate) no_operator: bool,
    /// Whether the caller may not read what says if there is an operator, without which the status may be outdated.
    #[serde(skip)]
    pub(crate) operator_unknown: bool,
    /// The active KataConfig; absent if there is none.
    pub(crate) config: Option<ConfigFacts>,
    /// KataConfigs that are not active.
    pub(crate) other_configs: Vec<String>,
    /// The RuntimeClasses that the KataConfig names.
    pub(crate) runtime_classes: Vec<ClassFacts>,
    /// Labels that select nodes, as `KEY=VALUE`.
    pub(crate) node_selector: String,
    /// The operator.
    pub(crate) operator: OperatorFacts,
    /// What the operator's Jobs on nodes last said; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inspections: Option<Inspections>,
    /// What is installed, that of most nodes first; absent where the operating system of the nodes provides Kata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payloads: Option<Vec<InstalledPayload>>,
    /// Sandboxed pods that still run another version of Kata than their nodes have.
    pub(crate) earlier: Vec<EarlierPods>,
    /// The version of this program.
    pub(crate) plugin: &'static str,
    /// Sandboxed pods; absent if they cannot be seen.
    pub(crate) pods: Option<PodCounts>,
    /// All nodes that have, get or lose Kata, worst first.
    pub(crate) nodes: Vec<NodeProgress>,
    /// What is not as it should be, worst first.
    pub(crate) problems: Vec<Problem>,
    /// What could not be seen.
    pub(crate) gaps: Vec<Gap>,
}

/// An entry of the catalogue.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CodeRow {
    /// Such as `KATA2104`.
    pub(crate) code: &'static str,
    /// Such as `DrainBlocked`; the reason in conditions and Events.
    pub(crate) reason: &'static str,
    /// `info`, `warning` or `error`.
    pub(crate) severity: &'static str,
    /// Why it happens.
    pub(crate) cause: &'static str,
    /// What to do.
    pub(crate) fix: &'static str,
    /// Who can usually remove the cause: `cluster administrator` or `application team`.
    pub(crate) who: &'static str,
    /// Commands that show more or are the fix; NODE, POD, POOL, NAME and FILE stand for names.
    pub(crate) commands: &'static [&'static str],
    /// The page with more.
    pub(crate) hint: String,
}

/// The result of `codes`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CodeList {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// The entries, by code.
    pub(crate) items: Vec<CodeRow>,
}

/// The result of `version`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VersionReport {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// The version of this program.
    pub(crate) plugin: &'static str,
    /// The operator, if it can be seen.
    pub(crate) operator: Option<OperatorFacts>,
    /// The version of Kubernetes.
    pub(crate) kubernetes: Option<String>,
    /// What could not be seen.
    pub(crate) gaps: Vec<Gap>,
}

/// Why a node does not take a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) enum NodeReason {
    /// It could take it.
    Fits,
    /// The pod does not tolerate one of its taints.
    Tainted,
    /// The pod was admitted while its RuntimeClass took no new pods.
    ClassClosed,
    /// It lacks a label of the pod's own nodeSelector.
    LacksLabel,
    /// It does not match the pod's own node affinity.
    OtherAffinity,
    /// `installOn` of the pod's RuntimeClass does not select it.
    NotSelectedByClass,
    /// It has Kata, and does not serve the pod's RuntimeClass.
    ClassNotServed,
    /// The KataConfig does not select it.
    NotSelected,
    /// The KataConfig selects it, and the operator leaves it out.
    LeftOut,
    /// The roll-out of Kata keeps it back for now.
    InRollout,
    /// It loses Kata.
    Leaving,
    /// Kata does not work there.
    Failed,
    /// It is cordoned, and not by the roll-out.
    Cordoned,
    /// It has too little memory or processor time left.
    TooSmall,
}

/// What a node says to a pod.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeVerdict {
    /// The node.
    pub(crate) name: String,
    /// Why it does not take the pod.
    pub(crate) reason: NodeReason,
    /// The same in words.
    pub(crate) verdict: String,
    /// Whether the roll-out of Kata is the reason, so that it will pass.
    pub(crate) rollout: bool,
}

/// The result of `why`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WhyReport {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// Whether all is well with it.
    pub(crate) success: bool,
    /// What was asked about, such as `pod/web-0`.
    pub(crate) target: String,
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its state, as kubectl shows it.
    pub(crate) state: String,
    /// Since when.
    #[schemars(with = "Option<String>")]
    pub(crate) since: Option<Timestamp>,
    /// Its RuntimeClass.
    pub(crate) runtime_class: Option<String>,
    /// What it asks of a node, with its overhead.
    pub(crate) asks: String,
    /// What the nodes say, if it is not scheduled.
    pub(crate) nodes: Vec<NodeVerdict>,
    /// Why it is as it is.
    pub(crate) causes: Vec<Problem>,
    /// What will happen.
    pub(crate) outlook: String,
    /// What could not be seen.
    pub(crate) gaps: Vec<Gap>,
}

/// The result of `must-gather`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatherReport {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// The archive, or the directory.
    pub(crate) path: String,
    /// The files in it.
    pub(crate) collected: Vec<String>,
    /// What could not be had.
    pub(crate) missing: Vec<String>,
    /// How many values were taken out.
    pub(crate) redacted: usize,
    /// What could not be seen.
    pub(crate) gaps: Vec<Gap>,
}
