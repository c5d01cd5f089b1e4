//! The scale subresource: a view of two numbers and a selector of a larger object.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::ApiServer;
use super::call::Call;
use super::patch::patched;
use super::request::{PatchType, WriteVerb};
use super::update::Source;
use crate::api::error::{ApiError, FieldError};
use crate::api::fields;
use crate::api::registry::ScalePaths;
use crate::selector;

/// The `Scale` of an object.
pub fn scale_of(paths: &ScalePaths, object: &Value) -> Value {
    let mut metadata = Map::new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object["metadata"].get(key) {
            metadata.insert(key.to_owned(), value.clone());
        }
    }
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {},
        "status": {"replicas": number(&paths.status_replicas)},
    });
    // Go leaves a zero out.
    if number(&paths.spec_replicas) != 0 {
        scale["spec"]["replicas"] = json!(number(&paths.spec_replicas));
    }
    let selector =
        paths.selector.as_ref().and_then(|pointer| object.pointer(pointer)).and_then(selector_text);
    if let Some(selector) = selector {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}

/// A label selector as text: the text itself, a map of labels, or a `LabelSelector`.
fn selector_text(value: &Value) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    let map = value.as_object()?;
    if !map.contains_key("matchLabels") && !map.contains_key("matchExpressions") {
        return Some(selector::equalities(map).join(","));
    }
    Some(selector::text(value))
}

impl ApiServer {
    /// PUT or PATCH of the scale subresource.
    pub(super) fn write_scale(
        &mut self,
        call: &mut Call<'_>,
        name: &str,
        verb: &WriteVerb,
        body: &Value,
    ) -> Result<Arc<Value>, ApiError> {
        let paths = call.def.scale.clone().ok_or_else(ApiError::unknown_resource)?;
        let old = self.expect(call, name)?;
        let current = scale_of(&paths, &old);
        let wanted = match verb {
            WriteVerb::Patch(kind) => patched(call, &current, *kind, body)?,
            _ => body.clone(),
        };
        let version = wanted["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !version.is_empty() && old["metadata"]["resourceVersion"] != version {
            return Err(ApiError::conflict(call.resource(), name));
        }
        let replicas = match &wanted["spec"]["replicas"] {
            Value::Null => 0,
            value => value.as_i64().ok_or_else(|| {
                ApiError::bad_request(format!(
                    "Scale in version \"v1\" cannot be handled as a Scale: spec.replicas is {value}, not a whole number"
                ))
            })?,
        };
        if replicas < 0 {
            return Err(ApiError::invalid(
                "autoscaling",
                "Scale",
                name,
                vec![FieldError::invalid(
                    "spec.replicas",
                    &json!(replicas),
                    "must be greater than or equal to 0",
                )],
            ));
        }
        let (new, source) = if *verb == WriteVerb::Patch(PatchType::Apply) {
            let mut config = json!({
                "apiVersion": call.def.api_version(),
                "kind": call.def.kind,
                "metadata": {"name": name},
            });
            set_pointer(&mut config, &paths.spec_replicas, json!(replicas));
            let applied = fields::apply(Some(&old), &config, call.field_writer(), call.force)?;
            (applied, Source::Apply)
        } else {
            let mut new = (*old).clone();
            set_pointer(&mut new, &paths.spec_replicas, json!(replicas));
            (new, Source::Put)
        };
        let object = self.replace_object(call, &old, new, source)?;
        Ok(Arc::new(scale_of(&paths, &object)))
    }
}

/// Sets the member that a JSON pointer names, and makes the objects on the way to it.
fn set_pointer(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for part in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[part];
    }
    *place = value;
}
