//! The operator may create, change and delete its own RuntimeClasses, which send pods into sandboxes.
//!
//! Their names are the user's choice, so RBAC cannot list them: a client with the operator's token could delete
//! every RuntimeClass, or create one that is called `kata` and has the handler of ordinary containers. Which handlers
//! make sandboxes is not known, so those that begin with `kata` may be used, and those that an admin names.

use kata_api::names;

use super::rules::{Rules, is_owned_by_configs, with_messages, words};

pub(super) fn rules() -> Rules {
    let has_label = |object: &str| {
        format!(
            "has({object}.metadata.labels) && '{label}' in {object}.metadata.labels && \
             {object}.metadata.labels['{label}'] == '{manager}'",
            label = names::MANAGED_BY,
            manager = names::PRODUCT,
        )
    };
    // The nodes of kata-deploy have this label, and its classes select it.
    let is_of_kata_deploy = |object: &str| {
        format!(
            "has({object}.scheduling) && has({object}.scheduling.nodeSelector) && '{label}' in \
             {object}.scheduling.nodeSelector && {object}.scheduling.nodeSelector['{label}'] == 'true'",
            label = names::KATA_DEPLOY_LABEL,
        )
    };
    // Those of kata-deploy are taken over, and given back; none of them is deleted.
    let is_taken = format!("(request.operation == 'UPDATE' && {})", is_of_kata_deploy("oldObject"));
    let is_given_back = format!(
        "(request.operation == 'UPDATE' && {} && has(oldObject.metadata.annotations) && \
         '{}' in oldObject.metadata.annotations)",
        is_of_kata_deploy("object"),
        names::TAKEN_OVER_ANNOTATION
    );
    // Those of the OpenShift sandboxed containers operator belong to the KataConfig, and have no label.
    let was_ours = format!(
        "({}) || (has(oldObject.metadata.ownerReferences) && \
         oldObject.metadata.ownerReferences.exists(it, it.kind == 'KataConfig' && \
         it.apiVersion.startsWith('kataconfiguration.openshift.io/')))",
        has_label("oldObject")
    );
    let selector = "object.scheduling.nodeSelector";
    let selects = |label: &str| format!("{label} in {selector} && {selector}[{label}] == 'true'");
    // As names::class_label for the names that a KataConfig may have.
    let own = format!("('{}' + object.metadata.name)", names::CLASS_LABEL_PREFIX);
    let open =
        [format!("'{}'", names::RUNTIME_LABEL), own].map(|label| selects(&label)).join(" && ");
    // No node has that label.
    let closed = selects(&format!("'{}'", names::CLOSED_LABEL));
    Rules {
        resource: "runtimeclasses",
        group: "node.k8s.io",
        operations: &["CREATE", "UPDATE", "DELETE"],
        has_parameters: true,
        variables: vec![("handlers", words("runtimeHandlers"))],
        validations: with_messages(vec![
            (
                "kata-operator may change and delete no other RuntimeClasses than its own",
                format!("request.operation == 'CREATE' || {was_ours} || {is_taken}"),
            ),
            (
                "kata-operator may write no RuntimeClass without the label by which it is known as its own",
                format!(
                    "request.operation == 'DELETE' || ({}) || {is_given_back}",
                    has_label("object")
                ),
            ),
            (
                "kata-operator may create no RuntimeClass with a handler that neither begins with kata nor stands in \
                 runtimeHandlers of ConfigMap kata-operator-policy",
                // The API server refuses to change the handler of a class.
                "request.operation != 'CREATE' || object.handler.startsWith('kata') || \
                 object.handler in variables.handlers"
                    .to_owned(),
            ),
            (
                "a RuntimeClass of kata-operator gets no finalizers, and no owners but KataConfigs",
                is_owned_by_configs(),
            ),
            (
                "a RuntimeClass has a field that kata-operator does not write",
                "request.operation == 'DELETE' || (dyn(object).all(key, key in ['apiVersion', 'handler', \
                 'kind', 'metadata', 'overhead', 'scheduling']) && (!has(object.overhead) || \
                 dyn(object.overhead).all(key, key == 'podFixed')) && \
                 (!has(object.scheduling) || dyn(object.scheduling).all(key, key in ['nodeSelector', \
                 'tolerations'])))"
                    .to_owned(),
            ),
            (
                "kata-operator may write no RuntimeClass that selects nodes without Kata",
                format!(
                    "request.operation == 'DELETE' || (has(object.scheduling) && \
                     has(object.scheduling.nodeSelector) && (({open}) || ({closed}) || \
                     {is_given_back}))"
                ),
            ),
        ]),
    }
}
