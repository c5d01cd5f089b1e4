//! Deletes the instances of a CustomResourceDefinition that is being deleted, and then lets go of it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::registry::{CLEANUP, defined_resource};
use crate::api::server::DeleteOptions;
use crate::api::{Event, EventKind};
use crate::resource::CRDS;
use crate::{Context, Controller, Resource};

/// How long after a change the controller looks at a definition.
const DELAY: Duration = Duration::from_millis(250);

/// The controller that cleans up after CustomResourceDefinitions.
#[derive(Debug, Default)]
pub struct DefinitionCleanup {
    /// The definitions that are being deleted, by the resource that they define.
    terminating: BTreeMap<Resource, String>,
}

impl Controller for DefinitionCleanup {
    fn name(&self) -> &'static str {
        "crd-finalizer"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource == CRDS {
            let defined = defined_resource(&event.current);
            if event.kind == EventKind::Deleted {
                self.terminating.remove(&defined);
            } else if !event.current["metadata"]["deletionTimestamp"].is_null()
                && self.terminating.insert(defined, event.name.clone()).is_none()
            {
                cx.after(event.name.clone(), DELAY);
            }
        } else if event.kind == EventKind::Deleted
            && let Some(name) = self.terminating.get(&event.resource)
        {
            cx.after(name.clone(), DELAY);
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let Some(crd) = cx.api.get(&CRDS, "", key) else { return };
        let finalizers = crd["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if crd["metadata"]["deletionTimestamp"].is_null()
            || !finalizers.iter().any(|name| name == CLEANUP)
        {
            return;
        }
        let resource = defined_resource(&crd);
        let options = DeleteOptions::default();
        for (namespace, name) in instances(cx, &resource) {
            if let Err(error) = cx.api.delete(cx.writer(), &resource, &namespace, &name, &options) {
                tracing::debug!(%resource, name, %error, "an instance stays");
            }
        }
        let patched = if instances(cx, &resource).is_empty() {
            let kept: Vec<&Value> = finalizers.iter().filter(|name| *name != CLEANUP).collect();
            let kept = if kept.is_empty() { Value::Null } else { json!(kept) };
            let patch = json!({"metadata": {"finalizers": kept}});
            cx.api.merge(cx.writer(), &CRDS, "", key, &patch)
        } else {
            let mut conditions: Vec<Value> =
                crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
            if !conditions.iter().any(|condition| condition["type"] == "Terminating") {
                conditions.push(json!({
                    "type": "Terminating",
                    "status": "True",
                    "reason": "InstanceDeletionInProgress",
                    "message": "CustomResource deletion is in progress",
                    "lastTransitionTime": cx.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                }));
            }
            let patch = json!({"status": {"conditions": conditions}});
            cx.api.merge_status(cx.writer(), &CRDS, "", key, &patch)
        };
        if let Err(error) = patched {
            tracing::debug!(definition = key, %error, "the definition stays");
        }
    }
}

fn instances(cx: &Context<'_>, resource: &Resource) -> Vec<(String, String)> {
    cx.api.store.range(resource, Bound::Unbounded).map(|(place, _object)| place.clone()).collect()
}
