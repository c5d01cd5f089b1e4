//! The bridge from client-side to server-side apply: kubectl's annotation with the last configuration.
//!
//! It matters for the manager `kubectl` only; who calls it checks that.

use serde_json::Value;

use super::compare;
use super::merge;
use super::set::FieldSet;
use super::topology::Topology;
use crate::api::registry::ResourceDef;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The limit of all annotations of an object together, in bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// The fields of the last client-side apply that still have its values; `None` without annotation.
pub(super) fn unchanged_fields(
    topology: Topology<'_>,
    live: &Value,
    def: &ResourceDef,
) -> Option<FieldSet> {
    let annotation = live.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    let last: Value = serde_json::from_str(annotation).ok()?;
    if last.get("apiVersion")?.as_str()? != def.api_version() {
        return None;
    }
    let mut fields = merge::field_set(topology, &last);
    let diff = compare::objects(topology, Some(&last), live);
    fields.subtract(&diff.changed);
    fields.subtract(&diff.removed);
    Some(fields)
}

/// Writes the applied configuration into the annotation, if the object has one.
pub(super) fn refresh(object: &mut Value, config: &Value) {
    let Some(annotations) =
        object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
    else {
        return;
    };
    if annotations.get(ANNOTATION).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    if let Some(own) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        own.remove(ANNOTATION);
    }
    // As the API server's JSON encoder writes it.
    let mut text =
        config.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    text.push('\n');
    annotations.insert(ANNOTATION.to_owned(), Value::from(text));
    let size: usize =
        annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > ANNOTATIONS_LIMIT {
        annotations.remove(ANNOTATION);
    }
}
