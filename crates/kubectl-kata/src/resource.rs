//! The kinds that this program reads, as paths of the API.

use std::fmt::Write as _;

use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

/// A kind of object, as the API server serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// The API group; empty for the core.
    pub(crate) group: &'static str,
    /// The version.
    pub(crate) version: &'static str,
    /// The name in paths.
    pub(crate) plural: &'static str,
}

pub(crate) const fn resource(
    group: &'static str,
    version: &'static str,
    plural: &'static str,
) -> Resource {
    Resource { group, version, plural }
}

pub(crate) const NAMESPACES: Resource = resource("", "v1", "namespaces");
pub(crate) const NODES: Resource = resource("", "v1", "nodes");
pub(crate) const PODS: Resource = resource("", "v1", "pods");
pub(crate) const EVENTS: Resource = resource("", "v1", "events");
pub(crate) const CONFIG_MAPS: Resource = resource("", "v1", "configmaps");
pub(crate) const DEPLOYMENTS: Resource = resource("apps", "v1", "deployments");
pub(crate) const REPLICA_SETS: Resource = resource("apps", "v1", "replicasets");
pub(crate) const STATEFUL_SETS: Resource = resource("apps", "v1", "statefulsets");
pub(crate) const DAEMON_SETS: Resource = resource("apps", "v1", "daemonsets");
pub(crate) const CRON_JOBS: Resource = resource("batch", "v1", "cronjobs");
pub(crate) const SECRETS: Resource = resource("", "v1", "secrets");
pub(crate) const JOBS: Resource = resource("batch", "v1", "jobs");
pub(crate) const BUDGETS: Resource = resource("policy", "v1", "poddisruptionbudgets");
pub(crate) const RUNTIME_CLASSES: Resource = resource("node.k8s.io", "v1", "runtimeclasses");
pub(crate) const LEASES: Resource = resource("coordination.k8s.io", "v1", "leases");
pub(crate) const CRDS: Resource =
    resource("apiextensions.k8s.io", "v1", "customresourcedefinitions");
pub(crate) const KATA_CONFIGS: Resource =
    resource("kataconfiguration.openshift.io", "v1", "kataconfigs");
pub(crate) const KATA_NODES: Resource = resource("kata-operator.dev", "v1alpha1", "katanodes");
pub(crate) const POOLS: Resource =
    resource("machineconfiguration.openshift.io", "v1", "machineconfigpools");
pub(crate) const MACHINE_CONFIGS: Resource =
    resource("machineconfiguration.openshift.io", "v1", "machineconfigs");
pub(crate) const RUNTIME_CONFIGS: Resource =
    resource("machineconfiguration.openshift.io", "v1", "containerruntimeconfigs");
pub(crate) const NODE_POOLS: Resource = resource("karpenter.sh", "v1", "nodepools");
pub(crate) const REVIEWS: Resource =
    resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews");

impl Resource {
    /// `katanodes.kata-operator.dev`, `pods`.
    pub(crate) fn qualified(self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Whether a CustomResourceDefinition brings it, so that there are clusters without it.
    pub(crate) fn is_custom(self) -> bool {
        [".openshift.io", ".dev", ".sh"].iter().any(|domain| self.group.ends_with(domain))
    }

    /// The path of the kind, in a namespace or in all.
    pub(crate) fn path(self, namespace: Option<&str>) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if let Some(namespace) = namespace {
            path.push_str("/namespaces/");
            path.push_str(&encode(namespace));
        }
        path.push('/');
        path.push_str(self.plural);
        path
    }

    /// The path of an object.
    pub(crate) fn object(self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{}", self.path(namespace), encode(name))
    }
}

/// Text as a part of a path or of a query.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _always = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// The kind of an object.
pub(crate) fn kind_of(object: &Value) -> ApiResource {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let api_version = text(&object["apiVersion"]);
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &text(&object["kind"])))
}

/// The path of an object, by its kind and its name.
pub(crate) fn path(object: &Value) -> String {
    let resource = kind_of(object);
    let root = if resource.group.is_empty() { "/api" } else { "/apis" };
    let namespace = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/namespaces/{}", encode(namespace)),
        None => String::new(),
    };
    let name = encode(object["metadata"]["name"].as_str().unwrap_or_default());
    format!("{root}/{}{namespace}/{}/{name}", resource.api_version, resource.plural)
}
