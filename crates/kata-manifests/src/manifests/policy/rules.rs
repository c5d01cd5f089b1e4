//! The form that all policies share, and the CEL expressions that several of them need.

use serde_json::{Value, json};

use crate::manifests::metadata::{NAME, metadata};

/// The ConfigMap with the parameters of the policies, in the operator's namespace.
pub(super) const PARAMETERS: &str = "kata-operator-policy";

/// A policy for one resource, as its CEL expressions.
pub(super) struct Rules {
    /// The plural of the resource, and the last part of the policy's name.
    pub(super) resource: &'static str,
    pub(super) group: &'static str,
    pub(super) operations: &'static [&'static str],
    /// Whether the expressions read [`PARAMETERS`].
    pub(super) has_parameters: bool,
    /// Name and expression.
    pub(super) variables: Vec<(&'static str, String)>,
    /// Message and expression.
    pub(super) validations: Vec<(String, String)>,
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
        let mut policy = json!({
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
        let mut binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata(&name, None),
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        if self.has_parameters {
            policy["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
            binding["spec"]["paramRef"] = json!({
                "name": PARAMETERS,
                "namespace": namespace,
                // With Allow, a client that deletes the ConfigMap would disable the policy.
                "parameterNotFoundAction": "Deny",
            });
        }
        [policy, binding]
    }
}

/// The ConfigMap with the parameters. It has no data, so an apply keeps what an admin adds.
pub(super) fn parameters(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(PARAMETERS, Some(namespace)),
    })
}

/// The words of a parameter, separated by spaces or in lines of their own.
pub(super) fn words(key: &str) -> String {
    format!(
        "has(params.data) && '{key}' in params.data ? \
         params.data['{key}'].replace('\\n', ' ').split(' ').filter(it, it != '') : []"
    )
}

/// Messages that are fixed, with their expressions.
pub(super) fn with_messages(validations: Vec<(&str, String)>) -> Vec<(String, String)> {
    validations.into_iter().map(|(message, it)| (message.to_owned(), it)).collect()
}

/// A new object has no owners and no finalizers, and those of an existing one stay.
pub(super) fn is_unowned() -> String {
    let fields = ["metadata.ownerReferences", "metadata.finalizers"];
    let absent = fields.map(|field| format!("!has(object.{field})")).join(" && ");
    let unchanged = fields.map(same).join(" && ");
    format!(
        "request.operation == 'DELETE' || (request.operation == 'CREATE' ? {absent} : {unchanged})"
    )
}

/// A new object has no finalizers, those of an existing one stay, and its owners are KataConfigs or stay.
pub(super) fn is_owned_by_configs() -> String {
    format!(
        "request.operation == 'DELETE' || ((request.operation == 'CREATE' ? \
         !has(object.metadata.finalizers) : {}) && (!has(object.metadata.ownerReferences) || \
         object.metadata.ownerReferences.all(it, (it.kind == 'KataConfig' && \
         it.apiVersion.startsWith('kataconfiguration.openshift.io/')) || \
         (request.operation == 'UPDATE' && has(oldObject.metadata.ownerReferences) && \
         it in oldObject.metadata.ownerReferences))))",
        same("metadata.finalizers")
    )
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
