//! Everything that installs the operator, as YAML: the least that it needs to be allowed, and a
//! Deployment that the restricted Pod Security Standard admits.
//!
//! Plain values in, text out; the same input gives the same bytes.

mod access;
mod monitor;
mod monitoring;
mod policy;
mod workload;

use serde_json::{Value, json};

use kata_api::names;

use crate::arguments::ManifestsArguments;
use crate::settings::Platform;

pub use access::{Permission, granted, granted_for_monitor};

/// The name of the service account, and of almost everything else that is installed.
pub const NAME: &str = "kata-operator";

/// Why there is no YAML, which would be a bug.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A definition is not a JSON value.
    #[error("cannot render a CustomResourceDefinition")]
    Definition(#[source] serde_json::Error),
    /// A value is not YAML.
    #[error("cannot render YAML")]
    Yaml(#[source] serde_saphyr::ser::Error),
}

/// The CustomResourceDefinitions.
///
/// # Errors
/// If YAML cannot express them, which would be a bug.
pub fn crds() -> Result<String, ManifestError> {
    let mut text = String::new();
    for crd in kata_api::crds() {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&crd).map_err(ManifestError::Yaml)?);
    }
    Ok(text)
}

/// The CustomResourceDefinitions and everything else, in the order in which to apply them.
///
/// # Errors
/// If YAML cannot express them, which would be a bug.
pub fn manifests(arguments: &ManifestsArguments) -> Result<String, ManifestError> {
    let mut text = crds()?;
    for object in others(arguments) {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&object).map_err(ManifestError::Yaml)?);
    }
    Ok(text)
}

/// What [`manifests`] prints, as objects.
///
/// # Errors
/// If JSON cannot express them, which would be a bug.
pub fn objects(arguments: &ManifestsArguments) -> Result<Vec<Value>, ManifestError> {
    let mut objects = Vec::new();
    for crd in kata_api::crds() {
        objects.push(serde_json::to_value(crd).map_err(ManifestError::Definition)?);
    }
    objects.extend(others(arguments));
    Ok(objects)
}

fn others(arguments: &ManifestsArguments) -> Vec<Value> {
    let ManifestsArguments { namespace, image, platform, monitor_image } = arguments;
    let monitor_image = monitor_image.as_deref().filter(|_| *platform != Platform::Kubernetes);
    let mut objects = vec![
        home(namespace, *platform, monitor_image.is_some()),
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata(NAME, Some(namespace)),
            "automountServiceAccountToken": false,
        }),
    ];
    objects.extend(access::objects(namespace, *platform, monitor_image.is_some()));
    objects.extend(policy::node_policy(namespace));
    if monitor_image.is_some() {
        objects.extend(monitor::objects(namespace));
    }
    objects.extend([
        workload::network_policy(namespace, *platform),
        workload::service(namespace),
        workload::deployment(namespace, image, *platform, monitor_image),
    ]);
    if *platform == Platform::Kubernetes {
        objects.extend(workload::node_agent(namespace));
    }
    if *platform == Platform::Openshift || monitor_image.is_some() {
        objects.extend(monitoring::finder(namespace));
    }
    if *platform == Platform::Openshift {
        objects.extend(monitoring::objects(namespace));
    }
    objects
}

/// The namespace. The operator asks for no more than `restricted`, which is enforced; but the sockets
/// that kata-monitor reads and the folders that a Job changes are the host's, and no level but `privileged`
/// lets pods mount them. Then audit and warnings still tell of every other pod.
fn home(namespace: &str, platform: Platform, monitor: bool) -> Value {
    let mut home = metadata(namespace, None);
    for mode in ["enforce", "audit", "warn"] {
        let mounts = monitor || platform == Platform::Kubernetes;
        let level = if mounts && mode == "enforce" { "privileged" } else { "restricted" };
        home["labels"][format!("pod-security.kubernetes.io/{mode}")] = json!(level);
        home["labels"][format!("pod-security.kubernetes.io/{mode}-version")] = json!("latest");
    }
    if platform == Platform::Openshift || monitor {
        home["labels"]["openshift.io/cluster-monitoring"] = json!("true");
        // Else the platform would derive the labels above from what the service accounts may use.
        home["labels"]["security.openshift.io/scc.podSecurityLabelSync"] = json!("false");
    }
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": home})
}

fn labels() -> Value {
    json!({
        "app.kubernetes.io/name": NAME,
        "app.kubernetes.io/component": "operator",
        "app.kubernetes.io/part-of": names::PRODUCT,
        "app.kubernetes.io/version": env!("CARGO_PKG_VERSION"),
    })
}

/// What the operator's pods, and no others, are selected by.
fn selector() -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "operator"})
}

fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({"name": name, "labels": labels()});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    metadata
}

#[cfg(test)]
mod tests;
