//! The operator may create, change and delete its own RuntimeClasses, which send pods into sandboxes.
//!
//! Their names are the user's choice, so RBAC cannot list them: a client with the operator's token could delete
//! every RuntimeClass, or create one that is called `kata` and has the handler of ordinary containers.

use kata_api::names;

use super::rules::{Rules, list};

/// Known handlers that make no virtual machine: of runc and its like, of NVIDIA's toolkit, and of OpenShift's Node
/// Tuning Operator. A node may have others.
const UNSANDBOXED: [&str; 7] =
    ["crun", "high-performance", "nvidia", "nvidia-cdi", "nvidia-legacy", "runc", "youki"];

pub(super) fn rules() -> Rules {
    let has_label = |object: &str| {
        format!(
            "has({object}.metadata.labels) && '{label}' in {object}.metadata.labels && \
             {object}.metadata.labels['{label}'] == '{}'",
            names::PRODUCT,
            label = names::MANAGED_BY,
        )
    };
    // Those of the OpenShift sandboxed containers operator belong to the KataConfig, and have no label.
    let was_ours = format!(
        "({}) || (has(oldObject.metadata.ownerReferences) && \
         oldObject.metadata.ownerReferences.exists(it, it.kind == 'KataConfig' && \
         it.apiVersion.startsWith('kataconfiguration.openshift.io/')))",
        has_label("oldObject")
    );
    // No node has the second one.
    let selectors = [names::RUNTIME_LABEL, names::CLOSED_LABEL].map(|label| {
        format!(
            "('{label}' in object.scheduling.nodeSelector && \
             object.scheduling.nodeSelector['{label}'] == '{}')",
            names::RUNTIME_LABEL_VERIFIED
        )
    });
    Rules {
        resource: "runtimeclasses",
        group: "node.k8s.io",
        operations: &["CREATE", "UPDATE", "DELETE"],
        variables: Vec::new(),
        validations: vec![
            (
                "kata-operator may change and delete no other RuntimeClasses than its own",
                format!("request.operation == 'CREATE' || {was_ours}"),
            ),
            (
                "kata-operator may write no RuntimeClass without the label by which it is known as its own",
                format!("request.operation == 'DELETE' || ({})", has_label("object")),
            ),
            (
                "kata-operator may write no RuntimeClass with a handler that is known to make no sandbox",
                format!(
                    "request.operation == 'DELETE' || !(object.handler in {} || \
                     object.handler.startsWith('runc-') || object.handler.startsWith('crun-'))",
                    list(&UNSANDBOXED)
                ),
            ),
            (
                "kata-operator may write no RuntimeClass that selects nodes without Kata",
                format!(
                    "request.operation == 'DELETE' || (has(object.scheduling) && \
                     has(object.scheduling.nodeSelector) && ({}))",
                    selectors.join(" || ")
                ),
            ),
        ],
    }
}
