//! Changing objects: what every PUT and every PATCH goes through once the new object is known.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::ApiServer;
use super::call::Call;
use super::create::{metadata_of, wrong_name};
use crate::api::admission::{self, Deed};
use crate::api::error::{ApiError, FieldError};
use crate::api::registry::ResourceDef;
use crate::api::{defaults, fields, validation};
use crate::resource::{
    CRDS, DAEMONSETS, DEPLOYMENTS, ENDPOINTS, EVENTS, EVENTS_V1, LEASES, PRIORITYCLASSES, SERVICES,
};

/// Where the new object of a change comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    /// The client sent it whole.
    Put,
    /// It is the stored object with a patch.
    Patch(&'a Value),
    /// It is the result of server-side apply, managed fields included.
    Apply,
}

impl ApiServer {
    /// PUT of an object or its status.
    pub(super) fn put_object(
        &mut self,
        call: &mut Call<'_>,
        name: &str,
        mut object: Value,
    ) -> Result<(u16, Arc<Value>), ApiError> {
        call.decode(&mut object, None)?;
        let metadata = metadata_of(&mut object);
        match metadata.get("name").and_then(Value::as_str) {
            Some(given) if given == name => {}
            None | Some("") => {
                return Err(ApiError::bad_request(format!(
                    "the name of the object ( based on URL {name}) was undeterminable: name must be provided"
                )));
            }
            Some(given) => return Err(wrong_name(given, name)),
        }
        match metadata.get("namespace").and_then(Value::as_str) {
            None | Some("") => {
                if !call.namespace.is_empty() {
                    metadata.insert("namespace".to_owned(), json!(call.namespace));
                }
            }
            Some(given) if given == call.namespace => {}
            Some(given) => {
                return Err(ApiError::bad_request(format!(
                    "the namespace of the object ({given}) does not match the namespace on the URL ({})",
                    call.namespace
                )));
            }
        }
        let Some(old) = self.load(call, name) else {
            if call.subresource.is_empty() && creates_on_update(&call.def) {
                if let Some(uid) = object["metadata"]["uid"].as_str().filter(|uid| !uid.is_empty())
                {
                    return Err(other_uid(call, name, uid, ""));
                }
                let version = metadata_of(&mut object).remove("resourceVersion");
                let mut created = self.create_object(call, name, object, false)?;
                // A dry run shows the version that was sent.
                if let Some(version) = version.filter(|_version| call.dry_run) {
                    metadata_of(Arc::make_mut(&mut created))
                        .insert("resourceVersion".to_owned(), version);
                }
                return Ok((201, created));
            }
            return Err(ApiError::not_found(call.resource(), name));
        };
        let object = self.replace_object(call, &old, object, Source::Put)?;
        Ok((200, object))
    }

    /// Makes `new` the stored object in place of `old`, or nothing if they say the same.
    pub(super) fn replace_object(
        &mut self,
        call: &mut Call<'_>,
        old: &Arc<Value>,
        mut new: Value,
        source: Source<'_>,
    ) -> Result<Arc<Value>, ApiError> {
        let name = old["metadata"]["name"].as_str().unwrap_or_default();
        match source {
            // Decoded with its own errors already.
            Source::Put => {}
            Source::Patch(patch) => call.decode(&mut new, Some(patch))?,
            Source::Apply => call.decode(&mut new, None)?,
        }
        check_preconditions(call, name, old, &new, source)?;
        defaults::times(&call.def.resource, &mut new);
        let fixed = carry_metadata(old, &mut new);
        if call.subresource == "status" {
            keep_only_status(&call.def, old, &mut new);
        } else {
            if call.def.status {
                restore(&mut new, old, "status");
            }
            defaults::apply(&call.def.resource, &mut new);
        }
        let main = call.subresource.is_empty();
        if call.def.resource == DAEMONSETS && main {
            defaults::uncounted_template(&mut new);
        }
        if fixed.is_empty() && same(old, &new, true) {
            return Ok(Arc::clone(old));
        }
        if call.def.generation && call.subresource != "status" && differs(&call.def, old, &new) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
            metadata_of(&mut new).insert("generation".to_owned(), json!(generation));
        }
        if !matches!(source, Source::Apply) {
            fields::track_update(Some(old), &mut new, call.field_writer());
            // What the server puts back has no owner.
            if main {
                defaults::carry_over(&call.def.resource, old, &mut new);
            }
            if fixed.is_empty() && same(old, &new, false) {
                return Ok(Arc::clone(old));
            }
        }
        if call.def.resource == DAEMONSETS && main {
            defaults::count_template(old, &mut new);
        }
        let mut errors = Vec::new();
        if call.subresource != "status" || !resets_metadata(&call.def) {
            // The rules for all objects and those of the kind both ask what may change.
            errors = fixed;
            errors.extend(validation::metadata_update(old, &new));
            errors.extend(errors.clone());
            errors.extend(validation::metadata(&call.def, &new));
        }
        if call.subresource == "status" {
            errors.extend(validation::status(&call.def, &new));
        }
        if call.subresource.is_empty() {
            errors.extend(validation::object(&call.def, &new));
            errors.extend(validation::update(call, old, &new));
        }
        if let Some(custom) = &call.def.custom {
            errors.extend(custom.schema.validate(&new, Some(old)));
        }
        call.refuse(name, errors)?;
        admission::validate(self, call, Deed { operation: "UPDATE", name, object: &new, old })?;
        self.check_definition(call, name, &mut new)?;
        if !call.dry_run && released(old, &new) {
            let key = name.to_owned();
            self.remove_object(call, &key);
            return Ok(Arc::new(new));
        }
        let key = name.to_owned();
        Ok(self.commit(call, &key, new))
    }
}

/// Whether PUT of an object that does not exist creates it.
pub(crate) fn creates_on_update(def: &ResourceDef) -> bool {
    [ENDPOINTS, EVENTS, EVENTS_V1, LEASES, SERVICES].contains(&def.resource)
        || def.resource.group == "rbac.authorization.k8s.io"
}

/// Whether PUT without a resourceVersion is refused.
fn needs_version(def: &ResourceDef) -> bool {
    const KINDS: [&str; 9] = [
        "CSIDriver",
        "CSINode",
        "CustomResourceDefinition",
        "Lease",
        "MutatingWebhookConfiguration",
        "PodDisruptionBudget",
        "RuntimeClass",
        "ValidatingAdmissionPolicy",
        "ValidatingWebhookConfiguration",
    ];
    def.custom.is_some() || KINDS.contains(&def.kind.as_ref())
}

fn check_preconditions(
    call: &Call<'_>,
    name: &str,
    old: &Value,
    new: &Value,
    source: Source<'_>,
) -> Result<(), ApiError> {
    let (was, is) = (&old["metadata"], &new["metadata"]);
    if is["name"] != was["name"] && !matches!(source, Source::Put) {
        return Err(wrong_name(is["name"].as_str().unwrap_or_default(), name));
    }
    // A patched object names its uid to validation only.
    if let Some(uid) = is["uid"].as_str().filter(|uid| !uid.is_empty())
        && was["uid"] != uid
        && matches!(source, Source::Put)
    {
        return Err(other_uid(call, name, uid, was["uid"].as_str().unwrap_or_default()));
    }
    match is["resourceVersion"].as_str().unwrap_or_default() {
        "" | "0" => {
            if matches!(source, Source::Put) && needs_version(&call.def) {
                let why = "must be specified for an update";
                let error = FieldError::invalid("metadata.resourceVersion", &json!(0), why);
                let resource = call.resource();
                // The store, which asks for it, knows resources and not kinds.
                return Err(ApiError::invalid(
                    &resource.group,
                    &resource.plural,
                    name,
                    vec![error],
                ));
            }
            Ok(())
        }
        version if was["resourceVersion"] == version => Ok(()),
        _ => Err(ApiError::conflict(call.resource(), name)),
    }
}

/// `409` for an object that is meant to have another uid than the stored one.
fn other_uid(call: &Call<'_>, name: &str, wanted: &str, stored: &str) -> ApiError {
    let resource = call.resource();
    let mut place = String::from("/registry/");
    if call.def.custom.is_some() {
        place.push_str(&resource.group);
        place.push('/');
    }
    place.push_str(&resource.plural);
    for part in [call.namespace, name].into_iter().filter(|part| !part.is_empty()) {
        place.push('/');
        place.push_str(part);
    }
    ApiError::conflict_on(
        resource,
        name,
        &format!(
            "StorageError: invalid object, Code: 4, Key: {place}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {wanted}, UID in object meta: {stored}"
        ),
    )
}

/// Sets the metadata that only the server may change to what is stored; says what the client tried.
fn carry_metadata(old: &Value, new: &mut Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (Value::Object(is), was) = (&mut new["metadata"], &old["metadata"]) else { return errors };
    for key in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let tried = is.get(key).filter(|value| **value != was[key] && *value != "");
        if let Some(value) = tried {
            errors.push(FieldError::invalid(
                format!("metadata.{key}"),
                value,
                "field is immutable",
            ));
        }
    }
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ] {
        match was.get(key) {
            Some(value) if is.get(key) == Some(value) => {}
            Some(value) => {
                is.insert(key.to_owned(), value.clone());
            }
            None => {
                is.remove(key);
            }
        }
    }
    errors
}

/// Undoes every change but those of the status and the managed fields.
fn keep_only_status(def: &ResourceDef, old: &Value, new: &mut Value) {
    if resets_metadata(def) {
        keep_metadata(old, new);
    } else if def.resource == DEPLOYMENTS {
        let labels = old["metadata"]["labels"].clone();
        let metadata = metadata_of(new);
        metadata.remove("labels");
        if !labels.is_null() {
            metadata.insert("labels".to_owned(), labels);
        }
    }
    let keys: Vec<String> = [old, &*new]
        .into_iter()
        .filter_map(Value::as_object)
        .flat_map(Map::keys)
        .filter(|key| *key != "metadata" && *key != "status")
        .cloned()
        .collect();
    for key in keys {
        restore(new, old, &key);
    }
}

/// Whether a write of the status leaves the metadata alone; most built-in kinds let it through.
fn resets_metadata(def: &ResourceDef) -> bool {
    def.custom.is_some() || def.resource == CRDS
}

/// Undoes every change of the metadata but that of the managed fields.
fn keep_metadata(old: &Value, new: &mut Value) {
    let managed = metadata_of(new).remove("managedFields");
    if !same_map(&old["metadata"], &new["metadata"], &["managedFields"]) {
        new["metadata"] = old["metadata"].clone();
    }
    let metadata = metadata_of(new);
    match managed {
        Some(managed) => {
            metadata.insert("managedFields".to_owned(), managed);
        }
        None => {
            metadata.remove("managedFields");
        }
    }
}

/// Makes a member of `new` what it is in `old`.
fn restore(new: &mut Value, old: &Value, key: &str) {
    let Value::Object(new) = new else { return };
    match old.get(key) {
        Some(value) if new.get(key) == Some(value) => {}
        Some(value) => {
            new.insert(key.to_owned(), value.clone());
        }
        None => {
            new.remove(key);
        }
    }
}

fn same_map(old: &Value, new: &Value, without: &[&str]) -> bool {
    let members = |value: &Value| -> usize {
        value
            .as_object()
            .map_or(0, |map| map.keys().filter(|key| !without.contains(&key.as_str())).count())
    };
    members(old) == members(new)
        && new.as_object().is_some_and(|map| {
            map.iter()
                .all(|(key, value)| without.contains(&key.as_str()) || old.get(key) == Some(value))
        })
}

/// Whether two states of an object say the same; the times in the managed fields do not count.
///
/// `unsent` says that managed fields that are missing in `new` stand for those of `old`.
fn same(old: &Value, new: &Value, unsent: bool) -> bool {
    if !same_map(&old["metadata"], &new["metadata"], &["managedFields"]) {
        return false;
    }
    if !same_map(old, new, &["metadata"]) {
        return false;
    }
    let (was, is) = (&old["metadata"]["managedFields"], &new["metadata"]["managedFields"]);
    if is.is_null() && unsent {
        return true;
    }
    match (was.as_array(), is.as_array()) {
        (Some(was), Some(is)) => {
            was.len() == is.len() && was.iter().zip(is).all(|(a, b)| same_map(a, b, &["time"]))
        }
        _ => was == is,
    }
}

/// Whether anything changed that counts as a new generation.
fn differs(def: &ResourceDef, old: &Value, new: &Value) -> bool {
    let without: &[&str] = if def.status { &["metadata", "status"] } else { &["metadata"] };
    // A class's value cannot change, and its other fields do not count.
    if def.resource == PRIORITYCLASSES {
        return false;
    }
    // Deployments count changed annotations too.
    if def.resource == DEPLOYMENTS
        && old["metadata"]["annotations"] != new["metadata"]["annotations"]
    {
        return true;
    }
    !same_map(old, new, without)
}

/// Whether the last thing that held a deleted object is gone.
fn released(old: &Value, new: &Value) -> bool {
    let metadata = &new["metadata"];
    let none = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
    !old["metadata"]["deletionTimestamp"].is_null()
        && none(&metadata["finalizers"])
        && (new["kind"] != "Namespace" || none(&new["spec"]["finalizers"]))
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default() == 0
}
