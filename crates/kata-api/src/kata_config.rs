//! `KataConfig`, the one object that an admin creates.
//!
//! The first four fields of the spec, and in the status runtimeClasses, kataNodes, the condition
//! InProgress and waitingForMcoToStart, are those of the OpenShift sandboxed containers operator 1.2 to
//! 1.8: same names, types and defaults. Every other field is optional. The type of a field never changes;
//! a new need gets a new field.

#![expect(clippy::duplicated_attributes, reason = "columns of the same type are no mistake")]

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::node_task::ForeignChanges;

/// The most entries of a list of the status. Counts are always exact.
pub const LIST_CAP: usize = 100;

/// The desired state.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[kube(
    group = "kataconfiguration.openshift.io",
    version = "v1",
    kind = "KataConfig",
    plural = "kataconfigs",
    status = "KataConfigStatus",
    shortname = "kc",
    category = "kata",
    derive = "PartialEq",
    doc = "KataConfig makes the Kata Containers runtime available on the nodes that it selects, so that a pod with \
           runtimeClassName kata runs in its own virtual machine. Only the oldest KataConfig in a cluster is active.",
    printcolumn(
        name = "InProgress",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='InProgress')].status",
        description = "Whether nodes are being changed"
    ),
    printcolumn(
        name = "Completed",
        type_ = "integer",
        json_path = ".status.kataNodes.readyNodeCount",
        description = "Nodes that can run sandboxed pods"
    ),
    printcolumn(
        name = "Total",
        type_ = "integer",
        json_path = ".status.kataNodes.nodeCount",
        description = "Selected nodes"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].status",
        priority = 1
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].reason",
        priority = 1
    ),
    printcolumn(
        name = "Class",
        type_ = "string",
        json_path = ".status.runtimeClasses[*]",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Ready')].message",
        priority = 1
    ),
    selectable = ".spec.logLevel"
)]
#[serde(rename_all = "camelCase")]
pub struct KataConfigSpec {
    /// Selects the worker nodes that get Kata. All requirements must match; absent or empty selects every worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::label_selector")]
    pub kata_config_pool_selector: Option<LabelSelector>,
    /// Select only nodes that Node Feature Discovery labels feature.node.kubernetes.io/runtime.kata=true.
    #[serde(default)]
    pub check_node_eligibility: bool,
    /// The log level on nodes with Kata: fatal, panic, error, warn, info, debug or trace. On OpenShift it sets CRI-O's
    /// log level, and a change reboots these nodes one by one. On other clusters it sets the log level of Kata's
    /// components for pods that start later, and nothing is restarted.
    #[serde(default = "default_log_level")]
    #[schemars(schema_with = "crate::schema::log_level")]
    pub log_level: String,
    /// Run the virtual machines of pods outside the cluster's nodes. kata-operator does not support this: it reports
    /// the value and otherwise ignores it.
    #[serde(default)]
    pub enable_peer_pods: bool,
    /// The RuntimeClasses to create. Absent or empty means one: kata, with an overhead of 250m CPU and 350Mi memory
    /// per pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "runtimes")]
    pub runtimes: Vec<RuntimeSpec>,
    /// How nodes are changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutSpec>,
    /// Selects nodes whose operating system or cloud provides Kata, among those that the KataConfig selects. All
    /// requirements must match; empty selects all of them, absent none. Nothing is installed on them and no Job runs
    /// there: a node serves the runtimes whose handlers its kubelet reports. payload, logLevel and config do not apply
    /// to them. Not used on OpenShift.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::label_selector")]
    pub provided_nodes: Option<LabelSelector>,
    /// The source of the runtime's files. Not used on OpenShift.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<PayloadSpec>,
    /// Take over the selected nodes on which another installer put Kata: KataDeploy takes those of kata-deploy, whose
    /// sandboxes run on, and keeps what it left there. Stop it first, without removing Kata. A deletion of the KataConfig
    /// gives the nodes back. Once this field is removed, what was kept is deleted when no sandbox uses it. Not
    /// used on OpenShift.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::take_over")]
    pub take_over: Option<TakeOver>,
}

/// An installer of Kata whose nodes are taken over.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum TakeOver {
    /// Upstream's installer for Kubernetes, without a suffix.
    KataDeploy,
}

fn default_log_level() -> String {
    "info".to_owned()
}

/// RuntimeClasses, one per name.
fn runtimes(generator: &mut SchemaGenerator) -> Schema {
    let item = generator.subschema_for::<RuntimeSpec>();
    json_schema!({
        "description": "The RuntimeClasses to create. Absent or empty means one: kata, with an overhead of 250m CPU \
            and 350Mi memory per pod.",
        "type": "array",
        "maxItems": 16,
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "x-kubernetes-validations": [{
            "rule": one_configuration_per_handler(),
            "message": "runtimes with the same handler must have the same shim and the same config",
        }],
    })
}

/// The rule that runtimes with one handler agree on its shim and its settings, with what is absent as
/// [`RuntimeSpec::effective_handler`] and [`RuntimeSpec::effective_shim`] complete it.
fn one_configuration_per_handler() -> String {
    let handler = |it: &str| format!("(has({it}.handler) ? {it}.handler : {it}.name)");
    let shim = |it: &str| {
        let handler = handler(it);
        format!(
            "(has({it}.shim) ? 'kata-' + {it}.shim : ({handler}.startsWith('kata-') ? {handler} : 'kata-qemu'))"
        )
    };
    let config = |it: &str| format!("(has({it}.config) ? {it}.config : '')");
    let same = |what: &dyn Fn(&str) -> String| format!("{} == {}", what("a"), what("b"));
    format!(
        "self.all(a, self.all(b, !({}) || ({} && {})))",
        same(&handler),
        same(&shim),
        same(&config)
    )
}

/// One RuntimeClass.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeSpec {
    /// Name of the RuntimeClass; pods use it as runtimeClassName.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The handler of the container runtime. Absent means the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub handler: Option<String>,
    /// The shim of the payload that serves the handler, such as qemu or clh. Absent means the part of the handler
    /// after kata-, and qemu for the handler kata. Not used on OpenShift.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub shim: Option<String>,
    /// TOML that is merged into the shim's configuration of the payload, such as "[hypervisor.qemu]" with
    /// "default_memory = 4096". Lists are replaced. It overrides logLevel. Pods that start later use it; nothing is
    /// restarted. Not used on OpenShift.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub config: Option<String>,
    /// Selects the nodes that get this runtime, among those that the KataConfig selects. All requirements must match;
    /// absent or empty selects all of them. A node that is not selected any more keeps the runtime until no pod uses
    /// it there. Not used on OpenShift.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::label_selector")]
    pub install_on: Option<LabelSelector>,
    /// The resources that a sandbox needs in addition to its containers. Absent means the upstream default of the shim:
    /// 250m CPU and 350Mi memory for qemu and for unknown shims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<OverheadSpec>,
    /// Tolerations that every pod of the class gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::tolerations")]
    pub tolerations: Vec<Toleration>,
    /// Labels that a node must have to run pods of this class, in addition to having Kata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::node_selector")]
    pub node_selector: BTreeMap<String, String>,
}

/// The resources that a sandbox needs in addition to its containers.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverheadSpec {
    /// CPU per pod, such as 250m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::quantity")]
    pub cpu: Option<Quantity>,
    /// Memory per pod, such as 350Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::quantity")]
    pub memory: Option<Quantity>,
    /// Resources of device plugins per pod, such as tdx.intel.com/keys: 1. Only nodes that offer them run pods of the
    /// class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::schema::extended_resources")]
    pub resources: BTreeMap<String, Quantity>,
}

/// How nodes are changed.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutSpec {
    /// How many of the selected nodes may be unavailable at once: a number of at least 1, or a percentage from 1% to
    /// 100%, rounded down but to at least 1. Absent means 1 or, on OpenShift, spec.maxUnavailable of the
    /// MachineConfigPool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::max_unavailable")]
    pub max_unavailable: Option<IntOrString>,
    /// Stop before the next node. Changes of nodes that have begun are completed.
    #[serde(default)]
    pub paused: bool,
    /// What to do on a node whose container runtime has a changed configuration that is not in effect yet, since
    /// another program changed a file and restarted nothing: Wait until the container runtime is restarted, which is
    /// the default, or Activate the change with the restart for Kata. A configuration that cannot start is never
    /// activated. Not used on OpenShift.
    #[serde(default, skip_serializing_if = "ForeignChanges::waits")]
    #[schemars(schema_with = "crate::schema::foreign_changes")]
    pub foreign_changes: ForeignChanges,
    /// How long a node keeps Kata, or one of its runtimes, after a selector stops matching it: a labeller may remove its
    /// labels for a moment. Absent means 5m; 0s is allowed. An edit of a selector and a deletion do not wait. A change of
    /// this field shortens a delay that runs, and does not lengthen it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "jiff::fmt::serde::duration::friendly::compact::optional"
    )]
    #[schemars(schema_with = "crate::schema::duration")]
    pub leave_delay: Option<SignedDuration>,
}

/// The source of the runtime's files.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PayloadSpec {
    /// The image with the runtime's files, preferably with a digest.
    #[schemars(
        length(min = 1, max = 512),
        regex(
            pattern = r"^((\[[0-9a-fA-F:]+\]|[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?)(:[0-9]+)?/)?[a-z0-9]+((\.|_|__|-+|/)[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[A-Za-z0-9_+.-]+:[0-9a-fA-F]{32,})?$"
        )
    )]
    pub image: String,
}

/// The observed state.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KataConfigStatus {
    /// The metadata.generation that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Digest of the selectors by which the nodes were last selected: an edited selector does not wait for
    /// spec.rollout.leaveDelay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selectors_digest: Option<String>,
    /// The RuntimeClasses that exist and belong to this KataConfig.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtime_classes: Vec<String>,
    /// The runtimes of the spec, each with its nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runtimes: Vec<RuntimeStatus>,
    /// The nodes by state.
    #[serde(default)]
    pub kata_nodes: KataNodes,
    /// The current conditions. Ready, Reconciling, Stalled, Degraded and DeletionBlocked follow the Kubernetes
    /// conventions; InProgress is the condition of the OpenShift sandboxed containers operator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The current findings, worst first, at most 100; findingCounts counts all findings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<FindingStatus>,
    /// The number of findings by severity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding_counts: Option<FindingCounts>,
    /// Always false. The OpenShift sandboxed containers operator kept internal state in this field.
    #[serde(default)]
    pub waiting_for_mco_to_start: bool,
}

/// A runtime of the spec, with its nodes.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeStatus {
    /// The name of the RuntimeClass.
    pub name: String,
    /// Number of nodes that should have the runtime.
    #[serde(default)]
    pub node_count: i64,
    /// Number of nodes that can run pods of the class.
    #[serde(default)]
    pub ready_node_count: i64,
}

/// A problem, or a fact that an admin may want to know.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FindingStatus {
    /// The code, such as KATA2104. Each has a page in docs/codes.
    pub code: String,
    /// The severity: error, warning or info.
    pub severity: String,
    /// The object with the problem.
    pub subject: FindingSubject,
    /// The problem, with the names of the objects.
    pub message: String,
    /// How to remove the cause, with the command where one exists.
    pub fix: String,
}

/// The object with a problem.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FindingSubject {
    /// The kind, such as Node.
    pub kind: String,
    /// The namespace, if the kind has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

/// The number of findings by severity.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FindingCounts {
    /// Number of findings of severity error.
    #[serde(default)]
    pub error: i64,
    /// Number of findings of severity warning.
    #[serde(default)]
    pub warning: i64,
    /// Number of findings of severity info.
    #[serde(default)]
    pub info: i64,
}

/// The nodes by state, each in exactly one list. A list has at most 100 names; there is a KataNode for every node.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KataNodes {
    /// Number of selected nodes.
    #[serde(default)]
    pub node_count: i64,
    /// Number of nodes that are installed.
    #[serde(default)]
    pub ready_node_count: i64,
    /// Nodes that have Kata and are not being changed, also while they are cordoned or not Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub installed: Vec<String>,
    /// Nodes on which Kata is being installed or updated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub installing: Vec<String>,
    /// Nodes that wait for the installation to begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_to_install: Vec<String>,
    /// Nodes on which the installation failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_to_install: Vec<String>,
    /// Nodes from which Kata is being removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uninstalling: Vec<String>,
    /// Nodes that wait for the removal to begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_to_uninstall: Vec<String>,
    /// Nodes on which the removal failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_to_uninstall: Vec<String>,
    /// Whether a list was truncated to 100 names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

impl KataConfigSpec {
    /// The RuntimeClasses to create: those of the spec, or the default.
    pub fn effective_runtimes(&self) -> Vec<RuntimeSpec> {
        if self.runtimes.is_empty() {
            vec![RuntimeSpec {
                name: crate::names::RUNTIME_CLASS.to_owned(),
                ..RuntimeSpec::default()
            }]
        } else {
            self.runtimes.clone()
        }
    }
}

impl RuntimeSpec {
    /// The handler of the container runtime.
    pub fn effective_handler(&self) -> &str {
        self.handler.as_deref().unwrap_or(&self.name)
    }

    /// The shim of the payload that serves the handler.
    pub fn effective_shim(&self) -> &str {
        let handler = self.effective_handler();
        match (&self.shim, handler.strip_prefix("kata-")) {
            (Some(shim), _) => shim,
            (None, Some(shim)) => shim,
            (None, None) => "qemu",
        }
    }

    /// CPU and memory that a sandbox needs in addition to its containers.
    pub fn effective_overhead(&self) -> (Quantity, Quantity) {
        let overhead = self.overhead.clone().unwrap_or_default();
        let (cpu, memory) = crate::overhead::of_shim(self.effective_shim());
        (
            overhead.cpu.unwrap_or_else(|| Quantity(cpu.to_owned())),
            overhead.memory.unwrap_or_else(|| Quantity(memory.to_owned())),
        )
    }

    /// The resources of device plugins that a sandbox needs.
    pub fn overhead_resources(&self) -> BTreeMap<String, Quantity> {
        self.overhead.as_ref().map(|overhead| overhead.resources.clone()).unwrap_or_default()
    }
}
