//! Names of API resources: group and plural, independent of the version.

use std::borrow::Cow;

/// An API resource, the key of a table in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The plural name, as in URLs.
    pub plural: Cow<'static, str>,
}

impl Resource {
    /// A resource known at compile time.
    pub const fn new(group: &'static str, plural: &'static str) -> Self {
        Self { group: Cow::Borrowed(group), plural: Cow::Borrowed(plural) }
    }

    /// A resource from a request or a CustomResourceDefinition.
    pub fn dynamic(group: impl Into<String>, plural: impl Into<String>) -> Self {
        Self { group: Cow::Owned(group.into()), plural: Cow::Owned(plural.into()) }
    }
}

impl std::fmt::Display for Resource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.plural)
        } else {
            write!(f, "{}.{}", self.plural, self.group)
        }
    }
}

macro_rules! resources {
    ($($name:ident = $group:literal / $plural:literal;)*) => {
        $(
            #[doc = concat!("`", $plural, "` of group `", $group, "`.")]
            pub const $name: Resource = Resource::new($group, $plural);
        )*
    };
}

resources! {
    NAMESPACES = "" / "namespaces";
    VALIDATINGADMISSIONPOLICIES = "admissionregistration.k8s.io" / "validatingadmissionpolicies";
    VALIDATINGADMISSIONPOLICYBINDINGS = "admissionregistration.k8s.io" / "validatingadmissionpolicybindings";
    NODES = "" / "nodes";
    PODS = "" / "pods";
    EVENTS = "" / "events";
    EVENTS_V1 = "events.k8s.io" / "events";
    PERSISTENTVOLUMES = "" / "persistentvolumes";
    PERSISTENTVOLUMECLAIMS = "" / "persistentvolumeclaims";
    RESOURCEQUOTAS = "" / "resourcequotas";
    ENDPOINTS = "" / "endpoints";
    CONFIGMAPS = "" / "configmaps";
    SECRETS = "" / "secrets";
    SERVICES = "" / "services";
    SERVICEACCOUNTS = "" / "serviceaccounts";
    DEPLOYMENTS = "apps" / "deployments";
    REPLICASETS = "apps" / "replicasets";
    DAEMONSETS = "apps" / "daemonsets";
    STATEFULSETS = "apps" / "statefulsets";
    CRONJOBS = "batch" / "cronjobs";
    PRIORITYCLASSES = "scheduling.k8s.io" / "priorityclasses";
    JOBS = "batch" / "jobs";
    LEASES = "coordination.k8s.io" / "leases";
    RUNTIMECLASSES = "node.k8s.io" / "runtimeclasses";
    PODDISRUPTIONBUDGETS = "policy" / "poddisruptionbudgets";
    CRDS = "apiextensions.k8s.io" / "customresourcedefinitions";
    MACHINECONFIGS = "machineconfiguration.openshift.io" / "machineconfigs";
    MACHINECONFIGPOOLS = "machineconfiguration.openshift.io" / "machineconfigpools";
    CONTAINERRUNTIMECONFIGS = "machineconfiguration.openshift.io" / "containerruntimeconfigs";
    KATACONFIGS = "kataconfiguration.openshift.io" / "kataconfigs";
}
