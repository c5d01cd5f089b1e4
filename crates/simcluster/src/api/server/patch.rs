//! Patching objects: the four kinds of patch, and server-side apply.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::ApiServer;
use super::call::Call;
use super::request::PatchType;
use super::update::Source;
use crate::api::error::{ApiError, FieldError};
use crate::api::{fields, patch};

impl ApiServer {
    /// PATCH of an object or its status.
    pub(super) fn patch_object(
        &mut self,
        call: &mut Call<'_>,
        name: &str,
        kind: PatchType,
        body: &Value,
    ) -> Result<(u16, Arc<Value>), ApiError> {
        if kind == PatchType::Apply {
            return self.apply_object(call, name, body);
        }
        if kind == PatchType::Strategic && call.def.custom.is_some() {
            return Err(patch::no_strategic());
        }
        let old = self.expect(call, name)?;
        let new = patched(call, &old, kind, body)?;
        Ok((200, self.replace_object(call, &old, new, Source::Patch(body))?))
    }

    /// Server-side apply: of a new object too.
    fn apply_object(
        &mut self,
        call: &mut Call<'_>,
        name: &str,
        body: &Value,
    ) -> Result<(u16, Arc<Value>), ApiError> {
        let config = configuration(call, name, body)?;
        let old = self.load(call, name);
        let wanted = &config["metadata"];
        let Some(old) = old else {
            if !call.subresource.is_empty() {
                return Err(ApiError::not_found(call.resource(), name));
            }
            if let Some(uid) = wanted["uid"].as_str().filter(|uid| !uid.is_empty()) {
                return Err(ApiError::conflict_on(
                    call.resource(),
                    name,
                    &format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    ),
                ));
            }
            let mut config = config;
            if let Some(metadata) = config.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("resourceVersion");
            }
            let applied = fields::apply(None, &config, call.field_writer(), call.force)?;
            return Ok((201, self.create_object(call, name, applied, true)?));
        };
        let version = wanted["resourceVersion"].as_str().unwrap_or_default();
        if !version.is_empty() && old["metadata"]["resourceVersion"] != version {
            return Err(ApiError::conflict(call.resource(), name));
        }
        let applied = fields::apply(Some(&old), &config, call.field_writer(), call.force)?;
        Ok((200, self.replace_object(call, &old, applied, Source::Apply)?))
    }
}

/// The object with the patch in it.
pub(super) fn patched(
    call: &Call<'_>,
    object: &Value,
    kind: PatchType,
    body: &Value,
) -> Result<Value, ApiError> {
    match kind {
        PatchType::Json => patch::json(object, body),
        PatchType::Strategic => patch::strategic(&call.def, object, body),
        PatchType::Merge | PatchType::Apply => {
            if !body.is_object() {
                return Err(ApiError::bad_request(
                    "the merge patch is not a JSON object: send an object with the members to change",
                ));
            }
            let mut new = object.clone();
            json_patch::merge(&mut new, body);
            Ok(new)
        }
    }
}

/// The applied configuration, checked, without what its subresource cannot set.
fn configuration(call: &Call<'_>, name: &str, body: &Value) -> Result<Value, ApiError> {
    if call.writer.manager.is_empty() {
        return Err(ApiError::invalid(
            "meta.k8s.io",
            "PatchOptions",
            "",
            vec![FieldError::required("fieldManager", "is required for apply patch")],
        ));
    }
    let Value::Object(map) = body else {
        return Err(ApiError::bad_request(
            "error decoding YAML: the applied configuration is not an object",
        ));
    };
    let expected = call.def.api_version();
    for (key, expected) in [("apiVersion", expected.as_str()), ("kind", call.def.kind.as_ref())] {
        match map.get(key).and_then(Value::as_str) {
            Some(given) if given == expected => {}
            Some(given) if !given.is_empty() => {
                return Err(ApiError::bad_request(format!(
                    "the {key} in the applied configuration ({given}) does not match the expected one ({expected})"
                )));
            }
            _ => {
                return Err(ApiError::bad_request(format!(
                    "Object '{}' is missing in '{body}'",
                    if key == "kind" { "Kind" } else { key }
                )));
            }
        }
    }
    let metadata = map.get("metadata").and_then(Value::as_object);
    let text = |key: &str| {
        metadata.and_then(|metadata| metadata.get(key)).and_then(Value::as_str).unwrap_or_default()
    };
    match text("name") {
        "" => {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            )));
        }
        given if given != name => return Err(super::create::wrong_name(given, name)),
        _ => {}
    }
    let namespace = text("namespace");
    if !namespace.is_empty() && namespace != call.namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if metadata.is_some_and(|metadata| metadata.contains_key("managedFields")) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let mut config = Map::new();
    for (key, value) in map {
        let settable = match key.as_str() {
            "apiVersion" | "kind" => true,
            "status" => call.subresource == "status" || !call.def.status,
            "metadata" => true,
            _ => call.subresource.is_empty(),
        };
        if settable {
            config.insert(key.clone(), value.clone());
        }
    }
    if call.subresource == "status"
        && call.def.custom.is_some()
        && let Some(Value::Object(metadata)) = config.get_mut("metadata")
    {
        metadata.retain(|key, _value| {
            ["name", "namespace", "resourceVersion", "uid"].contains(&key.as_str())
        });
    }
    Ok(Value::Object(config))
}
