//! Of a Node the operator may change its own labels, and remove its own taints.
//!
//! RBAC grants `patch` on whole Nodes: a client with the operator's token could taint or relabel every node
//! of the cluster.

use kata_api::names;

use super::rules::{Rules, list, or, same, with_messages};

/// The fields of the spec of a Node besides its taints (Kubernetes 1.30 to 1.35).
const SPEC: [&str; 6] = [
    "spec.configSource",
    "spec.externalID",
    "spec.podCIDR",
    "spec.podCIDRs",
    "spec.providerID",
    "spec.unschedulable",
];

pub(super) fn rules() -> Rules {
    let is_ours =
        format!("key in variables.ours || key.startsWith('{}')", names::CLASS_LABEL_PREFIX);
    Rules {
        resource: "nodes",
        group: "",
        operations: &["UPDATE"],
        has_parameters: false,
        variables: vec![
            ("ours", list(&[names::KATA_ROLE_LABEL, names::RUNTIME_LABEL, names::CLAIM_LABEL])),
            (
                "ourTaints",
                list(&[
                    names::STARTUP_TAINT,
                    names::AUTOSCALER_STARTUP_TAINT,
                    names::LEAVING_TAINT,
                ]),
            ),
            ("labels", or("object.metadata.labels", "{}")),
            ("oldLabels", or("oldObject.metadata.labels", "{}")),
            ("taints", or("object.spec.taints", "[]")),
            ("oldTaints", or("oldObject.spec.taints", "[]")),
        ],
        validations: with_messages(vec![
            (
                "kata-operator may set no other labels of a node than its own",
                format!(
                    "variables.labels.all(key, {is_ours} || (key in variables.oldLabels && \
                     variables.oldLabels[key] == variables.labels[key]))"
                ),
            ),
            (
                "kata-operator may remove no other labels of a node than its own",
                format!("variables.oldLabels.all(key, {is_ours} || key in variables.labels)"),
            ),
            (
                "kata-operator may change no other taints of a node than its own, and may not cordon or \
                 otherwise change it",
                format!(
                    "object.spec == oldObject.spec || (\
                     variables.taints.all(taint, taint in variables.oldTaints) && \
                     variables.oldTaints.all(taint, taint in variables.taints || \
                     taint.key in variables.ourTaints) && {})",
                    SPEC.map(same).join(" && ")
                ),
            ),
            ("kata-operator may not annotate a node", same("metadata.annotations")),
            ("kata-operator may not hold up the deletion of a node", same("metadata.finalizers")),
            (
                "kata-operator may not give a node an owner, with which it would be deleted",
                same("metadata.ownerReferences"),
            ),
        ]),
    }
}
