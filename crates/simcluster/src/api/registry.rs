//! The table of resources that the API server serves: built-in kinds and those of CRDs.
//!
//! Discovery, routing, OpenAPI, Tables and the write path all read this one table.

mod custom;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::schema::Structural;
use crate::Resource;
pub use custom::{CLEANUP, defined_resource, definition, establish};

/// A served resource.
#[derive(Clone, Debug)]
pub struct ResourceDef {
    /// Group and plural.
    pub resource: Resource,
    /// The version under which objects are stored and served.
    pub version: Cow<'static, str>,
    /// The kind, such as `Pod`.
    pub kind: Cow<'static, str>,
    /// The kind of lists.
    pub list_kind: Cow<'static, str>,
    /// The singular name.
    pub singular: Cow<'static, str>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Short names for kubectl.
    pub short_names: Vec<Cow<'static, str>>,
    /// Categories for kubectl, such as `all`.
    pub categories: Vec<Cow<'static, str>>,
    /// Whether there is a status subresource.
    pub status: bool,
    /// The scale subresource, if there is one.
    pub scale: Option<ScalePaths>,
    /// Whether `metadata.generation` counts changes of everything but metadata and status.
    pub generation: bool,
    /// What a CRD adds; `None` for built-in kinds.
    pub custom: Option<Arc<CustomDef>>,
}

/// Where the scale subresource finds its numbers, as JSON pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// Pointer to the wanted number.
    pub spec_replicas: String,
    /// Pointer to the actual number.
    pub status_replicas: String,
    /// Pointer to the label selector, as a string or an object.
    pub selector: Option<String>,
}

/// What a CustomResourceDefinition says of one version.
#[derive(Debug)]
pub struct CustomDef {
    /// The schema.
    pub schema: Structural,
    /// `additionalPrinterColumns`, as in the CRD.
    pub columns: Vec<Value>,
    /// `selectableFields`, as dotted paths without the leading dot.
    pub selectable_fields: Vec<String>,
}

impl ResourceDef {
    /// `group/version`, or `version` for the core group.
    pub fn api_version(&self) -> String {
        if self.resource.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.resource.group, self.version)
        }
    }
}

/// All served resources.
#[derive(Debug)]
pub struct Registry {
    defs: BTreeMap<Resource, Arc<ResourceDef>>,
    /// Counts changes of the table, so that caches know when to forget.
    pub revision: u64,
}

impl Registry {
    /// The definition of a resource.
    pub fn get(&self, resource: &Resource) -> Option<&Arc<ResourceDef>> {
        self.defs.get(resource)
    }

    /// All definitions, ordered by group and plural.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResourceDef>> {
        self.defs.values()
    }

    /// The definition of a kind in a group, as owner references name it.
    pub fn by_kind(&self, group: &str, kind: &str) -> Option<&Arc<ResourceDef>> {
        self.defs.values().find(|def| def.resource.group == group && def.kind == kind)
    }

    /// Adds or replaces a definition.
    pub fn insert(&mut self, def: ResourceDef) {
        self.revision += 1;
        self.defs.insert(def.resource.clone(), Arc::new(def));
    }

    /// Removes a definition.
    pub fn remove(&mut self, resource: &Resource) {
        self.revision += 1;
        self.defs.remove(resource);
    }
}

/// One row of the built-in table: group, version, kind, plural, singular, namespaced, short names,
/// categories, status, scale, generation.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    bool,
    &'static [&'static str],
    &'static [&'static str],
    bool,
    bool,
    bool,
);

/// The built-in kinds.
#[rustfmt::skip]
const BUILTIN: &[Row] = &[
    ("", "v1", "ConfigMap", "configmaps", "configmap", true, &["cm"], &[], false, false, false),
    ("", "v1", "Endpoints", "endpoints", "endpoints", true, &["ep"], &[], false, false, false),
    ("", "v1", "Event", "events", "event", true, &["ev"], &[], false, false, false),
    ("", "v1", "LimitRange", "limitranges", "limitrange", true, &["limits"], &[], false, false, false),
    ("", "v1", "Namespace", "namespaces", "namespace", false, &["ns"], &[], true, false, false),
    ("", "v1", "Node", "nodes", "node", false, &["no"], &[], true, false, false),
    ("", "v1", "PersistentVolume", "persistentvolumes", "persistentvolume", false, &["pv"], &[], true, false, false),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim", true, &["pvc"], &[], true, false, false),
    ("", "v1", "Pod", "pods", "pod", true, &["po"], &["all"], true, false, true),
    ("", "v1", "ReplicationController", "replicationcontrollers", "replicationcontroller", true, &["rc"], &["all"], true, true, true),
    ("", "v1", "ResourceQuota", "resourcequotas", "resourcequota", true, &["quota"], &[], true, false, false),
    ("", "v1", "Secret", "secrets", "secret", true, &[], &[], false, false, false),
    ("", "v1", "Service", "services", "service", true, &["svc"], &["all"], true, false, false),
    ("", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount", true, &["sa"], &[], false, false, false),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", "mutatingwebhookconfiguration", false, &[], &["api-extensions"], false, false, true),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", "validatingadmissionpolicy", false, &[], &["api-extensions"], true, false, true),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", "validatingadmissionpolicybinding", false, &[], &["api-extensions"], false, false, true),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", "validatingwebhookconfiguration", false, &[], &["api-extensions"], false, false, true),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", "customresourcedefinition", false, &["crd", "crds"], &["api-extensions"], true, false, true),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", "controllerrevision", true, &[], &[], false, false, false),
    ("apps", "v1", "DaemonSet", "daemonsets", "daemonset", true, &["ds"], &["all"], true, false, true),
    ("apps", "v1", "Deployment", "deployments", "deployment", true, &["deploy"], &["all"], true, true, true),
    ("apps", "v1", "ReplicaSet", "replicasets", "replicaset", true, &["rs"], &["all"], true, true, true),
    ("apps", "v1", "StatefulSet", "statefulsets", "statefulset", true, &["sts"], &["all"], true, true, true),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "horizontalpodautoscaler", true, &["hpa"], &["all"], true, false, false),
    ("batch", "v1", "CronJob", "cronjobs", "cronjob", true, &["cj"], &["all"], true, false, true),
    ("batch", "v1", "Job", "jobs", "job", true, &[], &["all"], true, false, true),
    ("coordination.k8s.io", "v1", "Lease", "leases", "lease", true, &[], &[], false, false, false),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "endpointslice", true, &[], &[], false, false, true),
    ("events.k8s.io", "v1", "Event", "events", "event", true, &["ev"], &[], false, false, false),
    ("networking.k8s.io", "v1", "Ingress", "ingresses", "ingress", true, &["ing"], &[], true, false, true),
    ("networking.k8s.io", "v1", "IngressClass", "ingressclasses", "ingressclass", false, &[], &[], false, false, true),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "networkpolicy", true, &["netpol"], &[], false, false, true),
    ("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "runtimeclass", false, &[], &[], false, false, false),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "poddisruptionbudget", true, &["pdb"], &[], true, false, true),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", "clusterrole", false, &[], &[], false, false, false),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", "clusterrolebinding", false, &[], &[], false, false, false),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", "role", true, &[], &[], false, false, false),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", "rolebinding", true, &[], &[], false, false, false),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "priorityclass", false, &["pc"], &[], false, false, true),
    ("storage.k8s.io", "v1", "CSIDriver", "csidrivers", "csidriver", false, &[], &[], false, false, true),
    ("storage.k8s.io", "v1", "CSINode", "csinodes", "csinode", false, &[], &[], false, false, false),
    ("storage.k8s.io", "v1", "StorageClass", "storageclasses", "storageclass", false, &["sc"], &[], false, false, false),
];

impl Default for Registry {
    fn default() -> Self {
        let mut registry = Self { defs: BTreeMap::new(), revision: 0 };
        for (
            group,
            version,
            kind,
            plural,
            singular,
            namespaced,
            short,
            categories,
            status,
            scale,
            generation,
        ) in BUILTIN.iter().copied()
        {
            registry.insert(ResourceDef {
                resource: Resource::new(group, plural),
                version: Cow::Borrowed(version),
                kind: Cow::Borrowed(kind),
                list_kind: Cow::Owned(format!("{kind}List")),
                singular: Cow::Borrowed(singular),
                namespaced,
                short_names: short.iter().copied().map(Cow::Borrowed).collect(),
                categories: categories.iter().copied().map(Cow::Borrowed).collect(),
                status,
                scale: scale.then(|| ScalePaths {
                    spec_replicas: "/spec/replicas".to_owned(),
                    status_replicas: "/status/replicas".to_owned(),
                    selector: Some("/spec/selector".to_owned()),
                }),
                generation,
                custom: None,
            });
        }
        registry
    }
}
