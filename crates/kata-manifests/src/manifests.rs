//! All objects that install the operator, as YAML: the minimum of permissions, and a Deployment that the
//! restricted Pod Security Standard admits.
//!
//! Plain values in, text out; the same input gives the same bytes.

mod access;
mod metadata;
mod monitor;
mod monitoring;
mod policy;
mod rule;
mod workload;

use serde_json::{Value, json};

use kata_api::platform::Platform;

use crate::RenderError;

pub use access::{granted, granted_for_monitor};
pub use metadata::NAME;
pub use rule::Permission;
pub use workload::check_priority_class;

use metadata::metadata;

/// The image that was published with this program, by its digest; `None` in a build of one's own. Who publishes names it in
/// the variable KATA_OPERATOR_IMAGE when the program is built.
pub const IMAGE: Option<&str> = match option_env!("KATA_OPERATOR_IMAGE") {
    Some(image) if !image.is_empty() => Some(image),
    _ => None,
};
/// The image in objects that are written before one is published. No registry has it: no host below `invalid` exists
/// (RFC 2606).
pub const UNPUBLISHED: &str = "registry.invalid/kata-operator:unpublished";

/// What to install, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The namespace to install into.
    pub namespace: String,
    /// The operator's image.
    pub image: String,
    /// The kind of cluster; openshift adds the objects for Prometheus, auto does not.
    pub platform: Platform,
    /// Image of upstream's kata-monitor, which the operator then runs; adds the objects that it needs
    /// (OpenShift only).
    pub monitor_image: Option<String>,
}

impl Options {
    /// Those of a kind of cluster, in its usual namespace.
    pub fn of(platform: Platform) -> Self {
        Self {
            namespace: platform.namespace().to_owned(),
            image: IMAGE.unwrap_or(UNPUBLISHED).to_owned(),
            platform,
            monitor_image: None,
        }
    }
}

/// The CustomResourceDefinitions.
///
/// # Errors
/// If YAML cannot express them, which would be a bug.
pub fn crds() -> Result<String, RenderError> {
    let mut text = String::new();
    for crd in kata_api::crds() {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&crd)?);
    }
    Ok(text)
}

/// The CustomResourceDefinitions and everything else, in the order in which to apply them.
///
/// # Errors
/// If YAML cannot express them, which would be a bug.
pub fn manifests(options: &Options) -> Result<String, RenderError> {
    let mut text = crds()?;
    for object in install_objects(options) {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&object)?);
    }
    Ok(text)
}

/// The objects that [`manifests`] prints.
///
/// # Errors
/// If JSON cannot express them, which would be a bug.
pub fn objects(options: &Options) -> Result<Vec<Value>, RenderError> {
    let mut objects = Vec::new();
    for crd in kata_api::crds() {
        objects.push(serde_json::to_value(crd)?);
    }
    objects.extend(install_objects(options));
    Ok(objects)
}

fn install_objects(options: &Options) -> Vec<Value> {
    let Options { namespace, image, platform, monitor_image } = options;
    let monitor_image = monitor_image.as_deref().filter(|_| *platform != Platform::Kubernetes);
    let mut objects = vec![
        namespace_object(namespace, *platform, monitor_image.is_some()),
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata(NAME, Some(namespace)),
            "automountServiceAccountToken": false,
        }),
    ];
    objects.extend(access::objects(namespace, *platform, monitor_image.is_some()));
    objects.extend(policy::objects(namespace, image, *platform, monitor_image));
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
        objects.extend(monitoring::prometheus_access(namespace));
    }
    if *platform == Platform::Openshift {
        objects.extend(monitoring::objects(namespace));
    }
    objects
}

/// The namespace. It enforces `restricted`, which the operator satisfies, unless kata-monitor or Jobs run in
/// it: they mount folders of the host, which only `privileged` admits. The audit log always compares with `restricted`;
/// a warning about each Job would go to the operator's log only.
fn namespace_object(namespace: &str, platform: Platform, monitor: bool) -> Value {
    let mut metadata = metadata(namespace, None);
    for mode in ["enforce", "audit", "warn"] {
        let mounts = monitor || platform == Platform::Kubernetes;
        let level = if mounts && mode != "audit" { "privileged" } else { "restricted" };
        metadata["labels"][format!("pod-security.kubernetes.io/{mode}")] = json!(level);
        metadata["labels"][format!("pod-security.kubernetes.io/{mode}-version")] = json!("latest");
    }
    if platform == Platform::Openshift || monitor {
        metadata["labels"]["openshift.io/cluster-monitoring"] = json!("true");
        // Otherwise OpenShift would derive the labels above from the permissions of the service accounts.
        metadata["labels"]["security.openshift.io/scc.podSecurityLabelSync"] = json!("false");
    }
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
}

#[cfg(test)]
mod tests;
