//! What a fresh OpenShift cluster has of the Machine Config Operator: CRDs, base configuration, pools.

use serde_json::{Value, json};

use super::names::{API_VERSION, CONTROLLER_VERSION, GENERATED_BY, NAMESPACE, ROLE};
use crate::Simulation;
use crate::api::ApiError;
use crate::api::server::Writer;
use crate::resource::{CONFIGMAPS, CRDS, MACHINECONFIGPOOLS, MACHINECONFIGS, NAMESPACES};

/// The ConfigMap in which a release names its operating system images.
pub const OS_IMAGE_CONFIG_MAP: &str = "machine-config-osimageurl";

/// The field manager of what is there from the start.
const MANAGER: &str = "machine-config-operator";

const CRD_FILES: [&str; 3] = [
    include_str!("crds/machineconfigs.yaml"),
    include_str!("crds/machineconfigpools.yaml"),
    include_str!("crds/containerruntimeconfigs.yaml"),
];

/// The images of the release that the cluster starts with.
const OS_IMAGE: &str = "registry.example.com/release/os@sha256:\
                        aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const EXTENSIONS_IMAGE: &str = "registry.example.com/release/os-extensions@sha256:\
                                bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const RELEASE: &str = "4.22.0";

/// Creates everything that exists before the first node joins.
pub(super) fn create_objects(simulation: &mut Simulation) -> Result<(), ApiError> {
    for text in CRD_FILES {
        create_crd(simulation, text)?;
    }
    let writer = Writer { manager: MANAGER, now: simulation.now() };
    let api = &mut simulation.api;
    if api.get(&NAMESPACES, "", NAMESPACE).is_none() {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        api.create(writer, &NAMESPACES, "", namespace)?;
    }
    let images = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": OS_IMAGE_CONFIG_MAP, "namespace": NAMESPACE},
        "data": {
            "baseOSContainerImage": OS_IMAGE, "baseOSExtensionsContainerImage": EXTENSIONS_IMAGE,
            "releaseVersion": RELEASE,
        },
    });
    api.create(writer, &CONFIGMAPS, NAMESPACE, images)?;
    for role in ["master", "worker"] {
        for config in base_configs(role) {
            api.create(writer, &MACHINECONFIGS, "", config)?;
        }
        api.create(writer, &MACHINECONFIGPOOLS, "", pool(role))?;
    }
    Ok(())
}

/// Makes the release name another operating system image: every pool updates its nodes.
///
/// # Errors
/// If the cluster has no release, see [`super::install`].
pub fn set_os_image(simulation: &mut Simulation, image: &str) -> Result<(), ApiError> {
    let writer = Writer { manager: MANAGER, now: simulation.now() };
    let patch = json!({"data": {"baseOSContainerImage": image}});
    simulation.api.merge(writer, &CONFIGMAPS, NAMESPACE, OS_IMAGE_CONFIG_MAP, &patch)?;
    Ok(())
}

fn create_crd(simulation: &mut Simulation, text: &str) -> Result<(), ApiError> {
    let unreadable = |what: String| ApiError::new(500, "InternalError", what);
    let crd: Value = serde_saphyr::from_str(text)
        .map_err(|error| unreadable(format!("an embedded CRD is not YAML: {error}")))?;
    let writer = Writer { manager: MANAGER, now: simulation.now() };
    simulation.api.create(writer, &CRDS, "", crd)?;
    Ok(())
}

fn pool(role: &str) -> Value {
    let label = format!("pools.operator.machineconfiguration.openshift.io/{role}");
    let mut labels = json!({
        "machineconfiguration.openshift.io/mco-built-in": "",
        (label): "",
    });
    if role == "master" {
        labels["operator.machineconfiguration.openshift.io/required-for-upgrade"] = json!("");
    }
    json!({
        "apiVersion": API_VERSION, "kind": "MachineConfigPool",
        "metadata": {"name": role, "labels": labels},
        "spec": {
            "machineConfigSelector": {"matchLabels": {(ROLE): role}},
            "nodeSelector": {"matchLabels": {(format!("node-role.kubernetes.io/{role}")): ""}},
        },
    })
}

/// The configuration that a release generates for a role, and the administrator's SSH key.
fn base_configs(role: &str) -> Vec<Value> {
    let files = |path: &str, content: &str| {
        json!({"storage": {"files": [{
            "path": path, "mode": 0o644, "overwrite": true,
            "contents": {"source": format!("data:,{content}")},
        }]}})
    };
    let parts = [
        (
            format!("00-{role}"),
            files("/etc/systemd/system.conf.d/10-default-env.conf", "%5BManager%5D%0A"),
        ),
        (
            format!("01-{role}-container-runtime"),
            files("/etc/containers/storage.conf", "%5Bstorage%5D%0Adriver%20=%20%22overlay%22%0A"),
        ),
        (
            format!("01-{role}-kubelet"),
            json!({"systemd": {"units": [{
                "name": "kubelet.service", "enabled": true,
                "contents": format!(
                    "[Service]\nExecStart=/usr/bin/kubelet --node-labels=node-role.kubernetes.io/{role}\n"
                ),
            }]}}),
        ),
        (
            format!("97-{role}-generated-kubelet"),
            files("/etc/kubernetes/kubelet.conf", "kind:%20KubeletConfiguration%0A"),
        ),
        (format!("98-{role}-generated-kubelet"), json!({})),
        (
            format!("99-{role}-generated-registries"),
            files(
                "/etc/containers/registries.conf",
                "unqualified-search-registries%20=%20%5B%5D%0A",
            ),
        ),
        (
            format!("99-{role}-ssh"),
            json!({"passwd": {"users": [{
                "name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAAsimulated core@example.com"],
            }]}}),
        ),
    ];
    parts
        .into_iter()
        .map(|(name, mut config)| {
            config["ignition"] = json!({"version": "3.4.0"});
            let mut object = json!({
                "apiVersion": API_VERSION, "kind": "MachineConfig",
                "metadata": {"name": name, "labels": {(ROLE): role}},
                "spec": {"config": config},
            });
            if !name.ends_with("-ssh") {
                object["metadata"]["annotations"] = json!({(GENERATED_BY): CONTROLLER_VERSION});
            }
            object
        })
        .collect()
}
