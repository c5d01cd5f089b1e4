//! The labels that mark an object of kata-operator, and the head of every object that it writes. The decision
//! and the invariants use the same predicates.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kata_api::{KataConfig, KataNode, names};
use serde_json::{Value, json};

use crate::object::Kind;

/// The labels of every object that belongs to a KataConfig.
pub(crate) fn own_labels(config: &KataConfig) -> BTreeMap<String, String> {
    BTreeMap::from([
        (names::APP_LABEL.to_owned(), config.metadata.name.clone().unwrap_or_default()),
        (names::MANAGED_BY.to_owned(), names::PRODUCT.to_owned()),
        (names::PART_OF.to_owned(), names::PRODUCT.to_owned()),
    ])
}

/// The body of a server-side apply, without a spec.
pub(crate) fn body(kind: Kind, name: &str, labels: &BTreeMap<String, String>) -> Value {
    json!({
        "apiVersion": kind.api_version(),
        "kind": kind.as_str(),
        "metadata": {"name": name, "labels": labels},
    })
}

/// Whether a KataNode is that of the Node with this UID, and not of an earlier Node of the same name.
pub(crate) fn is_owned_by(kata_node: &KataNode, uid: &str) -> bool {
    kata_node.metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid)
}

pub(crate) fn has_labels(metadata: &ObjectMeta, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| label(metadata, key) == Some(value))
}

pub(crate) fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a String> {
    metadata.labels.as_ref().and_then(|labels| labels.get(key))
}

pub(crate) fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a String> {
    metadata.annotations.as_ref().and_then(|annotations| annotations.get(key))
}

/// Whether kata-operator wrote an object.
pub(crate) fn is_managed(metadata: &ObjectMeta) -> bool {
    label(metadata, names::MANAGED_BY).is_some_and(|value| value == names::PRODUCT)
}
