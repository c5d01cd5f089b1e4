//! Deleting objects: preconditions, finalizers, propagation, grace periods, collections.

use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::ApiServer;
use super::call::Call;
use super::create::metadata_of;
use super::identity::stamp;
use super::request::DeleteOptions;
use crate::Resource;
use crate::api::admission::{self, Deed};
use crate::api::error::{ApiError, FieldError};
use crate::resource::{
    JOBS, NAMESPACES, PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, PODS, RESOURCEQUOTAS,
    SERVICEACCOUNTS, SERVICES,
};

/// The finalizer of an object that waits for its dependents.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents are to be set free.
pub(crate) const ORPHAN: &str = "orphan";

/// Namespaces that cannot be deleted.
const UNDELETABLE: [&str; 3] = ["default", "kube-public", "kube-system"];

/// What a deletion did.
#[derive(Debug)]
pub(super) enum Deletion {
    /// The object is gone; this was its last state.
    Gone(Arc<Value>),
    /// The object stays until something lets go of it.
    Pending(Arc<Value>),
}

impl ApiServer {
    /// DELETE of an object.
    pub(super) fn delete_object(
        &mut self,
        call: &Call<'_>,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deletion, ApiError> {
        check_options(options)?;
        let old = self.expect(call, name)?;
        check_preconditions(call, name, &old, options)?;
        let deed = Deed { operation: "DELETE", name, object: &Value::Null, old: &old };
        admission::validate(self, call, deed)?;
        if *call.resource() == NAMESPACES {
            return self.delete_namespace(call, name, &old, options);
        }
        // Clients that do not say what becomes of a job's pods leave them behind.
        let propagation = options.propagation.as_deref().or_else(|| {
            (*call.resource() == JOBS && !call.trusted && !holds_dependents(&old))
                .then_some("Orphan")
        });
        let finalizers = finalizers_after(&old, propagation);
        let marked = !old["metadata"]["deletionTimestamp"].is_null();
        let was = old["metadata"]["deletionGracePeriodSeconds"].as_i64();
        // A second deletion that names no period leaves the first one's.
        let wanted = options.grace_seconds.or(if marked { was } else { None });
        let grace = grace_seconds(call.resource(), &old, wanted);
        let at_once = finalizers.is_empty() && grace == 0;
        // Pods may take time to end, so even those that take none are marked first.
        if at_once && *call.resource() != PODS {
            return Ok(Deletion::Gone(if call.dry_run {
                old
            } else {
                self.remove_object(call, name).unwrap_or(old)
            }));
        }
        if !at_once
            && marked
            && finalizers == current_finalizers(&old)
            && was.is_none_or(|was| was <= grace)
        {
            return Ok(Deletion::Pending(old));
        }
        let mut new = (*old).clone();
        let since = if marked { was.unwrap_or_default() } else { 0 };
        let metadata = metadata_of(&mut new);
        metadata.insert("finalizers".to_owned(), json!(finalizers));
        if finalizers.is_empty() {
            metadata.remove("finalizers");
        }
        if !marked || was.is_some_and(|was| grace < was) {
            let end = match (marked, old["metadata"]["deletionTimestamp"].as_str()) {
                (true, Some(end)) => end
                    .parse::<jiff::Timestamp>()
                    .ok()
                    .and_then(|end| end.checked_sub(SignedDuration::from_secs(since - grace)).ok())
                    .unwrap_or(call.writer.now),
                _ => call
                    .writer
                    .now
                    .checked_add(SignedDuration::from_secs(grace))
                    .unwrap_or(call.writer.now),
            };
            metadata.insert("deletionTimestamp".to_owned(), json!(stamp(end)));
            metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
        }
        if !marked && let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
            metadata.insert("generation".to_owned(), json!(generation + 1));
        }
        let marked = if new == *old { old } else { self.commit(call, name, new) };
        if at_once {
            let last = (!call.dry_run).then(|| self.remove_object(call, name)).flatten();
            return Ok(Deletion::Gone(last.unwrap_or(marked)));
        }
        Ok(Deletion::Pending(marked))
    }

    /// DELETE of a collection; `targets` are namespaces and names.
    pub(super) fn delete_objects(
        &mut self,
        call: &Call<'_>,
        targets: &[(String, String)],
        options: &DeleteOptions,
    ) -> Result<Arc<Value>, ApiError> {
        check_options(options)?;
        let mut items = Vec::new();
        for (namespace, name) in targets {
            let one = Call {
                writer: call.writer,
                user: call.user,
                def: Arc::clone(&call.def),
                namespace,
                subresource: "",
                validation: call.validation,
                dry_run: call.dry_run,
                force: call.force,
                trusted: call.trusted,
                warnings: Vec::new(),
            };
            // The answer shows the objects as they were found.
            let Some(object) = self.load(&one, name) else { continue };
            match self.delete_object(&one, name, options) {
                Ok(_) => {
                    let mut item = (*object).clone();
                    // Lists of built-in kinds say what they are only once.
                    if call.def.custom.is_none()
                        && let Some(item) = item.as_object_mut()
                    {
                        item.retain(|key, _value| key != "apiVersion" && key != "kind");
                    }
                    items.push(item);
                }
                // Somebody else was faster.
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let mut metadata = json!({"resourceVersion": self.store.revision().to_string()});
        if call.def.custom.is_some() {
            metadata["continue"] = json!("");
        }
        Ok(Arc::new(json!({
            "apiVersion": call.def.api_version(),
            "kind": call.def.list_kind,
            "metadata": metadata,
            "items": items,
        })))
    }

    fn delete_namespace(
        &mut self,
        call: &Call<'_>,
        name: &str,
        old: &Arc<Value>,
        options: &DeleteOptions,
    ) -> Result<Deletion, ApiError> {
        if UNDELETABLE.contains(&name) {
            let why = "this namespace may not be deleted";
            return Err(ApiError::forbidden(call.resource(), name, why));
        }
        let held = |object: &Value| {
            let some = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
            some(&object["spec"]["finalizers"]) || some(&object["metadata"]["finalizers"])
        };
        if !old["metadata"]["deletionTimestamp"].is_null() {
            return Ok(if held(old) {
                Deletion::Pending(Arc::clone(old))
            } else {
                Deletion::Gone(self.remove_object(call, name).unwrap_or_else(|| Arc::clone(old)))
            });
        }
        let mut new = (**old).clone();
        let finalizers = finalizers_after(old, options.propagation.as_deref());
        let metadata = metadata_of(&mut new);
        metadata.insert("deletionTimestamp".to_owned(), json!(stamp(call.writer.now)));
        if !finalizers.is_empty() {
            metadata.insert("finalizers".to_owned(), json!(finalizers));
        }
        new["status"] = json!({"phase": "Terminating"});
        if !held(&new) {
            return Ok(Deletion::Gone(
                self.remove_object(call, name).unwrap_or_else(|| Arc::clone(old)),
            ));
        }
        Ok(Deletion::Pending(self.commit(call, name, new)))
    }

    /// The answer to a DELETE: the object, or for most kinds that are gone at once, a `Status`.
    pub(super) fn deletion_answer(call: &Call<'_>, name: &str, deletion: Deletion) -> Arc<Value> {
        let object = match deletion {
            Deletion::Pending(object) => return object,
            Deletion::Gone(object) => object,
        };
        const RETURNED: [&Resource; 6] = [
            &PERSISTENTVOLUMECLAIMS,
            &PERSISTENTVOLUMES,
            &PODS,
            &RESOURCEQUOTAS,
            &SERVICEACCOUNTS,
            &SERVICES,
        ];
        let resource = call.resource();
        if RETURNED.contains(&resource) {
            return object;
        }
        let mut details = ApiError::object_details(name, &resource.group, &resource.plural);
        details["uid"] = object["metadata"]["uid"].clone();
        Arc::new(json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": details,
        }))
    }
}

fn check_options(options: &DeleteOptions) -> Result<(), ApiError> {
    match options.propagation.as_deref() {
        None | Some("Foreground" | "Background" | "Orphan") => Ok(()),
        Some(other) => Err(ApiError::invalid(
            "meta.k8s.io",
            "DeleteOptions",
            "",
            vec![FieldError::unsupported(
                "propagationPolicy",
                other,
                &["Foreground", "Background", "Orphan", "nil"],
            )],
        )),
    }
}

fn check_preconditions(
    call: &Call<'_>,
    name: &str,
    old: &Value,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    // The real server names the kind here, not the resource.
    let kind = Resource::dynamic(call.resource().group.clone(), call.def.kind.clone());
    let metadata = &old["metadata"];
    let pairs = [
        (&options.uid, "uid", "UID", "deleted and then recreated"),
        (&options.resource_version, "resourceVersion", "ResourceVersion", "modified"),
    ];
    for (wanted, key, title, what) in pairs {
        let actual = metadata[key].as_str().unwrap_or_default();
        if let Some(wanted) = wanted
            && wanted != actual
        {
            return Err(ApiError::conflict_on(
                &kind,
                name,
                &format!(
                    "the {title} in the precondition ({wanted}) does not match the {title} in record ({actual}). \
                     The object might have been {what}"
                ),
            ));
        }
    }
    Ok(())
}

fn current_finalizers(object: &Value) -> Vec<String> {
    object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// Whether a finalizer says already what becomes of the object's dependents.
fn holds_dependents(object: &Value) -> bool {
    current_finalizers(object).iter().any(|name| name == FOREGROUND || name == ORPHAN)
}

/// The finalizers that hold the object after a deletion with this propagation.
fn finalizers_after(object: &Value, propagation: Option<&str>) -> Vec<String> {
    let mut finalizers = current_finalizers(object);
    let Some(propagation) = propagation else { return finalizers };
    let wanted = match propagation {
        "Foreground" => Some(FOREGROUND),
        "Orphan" => Some(ORPHAN),
        _ => None,
    };
    finalizers
        .retain(|name| (name != FOREGROUND && name != ORPHAN) || Some(name.as_str()) == wanted);
    if let Some(wanted) = wanted
        && !finalizers.iter().any(|name| name == wanted)
    {
        finalizers.push(wanted.to_owned());
    }
    finalizers
}

/// How long the object may live on: only pods on a node have time to end.
fn grace_seconds(resource: &Resource, object: &Value, wanted: Option<i64>) -> i64 {
    if *resource != PODS {
        return 0;
    }
    let unscheduled = object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if unscheduled || ended {
        return 0;
    }
    let default = || object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    // A negative period stands for the shortest one.
    match wanted.unwrap_or_else(default) {
        seconds if seconds < 0 => 1,
        seconds => seconds,
    }
}
