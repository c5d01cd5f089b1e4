//! What the workload controllers share: the pods they own, and how they make them.
//!
//! No controller's decisions are here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::api::server::DeleteOptions;
use crate::api::{Event, EventKind};
use crate::node::{PodKey, pod};
use crate::recorder::{Occurrence, note, record};
use crate::resource::PODS;
use crate::simulation::Context;
use crate::world::identity;

/// How many pods a controller makes at once; their own changes bring it back for the others.
pub const BURST: usize = 500;

/// The pods of each controlling owner, by the owner's uid.
#[derive(Debug, Default)]
pub struct Owned {
    kind: &'static str,
    owners: BTreeMap<String, BTreeSet<PodKey>>,
}

impl Owned {
    /// An index of what objects of this kind own.
    pub fn by(kind: &'static str) -> Self {
        Self { kind, owners: BTreeMap::new() }
    }

    /// Takes a change of an owned object in; returns the owner's namespace and name.
    pub fn observe(&mut self, event: &Event) -> Option<PodKey> {
        let owner = controller(&event.current).filter(|owner| owner["kind"] == self.kind)?;
        let uid = owner["uid"].as_str().unwrap_or_default();
        let key = (event.namespace.clone(), event.name.clone());
        if event.kind == EventKind::Deleted {
            if let Some(owned) = self.owners.get_mut(uid) {
                owned.remove(&key);
                if owned.is_empty() {
                    self.owners.remove(uid);
                }
            }
        } else if !self.owners.get(uid).is_some_and(|owned| owned.contains(&key)) {
            self.owners.entry(uid.to_owned()).or_default().insert(key);
        }
        Some((event.namespace.clone(), owner["name"].as_str().unwrap_or_default().to_owned()))
    }

    /// The names of what an owner owns.
    pub fn of(&self, owner: &Value) -> Vec<PodKey> {
        let uid = owner["metadata"]["uid"].as_str().unwrap_or_default();
        self.owners.get(uid).into_iter().flatten().cloned().collect()
    }

    /// The pods that an owner owns.
    pub fn pods(&self, owner: &Value, cx: &Context<'_>) -> Vec<Arc<Value>> {
        self.of(owner)
            .iter()
            .filter_map(|(namespace, name)| cx.api.get(&PODS, namespace, name))
            .collect()
    }
}

/// The owner that controls the object.
pub fn controller(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"]
        .as_array()?
        .iter()
        .find(|reference| reference["controller"] == true)
}

/// A reference to the owner, as its controller writes it.
pub fn reference(owner: &Value, api_version: &str, kind: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    })
}

/// Who makes a pod, and how it is named.
#[derive(Debug, Clone, Copy)]
pub struct Maker<'a> {
    /// The owner.
    pub owner: &'a Value,
    /// The owner's version.
    pub api_version: &'a str,
    /// The owner's kind.
    pub kind: &'a str,
    /// The controller's name in Events.
    pub component: &'a str,
}

impl Maker<'_> {
    /// Creates a pod from the owner's template, changed by `adjust`; the name differs in every
    /// `attempt`.
    ///
    /// A refusal is told in an Event, as `FailedCreate`.
    pub fn create(
        &self,
        attempt: &str,
        cx: &mut Context<'_>,
        adjust: impl FnOnce(&mut Value),
    ) -> Option<Arc<Value>> {
        let template = &self.owner["spec"]["template"];
        let namespace = self.owner["metadata"]["namespace"].as_str().unwrap_or_default();
        let base = self.owner["metadata"]["name"].as_str().unwrap_or_default();
        let seed =
            format!("{}/{attempt}/{}", self.owner["metadata"]["uid"], cx.api.store.revision());
        let mut metadata = Map::new();
        for field in ["labels", "annotations", "finalizers"] {
            if !template["metadata"][field].is_null() {
                metadata.insert(field.to_owned(), template["metadata"][field].clone());
            }
        }
        let mut object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"],
            "status": {"phase": "Pending"},
        });
        object["metadata"]["generateName"] = json!(format!("{base}-"));
        object["metadata"]["name"] = json!(format!("{base}-{}", identity::suffix(&seed, 5)));
        object["metadata"]["namespace"] = json!(namespace);
        object["metadata"]["ownerReferences"] =
            json!([reference(self.owner, self.api_version, self.kind)]);
        adjust(&mut object);
        match cx.api.create(cx.writer(), &PODS, namespace, object) {
            Ok(created) => {
                let name = created["metadata"]["name"].as_str().unwrap_or_default();
                self.tell(cx, false, "SuccessfulCreate", &format!("Created pod: {name}"));
                Some(created)
            }
            Err(error) => {
                self.tell(cx, true, "FailedCreate", &format!("Error creating: {error}"));
                None
            }
        }
    }

    /// Deletes one of the owner's pods.
    pub fn delete(&self, pod: &Value, cx: &mut Context<'_>) {
        if pod::is_deleting(pod) {
            return;
        }
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let options = DeleteOptions::default();
        if note("pod", cx.api.delete(cx.writer(), &PODS, namespace, name, &options)).is_some() {
            self.tell(cx, false, "SuccessfulDelete", &format!("Deleted pod: {name}"));
        }
    }

    /// Records an Event on the owner.
    pub fn tell(&self, cx: &mut Context<'_>, warning: bool, reason: &str, message: &str) {
        let occurrence = Occurrence {
            object: self.owner,
            warning,
            reason,
            message,
            component: self.component,
            host: "",
        };
        record(cx.api, cx.now, &occurrence);
    }
}

/// Takes `namespace/name` apart.
pub fn split(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}

/// Writes an object's status if it differs; fields in `status` replace those of the same name.
pub fn write_status(
    cx: &mut Context<'_>,
    resource: &crate::Resource,
    object: &Value,
    status: Value,
) {
    let mut new = object.clone();
    if !new["status"].is_object() {
        new["status"] = json!({});
    }
    if let (Some(old), Value::Object(fields)) = (new["status"].as_object_mut(), status) {
        old.extend(fields);
    }
    if new["status"] != object["status"] {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        note("status", cx.api.update_status(cx.writer(), resource, namespace, new));
    }
}
