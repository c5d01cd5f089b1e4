//! What an OpenShift cluster serves besides the Machine Config Operator's kinds: definitions of kinds that can be
//! stored and watched, and the Operator Lifecycle Manager.
//!
//! Nothing acts on the kinds of the console and of monitoring.

pub mod lifecycle;

use serde_json::{Value, json};

use crate::Simulation;
use crate::api::ApiError;
use crate::api::server::Writer;
use crate::resource::{CRDS, NAMESPACES};

const CRD_FILES: [&str; 12] = [
    include_str!("openshift/securitycontextconstraints.yaml"),
    include_str!("openshift/servicemonitors.yaml"),
    include_str!("openshift/prometheusrules.yaml"),
    include_str!("openshift/consolequickstarts.yaml"),
    include_str!("openshift/consoleyamlsamples.yaml"),
    include_str!("openshift/consoleclidownloads.yaml"),
    include_str!("openshift/catalogsources.yaml"),
    include_str!("openshift/subscriptions.yaml"),
    include_str!("openshift/installplans.yaml"),
    include_str!("openshift/operatorgroups.yaml"),
    include_str!("openshift/clusterserviceversions.yaml"),
    include_str!("openshift/imagedigestmirrorsets.yaml"),
];

/// Where catalogs of operators are.
const MARKETPLACE: &str = "openshift-marketplace";

/// Adds the Operator Lifecycle Manager.
pub fn add_controllers(simulation: &mut Simulation) {
    simulation.add_controller(Box::new(lifecycle::LifecycleManager));
}

/// Adds the kinds of OpenShift's console, of its monitoring and of the Operator Lifecycle Manager,
/// SecurityContextConstraints and ImageDigestMirrorSet, and the namespace of catalogs.
///
/// # Errors
/// If the API server refuses a definition.
pub fn install(simulation: &mut Simulation) -> Result<(), ApiError> {
    let writer = Writer { manager: "cluster-version-operator", now: simulation.now() };
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": MARKETPLACE}});
    simulation.api.create(writer, &NAMESPACES, "", namespace)?;
    for text in CRD_FILES {
        let crd: Value = serde_saphyr::from_str(text).map_err(|error| {
            ApiError::new(500, "InternalError", format!("an embedded CRD is not YAML: {error}"))
        })?;
        simulation.api.create(writer, &CRDS, "", crd)?;
    }
    Ok(())
}
