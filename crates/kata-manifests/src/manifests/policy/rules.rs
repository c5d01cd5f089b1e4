//! The form that all policies share, and the CEL expressions that several of them need.

use serde_json::{Value, json};

use crate::manifests::metadata::{NAME, metadata};

/// A policy for one resource, as its CEL expressions.
pub(super) struct Rules {
    /// The plural of the resource, and the last part of the policy's name.
    pub(super) resource: &'static str,
    pub(super) group: &'static str,
    pub(super) operations: &'static [&'static str],
    /// Name and expression.
    pub(super) variables: Vec<(&'static str, String)>,
    /// Message and expression.
    pub(super) validations: Vec<(&'static str, String)>,
}

impl Rules {
    /// The policy and its binding.
    pub(super) fn objects(self, namespace: &str) -> [Value; 2] {
        let name = format!("{NAME}-{}", self.resource);
        let variables: Vec<Value> = self
            .variables
            .into_iter()
            .map(|(name, expression)| json!({"name": name, "expression": expression}))
            .collect();
        let validations: Vec<Value> = self
            .validations
            .into_iter()
            .map(|(message, expression)| json!({"message": message, "expression": expression}))
            .collect();
        let user = format!("system:serviceaccount:{namespace}:{NAME}");
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata(&name, None),
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [self.group], "apiVersions": ["v1"], "resources": [self.resource],
                    "operations": self.operations,
                }]},
                "matchConditions": [{
                    "name": "by-the-operator",
                    "expression": format!("request.userInfo.username == '{user}'"),
                }],
                "variables": variables,
                "validations": validations,
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata(&name, None),
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        [policy, binding]
    }
}

/// A list of strings in CEL.
pub(super) fn list<S: AsRef<str>>(items: &[S]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("'{}'", item.as_ref())).collect();
    format!("[{}]", items.join(", "))
}

/// A field, or another value where it is missing.
pub(super) fn or(field: &str, otherwise: &str) -> String {
    format!("has({field}) ? {field} : {otherwise}")
}

/// Whether a field of the object is as it was: missing in both, or equal.
pub(super) fn same(field: &str) -> String {
    format!(
        "has(object.{field}) == has(oldObject.{field}) && \
         (!has(object.{field}) || object.{field} == oldObject.{field})"
    )
}
