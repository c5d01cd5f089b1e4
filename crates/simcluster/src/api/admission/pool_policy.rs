//! The Machine Config Operator's admission policy for pools: a custom pool must take the workers'
//! configuration too.
//!
//! It only ever runs where pools are served.

use serde_json::Value;

use crate::api::error::ApiError;
use crate::resource::MACHINECONFIGPOOLS;

const ROLE: &str = "machineconfiguration.openshift.io/role";
const POLICY: &str = "custom-machine-config-pool-selector";
const MESSAGE: &str = "All custom MachineConfigPools must inherit from the worker pool and must have a \
    machineConfigSelector that matches for a 'machineconfiguration.openshift.io/role: worker' label";

/// Refuses a pool that does not select the workers' MachineConfigs.
pub(super) fn validate(name: &str, pool: &Value) -> Result<(), ApiError> {
    let selector = &pool["spec"]["machineConfigSelector"];
    let built_in =
        matches!(selector["matchLabels"][ROLE].as_str(), Some("master" | "worker" | "arbiter"));
    let inherits = || {
        selector["matchExpressions"].as_array().into_iter().flatten().any(|expression| {
            let worker = expression["values"]
                .as_array()
                .is_some_and(|values| values.iter().any(|value| value == "worker"));
            expression["key"] == ROLE
                && match expression["operator"].as_str() {
                    Some("In") => worker,
                    Some("NotIn") => !worker,
                    _ => false,
                }
        })
    };
    if built_in || inherits() {
        return Ok(());
    }
    let text = format!(
        "ValidatingAdmissionPolicy '{POLICY}' with binding '{POLICY}-binding' denied request: {MESSAGE}"
    );
    Err(ApiError::of_policy(&MACHINECONFIGPOOLS, name, "", &text))
}
