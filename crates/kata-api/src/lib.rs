//! The API of kata-operator: custom resources, wire types of the Machine Config Operator, names and
//! labels, condition types and the table of their values, and the catalogue of findings.
//!
//! Data only: no client, no I/O, no clock and no decision.

pub mod catalogue;
pub mod conditions;
pub mod digest;
pub mod error_text;
pub mod event_reasons;
pub mod kata_config;
pub mod kata_node;
pub mod machine_config;
pub mod names;
pub mod natural;
pub mod node_task;
pub mod overhead;
pub mod platform;
pub mod probe;
pub mod quantity;
pub mod sandbox_facts;
mod schema;
pub mod situations;
pub mod text;

pub use catalogue::{Code, Severity, Who};
pub use kata_config::{KataConfig, KataConfigSpec, KataConfigStatus};
pub use kata_node::{KataNode, KataNodeSpec, KataNodeStatus};
pub use machine_config::{ContainerRuntimeConfig, MachineConfig, MachineConfigPool};
pub use natural::Natural;
pub use node_task::{NodeAction, NodeReport, NodeTask, Outcome};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON,
};
use kube::CustomResourceExt;

/// The CustomResourceDefinitions that the operator owns, in the order in which to apply them.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut configs = KataConfig::crd();
    for version in &mut configs.spec.versions {
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        let Some(schema) = schema else { continue };
        // A KataConfig without a spec, as in the OpenShift operator's sample, gets the defaults.
        if let Some(required) = &mut schema.required {
            required.retain(|field| field != "spec");
        }
        schema.required = schema.required.take().filter(|required| !required.is_empty());
        if let Some(spec) = schema.properties.as_mut().and_then(|all| all.get_mut("spec")) {
            spec.default = Some(JSON(serde_json::json!({})));
        }
    }
    vec![configs, kata_node::with_default_status(KataNode::crd())]
}
