//! What the API server refuses: metadata of all kinds, and the rules of built-in kinds that clients of
//! this cluster meet.
//!
//! Pure functions on decoded objects. Custom resources are validated by their schemas.

mod kinds;
mod names;
mod update;

use serde_json::Value;

use super::error::FieldError;
use super::registry::ResourceDef;
pub(crate) use kinds::{object, status};
pub(crate) use update::update;

/// Checks the metadata of an object.
pub(crate) fn metadata(def: &ResourceDef, value: &Value) -> Vec<FieldError> {
    let metadata = &value["metadata"];
    let mut errors = Vec::new();
    if let Some(why) = names::object_name(def, metadata["name"].as_str().unwrap_or_default()) {
        errors.push(FieldError::invalid("metadata.name", &metadata["name"], &why));
    }
    labels(&metadata["labels"], "metadata.labels", &mut errors);
    let mut size = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        size += key.len() + value.as_str().unwrap_or_default().len();
        if let Some(why) = names::qualified(&key.to_lowercase()) {
            let key = Value::from(key.as_str());
            errors.push(FieldError::invalid("metadata.annotations", &key, &why));
        }
    }
    if size > names::ANNOTATIONS_LIMIT {
        errors.push(FieldError {
            field: "metadata.annotations".to_owned(),
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {} bytes", names::ANNOTATIONS_LIMIT),
        });
    }
    for (index, finalizer) in metadata["finalizers"].as_array().into_iter().flatten().enumerate() {
        let text = finalizer.as_str().unwrap_or_default();
        if let Some(why) = names::qualified(text) {
            errors.push(FieldError::invalid("metadata.finalizers", finalizer, &why));
        } else if def.custom.is_none()
            && !text.contains('/')
            && !names::KNOWN_FINALIZERS.contains(&text)
            && !text.contains('.')
        {
            errors.push(FieldError::invalid(
                format!("metadata.finalizers[{index}]"),
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    for (index, owner) in metadata["ownerReferences"].as_array().into_iter().flatten().enumerate() {
        for key in ["apiVersion", "kind", "name", "uid"] {
            if owner[key].as_str().is_none_or(str::is_empty) {
                let what = match key {
                    "apiVersion" => "version",
                    other => other,
                };
                errors.push(FieldError::invalid(
                    format!("metadata.ownerReferences[{index}].{key}"),
                    &Value::from(owner[key].as_str().unwrap_or_default()),
                    &format!("{what} must not be empty"),
                ));
            }
        }
    }
    let controllers: Vec<&str> = metadata["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|owner| owner["controller"] == true)
        .filter_map(|owner| owner["name"].as_str())
        .collect();
    if controllers.len() > 1 {
        errors.push(FieldError::invalid(
            "metadata.ownerReferences",
            &metadata["ownerReferences"],
            "Only one reference can have Controller set to true. Found \"true\" in references for several owners",
        ));
    }
    errors
}

fn labels(labels: &Value, field: &str, errors: &mut Vec<FieldError>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        if let Some(why) = names::qualified(key) {
            errors.push(FieldError::invalid(field, &Value::from(key.as_str()), &why));
        }
        if let Some(why) = names::label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(field, value, &why));
        }
    }
}

/// Checks the metadata of a change: an object that is being deleted gets no new finalizers.
pub(crate) fn metadata_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let (was, is) = (&old["metadata"], &new["metadata"]);
    if was["deletionTimestamp"].is_null() {
        return Vec::new();
    }
    let held = was["finalizers"].as_array();
    let added: Vec<String> = is["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|name| !held.is_some_and(|held| held.contains(name)))
        .map(Value::to_string)
        .collect();
    if added.is_empty() {
        return Vec::new();
    }
    vec![FieldError::forbidden(
        "metadata.finalizers",
        &format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        ),
    )]
}
