//! A write in progress: what every step of the write path needs to know about the request.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::request::{FieldValidation, Writer};
use crate::Resource;
use crate::api::authentication::User;
use crate::api::error::ApiError;
use crate::api::fields::FieldWriter;
use crate::api::registry::ResourceDef;
use crate::api::schema;

/// A write in progress.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// Who writes, and when.
    pub(crate) writer: Writer<'a>,
    /// The user of a request; none for a controller inside the cluster.
    pub(crate) user: Option<&'a User>,
    /// What is written.
    pub(crate) def: Arc<ResourceDef>,
    /// The namespace of the request; empty for cluster-scoped resources.
    pub(crate) namespace: &'a str,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: &'a str,
    /// What happens with unknown fields.
    pub(crate) validation: FieldValidation,
    /// Whether nothing may be written.
    pub(crate) dry_run: bool,
    /// Whether server-side apply takes fields from others.
    pub(crate) force: bool,
    /// Whether a controller inside the cluster writes: its objects need no decoding.
    pub(crate) trusted: bool,
    /// What the client should be warned of.
    pub(crate) warnings: Vec<String>,
}

impl<'a> Call<'a> {
    /// A write by a controller inside the cluster.
    pub(crate) fn inside(
        writer: Writer<'a>,
        def: Arc<ResourceDef>,
        namespace: &'a str,
        subresource: &'a str,
    ) -> Self {
        Self {
            writer,
            user: None,
            def,
            namespace,
            subresource,
            validation: FieldValidation::Ignore,
            dry_run: false,
            force: false,
            trusted: true,
            warnings: Vec::new(),
        }
    }

    /// The resource, as the client named it.
    pub(crate) fn resource(&self) -> &Resource {
        &self.def.resource
    }

    /// The resource under which objects are stored: both kinds of Event share one table.
    pub(crate) fn storage(&self) -> &Resource {
        super::commit::storage(&self.def.resource)
    }

    /// The writer in the terms of field management.
    pub(crate) fn field_writer(&self) -> FieldWriter<'_> {
        FieldWriter {
            def: &self.def,
            manager: if self.writer.manager.is_empty() { "unknown" } else { self.writer.manager },
            subresource: self.subresource,
            now: self.writer.now,
        }
    }

    /// `422 Invalid`, if there is anything wrong with the object.
    pub(crate) fn refuse(
        &self,
        name: &str,
        errors: Vec<crate::api::error::FieldError>,
    ) -> Result<(), ApiError> {
        if errors.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(&self.def.resource.group, &self.def.kind, name, errors))
    }

    /// Checks the shape that every object has, and brings it into the server's form: kind and
    /// version set, no nulls, unknown fields gone.
    ///
    /// `patch` is the patch that made the object, if one did.
    pub(crate) fn decode(
        &mut self,
        object: &mut Value,
        patch: Option<&Value>,
    ) -> Result<(), ApiError> {
        let (kind, version) = (self.def.kind.clone(), self.def.api_version());
        let Value::Object(map) = &mut *object else {
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): it is not a JSON object"
            )));
        };
        match map.get("apiVersion").and_then(Value::as_str) {
            Some(given) if !given.is_empty() && given != version => {
                return Err(ApiError::bad_request(format!(
                    "the API version in the data ({given}) does not match the expected API version ({version})"
                )));
            }
            Some(given) if given == version => {}
            _ => {
                map.insert("apiVersion".to_owned(), Value::String(version));
            }
        }
        match map.get("kind").and_then(Value::as_str) {
            Some(given) if !given.is_empty() && given != kind => {
                return Err(ApiError::bad_request(format!(
                    "{given} in version \"{}\" cannot be handled as a {kind}: the kind in the data does not match",
                    self.def.version
                )));
            }
            Some(given) if given == kind => {}
            _ => {
                map.insert("kind".to_owned(), Value::String(kind.to_string()));
            }
        }
        self.decode_metadata(map)?;
        if let Some(custom) = &self.def.custom {
            let unknown = custom.schema.prune(object);
            custom.schema.default(object);
            return self.report_unknown(&unknown, patch);
        }
        if self.trusted {
            return Ok(());
        }
        drop_nulls(object);
        if let Some(error) = schema::decode_error(&self.def, object) {
            return Err(error);
        }
        let Some(schema) = schema::builtin(&self.def) else { return Ok(()) };
        let unknown = schema.prune(object);
        schema.drop_empty(object);
        self.report_unknown(&unknown, patch)
    }

    fn decode_metadata(&self, map: &mut Map<String, Value>) -> Result<(), ApiError> {
        let malformed = |what: &str, type_name: &str| {
            Err(ApiError::bad_request(format!(
                "{kind} in version \"{}\" cannot be handled as a {kind}: json: cannot unmarshal {what} of type {type_name}",
                self.def.version,
                kind = self.def.kind,
            )))
        };
        let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if metadata.is_null() {
            *metadata = Value::Object(Map::new());
        }
        let Value::Object(metadata) = metadata else {
            return malformed("metadata into Go struct field", "v1.ObjectMeta");
        };
        metadata.retain(|key, value| {
            let empty = match value {
                Value::Null => true,
                Value::Array(items) => items.is_empty(),
                Value::Object(entries) => entries.is_empty(),
                _ => false,
            };
            // An empty list of managed fields is an order: forget them.
            (!empty || (key == "managedFields" && !value.is_null())) && key != "selfLink"
        });
        for key in ["labels", "annotations"] {
            let Some(value) = metadata.get_mut(key) else { continue };
            let Value::Object(entries) = value else {
                return malformed(
                    &format!("metadata.{key} into Go struct field ObjectMeta.metadata.{key}"),
                    "map[string]string",
                );
            };
            // Go reads a null as the empty string.
            for entry in entries.values_mut().filter(|entry| entry.is_null()) {
                *entry = Value::String(String::new());
            }
            if let Some(wrong) = entries.values().find(|entry| !entry.is_string()) {
                let what = match wrong {
                    Value::Bool(_) => "bool",
                    Value::Number(_) => "number",
                    Value::Array(_) => "array",
                    _ => "object",
                };
                return malformed(
                    &format!("{what} into Go struct field ObjectMeta.metadata.{key}"),
                    "string",
                );
            }
        }
        for key in ["finalizers", "ownerReferences", "managedFields"] {
            let Some(value) = metadata.get(key) else { continue };
            let fits = |item: &Value| {
                if key == "finalizers" { item.is_string() } else { item.is_object() }
            };
            if !value.as_array().is_some_and(|items| items.iter().all(fits)) {
                return malformed(
                    &format!("metadata.{key} into Go struct field ObjectMeta.metadata.{key}"),
                    "array",
                );
            }
        }
        for key in ["name", "generateName", "namespace", "uid", "resourceVersion"] {
            if metadata.get(key).is_some_and(|value| !value.is_string()) {
                return malformed(
                    &format!("metadata.{key} into Go struct field ObjectMeta.metadata.{key}"),
                    "string",
                );
            }
        }
        Ok(())
    }

    fn report_unknown(
        &mut self,
        unknown: &[String],
        patch: Option<&Value>,
    ) -> Result<(), ApiError> {
        if unknown.is_empty() {
            return Ok(());
        }
        let texts = unknown.iter().map(|path| format!("unknown field \"{path}\""));
        match self.validation {
            FieldValidation::Ignore => Ok(()),
            FieldValidation::Warn => {
                self.warnings.extend(texts);
                Ok(())
            }
            FieldValidation::Strict => {
                let text =
                    format!("strict decoding error: {}", texts.collect::<Vec<_>>().join(", "));
                Err(match patch {
                    None => ApiError::bad_request(format!(
                        "{kind} in version \"{}\" cannot be handled as a {kind}: {text}",
                        self.def.version,
                        kind = self.def.kind,
                    )),
                    Some(patch) => ApiError::invalid(
                        "",
                        "",
                        "",
                        vec![crate::api::error::FieldError::invalid(
                            "patch",
                            &Value::String(patch.to_string()),
                            &text,
                        )],
                    ),
                })
            }
        }
    }
}

/// Removes members that are null: for built-in kinds null means absent.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_key, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
