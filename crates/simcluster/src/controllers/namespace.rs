//! The namespace controller: empties a namespace that is being deleted, and then lets go of it.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::server::DeleteOptions;
use crate::api::{Event, EventKind};
use crate::resource::{EVENTS_V1, NAMESPACES};
use crate::{Context, Controller, Resource};

/// How long after a change the controller looks at a namespace.
const DELAY: Duration = Duration::from_millis(250);

/// The namespace controller.
#[derive(Debug, Default)]
pub struct NamespaceController {
    terminating: BTreeSet<String>,
}

impl Controller for NamespaceController {
    fn name(&self) -> &'static str {
        "namespace-controller"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        if event.resource == NAMESPACES {
            if event.kind == EventKind::Deleted {
                self.terminating.remove(&event.name);
                cx.cancel(&event.name);
            } else if !event.current["metadata"]["deletionTimestamp"].is_null()
                && self.terminating.insert(event.name.clone())
            {
                cx.after(event.name.clone(), DELAY);
            }
        } else if event.kind == EventKind::Deleted && self.terminating.contains(&event.namespace) {
            cx.after(event.namespace.clone(), DELAY);
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let Some(namespace) = cx.api.get(&NAMESPACES, "", key) else { return };
        if namespace["metadata"]["deletionTimestamp"].is_null() {
            return;
        }
        let options = DeleteOptions {
            propagation: Some("Background".to_owned()),
            ..DeleteOptions::default()
        };
        for (resource, name) in content(cx, key) {
            // What cannot be deleted is reported below.
            if let Err(error) = cx.api.delete(cx.writer(), &resource, key, &name, &options) {
                tracing::debug!(namespace = key, %resource, name, %error, "content stays");
            }
        }
        let left = content(cx, key);
        if left.is_empty() {
            let others: Vec<&str> = namespace["spec"]["finalizers"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .filter(|finalizer| *finalizer != "kubernetes")
                .collect();
            if let Err(error) = cx.api.finalize(cx.writer(), key, &others) {
                tracing::debug!(namespace = key, %error, "the namespace stays");
            }
            return;
        }
        let status = json!({"status": {"conditions": conditions(cx, key, &namespace, &left)}});
        if let Err(error) = cx.api.merge_status(cx.writer(), &NAMESPACES, "", key, &status) {
            tracing::debug!(namespace = key, %error, "the remaining content is not reported");
        }
    }
}

/// What is in a namespace: resources and names.
fn content(cx: &Context<'_>, namespace: &str) -> Vec<(Resource, String)> {
    let resources =
        cx.api.registry.iter().filter(|def| def.namespaced && def.resource != EVENTS_V1);
    resources
        .flat_map(|def| {
            let start = Bound::Included((namespace.to_owned(), String::new()));
            cx.api
                .store
                .range(&def.resource, start)
                .take_while(|((place, _name), _object)| place == namespace)
                .map(|((_place, name), _object)| (def.resource.clone(), name.clone()))
        })
        .collect()
}

/// What still holds the namespace, as `kubectl describe namespace` shows it.
fn conditions(
    cx: &Context<'_>,
    namespace: &str,
    object: &Value,
    left: &[(Resource, String)],
) -> Vec<Value> {
    let mut counts = std::collections::BTreeMap::<String, usize>::new();
    let mut finalizers = std::collections::BTreeMap::<String, usize>::new();
    for (resource, name) in left {
        *counts.entry(format!("{resource}.")).or_default() += 1;
        let Some(item) = cx.api.get(resource, namespace, name) else { continue };
        for finalizer in item["metadata"]["finalizers"].as_array().into_iter().flatten() {
            *finalizers.entry(finalizer.as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    let remaining: Vec<String> = counts
        .iter()
        .map(|(resource, count)| format!("{resource} has {count} resource instances"))
        .collect();
    let held: Vec<String> = finalizers
        .iter()
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
        .collect();
    let condition = |kind: &str, truth: bool, reason: &str, message: String| {
        let status = if truth { "True" } else { "False" };
        let time = object["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|old| old["type"] == kind && old["status"] == status)
            .map_or_else(
                || json!(cx.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
                |old| old["lastTransitionTime"].clone(),
            );
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": time,
        })
    };
    vec![
        condition(
            "NamespaceContentRemaining",
            true,
            "SomeResourcesRemain",
            format!("Some resources are remaining: {}", remaining.join(", ")),
        ),
        if held.is_empty() {
            condition(
                "NamespaceFinalizersRemaining",
                false,
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished".to_owned(),
            )
        } else {
            condition(
                "NamespaceFinalizersRemaining",
                true,
                "SomeFinalizersRemain",
                format!(
                    "Some content in the namespace has finalizers remaining: {}",
                    held.join(", ")
                ),
            )
        },
    ]
}
