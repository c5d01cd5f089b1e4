//! The parts that policies for Jobs and for DaemonSets share: the pod of the template and its containers.

use serde_json::json;

use super::shape::{Field, Shape, are_there};

/// For writes that change the spec, or create it.
pub(super) fn unless_unchanged(expression: &str) -> String {
    format!(
        "request.operation == 'DELETE' || \
         (request.operation == 'UPDATE' && object.spec == oldObject.spec) || ({expression})"
    )
}

/// Adds the fields of a pod that the API server sets.
pub(super) fn add_defaults(pod: &mut Shape, account: &str) {
    for (field, value) in [
        ("dnsPolicy", json!("ClusterFirst")),
        ("restartPolicy", json!("Always")),
        ("schedulerName", json!("default-scheduler")),
        // The older name of serviceAccountName.
        ("serviceAccount", json!(account)),
        ("terminationGracePeriodSeconds", json!(30)),
    ] {
        pod.set_if_new(field, Shape::one_of([&value]));
    }
}

/// Adds the fields of a container that the API server sets.
pub(super) fn add_container_defaults(container: &mut Shape) {
    let policies = [json!("Always"), json!("IfNotPresent")];
    container.set_if_new("imagePullPolicy", Shape::one_of(&policies));
    for (field, value) in [
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
    ] {
        container.set_if_new(field, Shape::one_of([&value]));
    }
}

/// The parts of the spec as variables, which are of the type dyn: the type checker permits macros over the keys of a map,
/// and not over those of an object.
pub(super) fn variables() -> Vec<(&'static str, String)> {
    [
        ("spec", "object.spec"),
        ("template", "object.spec.template"),
        ("metadata", "object.spec.template.metadata"),
        ("pod", "object.spec.template.spec"),
    ]
    .map(|(name, value)| (name, format!("dyn({value})")))
    .to_vec()
}

/// The checks of a spec with a template, part by part: each with its path.
pub(super) fn parts(mut spec: Shape) -> Vec<(String, String)> {
    let mut template = spec.take("template");
    let metadata = template.take("metadata");
    let mut pod = template.take("spec");
    let containers = pod.take("containers");
    let init = pod.take("initContainers");
    let volumes = pod.take("volumes");
    let mut parts: Vec<(String, String)> = [
        ("spec", "variables.spec", spec),
        ("spec.template", "variables.template", template),
        ("spec.template.metadata", "variables.metadata", metadata),
        ("spec.template.spec", "variables.pod", pod),
        ("spec.template.spec.volumes", "variables.pod.volumes", volumes),
    ]
    .into_iter()
    .map(|(path, value, shape)| (path.to_owned(), shape.holds(value)))
    .collect();
    parts.extend(of_containers("containers", containers));
    parts.extend(of_containers("initContainers", init));
    parts
}

/// The containers of a field of the pod: which there are, and each of them.
fn of_containers(field: &str, containers: Shape) -> Vec<(String, String)> {
    let Shape::Keyed(key, containers) = containers else { return Vec::new() };
    let names: Vec<String> = containers.keys().map(|name| format!("'{name}'")).collect();
    let list = format!("variables.pod.{field}");
    let unless_absent = |expression: &str| format!("!has({list}) || ({expression})");
    let path = format!("spec.template.spec.{field}");
    let are_known = format!("{list}.all(it, it.name in [{}])", names.join(", "));
    let are_all: Vec<String> =
        [are_known].into_iter().chain(are_there(key, &containers, &list, "it")).collect();
    let each = containers.iter().map(|(name, Field { shape, .. })| {
        let holds = shape.holds("it");
        let expression = format!("{list}.all(it, it.name != '{name}' || ({holds}))");
        (format!("{path}[{name}]"), unless_absent(&expression))
    });
    [(path.clone(), unless_absent(&are_all.join(" && ")))].into_iter().chain(each).collect()
}

/// The validations of parts of an object of this kind.
pub(super) fn validations(kind: &str, parts: Vec<(String, String)>) -> Vec<(String, String)> {
    let validation = |(path, holds): (String, String)| {
        let message = format!(
            "{path} of this {kind} has a field or a value that kata-operator does not write; a mutating webhook may have \
             added it"
        );
        (message, unless_unchanged(&holds))
    };
    parts.into_iter().map(validation).collect()
}
