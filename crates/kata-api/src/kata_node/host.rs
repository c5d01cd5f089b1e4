//! The results of the Jobs of the node agent on a node: `status.host` of a KataNode.
//!
//! The operator keeps no other record of the Jobs. A value that this version does not know is never read as another
//! value: [`HostStatus::unknown_values`] lists it.

use std::sync::Arc;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::node_task::{EarlierRelease, NodeAction, Outcome};

/// Results of the Jobs of the node agent on the node. The operator keeps no other record of them.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostStatus {
    /// Digest of the installed and verified state. `drifted` if the node differs from it but still runs sandboxes;
    /// absent if nothing is installed or the state is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed: Option<String>,
    /// Digest of the desired state and the node's facts for which the checks of the node passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit_for: Option<String>,
    /// Digests of the desired state and of the node's facts for which a change failed and was rolled back. The
    /// operator does not repeat that change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_for: Option<String>,
    /// Whether files or settings that the operator installed may be on the node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_artifacts: bool,
    /// All handlers that the container runtime reported to the last Job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handlers: Vec<String>,
    /// Digest of the payload in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_digest: Option<String>,
    /// The image of the payload in use, if the kubelet reported its digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_image: Option<PayloadImage>,
    /// Version of Kata in use, if the payload contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kata_version: Option<String>,
    /// The earlier releases that sandboxes still ran on when the last Job looked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<EarlierRelease>,
    /// Name and version that the container runtime reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// When a Job last changed the node, or compared it with what is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>")]
    pub inspected: Option<Timestamp>,
    /// How often the operator's Jobs restarted the container runtime.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub restarts: i64,
    /// How often a change was rolled back.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub rollbacks: i64,
    /// How often the node was found to differ from what was installed.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub drifts: i64,
    /// What the last Job that succeeded warned of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<CheckWarning>,
    /// The last Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<HostJob>,
    /// Values that this version does not know: another version or a person wrote them. If a value of the Job is among
    /// them, [`HostStatus::job`] is `None`. Not serialized: writing the record again discards them.
    #[serde(skip)]
    pub unknown_values: Vec<UnknownValue>,
}

/// What a check of a node warned of.
#[derive(
    Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct CheckWarning {
    /// The code, such as KATA3043.
    #[serde(default)]
    pub code: String,
    /// What was found.
    #[serde(default)]
    pub message: String,
}

/// An image with a payload, as it was asked for, and as a kubelet resolved it.
#[derive(
    Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct PayloadImage {
    /// The reference of the KataConfig or of the operator's settings.
    #[serde(default)]
    pub image: String,
    /// The digest that the reference had when the payload was installed: `sha256:` and 64 hexadecimal digits.
    #[serde(default)]
    pub digest: String,
}

/// A value in a KataNode that this version does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownValue {
    /// The field, such as `status.host.job.action`.
    pub field: String,
    /// The value as JSON.
    pub value: String,
}

/// Deserializes `status.host`, and collects unknown values.
pub(super) fn read<'de, D>(deserializer: D) -> Result<Option<Arc<HostStatus>>, D::Error>
where
    D: Deserializer<'de>,
{
    let Some(mut host) = Option::<Map<String, Value>>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let mut unknown_values = Vec::new();
    take_unknown::<Timestamp>(&mut host, "status.host", "inspected", &mut unknown_values);
    if let Some(job) = host.get_mut("job").and_then(Value::as_object_mut) {
        let path = "status.host.job";
        let known = unknown_values.len();
        take_unknown::<NodeAction>(job, path, "action", &mut unknown_values);
        take_unknown::<JobOutcome>(job, path, "outcome", &mut unknown_values);
        take_unknown::<JobOutcome>(job, path, "previousOutcome", &mut unknown_values);
        take_unknown::<Timestamp>(job, path, "time", &mut unknown_values);
        if unknown_values.len() > known {
            host.remove("job");
        }
    }
    let mut status: HostStatus =
        serde_json::from_value(Value::Object(host)).map_err(D::Error::custom)?;
    status.unknown_values = unknown_values;
    Ok(Some(Arc::new(status)))
}

/// Removes the field from the object if its value is neither null nor a valid `T`.
fn take_unknown<T: DeserializeOwned>(
    object: &mut Map<String, Value>,
    path: &str,
    field: &str,
    unknown: &mut Vec<UnknownValue>,
) {
    let Some(value) = object.get(field) else { return };
    if Option::<T>::deserialize(value).is_err() {
        unknown.push(UnknownValue { field: format!("{path}.{field}"), value: value.to_string() });
        object.remove(field);
    }
}

/// A Job of the node agent.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostJob {
    /// The Job's name.
    pub name: String,
    /// The number of the Job on its node, from 1.
    pub number: i64,
    /// The action that the Job carries out.
    #[schemars(schema_with = "job_action")]
    pub action: NodeAction,
    /// Digest of the desired state that the Job was created for.
    pub desired_state_digest: String,
    /// Digest of the facts of the node that the Job was created for.
    pub node_facts_digest: String,
    /// How the Job ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "job_outcome")]
    pub outcome: Option<JobOutcome>,
    /// While the Job runs: how the previous Job ended, if that Job had the same action, state and facts and failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "job_outcome")]
    pub previous_outcome: Option<JobOutcome>,
    /// When the Job ended or, while it runs, when the operator first observed it.
    #[schemars(with = "k8s_openapi::apimachinery::pkg::apis::meta::v1::Time")]
    pub time: Timestamp,
    /// How many Jobs for the same state and facts failed in a row, this one included.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub failures: i64,
    /// The message of the Job's report. While the Job runs: the message of the previous Job, if that Job had the same
    /// action, state and facts and failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Code of the check that the message describes, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// How a Job of the node agent ended.
#[derive(
    Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema,
)]
pub enum JobOutcome {
    /// The node has the desired state.
    Done,
    /// A check found that Kata cannot run; nothing was changed.
    Refused,
    /// Sandboxes run that the change would harm; nothing that they need was changed.
    Blocked,
    /// The node differs from what is installed.
    Drifted,
    /// The change failed and was rolled back.
    RolledBack,
    /// The change failed, and so did the rollback.
    Unsafe,
    /// The task could not be completed; the node is unchanged, or the next Job continues.
    Failed,
    /// The Job did not start before its deadline, so the node is unchanged.
    NotStarted,
    /// The Job did not end before its deadline, so the state of the node is unknown.
    TimedOut,
    /// The Job ended without a readable report, so the state of the node is unknown.
    NoReport,
    /// The Job was deleted before the operator read its report, so the state of the node is unknown.
    Vanished,
}

impl JobOutcome {
    /// Every outcome.
    pub const ALL: [Self; 11] = [
        Self::Done,
        Self::Refused,
        Self::Blocked,
        Self::Drifted,
        Self::RolledBack,
        Self::Unsafe,
        Self::Failed,
        Self::NotStarted,
        Self::TimedOut,
        Self::NoReport,
        Self::Vanished,
    ];

    /// The name as in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "Done",
            Self::Refused => "Refused",
            Self::Blocked => "Blocked",
            Self::Drifted => "Drifted",
            Self::RolledBack => "RolledBack",
            Self::Unsafe => "Unsafe",
            Self::Failed => "Failed",
            Self::NotStarted => "NotStarted",
            Self::TimedOut => "TimedOut",
            Self::NoReport => "NoReport",
            Self::Vanished => "Vanished",
        }
    }
}

/// The actions of a Job.
fn job_action(_generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": NodeAction::ALL.map(NodeAction::as_str)})
}

/// An outcome or none. The derived schema would show the type's description in place of the field's.
fn job_outcome(_generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "nullable": true,
        "enum": JobOutcome::ALL.map(JobOutcome::as_str),
    })
}

impl From<Outcome> for JobOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::Refused => Self::Refused,
            Outcome::Blocked => Self::Blocked,
            Outcome::Drifted => Self::Drifted,
            Outcome::RolledBack => Self::RolledBack,
            Outcome::Unsafe => Self::Unsafe,
            Outcome::Failed => Self::Failed,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &i64) -> bool {
    *count == 0
}
