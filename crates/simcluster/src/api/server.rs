//! The API server's operations on objects: the one write path that all callers share.
//!
//! HTTP requests and the controllers inside the cluster both end here, so that admission, generation,
//! finalizers and managed fields cannot be bypassed.
//!
//! A write goes through: decode (shape, unknown fields), defaults, managed fields, admission, what
//! only the server decides, validation, and then the store.

mod call;
mod commit;
mod create;
mod delete;
mod identity;
mod patch;
mod pod;
mod request;
mod scale;
mod update;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::canonical::canonical;
use super::error::ApiError;
use super::registry::{self, Registry, ResourceDef};
use super::store::{Backup, Event, Store};
use crate::Resource;
use crate::resource::{CRDS, NAMESPACES, PODS};
pub(crate) use call::Call;
use commit::{served, storage};
use delete::Deletion;
pub(crate) use delete::{FOREGROUND, ORPHAN};
pub use identity::Identity;
pub use request::{
    DeleteOptions, FieldValidation, PatchType, WriteOptions, WriteRequest, WriteResponse,
    WriteVerb, Writer,
};
pub use scale::scale_of;
pub(crate) use update::creates_on_update;

/// The API server.
#[derive(Debug, Default)]
pub struct ApiServer {
    /// The objects.
    pub store: Store,
    /// The served resources.
    pub registry: Registry,
    identity: Identity,
    /// What a CustomResourceDefinition that is about to be stored defines.
    parsed: Option<ResourceDef>,
}

impl ApiServer {
    /// A server that goes on with stored objects; their definitions must be in the registry.
    pub(crate) fn restored(store: Store, registry: Registry, identity: Identity) -> Self {
        Self { store, registry, identity, parsed: None }
    }

    /// Goes back to a backup of the store, with the resources that it defines. Returns how objects differ from
    /// before.
    pub(crate) fn restore(&mut self, backup: &Backup) -> Vec<Event> {
        let changes = self.store.restore(backup);
        let mut registry = Registry::default();
        for crd in self.store.list(&CRDS) {
            // Whatever is stored was parsed when it was written.
            if let Ok(def) = registry::definition(crd) {
                registry.insert(def);
            }
        }
        self.registry = registry;
        changes
    }

    /// What the next uids and generated names follow from.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The object, if it exists.
    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.store
            .get(storage(resource), namespace, name)
            .map(|object| served(resource, Arc::clone(object)))
    }

    /// All objects of a resource, ordered by namespace and name.
    pub fn list(&self, resource: &Resource) -> Vec<Arc<Value>> {
        self.store
            .list(storage(resource))
            .map(|object| served(resource, Arc::clone(object)))
            .collect()
    }

    /// Does what `request` asks for.
    ///
    /// # Errors
    /// As the real API server answers the request.
    pub fn write(
        &mut self,
        now: Timestamp,
        request: &WriteRequest,
    ) -> Result<WriteResponse, ApiError> {
        let def =
            self.registry.get(&request.resource).cloned().ok_or_else(ApiError::unknown_resource)?;
        if !def.namespaced && !request.namespace.is_empty() {
            return Err(ApiError::unknown_resource());
        }
        let options = &request.options;
        let mut call = Call {
            writer: Writer { manager: &options.field_manager, now },
            user: request.user.as_ref(),
            def,
            namespace: &request.namespace,
            subresource: &request.subresource,
            validation: options.field_validation,
            dry_run: options.dry_run,
            force: options.force,
            trusted: false,
            warnings: Vec::new(),
        };
        let (code, object) = self.dispatch(&mut call, request)?;
        Ok(WriteResponse { code, object, warnings: call.warnings })
    }

    fn dispatch(
        &mut self,
        call: &mut Call<'_>,
        request: &WriteRequest,
    ) -> Result<(u16, Arc<Value>), ApiError> {
        let WriteRequest { name, body, .. } = request;
        let pods = *call.resource() == PODS;
        let namespaces = *call.resource() == NAMESPACES;
        match (request.subresource.as_str(), &request.verb) {
            ("", WriteVerb::Create) => {
                Ok((201, self.create_object(call, name, body.clone(), false)?))
            }
            ("", WriteVerb::Update) => self.put_object(call, name, body.clone()),
            ("", WriteVerb::Patch(kind)) => self.patch_object(call, name, *kind, body),
            ("", WriteVerb::Delete) => {
                call.dry_run |= body["dryRun"].as_array().is_some_and(|all| !all.is_empty());
                let deletion = self.delete_object(call, name, &DeleteOptions::from_value(body))?;
                Ok((200, Self::deletion_answer(call, name, deletion)))
            }
            ("", WriteVerb::DeleteCollection(targets)) => {
                call.dry_run |= body["dryRun"].as_array().is_some_and(|all| !all.is_empty());
                let options = DeleteOptions::from_value(body);
                Ok((200, self.delete_objects(call, targets, &options)?))
            }
            ("status", verb) if call.def.status => match verb {
                WriteVerb::Update => self.put_object(call, name, body.clone()),
                WriteVerb::Patch(kind) => self.patch_object(call, name, *kind, body),
                _ => Err(wrong_method()),
            },
            ("scale", verb) if call.def.scale.is_some() => match verb {
                WriteVerb::Update | WriteVerb::Patch(_) => {
                    Ok((200, self.write_scale(call, name, verb, body)?))
                }
                _ => Err(wrong_method()),
            },
            ("binding", WriteVerb::Create) if pods => Ok((201, self.bind_pod(call, name, body)?)),
            ("eviction", WriteVerb::Create) if pods => Ok((201, self.evict_pod(call, name, body)?)),
            ("finalize", WriteVerb::Update) if namespaces => {
                Ok((200, self.finalize_namespace(call, name, body)?))
            }
            ("binding" | "eviction", _) if pods => Err(wrong_method()),
            ("finalize", _) if namespaces => Err(wrong_method()),
            _ => Err(ApiError::unknown_resource()),
        }
    }

    fn inside<'a>(
        &self,
        writer: Writer<'a>,
        resource: &Resource,
        namespace: &'a str,
        subresource: &'a str,
    ) -> Result<Call<'a>, ApiError> {
        let def = self.registry.get(resource).cloned().ok_or_else(ApiError::unknown_resource)?;
        Ok(Call::inside(writer, def, namespace, subresource))
    }

    /// Creates an object; `namespace` is empty for cluster-scoped ones.
    ///
    /// # Errors
    /// As the real API server answers a POST.
    pub fn create(
        &mut self,
        writer: Writer<'_>,
        resource: &Resource,
        namespace: &str,
        object: Value,
    ) -> Result<Arc<Value>, ApiError> {
        let mut call = self.inside(writer, resource, namespace, "")?;
        self.create_object(&mut call, "", canonical(object), false)
    }

    /// Replaces an object's main part (everything but status, if it has a status subresource).
    ///
    /// A `metadata.resourceVersion` in `object` is a precondition.
    ///
    /// # Errors
    /// As the real API server answers a PUT.
    pub fn update(
        &mut self,
        writer: Writer<'_>,
        resource: &Resource,
        namespace: &str,
        object: Value,
    ) -> Result<Arc<Value>, ApiError> {
        let mut call = self.inside(writer, resource, namespace, "")?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(self.put_object(&mut call, &name, object)?.1)
    }

    /// Replaces an object's status.
    ///
    /// # Errors
    /// As the real API server answers a PUT of the status subresource.
    pub fn update_status(
        &mut self,
        writer: Writer<'_>,
        resource: &Resource,
        namespace: &str,
        object: Value,
    ) -> Result<Arc<Value>, ApiError> {
        let mut call = self.inside(writer, resource, namespace, "status")?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(self.put_object(&mut call, &name, object)?.1)
    }

    /// Merges `patch` (RFC 7386) into the object's main part.
    ///
    /// # Errors
    /// As the real API server answers a merge PATCH.
    pub fn merge(
        &mut self,
        writer: Writer<'_>,
        resource: &Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Arc<Value>, ApiError> {
        let mut call = self.inside(writer, resource, namespace, "")?;
        Ok(self.patch_object(&mut call, name, PatchType::Merge, &canonical(patch.clone()))?.1)
    }

    /// Merges `patch` (RFC 7386), an object with a `status`, into the object's status.
    ///
    /// # Errors
    /// As the real API server answers a merge PATCH of the status subresource.
    pub fn merge_status(
        &mut self,
        writer: Writer<'_>,
        resource: &Resource,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Arc<Value>, ApiError> {
        let mut call = self.inside(writer, resource, namespace, "status")?;
        Ok(self.patch_object(&mut call, name, PatchType::Merge, patch)?.1)
    }

    /// Deletes an object, or marks it for deletion if finalizers or a grace period hold it; returns
    /// its last state.
    ///
    /// # Errors
    /// As the real API server answers a DELETE.
    pub fn delete(
        &mut self,
        writer: Writer<'_>,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Arc<Value>, ApiError> {
        let call = self.inside(writer, resource, namespace, "")?;
        match self.delete_object(&call, name, options)? {
            Deletion::Gone(object) | Deletion::Pending(object) => Ok(object),
        }
    }

    /// Sets a namespace's own finalizers, as a PUT of `namespaces/finalize` does.
    ///
    /// # Errors
    /// As the real API server answers that PUT.
    pub fn finalize(
        &mut self,
        writer: Writer<'_>,
        name: &str,
        finalizers: &[&str],
    ) -> Result<Arc<Value>, ApiError> {
        let mut call = self.inside(writer, &NAMESPACES, "", "finalize")?;
        let body = json!({"spec": {"finalizers": finalizers}});
        self.finalize_namespace(&mut call, name, &body)
    }
}

fn wrong_method() -> ApiError {
    ApiError::method_not_allowed("the server does not allow this method on the requested resource")
}
