//! The alerts as a Prometheus rules file, for a Prometheus without the Prometheus operator.

use kata_api::platform::Platform;
use serde_json::{Value, json};

use crate::RenderError;
use crate::manifests::{self, Options};

/// The rules file for an operator in this namespace.
///
/// # Errors
/// If YAML cannot express it, which would be a bug.
pub fn rules(namespace: &str) -> Result<String, RenderError> {
    let arguments = Options { namespace: namespace.to_owned(), ..Options::of(Platform::Openshift) };
    let groups: Vec<Value> = manifests::objects(&arguments)?
        .into_iter()
        .filter(|object| object["kind"] == "PrometheusRule")
        .filter_map(|object| object["spec"]["groups"].as_array().cloned())
        .flatten()
        .collect();
    Ok(serde_saphyr::to_string(&json!({"groups": groups}))?)
}
