//! `NodeRestriction`: what a kubelet may write of nodes. Only of its own, and no labels that others trust.
//!
//! It restricts users of the group `system:nodes` alone. Pods, leases and what else a kubelet writes are not looked at.
//! Source: `plugin/pkg/admission/noderestriction` of Kubernetes 1.31.

use std::collections::BTreeSet;

use serde_json::Value;

use super::policy::Deed;
use crate::api::authentication::User;
use crate::api::error::ApiError;
use crate::api::server::Call;
use crate::resource::NODES;

/// Labels of Kubernetes that kubelets may set.
const OWN_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Prefixes of labels of Kubernetes that kubelets may set, as any prefix that ends with one of them.
const OWN_PREFIXES: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Refuses what a kubelet may not write of a node.
pub(super) fn validate(call: &Call<'_>, deed: &Deed<'_>) -> Result<(), ApiError> {
    let Some(kubelet) = call.user.and_then(User::node) else { return Ok(()) };
    let refuse = |why: &str| Err(ApiError::forbidden(&NODES, deed.name, why));
    if kubelet != deed.name {
        let other = deed.name;
        return refuse(&format!("node {kubelet:?} is not allowed to modify node {other:?}"));
    }
    if deed.operation == "DELETE" {
        return Ok(());
    }
    let is_new = deed.operation == "CREATE";
    if !is_new && deed.object["spec"]["taints"] != deed.old["spec"]["taints"] {
        return refuse(&format!("node {kubelet:?} is not allowed to modify taints"));
    }
    let (old, new) = (&deed.old["metadata"]["labels"], &deed.object["metadata"]["labels"]);
    let keys = |labels: &Value| -> BTreeSet<String> {
        labels.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
    };
    let all: BTreeSet<String> = &keys(old) | &keys(new);
    let forbidden: Vec<String> =
        all.into_iter().filter(|key| old[key] != new[key] && is_forbidden(key)).collect();
    if forbidden.is_empty() {
        return Ok(());
    }
    let what = if is_new { "set the following labels" } else { "modify labels" };
    refuse(&format!("is not allowed to {what}: {}", forbidden.join(", ")))
}

fn is_forbidden(label: &str) -> bool {
    let prefix = label.split_once('/').map_or("", |(prefix, _)| prefix);
    let within = |domain: &str| {
        prefix.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    let of_kubernetes = within("kubernetes.io") || within("k8s.io");
    let own = OWN_LABELS.contains(&label) || OWN_PREFIXES.into_iter().any(within);
    within("node-restriction.kubernetes.io") || of_kubernetes && !own
}
