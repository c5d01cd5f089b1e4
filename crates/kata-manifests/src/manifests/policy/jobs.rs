//! The operator may create the Jobs of the node agent as `kata_plan` makes them, and delete them.
//!
//! RBAC grants `create` on Jobs in the operator's namespace, which is `privileged`: a client with the
//! operator's token could start any program as root on every node. What stays possible is to run the node
//! agent with another task, so also to install another payload; a parameter of the policy bounds where that comes from.

use kata_api::names;
use kata_api::names::node_job::{COMPONENT, COMPONENT_LABEL, SERVICE_ACCOUNT, STAGE_CONTAINER};
use kata_plan::forms;
use serde_json::{Value, json};

use super::pods;
use super::rules::{PARAMETERS, Rules, is_unowned, or, words};
use super::shape::Shape;

pub(super) fn rules(image: &str) -> Rules {
    Rules {
        resource: "jobs",
        group: "batch",
        operations: &["CREATE", "UPDATE", "DELETE"],
        has_parameters: true,
        variables: [
            vec![
                ("image", format!("'{image}'")),
                ("repositories", words("payloadRepositories")),
                ("initContainers", or("object.spec.template.spec.initContainers", "[]")),
            ],
            pods::variables(),
        ]
        .concat(),
        validations: [of_metadata(), vec![of_image()], of_spec(), vec![of_payload()]].concat(),
    }
}

/// The labels of the Job controller on the pods of a Job.
const CONTROLLER_LABELS: [&str; 4] = [
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
];

type Validations = Vec<(String, String)>;

fn is_ours(object: &str) -> String {
    format!(
        "has({object}.metadata.labels) && '{COMPONENT_LABEL}' in {object}.metadata.labels && \
         {object}.metadata.labels['{COMPONENT_LABEL}'] == '{COMPONENT}'"
    )
}

fn of_metadata() -> Validations {
    vec![
        (
            "kata-operator may change and delete no other Jobs than those of its node agent"
                .to_owned(),
            format!("request.operation == 'CREATE' || ({})", is_ours("oldObject")),
        ),
        (
            "kata-operator may create no other Jobs than those of its node agent".to_owned(),
            format!("request.operation == 'DELETE' || ({})", is_ours("object")),
        ),
        ("a Job of kata-operator has no owners and no finalizers".to_owned(), is_unowned()),
    ]
}

/// The spec, part by part.
fn of_spec() -> Validations {
    let jobs = forms::jobs();
    let specs: Vec<&Value> = jobs.iter().map(|job| &job["spec"]).collect();
    let mut spec = Shape::of(&specs);
    add_defaults(&mut spec);
    spec.within(&["template", "metadata"], |metadata| {
        // Some versions of the API server write it.
        metadata.set("creationTimestamp", Shape::Rule("{} == null".to_owned()));
        // Their values are for the operator and for people.
        metadata.within(&["annotations"], |it| it.each_field(|value| *value = Shape::Any));
        metadata.within(&["labels"], |labels| {
            for label in CONTROLLER_LABELS {
                labels.set(label, Shape::Any);
            }
        });
    });
    spec.within(&["template", "spec"], |pod| {
        pods::add_defaults(pod, SERVICE_ACCOUNT);
        for field in ["containers", "initContainers"] {
            pod.within(&[field], |containers| containers.each(of_container));
        }
    });
    pods::validations("Job", pods::parts(spec))
}

/// Adds the fields of a Job that the API server sets.
fn add_defaults(spec: &mut Shape) {
    for (field, value) in [
        ("completionMode", json!("NonIndexed")),
        ("completions", json!(1)),
        ("manualSelector", json!(false)),
        ("parallelism", json!(1)),
        ("podReplacementPolicy", json!("TerminatingOrFailed")),
        ("suspend", json!(false)),
    ] {
        spec.set(field, Shape::one_of([&value]));
    }
    // Without it, a Job is a work queue.
    spec.require("completions");
    let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": forms::VARIES}});
    spec.set("selector", Shape::of(&[&selector]));
}

fn of_container(container: &mut Shape) {
    pods::add_container_defaults(container);
    // Other validations are about them.
    container.set("image", Shape::Any);
    // Kubernetes 1.30 has no such field yet, unless its feature gate is on.
    container.within(&["volumeMounts"], |it| it.each(|mount| mount.relax("recursiveReadOnly")));
}

fn of_image() -> (String, String) {
    let expression = format!(
        "(object.spec.template.spec.containers + variables.initContainers).all(container, \
         container.name == '{STAGE_CONTAINER}' || container.image == variables.image)"
    );
    (names::OTHER_IMAGE.to_owned(), pods::unless_unchanged(&expression))
}

fn of_payload() -> (String, String) {
    let message = format!(
        "the image of the payload of this Job is in none of the repositories that payloadRepositories of ConfigMap \
         {PARAMETERS} lists"
    );
    // What follows a repository is a tag or a digest; behind a host it may be a port.
    let is_of = "container.image == it || (it.endsWith('/') && container.image.startsWith(it)) || \
                 ((container.image.startsWith(it + ':') || container.image.startsWith(it + '@')) && \
                 !container.image.substring(it.size()).contains('/'))";
    let expression = format!(
        "variables.repositories.size() == 0 || variables.initContainers.all(container, \
         container.name != '{STAGE_CONTAINER}' || variables.repositories.exists(it, {is_of}))"
    );
    (message, pods::unless_unchanged(&expression))
}
