//! The API server's operations on objects: the one write path that all callers share.
//!
//! HTTP requests and the controllers inside the cluster both end here, so that admission, generation,
//! finalizers and managed fields cannot be bypassed.

mod request;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::error::ApiError;
use super::patch;
use super::registry::Registry;
use super::store::Store;
use crate::Resource;
pub use request::{
    DeleteOptions, FieldValidation, PatchType, WriteOptions, WriteRequest, WriteResponse,
    WriteVerb, Writer,
};

/// The API server.
#[derive(Debug, Default)]
pub struct ApiServer {
    /// The objects.
    pub store: Store,
    /// The served resources.
    pub registry: Registry,
    next_uid: u64,
}

impl ApiServer {
    /// The object, if it exists.
    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.store.get(resource, namespace, name).cloned()
    }

    /// All objects of a resource, ordered by namespace and name.
    pub fn list(&self, resource: &Resource) -> Vec<Arc<Value>> {
        self.store.list(resource).cloned().collect()
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
        let writer = Writer { manager: &request.options.field_manager, now };
        let (resource, namespace) = (&request.resource, request.namespace.as_str());
        let mut code = 200;
        let object = match &request.verb {
            WriteVerb::Create => {
                code = 201;
                self.create(writer, resource, namespace, request.body.clone())?
            }
            WriteVerb::Update => self.replace(
                writer,
                resource,
                namespace,
                request.body.clone(),
                request.subresource == "status",
            )?,
            WriteVerb::Patch(kind) => {
                let def = self
                    .registry
                    .get(resource)
                    .cloned()
                    .ok_or_else(|| ApiError::not_found(resource, &request.name))?;
                let old = self.expect(resource, namespace, &request.name)?;
                let new = match kind {
                    PatchType::Json => patch::json(&old, &request.body)?,
                    PatchType::Merge | PatchType::Apply => {
                        let mut new = old;
                        json_patch::merge(&mut new, &request.body);
                        new
                    }
                    PatchType::Strategic => patch::strategic(&def, &old, &request.body)?,
                };
                self.replace(writer, resource, namespace, new, request.subresource == "status")?
            }
            WriteVerb::Delete => {
                let options = DeleteOptions::from_value(&request.body);
                self.delete(writer, resource, namespace, &request.name, &options)?
            }
            WriteVerb::DeleteCollection(targets) => {
                let options = DeleteOptions::from_value(&request.body);
                for (namespace, name) in targets {
                    self.delete(writer, resource, namespace, name, &options)?;
                }
                Arc::new(json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
        };
        Ok(WriteResponse { code, object, warnings: Vec::new() })
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
        mut object: Value,
    ) -> Result<Arc<Value>, ApiError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if self.store.get(resource, namespace, &name).is_some() {
            return Err(ApiError::already_exists(resource, &name));
        }
        self.next_uid += 1;
        let metadata = &mut object["metadata"];
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }
        metadata["uid"] = json!(format!("00000000-0000-4000-8000-{:012x}", self.next_uid));
        metadata["creationTimestamp"] =
            json!(writer.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        metadata["generation"] = json!(1);
        Ok(self.store.put(resource, namespace, &name, object))
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
        self.replace(writer, resource, namespace, object, false)
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
        self.replace(writer, resource, namespace, object, true)
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
        let mut object = self.expect(resource, namespace, name)?;
        json_patch::merge(&mut object, patch);
        self.replace(writer, resource, namespace, object, false)
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
        let mut object = self.expect(resource, namespace, name)?;
        json_patch::merge(&mut object, patch);
        self.replace(writer, resource, namespace, object, true)
    }

    /// Deletes an object, or marks it for deletion if finalizers or a grace period hold it.
    ///
    /// # Errors
    /// As the real API server answers a DELETE.
    pub fn delete(
        &mut self,
        _writer: Writer<'_>,
        resource: &Resource,
        namespace: &str,
        name: &str,
        _options: &DeleteOptions,
    ) -> Result<Arc<Value>, ApiError> {
        self.store
            .remove(resource, namespace, name)
            .ok_or_else(|| ApiError::not_found(resource, name))
    }

    fn expect(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Value, ApiError> {
        self.store
            .get(resource, namespace, name)
            .map(|object| (**object).clone())
            .ok_or_else(|| ApiError::not_found(resource, name))
    }

    fn replace(
        &mut self,
        _writer: Writer<'_>,
        resource: &Resource,
        namespace: &str,
        mut object: Value,
        status: bool,
    ) -> Result<Arc<Value>, ApiError> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let old = self.expect(resource, namespace, &name)?;
        let version = &object["metadata"]["resourceVersion"];
        if version.is_string() && *version != old["metadata"]["resourceVersion"] {
            return Err(ApiError::conflict(resource, &name));
        }
        if status {
            let new_status = object["status"].take();
            object = old.clone();
            object["status"] = new_status;
        } else {
            object["metadata"]["generation"] = old["metadata"]["generation"].clone();
            if object["spec"] != old["spec"] {
                object["metadata"]["generation"] =
                    json!(old["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
            }
        }
        object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        if object == old {
            return Ok(Arc::new(old));
        }
        Ok(self.store.put(resource, namespace, &name, object))
    }
}
