//! What an image of the operator's catalog offers: the bundle of `deploy/olm`, with the version of the image's tag if that is one.
//!
//! No registry is asked: every tag has the bundle of this build, and only its number differs.

use serde_json::Value;
use simcluster::openshift::lifecycle::Bundle;

const VERSION: &str = env!("CARGO_PKG_VERSION");

macro_rules! manifest {
    ($name:literal) => {
        include_str!(concat!("../../../deploy/olm/manifests/", $name))
    };
}

const MANIFESTS: &[&str] = &[
    manifest!("kata-config-some-workers.consoleyamlsample.yaml"),
    manifest!("kata-first-sandboxed-pod.consolequickstart.yaml"),
    manifest!("kata-operator-cluster-view.clusterrole.yaml"),
    manifest!("kata-operator-edit.clusterrole.yaml"),
    manifest!("kata-operator-view.clusterrole.yaml"),
    manifest!("kata-operator.clusterserviceversion.yaml"),
    manifest!("kata-operator.prometheusrule.yaml"),
    manifest!("kata-operator.service.yaml"),
    manifest!("kata-operator.servicemonitor.yaml"),
    manifest!("kata-pod.consoleyamlsample.yaml"),
    manifest!("kataconfigs.kataconfiguration.openshift.io.customresourcedefinition.yaml"),
    manifest!("katanodes.kata-operator.dev.customresourcedefinition.yaml"),
    manifest!("kubectl-kata.consoleclidownload.yaml"),
    manifest!("prometheus-k8s.role.yaml"),
    manifest!("prometheus-k8s.rolebinding.yaml"),
];

/// The bundle in the catalog's image; `None` for another image.
pub(crate) fn of_catalog(image: &str) -> Option<Bundle> {
    let tagged = image.split('@').next()?;
    let (name, tag) = tagged.rsplit('/').next()?.split_once(':').unwrap_or((tagged, ""));
    if name.rsplit('/').next() != Some("kata-operator-catalog") {
        return None;
    }
    let tag = tag.strip_prefix('v').unwrap_or(tag);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_version = tag.split('.').count() == 3 && tag.split('.').all(is_number);
    let version = if is_version { tag } else { VERSION };
    let parsed = MANIFESTS.iter().map(|text| {
        let text = text.replace(VERSION, version);
        serde_saphyr::from_str::<Value>(&text).ok()
    });
    Some(Bundle {
        package: "kata-operator".to_owned(),
        channel: "stable".to_owned(),
        objects: parsed.collect::<Option<_>>()?,
    })
}
