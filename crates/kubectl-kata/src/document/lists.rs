//! The documents of `pods` and `nodes`.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::Head;
use crate::api::Gap;

/// A sandboxed pod.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodRow {
    /// Its namespace.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// Containers that are ready.
    pub(crate) ready: usize,
    /// Containers that there are.
    pub(crate) containers: usize,
    /// As kubectl shows it.
    pub(crate) status: String,
    /// Restarts of containers.
    pub(crate) restarts: i64,
    /// When it was created.
    #[schemars(with = "Option<String>")]
    pub(crate) created: Option<Timestamp>,
    /// The node that it is bound to.
    pub(crate) node: Option<String>,
    /// Its RuntimeClass.
    pub(crate) runtime_class: String,
    /// The handler of the class, if the class can be seen.
    pub(crate) handler: Option<String>,
    /// The shim that the KataConfig configures for the handler, such as `qemu` or `clh`, which is how the
    /// virtual machine monitor is chosen; absent if something else configures it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vmm: Option<String>,
    /// The version of Kata that it runs; absent if it does not run, or if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kata_version: Option<String>,
    /// Overhead that its sandbox takes, as CPU/memory.
    pub(crate) overhead: Option<String>,
    /// What made it, such as `ReplicaSet/web-5d4`.
    pub(crate) owner: Option<String>,
}

/// The result of `pods`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodList {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// The pods, by namespace and name.
    pub(crate) items: Vec<PodRow>,
    /// That it is not known of some pods whether they are sandboxed; absent if it is known of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unknown: Option<String>,
    /// What could not be seen.
    pub(crate) gaps: Vec<Gap>,
}

/// A node with Kata.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeRow {
    /// Its name.
    pub(crate) name: String,
    /// How far it is.
    pub(crate) phase: String,
    /// What happens on it.
    pub(crate) step: String,
    /// Our handlers that its container runtime advertises.
    pub(crate) handlers: Vec<String>,
    /// Whether its operating system or cloud provides Kata, so that no node agent comes there.
    pub(crate) provided: bool,
    /// Whether a virtual machine could be made when a node agent looked; absent if none has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kvm: Option<bool>,
    /// The container runtime and its version.
    pub(crate) runtime: Option<String>,
    /// The version of Kata, as the files say that a node agent brought; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kata: Option<String>,
    /// Whether a node agent left the node without Kata, or found it so.
    #[serde(skip)]
    pub(crate) without: bool,
    /// When a node agent last compared the node with what is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub(crate) inspected: Option<Timestamp>,
    /// The kernel's version.
    pub(crate) kernel: Option<String>,
    /// How many more sandboxes without requests of their own fit, by CPU, memory and pods.
    pub(crate) free_sandboxes: Option<i64>,
    /// Sandboxed pods on it.
    pub(crate) pods: Option<usize>,
    /// Whether it carries the label that lets sandboxed pods in.
    pub(crate) labelled: Option<bool>,
    /// Whether the operator found that it can run sandboxed pods: `True`, `False` or `Unknown`.
    pub(crate) ready: String,
    /// When phase and step began.
    #[schemars(with = "Option<String>")]
    pub(crate) since: Option<Timestamp>,
    /// The code of what holds it up, if anything does.
    pub(crate) code: Option<String>,
    /// What is going on.
    pub(crate) message: String,
}

/// The result of `nodes`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeList {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// The nodes, by name.
    pub(crate) items: Vec<NodeRow>,
    /// What could not be seen.
    pub(crate) gaps: Vec<Gap>,
}
