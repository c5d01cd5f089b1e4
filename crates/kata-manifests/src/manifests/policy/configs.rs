//! Of a KataConfig the operator may change its own finalizer, and the status.
//!
//! RBAC grants `patch` on whole KataConfigs for the finalizer: a client with the operator's token could
//! select other nodes, or name another payload.

use kata_api::names;

use super::rules::{Rules, list, or, same};

pub(super) fn rules() -> Rules {
    Rules {
        resource: "kataconfigs",
        group: "kataconfiguration.openshift.io",
        operations: &["UPDATE"],
        variables: vec![
            ("ours", list(&[names::FINALIZER, names::LEGACY_FINALIZER])),
            ("finalizers", or("object.metadata.finalizers", "[]")),
            ("oldFinalizers", or("oldObject.metadata.finalizers", "[]")),
        ],
        validations: vec![
            ("kata-operator may not change the spec of a KataConfig", same("spec")),
            (
                "kata-operator may change no other finalizers of a KataConfig than its own",
                "variables.finalizers.all(it, it in variables.ours || it in variables.oldFinalizers) && \
                 variables.oldFinalizers.all(it, it in variables.ours || it in variables.finalizers)"
                    .to_owned(),
            ),
            (
                "kata-operator may change no labels, annotations and owners of a KataConfig",
                ["metadata.labels", "metadata.annotations", "metadata.ownerReferences"]
                    .map(same)
                    .join(" && "),
            ),
        ],
    }
}
