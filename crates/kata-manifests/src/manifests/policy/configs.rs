//! Of a KataConfig the operator may change its own finalizer, the annotation with its namespace, and the status.
//!
//! RBAC grants `patch` on whole KataConfigs for the finalizer: a client with the operator's token could
//! select other nodes, or name another payload.

use kata_api::names;

use super::rules::{Rules, list, or, same, with_messages};

pub(super) fn rules(namespace: &str) -> Rules {
    let is_claim = format!(
        "key == '{}' && variables.annotations[key] == '{namespace}'",
        names::OPERATOR_NAMESPACE_ANNOTATION
    );
    Rules {
        resource: "kataconfigs",
        group: "kataconfiguration.openshift.io",
        operations: &["UPDATE"],
        has_parameters: false,
        variables: vec![
            ("ours", list(&[names::FINALIZER, names::LEGACY_FINALIZER])),
            ("finalizers", or("object.metadata.finalizers", "[]")),
            ("oldFinalizers", or("oldObject.metadata.finalizers", "[]")),
            ("annotations", or("object.metadata.annotations", "{}")),
            ("oldAnnotations", or("oldObject.metadata.annotations", "{}")),
        ],
        validations: with_messages(vec![
            ("kata-operator may not change the spec of a KataConfig", same("spec")),
            (
                "kata-operator may change no other finalizers of a KataConfig than its own",
                "variables.finalizers.all(it, it in variables.ours || it in variables.oldFinalizers) && \
                 variables.oldFinalizers.all(it, it in variables.ours || it in variables.finalizers)"
                    .to_owned(),
            ),
            (
                "kata-operator may change no labels or owners of a KataConfig",
                ["metadata.labels", "metadata.ownerReferences"].map(same).join(" && "),
            ),
            (
                "kata-operator may change no other annotation of a KataConfig than the one with its namespace",
                format!(
                    "variables.annotations.all(key, ({is_claim}) || (key in variables.oldAnnotations && \
                     variables.oldAnnotations[key] == variables.annotations[key])) && \
                     variables.oldAnnotations.all(key, key in variables.annotations)"
                ),
            ),
        ]),
    }
}
