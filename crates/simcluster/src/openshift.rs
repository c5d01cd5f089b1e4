//! What an OpenShift cluster serves besides the Machine Config Operator's kinds: definitions of kinds
//! that can be stored and watched, and that nothing here acts on.

use serde_json::Value;

use crate::Simulation;
use crate::api::ApiError;
use crate::api::server::Writer;
use crate::resource::CRDS;

const CRD_FILES: [&str; 3] = [
    include_str!("openshift/securitycontextconstraints.yaml"),
    include_str!("openshift/servicemonitors.yaml"),
    include_str!("openshift/prometheusrules.yaml"),
];

/// Adds SecurityContextConstraints, ServiceMonitor and PrometheusRule.
///
/// # Errors
/// If the API server refuses a definition.
pub fn install(simulation: &mut Simulation) -> Result<(), ApiError> {
    for text in CRD_FILES {
        let crd: Value = serde_saphyr::from_str(text).map_err(|error| {
            ApiError::new(500, "InternalError", format!("an embedded CRD is not YAML: {error}"))
        })?;
        let writer = Writer { manager: "cluster-version-operator", now: simulation.now() };
        simulation.api.create(writer, &CRDS, "", crd)?;
    }
    Ok(())
}
