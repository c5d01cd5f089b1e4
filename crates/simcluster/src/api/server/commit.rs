//! The last step of every write: the store, and what is served after it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::ApiServer;
use super::call::Call;
use super::update::Source;
use crate::Resource;
use crate::api::error::ApiError;
use crate::api::registry::ResourceDef;
use crate::api::{events, registry};
use crate::resource::{CRDS, EVENTS, EVENTS_V1};

impl ApiServer {
    /// The stored object in the form of the request's resource.
    pub(super) fn load(&self, call: &Call<'_>, name: &str) -> Option<Arc<Value>> {
        self.store
            .get(call.storage(), call.namespace, name)
            .map(|object| served(call.resource(), Arc::clone(object)))
    }

    /// The stored object, or `404`.
    pub(super) fn expect(&self, call: &Call<'_>, name: &str) -> Result<Arc<Value>, ApiError> {
        self.load(call, name).ok_or_else(|| ApiError::not_found(call.resource(), name))
    }

    /// Stores the object, unless nothing may be written.
    pub(super) fn commit(&mut self, call: &Call<'_>, name: &str, object: Value) -> Arc<Value> {
        if call.dry_run {
            return Arc::new(object);
        }
        let object = stored_form(call.resource(), object);
        let stored = self.store.put(call.storage(), call.namespace, name, object);
        if *call.resource() == CRDS
            && let Some(def) = self.parsed.take()
        {
            // A real API server stores the objects as they were written, and prunes and defaults them each time that
            // it reads them.
            if let Some(custom) = &def.custom {
                self.store.reread(&def.resource, |object| {
                    custom.schema.prune(object);
                    custom.schema.default(object);
                });
            }
            self.registry.insert(def);
        }
        served(call.resource(), stored)
    }

    /// Removes the object from the store.
    pub(super) fn remove_object(&mut self, call: &Call<'_>, name: &str) -> Option<Arc<Value>> {
        if call.dry_run {
            return self.load(call, name);
        }
        let last = self.store.remove(call.storage(), call.namespace, name)?;
        if *call.resource() == CRDS {
            self.parsed = None;
            self.registry.remove(&registry::defined_resource(&last));
        }
        Some(served(call.resource(), last))
    }

    /// Reads the definition in a CustomResourceDefinition, which is about to be stored, and notes in
    /// its status that it is established.
    pub(super) fn check_definition(
        &mut self,
        call: &Call<'_>,
        name: &str,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        if *call.resource() != CRDS {
            return Ok(());
        }
        let def: ResourceDef = match registry::definition(object) {
            Ok(def) => def,
            Err(errors) => return call.refuse(name, errors),
        };
        registry::establish(object, &def, call.writer.now);
        self.parsed = (!call.dry_run).then_some(def);
        Ok(())
    }

    /// PUT of `namespaces/finalize`: sets the namespace's own finalizers; without any, a deleted
    /// namespace is gone.
    pub(super) fn finalize_namespace(
        &mut self,
        call: &mut Call<'_>,
        name: &str,
        body: &Value,
    ) -> Result<Arc<Value>, ApiError> {
        let old = self.expect(call, name)?;
        let mut new = (*old).clone();
        let version = &body["metadata"]["resourceVersion"];
        if !version.is_null() {
            new["metadata"]["resourceVersion"] = version.clone();
        }
        if !new["spec"].is_object() {
            new["spec"] = json!({});
        }
        match body["spec"]["finalizers"].as_array() {
            Some(finalizers) if !finalizers.is_empty() => {
                new["spec"]["finalizers"] = json!(finalizers);
            }
            _ => {
                if let Some(spec) = new["spec"].as_object_mut() {
                    spec.remove("finalizers");
                }
            }
        }
        self.replace_object(call, &old, new, Source::Put)
    }
}

/// The resource under which objects of `resource` are stored: both kinds of Event share one table.
pub(super) fn storage(resource: &Resource) -> &Resource {
    const STORED: &Resource = &EVENTS;
    if *resource == EVENTS_V1 { STORED } else { resource }
}

/// A stored object as `resource` shows it.
pub(super) fn served(resource: &Resource, object: Arc<Value>) -> Arc<Value> {
    if *resource == EVENTS_V1 { Arc::new(events::from_core(&object)) } else { object }
}

fn stored_form(resource: &Resource, object: Value) -> Value {
    if *resource == EVENTS_V1 { events::to_core(&object) } else { object }
}
