//! The alerts as a Prometheus rules file, for whoever runs Prometheus without its operator.

use serde_json::{Value, json};

use super::DistributionError;
use crate::arguments::ManifestsArguments;
use crate::manifests;

/// The rules file of an operator in a namespace.
///
/// # Errors
/// If YAML cannot express it, which would be a bug.
pub fn rules(namespace: &str) -> Result<String, DistributionError> {
    let arguments =
        ManifestsArguments { namespace: namespace.to_owned(), ..ManifestsArguments::default() };
    let groups: Vec<Value> = manifests::objects(&arguments)?
        .into_iter()
        .filter(|object| object["kind"] == "PrometheusRule")
        .filter_map(|object| object["spec"]["groups"].as_array().cloned())
        .flatten()
        .collect();
    serde_saphyr::to_string(&json!({"groups": groups})).map_err(DistributionError::Yaml)
}
