//! The messages of CRI `runtime.v1` that are used, with the fields that are used.
//!
//! Numbers are those of k8s.io/cri-api `pkg/apis/runtime/v1/api.proto`; unknown fields are skipped.

use std::collections::{BTreeMap, HashMap};

use kata_host::host::{CriStatus, Sandbox};
use prost::Message;
use serde::Deserialize;

/// `VersionRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct VersionRequest {
    /// The client's version.
    #[prost(string, tag = "1")]
    pub version: String,
}

/// `VersionResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct VersionResponse {
    /// Name of the runtime.
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    /// Its version.
    #[prost(string, tag = "3")]
    pub runtime_version: String,
}

/// `StatusRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct StatusRequest {
    /// Whether [`StatusResponse::info`] is wanted.
    #[prost(bool, tag = "1")]
    pub verbose: bool,
}

/// `StatusResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct StatusResponse {
    /// The conditions.
    #[prost(message, optional, tag = "1")]
    pub status: Option<RuntimeStatus>,
    /// Free text by name.
    #[prost(map = "string, string", tag = "2")]
    pub info: HashMap<String, String>,
    /// The handlers.
    #[prost(message, repeated, tag = "3")]
    pub runtime_handlers: Vec<RuntimeHandler>,
}

/// `RuntimeStatus`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RuntimeStatus {
    /// The conditions.
    #[prost(message, repeated, tag = "1")]
    pub conditions: Vec<RuntimeCondition>,
}

/// `RuntimeCondition`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RuntimeCondition {
    /// For example `RuntimeReady`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// Whether it holds.
    #[prost(bool, tag = "2")]
    pub status: bool,
    /// A word for why it does not.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// A sentence for why it does not.
    #[prost(string, tag = "4")]
    pub message: String,
}

/// `RuntimeHandler`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RuntimeHandler {
    /// Its name; empty for the default one.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// `ListPodSandboxRequest`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ListPodSandboxRequest {}

/// `ListPodSandboxResponse`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListPodSandboxResponse {
    /// The sandboxes.
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<PodSandbox>,
}

/// `PodSandbox`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PodSandbox {
    /// Its id.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Whose it is.
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<PodSandboxMetadata>,
    /// 0 is READY, 1 is NOTREADY.
    #[prost(int32, tag = "3")]
    pub state: i32,
    /// Its handler; empty if it is the default one, or if this is CRI-O.
    #[prost(string, tag = "7")]
    pub runtime_handler: String,
}

/// `PodSandboxStatusRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PodSandboxStatusRequest {
    /// The sandbox.
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
    /// Whether [`PodSandboxStatusResponse::info`] is wanted.
    #[prost(bool, tag = "2")]
    pub verbose: bool,
}

/// `PodSandboxStatusResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxStatusResponse {
    /// Free text by name.
    #[prost(map = "string, string", tag = "2")]
    pub info: HashMap<String, String>,
}

/// What CRI-O has below `info` in [`PodSandboxStatusResponse::info`], of what is needed.
#[derive(Deserialize)]
struct SandboxInfo {
    #[serde(rename = "runtimeSpec")]
    runtime_spec: RuntimeSpec,
}

#[derive(Deserialize)]
struct RuntimeSpec {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl PodSandboxStatusResponse {
    /// The handler that CRI-O notes in the annotations of a sandbox's specification; empty is the default one.
    ///
    /// CRI-O's `server/sandbox_status.go` and `pkg/annotations/internal.go` of 1.30 and 1.34.
    ///
    /// # Errors
    /// What is not as it should be.
    pub fn crio_handler(&self) -> Result<String, &'static str> {
        let info = self.info.get("info").ok_or("it has no verbose information")?;
        let info: SandboxInfo = serde_json::from_str(info)
            .map_err(|_malformed| "its verbose information is not what CRI-O gives")?;
        let mut annotations = info.runtime_spec.annotations;
        annotations
            .remove("io.kubernetes.cri-o.RuntimeHandler")
            .ok_or("its specification has no annotation for it")
    }
}

/// `PodSandboxMetadata`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PodSandboxMetadata {
    /// Name of the pod.
    #[prost(string, tag = "1")]
    pub name: String,
    /// uid of the pod.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// Namespace of the pod.
    #[prost(string, tag = "3")]
    pub namespace: String,
}

impl From<StatusResponse> for CriStatus {
    fn from(mut response: StatusResponse) -> Self {
        let conditions = response.status.unwrap_or_default().conditions;
        let ready = conditions.into_iter().find(|condition| condition.r#type == "RuntimeReady");
        let RuntimeCondition { r#type: _, status, reason, message } = ready.unwrap_or_default();
        Self {
            runtime_ready: status,
            message: if status { String::new() } else { format!("{reason}: {message}") },
            handlers: response.runtime_handlers.into_iter().map(|handler| handler.name).collect(),
            config: response.info.remove("config"),
        }
    }
}

impl From<PodSandbox> for Sandbox {
    fn from(sandbox: PodSandbox) -> Self {
        let PodSandboxMetadata { name, uid, namespace } = sandbox.metadata.unwrap_or_default();
        Self {
            id: sandbox.id,
            namespace,
            pod: name,
            uid,
            handler: sandbox.runtime_handler,
            ready: sandbox.state == 0,
        }
    }
}
