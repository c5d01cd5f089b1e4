//! Restricts what the operator may change of a Node, which RBAC cannot: its own labels, the taint of a node
//! whose Kata is about to change, and the removal of the startup taint.
//!
//! RBAC grants `patch` on whole Nodes: a client with the operator's token could taint or relabel every node
//! of the cluster. The admission policy matches only this one user, and does not affect other clients.

use serde_json::{Value, json};

use kata_api::names;

use super::metadata::{NAME, metadata};

/// The fields of the spec of a Node besides its taints (Kubernetes 1.30 to 1.35).
const SPEC: [&str; 6] =
    ["configSource", "externalID", "podCIDR", "podCIDRs", "providerID", "unschedulable"];

/// The policy and its binding.
pub(super) fn node_policy(namespace: &str) -> [Value; 2] {
    let name = format!("{NAME}-nodes");
    let metadata = metadata(&name, None);
    let map = |object: &str, field: &str| {
        format!("has({object}.metadata.{field}) ? {object}.metadata.{field} : {{}}")
    };
    let taints = |object: &str| format!("has({object}.spec.taints) ? {object}.spec.taints : []");
    let same = |field: &str| {
        format!(
            "has(object.spec.{field}) == has(oldObject.spec.{field}) && \
             (!has(object.spec.{field}) || object.spec.{field} == oldObject.spec.{field})"
        )
    };
    let ours = format!(
        "['{}', '{}', '{}']",
        names::KATA_ROLE_LABEL,
        names::RUNTIME_LABEL,
        names::CLAIM_LABEL
    );
    let is_ours =
        format!("key in variables.ours || key.startsWith('{}')", names::CLASS_LABEL_PREFIX);
    let our_taints = format!("['{}', '{}']", names::STARTUP_TAINT, names::LEAVING_TAINT);
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata,
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"],
                "operations": ["UPDATE"],
            }]},
            "matchConditions": [{
                "name": "by-the-operator",
                "expression": format!(
                    "request.userInfo.username == 'system:serviceaccount:{namespace}:{NAME}'"
                ),
            }],
            "variables": [
                {"name": "ours", "expression": ours},
                {"name": "ourTaints", "expression": our_taints},
                {"name": "labels", "expression": map("object", "labels")},
                {"name": "oldLabels", "expression": map("oldObject", "labels")},
                {"name": "taints", "expression": taints("object")},
                {"name": "oldTaints", "expression": taints("oldObject")},
            ],
            "validations": [
                {
                    "expression": format!(
                        "variables.labels.all(key, {is_ours} || \
                         (key in variables.oldLabels && \
                         variables.oldLabels[key] == variables.labels[key]))"
                    ),
                    "message": "kata-operator may set no other labels of a node than its own",
                },
                {
                    "expression": format!(
                        "variables.oldLabels.all(key, {is_ours} || key in variables.labels)"
                    ),
                    "message": "kata-operator may remove no other labels of a node than its own",
                },
                {
                    "expression": format!(
                        "object.spec == oldObject.spec || (\
                         variables.taints.all(taint, taint in variables.oldTaints) && \
                         variables.oldTaints.all(taint, taint in variables.taints || \
                         taint.key in variables.ourTaints) && {})",
                        SPEC.map(same).join(" && ")
                    ),
                    "message": "kata-operator may change no other taints of a node than its own, and may not \
                                cordon or otherwise change it",
                },
                {
                    "expression": format!(
                        "({}) == ({})", map("object", "annotations"), map("oldObject", "annotations")
                    ),
                    "message": "kata-operator may not annotate a node",
                },
                {
                    "expression": "has(object.metadata.finalizers) == \
                                   has(oldObject.metadata.finalizers) && \
                                   (!has(object.metadata.finalizers) || \
                                   object.metadata.finalizers == oldObject.metadata.finalizers)",
                    "message": "kata-operator may not hold up the deletion of a node",
                },
                {
                    "expression": "has(object.metadata.ownerReferences) == \
                                   has(oldObject.metadata.ownerReferences) && \
                                   (!has(object.metadata.ownerReferences) || \
                                   object.metadata.ownerReferences == \
                                   oldObject.metadata.ownerReferences)",
                    "message": "kata-operator may not give a node an owner, with which it would be deleted",
                },
            ],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata,
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    [policy, binding]
}
