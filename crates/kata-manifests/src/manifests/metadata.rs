//! The names and labels of the installed objects.

use kata_api::names;
use serde_json::{Value, json};

/// The name of the service account, and of almost everything else that is installed.
pub const NAME: &str = "kata-operator";

/// The labels of the operator and of what belongs to it.
pub(super) fn labels() -> Value {
    json!({
        "app.kubernetes.io/name": NAME,
        "app.kubernetes.io/component": "operator",
        "app.kubernetes.io/part-of": names::PRODUCT,
        "app.kubernetes.io/version": names::VERSION,
    })
}

/// Selects the operator's pods, and no others.
pub(super) fn selector() -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/component": "operator"})
}

/// The metadata of an object, in a namespace unless its kind has none.
pub(super) fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = json!({"name": name, "labels": labels()});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    metadata
}
