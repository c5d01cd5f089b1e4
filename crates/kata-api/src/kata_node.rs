//! `KataNode`, one small object per selected node with the details that do not fit into a KataConfig's status.
//!
//! Its owner is its Node, so that it is deleted with the Node. Users read it; only the operator writes it.

#![expect(clippy::duplicated_attributes, reason = "columns of the same type are no mistake")]

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

mod host;

pub use host::{CheckWarning, HostJob, HostStatus, JobOutcome, PayloadImage, UnknownValue};

/// The node that the object describes.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[kube(
    group = "kata-operator.dev",
    version = "v1alpha1",
    kind = "KataNode",
    plural = "katanodes",
    status = "KataNodeStatus",
    shortname = "kn",
    category = "kata",
    derive = "PartialEq",
    doc = "KataNode reports the state of Kata on a node: phase, step, reason, versions. Only the operator writes it.",
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.ready"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Step", type_ = "string", json_path = ".status.step"),
    printcolumn(name = "Handler", type_ = "string", json_path = ".status.handlers[*]"),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.since"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.host.kataVersion",
        priority = 1
    ),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    selectable = ".spec.nodeName",
    selectable = ".status.phase"
)]
#[serde(rename_all = "camelCase")]
pub struct KataNodeSpec {
    /// Name of the Node.
    #[schemars(length(min = 1, max = 253))]
    pub node_name: String,
    /// Name of the KataConfig that selects the node, or that still has to remove Kata from the node.
    #[schemars(length(min = 1, max = 253))]
    pub kata_config: String,
}

/// The state of Kata on a node.
#[derive(
    Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, JsonSchema,
)]
pub enum Phase {
    /// The state of the node is unknown.
    #[default]
    Unknown,
    /// The node waits for the installation of Kata to begin.
    Waiting,
    /// Kata is being installed on the node.
    Installing,
    /// The node can run sandboxed pods.
    Ready,
    /// The node has Kata but cannot run sandboxed pods now.
    NotReady,
    /// The node has Kata and is being changed for another reason.
    Updating,
    /// The node waits for the removal of Kata to begin, for example until its sandboxed pods have ended.
    WaitingToRemove,
    /// Kata is being removed from the node.
    Removing,
    /// The change of the node failed.
    Failed,
}

impl Phase {
    /// Every phase.
    pub const ALL: &[Self] = &[
        Self::Unknown,
        Self::Waiting,
        Self::Installing,
        Self::Ready,
        Self::NotReady,
        Self::Updating,
        Self::WaitingToRemove,
        Self::Removing,
        Self::Failed,
    ];

    /// The name as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Waiting => "Waiting",
            Self::Installing => "Installing",
            Self::Ready => "Ready",
            Self::NotReady => "NotReady",
            Self::Updating => "Updating",
            Self::WaitingToRemove => "WaitingToRemove",
            Self::Removing => "Removing",
            Self::Failed => "Failed",
        }
    }
}

/// The steps of a change of a node, in order.
#[derive(
    Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema,
)]
pub enum NodeStep {
    /// The node has a new desired configuration and has not begun to apply it.
    Targeted,
    /// Its pods are being evicted.
    Draining,
    /// The machine-config-daemon changes its operating system.
    Applying,
    /// It is rebooting.
    Rebooting,
    /// It has rebooted and is being uncordoned.
    Finishing,
    /// The operator waits until its container runtime reports the handler.
    Verifying,
    /// Jobs back end: a Job checks whether the node can run Kata.
    Preflight,
    /// Jobs back end: a Job starts and copies the runtime's files to the node.
    Staging,
    /// Jobs back end: a Job changes the node.
    Changing,
    /// Jobs back end: the operator waits until the kubelet reports the handler.
    Confirming,
}

impl NodeStep {
    /// The number of steps if the Machine Config Operator changes the nodes.
    pub const COUNT: usize = 6;
    /// The number of steps if Jobs change the nodes.
    pub const JOB_COUNT: usize = 4;

    /// The number of steps of the change that this step belongs to.
    pub fn count(self) -> usize {
        match self {
            Self::Preflight | Self::Staging | Self::Changing | Self::Confirming => Self::JOB_COUNT,
            Self::Targeted
            | Self::Draining
            | Self::Applying
            | Self::Rebooting
            | Self::Finishing
            | Self::Verifying => Self::COUNT,
        }
    }

    /// The step's place in the order, from 1.
    pub fn number(self) -> usize {
        match self {
            Self::Targeted | Self::Preflight => 1,
            Self::Draining | Self::Staging => 2,
            Self::Applying | Self::Changing => 3,
            Self::Rebooting | Self::Confirming => 4,
            Self::Finishing => 5,
            Self::Verifying => 6,
        }
    }

    /// The name as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Targeted => "Targeted",
            Self::Draining => "Draining",
            Self::Applying => "Applying",
            Self::Rebooting => "Rebooting",
            Self::Finishing => "Finishing",
            Self::Verifying => "Verifying",
            Self::Preflight => "Preflight",
            Self::Staging => "Staging",
            Self::Changing => "Changing",
            Self::Confirming => "Confirming",
        }
    }
}

fn unknown() -> String {
    "Unknown".to_owned()
}

/// The value, or the default if this version does not know the value. Only for fields by which the operator decides
/// nothing.
fn known_or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// The entries of a list that this version knows: a later version may have written others.
fn known_entries<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let entries: Vec<serde_json::Value> = known_or_default(deserializer)?;
    Ok(entries.into_iter().filter_map(|entry| serde_json::from_value(entry).ok()).collect())
}

/// The observed state of the node.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KataNodeStatus {
    /// Whether the node can run sandboxed pods now: True, False or Unknown.
    #[serde(default = "unknown")]
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub ready: String,
    /// The state of Kata on the node.
    #[serde(default, deserialize_with = "known_or_default")]
    pub phase: Phase,
    /// The step of the change in progress: n/6 (n/4 if Jobs change the nodes) and a name; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// When the phase and step began. While a node is changed, the operator writes a new step two minutes after the previous
    /// `since` at the earliest (a reboot: half a minute), so the step may have begun that much earlier.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "known_or_default"
    )]
    #[schemars(with = "Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>")]
    pub since: Option<Timestamp>,
    /// The last phases and steps with their times, oldest first, at most 16: `kubectl kata history` shows how long each
    /// took. Up to two minutes of a step (of a reboot: half a minute) may be counted in the step before, and a shorter step
    /// may not appear.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "known_entries")]
    pub history: Vec<Transition>,
    /// The KATA code of the problem that delays the node, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What the operator does or waits for on this node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The condition Ready has the values of `ready`, and as its reason the reason of `code`, or else the phase.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "known_entries")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The handlers of the KataConfig that the node's container runtime reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<String>,
    /// The rendered MachineConfig that the node runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_config: Option<String>,
    /// The rendered MachineConfig that the node is to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_config: Option<String>,
    /// The container runtime and its version, as the kubelet reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_runtime_version: Option<String>,
    /// The kernel's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_version: Option<String>,
    /// The boot ID of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Whether spec.providedNodes of the KataConfig selects the node, so that nothing is installed on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub provided: bool,
    /// When the node loses Kata, or one of its runtimes, because a selector of the KataConfig no longer matches it. Absent
    /// while it loses nothing.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "known_or_default"
    )]
    #[schemars(with = "Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>")]
    pub leaves_at: Option<Timestamp>,
    /// Results of the Jobs of the node agent. Absent on OpenShift.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "host::read")]
    pub host: Option<Arc<HostStatus>>,
}

/// Most entries of [`KataNodeStatus::history`].
const HISTORY: usize = 16;

/// The beginning of a phase or of a step.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transition {
    /// The state of Kata on the node.
    pub phase: Phase,
    /// The step of the change; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// When the phase and step began.
    #[schemars(with = "k8s_openapi::apimachinery::pkg::apis::meta::v1::Time")]
    pub time: Timestamp,
    /// Version of Kata in use from then on, if the payload contains it; only of a node that became Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kata_version: Option<String>,
    /// Whether the change that ended was rolled back; only of a node that is Ready again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolled_back: bool,
}

impl KataNodeStatus {
    /// The history with the phase and step of a later status. What is no part of a change leaves no trace, since it
    /// would displace changes: a node that is down or unknown for some time, and a check after which the node still
    /// waits.
    pub fn history_with(&self, later: &Transition) -> Vec<Transition> {
        let mut history = self.history.clone();
        if let (true, Some(since)) = (history.is_empty(), self.since) {
            history.push(Transition {
                phase: self.phase,
                step: self.step.clone(),
                time: since,
                kata_version: None,
                rolled_back: false,
            });
        }
        let is_idle = |entry: &Transition| {
            entry.step.is_empty()
                && matches!(
                    entry.phase,
                    Phase::Ready | Phase::Waiting | Phase::WaitingToRemove | Phase::Failed
                )
        };
        let is_down = matches!(later.phase, Phase::NotReady | Phase::Unknown);
        let waits = later.phase == Phase::Waiting && later.step.is_empty();
        let mut later = later.clone();
        while let Some(check) =
            history.pop_if(|it| waits && it.phase == Phase::Waiting && !it.step.is_empty())
        {
            later.time = check.time;
        }
        let stays = history.last().is_some_and(|last| {
            (last.phase == later.phase && last.step == later.step) || (is_down && is_idle(last))
        });
        if !stays {
            history.push(later);
        }
        // What is not yet written for another reason is not worth a write.
        if stays && self.history.is_empty() {
            return Vec::new();
        }
        history.drain(..history.len().saturating_sub(HISTORY));
        history
    }
}

/// Adds a default status to the CRD: a KataNode without a status reads as waiting, so the operator need not write that
/// for each node.
pub(crate) fn with_default_status(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let waiting = serde_json::json!({"ready": "False", "phase": Phase::Waiting});
    for version in &mut crd.spec.versions {
        let status = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
            .and_then(|schema| schema.properties.as_mut())
            .and_then(|properties| properties.get_mut("status"));
        if let Some(status) = status {
            status.default = Some(JSON(waiting.clone()));
        }
    }
    crd
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transition((phase, step, second): (Phase, &str, i64)) -> Transition {
        let time = Timestamp::from_second(1_800_000_000 + second).unwrap();
        Transition { phase, step: step.to_owned(), time, kata_version: None, rolled_back: false }
    }

    /// The status that all these transitions lead to.
    fn after(entries: &[(Phase, &str, i64)]) -> KataNodeStatus {
        let mut status = KataNodeStatus::default();
        for entry in entries.iter().copied().map(transition) {
            status.history = status.history_with(&entry);
            status.phase = entry.phase;
            status.step = entry.step;
            status.since = Some(entry.time);
        }
        status
    }

    #[test]
    fn a_history_has_what_is_part_of_changes() {
        use Phase::{Failed, Installing, NotReady, Ready, Unknown, Waiting};
        let (waits, check) = ((Waiting, "", 0), (Waiting, "1/4 Preflight", 5));
        let (begins, ends) = ((Installing, "3/4 Changing", 20), (Ready, "", 60));
        let cases: [(&[_], &[_]); 6] = [
            (&[waits, check, begins, ends], &[waits, check, begins, ends]),
            // A check that leads to nothing.
            (&[waits, check, (Waiting, "", 9), begins], &[waits, begins]),
            // The change before it ended when the check began.
            (
                &[begins, (Waiting, "1/4 Preflight", 60), (Waiting, "", 300)],
                &[begins, (Waiting, "", 60)],
            ),
            // The node is down while nothing is changed.
            (&[begins, ends, (NotReady, "", 70), (Ready, "", 80)], &[begins, ends]),
            (
                &[begins, (Failed, "", 70), (Unknown, "", 80), (Failed, "", 90)],
                &[begins, (Failed, "", 70)],
            ),
            // The node is down during a change.
            (&[begins, (NotReady, "", 30), ends], &[begins, (NotReady, "", 30), ends]),
        ];
        for (entries, expected) in cases {
            let expected: Vec<Transition> = expected.iter().copied().map(transition).collect();
            assert_eq!(after(entries).history, expected, "{entries:?}");
        }
    }

    #[test]
    fn the_oldest_entries_of_a_history_go() {
        let phases = [Phase::Ready, Phase::Updating];
        let entries: Vec<_> =
            (0_i64..40).map(|second| (phases[usize::from(second % 2 == 1)], "", second)).collect();
        let history = after(&entries).history;
        assert_eq!(history.len(), HISTORY);
        assert_eq!(history.last(), Some(&transition((Phase::Updating, "", 39))));
    }

    /// A record of an earlier version is not written again until something happens.
    #[test]
    fn a_record_without_a_history_gets_one_with_the_next_change() {
        let old = KataNodeStatus { history: Vec::new(), ..after(&[(Phase::Ready, "", 0)]) };
        assert_eq!(old.history_with(&transition((Phase::Ready, "", 0))), []);
        let next = transition((Phase::Updating, "2/6 Draining", 50));
        assert_eq!(old.history_with(&next), [transition((Phase::Ready, "", 0)), next.clone()]);
    }

    #[test]
    fn an_entry_of_a_later_version_does_not_empty_the_history() {
        let status: KataNodeStatus = serde_json::from_value(serde_json::json!({"history": [
            {"phase": "Hibernating", "time": "2026-01-01T00:00:00Z"},
            {"phase": "Ready", "time": "2026-01-01T00:00:10Z"},
            7,
        ]}))
        .unwrap();
        assert_eq!(status.history.len(), 1);
    }
}
