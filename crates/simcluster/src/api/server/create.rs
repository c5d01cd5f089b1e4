//! Creating objects.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ApiServer;
use super::call::Call;
use super::identity::stamp;
use crate::api::admission::{self, Deed};
use crate::api::error::{ApiError, FieldError};
use crate::api::{defaults, fields, validation};
use crate::resource::{DAEMONSETS, NAMESPACES, NODES};

/// How often a generated name is drawn again when it is taken.
const NAME_DRAWS: usize = 8;

impl ApiServer {
    /// Creates `object`; `name` is the one in the URL, if the request has one.
    ///
    /// `tracked` says that the managed fields are already right, as after server-side apply.
    pub(super) fn create_object(
        &mut self,
        call: &mut Call<'_>,
        name: &str,
        mut object: Value,
        tracked: bool,
    ) -> Result<Arc<Value>, ApiError> {
        call.decode(&mut object, None)?;
        if call.def.namespaced && call.namespace.is_empty() {
            return Err(ApiError::bad_request("an empty namespace may not be set during creation"));
        }
        self.settle_namespace(call, &mut object)?;
        let has_version = object["metadata"]["resourceVersion"]
            .as_str()
            .is_some_and(|version| !version.is_empty() && version != "0");
        if has_version {
            return Err(ApiError::new(
                500,
                "",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let name = self.settle_name(call, name, &mut object)?;
        defaults::apply(&call.def.resource, &mut object);
        defaults::times(&call.def.resource, &mut object);
        // Status is not the client's to set, so it cannot own it either.
        if call.def.status
            && call.def.resource != NODES
            && let Value::Object(map) = &mut object
        {
            map.remove("status");
        }
        let metadata = metadata_of(&mut object);
        for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "uid"] {
            metadata.remove(key);
        }
        metadata.remove("creationTimestamp");
        if call.def.resource == DAEMONSETS {
            defaults::first_template(&mut object);
        }
        // A generated name is not known yet when namespaces are labelled with their names.
        let label = "kubernetes.io/metadata.name";
        let late = call.def.resource == NAMESPACES
            && !object["metadata"]["generateName"].is_null()
            && metadata_of(&mut object)
                .get_mut("labels")
                .and_then(|labels| labels.as_object_mut())
                .is_some_and(|labels| labels.remove(label).is_some());
        if late && object["metadata"]["labels"] == json!({}) {
            metadata_of(&mut object).remove("labels");
        }
        if !tracked {
            fields::track_update(None, &mut object, call.field_writer());
        }
        if late {
            object["metadata"]["labels"][label] = json!(name);
        }
        self.initialise(call, &mut object);
        admission::admit_create(self, call, &name, &mut object)?;
        let mut errors = validation::metadata(&call.def, &object);
        errors.extend(validation::object(&call.def, &object));
        if let Some(custom) = &call.def.custom {
            errors.extend(custom.schema.validate(&object, None));
        }
        call.refuse(&name, errors)?;
        let deed = Deed { operation: "CREATE", name: &name, object: &object, old: &Value::Null };
        admission::validate(self, call, deed)?;
        if let Some(taken) = self.store.get(call.storage(), call.namespace, &name) {
            let mut error = ApiError::already_exists(call.resource(), &name);
            if !taken["metadata"]["deletionTimestamp"].is_null() {
                error.message = format!("object is being deleted: {}", error.message);
            }
            return Err(error);
        }
        self.check_definition(call, &name, &mut object)?;
        // The real API server fills defaults in whenever it reads an object from its storage, so also
        // for the status that a create cannot set.
        if let Some(custom) = &call.def.custom {
            custom.schema.default(&mut object);
        }
        Ok(self.commit(call, &name, object))
    }

    /// Checks the namespace of a new object against the request's.
    fn settle_namespace(&self, call: &Call<'_>, object: &mut Value) -> Result<(), ApiError> {
        let metadata = metadata_of(object);
        if call.namespace.is_empty() {
            metadata.remove("namespace");
            return Ok(());
        }
        match metadata.get("namespace").and_then(Value::as_str) {
            Some(namespace) if namespace == call.namespace => Ok(()),
            None | Some("") => {
                metadata.insert("namespace".to_owned(), json!(call.namespace));
                Ok(())
            }
            Some(_) => Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            )),
        }
    }

    /// The name of a new object: the URL's, the body's, or a generated one.
    fn settle_name(
        &mut self,
        call: &Call<'_>,
        url: &str,
        object: &mut Value,
    ) -> Result<String, ApiError> {
        let metadata = metadata_of(object);
        let text =
            |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (name, prefix) = (text("name"), text("generateName"));
        if !url.is_empty() {
            if !name.is_empty() && name != url {
                return Err(wrong_name(&name, url));
            }
            metadata.insert("name".to_owned(), json!(url));
            return Ok(url.to_owned());
        }
        if !name.is_empty() {
            return Ok(name);
        }
        if prefix.is_empty() {
            let why = "name or generateName is required";
            call.refuse("", vec![FieldError::required("metadata.name", why)])?;
        }
        // The API server cuts the prefix so that the name stays a label.
        let prefix: String = prefix.chars().take(58).collect();
        let mut name = String::new();
        for _draw in 0..NAME_DRAWS {
            name = format!("{prefix}{}", self.identity.suffix());
            if self.store.get(call.storage(), call.namespace, &name).is_none() {
                break;
            }
        }
        metadata_of(object).insert("name".to_owned(), json!(name));
        Ok(name)
    }

    /// Sets what the server decides about every new object.
    fn initialise(&mut self, call: &Call<'_>, object: &mut Value) {
        defaults::initial_status(&call.def, object);
        let uid = self.identity.uid();
        let metadata = metadata_of(object);
        metadata.remove("resourceVersion");
        metadata.insert("uid".to_owned(), json!(uid));
        metadata.insert("creationTimestamp".to_owned(), json!(stamp(call.writer.now)));
        if call.def.generation {
            metadata.insert("generation".to_owned(), json!(1));
        }
        defaults::with_identity(&call.def.resource, object, &mut || self.identity.address());
    }

    /// Creates the namespaces that every cluster has from its first second.
    pub fn bootstrap(&mut self, now: jiff::Timestamp) {
        let writer = super::Writer { manager: "kube-apiserver", now };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            if self.store.get(&NAMESPACES, "", name).is_none() {
                let created =
                    self.create(writer, &NAMESPACES, "", json!({"metadata": {"name": name}}));
                debug_assert!(created.is_ok(), "a fixed, valid object: {created:?}");
            }
        }
    }
}

/// The metadata of a decoded object.
pub(super) fn metadata_of(object: &mut Value) -> &mut serde_json::Map<String, Value> {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    match &mut object["metadata"] {
        Value::Object(map) => map,
        _ => unreachable!("made an object above"),
    }
}

/// `400` for a body that names another object than the URL.
pub(super) fn wrong_name(body: &str, url: &str) -> ApiError {
    ApiError::bad_request(format!(
        "the name of the object ({body}) does not match the name on the URL ({url})"
    ))
}
