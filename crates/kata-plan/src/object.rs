//! References to API objects: kind, namespace, name and uid.
//!
//! A name does not identify an object, which can be deleted and created again. Where that matters, the
//! reference has the uid, too.

use std::fmt;

/// The kinds that the operator reads, writes or names in its reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    KataConfig,
    KataNode,
    Node,
    /// Of the Machine Config Operator.
    MachineConfig,
    /// Of the Machine Config Operator.
    MachineConfigPool,
    /// Of the Machine Config Operator.
    ContainerRuntimeConfig,
    /// Of `node.k8s.io`.
    RuntimeClass,
    /// Of `apps`; kata-monitor's.
    DaemonSet,
    /// Of OpenShift; kata-monitor's.
    SecurityContextConstraints,
    /// Of `batch`; the node agent's.
    Job,
    /// Only read, never written.
    ConfigMap,
    /// Only named in reports, never written.
    Pod,
    /// Only named in reports, never written.
    PodDisruptionBudget,
}

impl Kind {
    /// The kind as in manifests, such as `RuntimeClass`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::KataConfig => "KataConfig",
            Self::KataNode => "KataNode",
            Self::Node => "Node",
            Self::MachineConfig => "MachineConfig",
            Self::MachineConfigPool => "MachineConfigPool",
            Self::ContainerRuntimeConfig => "ContainerRuntimeConfig",
            Self::RuntimeClass => "RuntimeClass",
            Self::DaemonSet => "DaemonSet",
            Self::SecurityContextConstraints => "SecurityContextConstraints",
            Self::Job => "Job",
            Self::ConfigMap => "ConfigMap",
            Self::Pod => "Pod",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
        }
    }

    /// Group and version as in manifests, such as `node.k8s.io/v1`.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::KataConfig => "kataconfiguration.openshift.io/v1",
            Self::KataNode => "kata-operator.dev/v1alpha1",
            Self::Node | Self::ConfigMap | Self::Pod => "v1",
            Self::MachineConfig | Self::MachineConfigPool | Self::ContainerRuntimeConfig => {
                "machineconfiguration.openshift.io/v1"
            }
            Self::RuntimeClass => "node.k8s.io/v1",
            Self::DaemonSet => "apps/v1",
            Self::Job => "batch/v1",
            Self::SecurityContextConstraints => "security.openshift.io/v1",
            Self::PodDisruptionBudget => "policy/v1",
        }
    }

    /// The resource's name in paths, such as `runtimeclasses`.
    pub fn plural(self) -> &'static str {
        match self {
            Self::KataConfig => "kataconfigs",
            Self::KataNode => "katanodes",
            Self::Node => "nodes",
            Self::MachineConfig => "machineconfigs",
            Self::MachineConfigPool => "machineconfigpools",
            Self::ContainerRuntimeConfig => "containerruntimeconfigs",
            Self::RuntimeClass => "runtimeclasses",
            Self::DaemonSet => "daemonsets",
            Self::SecurityContextConstraints => "securitycontextconstraints",
            Self::Job => "jobs",
            Self::ConfigMap => "configmaps",
            Self::Pod => "pods",
            Self::PodDisruptionBudget => "poddisruptionbudgets",
        }
    }

    /// Whether no node needs an object of this kind to get or lose Kata.
    pub(crate) fn is_auxiliary(self) -> bool {
        matches!(self, Self::KataNode | Self::DaemonSet | Self::SecurityContextConstraints)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A reference to an object in a finding, a step or an Event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectRef {
    pub kind: Kind,
    /// `None` if the kind has cluster scope.
    pub namespace: Option<String>,
    pub name: String,
    /// `None` if the object does not exist, or if its uid does not matter.
    pub uid: Option<String>,
}

impl ObjectRef {
    /// An object of cluster scope whose uid is not known or does not matter.
    pub fn named(kind: Kind, name: impl Into<String>) -> Self {
        Self { kind, namespace: None, name: name.into(), uid: None }
    }

    /// An object of cluster scope.
    pub fn new(kind: Kind, name: impl Into<String>, uid: Option<&str>) -> Self {
        Self { kind, namespace: None, name: name.into(), uid: uid.map(ToOwned::to_owned) }
    }
}

impl ObjectRef {
    /// The same object in a namespace.
    #[must_use]
    pub fn within(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}
