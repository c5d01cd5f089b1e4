//! The operator may write the DaemonSet and the SecurityContextConstraints of kata-monitor as `kata_plan` makes them.
//!
//! RBAC grants to write the two by name: a client with the operator's token could run any program as root on every
//! node, and give any account all privileges.

use kata_api::names;
use kata_plan::forms;
use serde_json::{Value, json};

use super::pods;
use super::rules::{Rules, is_owned_by_configs, with_messages};
use super::shape::Shape;

pub(super) fn daemon_sets(namespace: &str, image: &str) -> Rules {
    Rules {
        resource: "daemonsets",
        group: "apps",
        operations: &["CREATE", "UPDATE"],
        has_parameters: false,
        variables: [vec![("image", format!("'{image}'"))], pods::variables()].concat(),
        validations: [of_daemon_set(namespace), vec![of_metadata("DaemonSet")]].concat(),
    }
}

fn of_daemon_set(namespace: &str) -> Vec<(String, String)> {
    let forms = forms::monitor_daemon_sets(namespace);
    let specs: Vec<&Value> = forms.iter().map(|form| &form["spec"]).collect();
    let mut spec = Shape::of(&specs);
    spec.set("revisionHistoryLimit", Shape::one_of([&json!(10)]));
    spec.within(&["updateStrategy", "rollingUpdate"], |update| {
        update.set("maxSurge", Shape::one_of([&json!(0)]));
    });
    spec.within(&["template", "metadata"], |metadata| {
        metadata.set("creationTimestamp", Shape::Rule("{} == null".to_owned()));
    });
    spec.within(&["template", "spec"], |pod| {
        pods::add_defaults(pod, names::MONITOR_ACCOUNT);
        pod.within(&["containers"], |containers| {
            containers.each(|container| {
                pods::add_container_defaults(container);
                container.set("image", Shape::Rule("{} == variables.image".to_owned()));
            });
        });
    });
    pods::validations("DaemonSet", pods::parts(spec))
}

/// OpenShift adds fields to constraints, so the rule is about those that the operator writes, and about who may use them.
pub(super) fn constraints(namespace: &str) -> Rules {
    let form = forms::monitor_constraints(namespace).unwrap_or_default();
    let fields = form.as_object().into_iter().flatten();
    let fields =
        fields.filter(|(key, _)| !["apiVersion", "kind", "metadata"].contains(&key.as_str()));
    let same = fields.map(|(key, value)| {
        let is_empty = value.as_array().is_some_and(Vec::is_empty);
        let holds = if is_empty {
            format!("(object.{key} == null || object.{key}.size() == 0)")
        } else if let Some(strategy) = value["type"].as_str() {
            // What else an older version wrote there has no meaning for these strategies.
            format!("object.{key}.type == '{strategy}'")
        } else {
            Shape::of(&[value]).holds(&format!("dyn(object.{key})"))
        };
        if is_empty || *value == json!(false) {
            format!("(!has(object.{key}) || {holds})")
        } else {
            // OpenShift permits null.
            format!("has(object.{key}) && object.{key} != null && {holds}")
        }
    });
    let same: Vec<String> = same.collect();
    Rules {
        resource: "securitycontextconstraints",
        group: "security.openshift.io",
        operations: &["CREATE", "UPDATE"],
        has_parameters: false,
        variables: Vec::new(),
        validations: [vec![of_metadata("SecurityContextConstraints")], with_messages(vec![
            (
                "these SecurityContextConstraints have a value that kata-operator does not write",
                same.join(" && "),
            ),
            (
                "kata-operator may permit no sysctls and no Flexvolumes",
                ["allowedUnsafeSysctls", "allowedFlexVolumes"]
                    .map(|key| {
                        format!("(!has(object.{key}) || object.{key} == null || object.{key}.size() == 0)")
                    })
                    .join(" && "),
            ),
        ])].concat(),
    }
}

fn of_metadata(kind: &str) -> (String, String) {
    let message = format!("this {kind} gets no finalizers, and no owners but KataConfigs");
    (message, is_owned_by_configs())
}
