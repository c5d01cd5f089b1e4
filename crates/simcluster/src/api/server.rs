//! The API server's operations on objects: the one write path that all callers share.
//!
//! HTTP requests and the controllers inside the cluster both end here, so that admission, generation,
//! finalizers and managed fields cannot be bypassed.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::error::ApiError;
use super::registry::Registry;
use super::store::Store;
use crate::Resource;

/// Who writes, and when.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The field manager.
    pub manager: &'a str,
    /// The time of the request.
    pub now: Timestamp,
}

/// Options of a deletion.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// `Background` (default), `Foreground` or `Orphan`.
    pub propagation: Option<String>,
    /// Grace period in seconds; `None` means the object's default.
    pub grace_seconds: Option<i64>,
    /// Precondition on the uid.
    pub uid: Option<String>,
    /// Precondition on the resourceVersion.
    pub resource_version: Option<String>,
}

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
