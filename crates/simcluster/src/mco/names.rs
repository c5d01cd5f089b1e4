//! Annotation keys, labels and other fixed names of the Machine Config Operator.

use serde_json::Value;

/// The API version of all its kinds.
pub(super) const API_VERSION: &str = "machineconfiguration.openshift.io/v1";

/// The namespace of the operator, where its Events are.
pub const NAMESPACE: &str = "openshift-machine-config-operator";

pub use kata_api::names::MACHINE_CONFIG_ROLE_LABEL as ROLE;
pub(super) use kata_api::names::mco::RENDERED_PREFIX;
pub use kata_api::names::mco::{
    CURRENT_CONFIG, DESIRED_CONFIG, DESIRED_DRAIN, LAST_APPLIED_DRAIN, POST_CONFIG_ACTION, REASON,
    STATE,
};

/// Annotation of a node: the configuration of its first boot.
pub const FIRST_PIVOT_CONFIG: &str = "machineconfiguration.openshift.io/firstPivotConfig";
/// Annotation of a node: its first pool's labels have been put on it.
pub(super) const POOL_LABELS_APPLIED: &str =
    "machineconfiguration.openshift.io/customPoolLabelsApplied";
/// Annotation of a node: how the control plane is laid out.
pub(super) const TOPOLOGY: &str = "machineconfiguration.openshift.io/controlPlaneTopology";
/// Annotation of a MachineConfig: the controller that wrote it.
pub(super) const GENERATED_BY: &str =
    "machineconfiguration.openshift.io/generated-by-controller-version";
/// Annotation of a rendered MachineConfig: the release.
pub(super) const RELEASE_VERSION: &str = "machineconfiguration.openshift.io/release-image-version";
/// Annotation of a rendered MachineConfig whose image is not the release's.
pub(super) const OS_IMAGE_OVERRIDDEN: &str =
    "machineconfiguration.openshift.io/os-image-url-overridden";
/// Annotation of a ContainerRuntimeConfig: what its MachineConfigs' names end in.
pub(super) const NAME_SUFFIX: &str = "machineconfiguration.openshift.io/mc-name-suffix";

/// The version that this operator reports as its own.
pub(super) const CONTROLLER_VERSION: &str = "simulated";
/// The Ignition version of rendered configurations.
pub(super) const IGNITION_VERSION: &str = "3.5.0";
/// Taint of nodes that wait for their update.
pub(super) const UPDATE_TAINT: &str = "UpdateInProgress";

/// The extensions that the operating system offers, with the packages of each.
pub(super) const EXTENSIONS: &[(&str, &[&str])] = &[
    ("ipsec", &["NetworkManager-libreswan", "libreswan"]),
    ("kerberos", &["krb5-workstation", "libkadm5"]),
    ("kernel-devel", &["kernel-devel", "kernel-headers"]),
    (KATA_EXTENSION, &[KATA_PACKAGE]),
    ("sysstat", &["sysstat"]),
    ("two-node-ha", &["pacemaker", "pcs", "fence-agents-all"]),
    ("usbguard", &["usbguard"]),
];

/// The extension with the Kata runtime.
pub(super) const KATA_EXTENSION: &str = "sandboxed-containers";
/// The package that is in it. On Fedora CoreOS the daemon takes names of extensions for those of packages.
pub(super) const KATA_PACKAGE: &str = "kata-containers";

/// The extensions of a list that Red Hat Enterprise Linux CoreOS does not offer.
pub(super) fn unknown_extensions<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    names.filter(|name| EXTENSIONS.iter().all(|(known, _)| known != name)).collect()
}

/// Whether a node runs Fedora CoreOS.
pub(super) fn is_fedora(node: &Value) -> bool {
    node["metadata"]["labels"]["node.openshift.io/os_id"] == "fedora"
}
