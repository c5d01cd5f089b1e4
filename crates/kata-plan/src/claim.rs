//! The claim of an installation of the operator on a KataConfig: the first one that writes the finalizer also writes its
//! namespace. Every other installation changes nothing and says so, until that namespace is gone.
//!
//! Two processes of one installation are kept apart by their Lease, not by this.

use kata_api::{Code, KataConfig, names};

use crate::configs::config_ref;
use crate::observed::Observed;
use crate::report::Finding;
use crate::snapshot::Snapshot;

/// The namespace of the installation that a KataConfig belongs to.
pub fn claimed_by(config: &KataConfig) -> Option<&str> {
    let annotations = config.metadata.annotations.as_ref()?;
    annotations.get(names::OPERATOR_NAMESPACE_ANNOTATION).map(String::as_str)
}

/// Whether a KataConfig belongs to the installation in this namespace.
pub(crate) fn is_ours(config: &KataConfig, namespace: &str) -> bool {
    claimed_by(config) == Some(namespace)
}

/// The namespace of another installation that a KataConfig belongs to. A claim ends with its namespace.
pub(crate) fn other_installation<'a>(
    config: &'a KataConfig,
    snapshot: &Snapshot,
) -> Option<&'a str> {
    let namespace = claimed_by(config)?;
    let is_gone = matches!(snapshot.namespaces.get(namespace), Some(Observed::Known(false)));
    (namespace != snapshot.options.namespace && !is_gone).then_some(namespace)
}

/// The finding that a KataConfig belongs to another installation.
pub(crate) fn finding(config: &KataConfig, other: &str, own: &str) -> Finding {
    let config = config_ref(config);
    let message = format!(
        "{config} belongs to the operator in namespace {other}; the one in namespace {own} changes nothing"
    );
    let mut finding = Finding::new(Code::OtherInstallation, config, message);
    finding.fix = format!(
        "To keep the one in {other}: `kubectl delete deployment {product} -n {own}`, then apply the manifests or the Helm \
         release of {other} again, since both share ClusterRoles, bindings and policies. To keep the one in {own}: delete \
         the namespace {other}, with everything in it, and it takes over within a minute. Do not run `kubectl delete` on \
         manifests: with the CustomResourceDefinitions the KataConfig would go.",
        product = names::PRODUCT,
    );
    finding
}
