//! The garbage collector: deletes objects whose owners are gone, and lets go of owners that wait for
//! their dependents or want them set free.
//!
//! It looks up owners in the API when it decides; what it remembers is only who depends on whom.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::server::{DeleteOptions, FOREGROUND, ORPHAN};
use crate::api::{ApiServer, Event, EventKind};
use crate::{Context, Controller, Resource};

/// How long after a change the collector looks at an object.
const DELAY: Duration = Duration::from_millis(250);

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    resource: Resource,
    namespace: String,
    name: String,
}

impl Place {
    /// Names and groups contain no slash.
    fn key(&self) -> String {
        let Resource { group, plural } = &self.resource;
        format!("{group}/{plural}/{}/{}", self.namespace, self.name)
    }

    fn parse(key: &str) -> Option<Self> {
        let mut parts = key.splitn(4, '/');
        let (group, plural) = (parts.next()?, parts.next()?);
        Some(Self {
            resource: Resource::dynamic(group, plural),
            namespace: parts.next()?.to_owned(),
            name: parts.next()?.to_owned(),
        })
    }
}

/// What an owner reference leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// To an object that stays.
    Solid,
    /// To nothing, or to another object of the same name.
    Absent,
    /// To an object that is deleted once its dependents are.
    Waiting,
    /// Nobody can tell: the kind is not served, or the reference crosses scopes.
    Unknown,
}

/// The garbage collector.
#[derive(Debug, Default)]
pub struct GarbageCollector {
    /// The dependents of each owner, by the owner's uid.
    dependents: BTreeMap<String, BTreeSet<Place>>,
}

impl GarbageCollector {
    /// Lets go of an owner whose dependents are to be set free.
    fn orphan(&self, place: &Place, object: &Value, cx: &mut Context<'_>) {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        for dependent in self.dependents.get(uid).into_iter().flatten().cloned().collect::<Vec<_>>()
        {
            let Some(current) =
                cx.api.get(&dependent.resource, &dependent.namespace, &dependent.name)
            else {
                continue;
            };
            drop_owners(cx, &dependent, &current, |reference| reference["uid"] == uid);
        }
        drop_finalizer(cx, place, object, ORPHAN);
    }

    /// Deletes the dependents of an owner that waits for them, and lets go of it when none blocks.
    fn foreground(&self, place: &Place, object: &Value, cx: &mut Context<'_>) {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let mut blocked = false;
        for dependent in self.dependents.get(uid).into_iter().flatten() {
            let Some(current) =
                cx.api.get(&dependent.resource, &dependent.namespace, &dependent.name)
            else {
                continue;
            };
            blocked |= references(&current).iter().any(|reference| {
                reference["uid"] == uid && reference["blockOwnerDeletion"] == true
            });
            if current["metadata"]["deletionTimestamp"].is_null() {
                cx.after(dependent.key(), Duration::ZERO);
            }
        }
        if !blocked {
            drop_finalizer(cx, place, object, FOREGROUND);
        }
    }

    /// Deletes an object without a living owner, or drops the references that lead nowhere.
    fn collect(&self, place: &Place, object: &Value, cx: &mut Context<'_>) {
        let found: Vec<(String, Owner)> = references(object)
            .iter()
            .map(|reference| {
                let uid = reference["uid"].as_str().unwrap_or_default().to_owned();
                (uid, owner(cx.api, &place.namespace, reference))
            })
            .collect();
        let any = |wanted: Owner| found.iter().any(|(_uid, owner)| *owner == wanted);
        if found.is_empty() || any(Owner::Unknown) {
            return;
        }
        if any(Owner::Solid) {
            if any(Owner::Absent) || any(Owner::Waiting) {
                drop_owners(cx, place, object, |reference| {
                    found.iter().any(|(uid, owner)| {
                        *owner != Owner::Solid && reference["uid"] == uid.as_str()
                    })
                });
            }
            return;
        }
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let has_dependents = self.dependents.get(uid).is_some_and(|set| !set.is_empty());
        let propagation = if has_finalizer(object, ORPHAN) {
            "Orphan"
        } else if has_finalizer(object, FOREGROUND) || (any(Owner::Waiting) && has_dependents) {
            "Foreground"
        } else {
            "Background"
        };
        let options = DeleteOptions {
            propagation: Some(propagation.to_owned()),
            uid: Some(uid.to_owned()),
            ..DeleteOptions::default()
        };
        let deleted =
            cx.api.delete(cx.writer(), &place.resource, &place.namespace, &place.name, &options);
        if let Err(error) = deleted {
            tracing::debug!(object = place.key(), %error, "garbage could not be deleted");
        }
    }

    fn relate(&mut self, place: &Place, object: &Value, related: bool) {
        for reference in references(object) {
            let uid = reference["uid"].as_str().unwrap_or_default();
            if related {
                self.dependents.entry(uid.to_owned()).or_default().insert(place.clone());
            } else if let Some(set) = self.dependents.get_mut(uid) {
                set.remove(place);
                if set.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
    }
}

impl Controller for GarbageCollector {
    fn name(&self) -> &'static str {
        "garbage-collector-controller"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        let before = event.previous.as_deref().map_or(&[][..], references);
        let gone = event.kind == EventKind::Deleted;
        let after = if gone { &[][..] } else { references(&event.current) };
        let changed = before != after;
        let metadata = &event.current["metadata"];
        let held = !gone
            && !metadata["deletionTimestamp"].is_null()
            && (has_finalizer(&event.current, FOREGROUND) || has_finalizer(&event.current, ORPHAN));
        let owned = if gone {
            metadata["uid"].as_str().and_then(|uid| self.dependents.get(uid))
        } else {
            None
        };
        for dependent in owned.into_iter().flatten() {
            cx.after(dependent.key(), DELAY);
        }
        if !changed && !held {
            return;
        }
        let place = Place {
            resource: event.resource.clone(),
            namespace: event.namespace.clone(),
            name: event.name.clone(),
        };
        if changed {
            if let Some(previous) = &event.previous {
                self.relate(&place, previous, false);
            }
            if !gone {
                self.relate(&place, &event.current, true);
            }
            // An owner may have waited for this one.
            for reference in before {
                if let Some(owner) = owner_place(cx.api, &event.namespace, reference) {
                    cx.after(owner.key(), DELAY);
                }
            }
        }
        if held || !after.is_empty() {
            cx.after(place.key(), DELAY);
        }
    }

    fn act(&mut self, key: &str, cx: &mut Context<'_>) {
        let Some(place) = Place::parse(key) else { return };
        let Some(object) = cx.api.get(&place.resource, &place.namespace, &place.name) else {
            return;
        };
        if object["metadata"]["deletionTimestamp"].is_null() {
            self.collect(&place, &object, cx);
        } else if has_finalizer(&object, ORPHAN) {
            self.orphan(&place, &object, cx);
        } else if has_finalizer(&object, FOREGROUND) {
            self.foreground(&place, &object, cx);
        }
    }
}

fn references(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map_or(&[], Vec::as_slice)
}

fn has_finalizer(object: &Value, name: &str) -> bool {
    object["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|finalizers| finalizers.iter().any(|finalizer| finalizer == name))
}

/// Where the owner of an object in `namespace` is; `None` if nobody can tell.
fn owner_place(api: &ApiServer, namespace: &str, reference: &Value) -> Option<Place> {
    let version = reference["apiVersion"].as_str()?;
    let group = version.split_once('/').map_or("", |(group, _version)| group);
    let def = api.registry.by_kind(group, reference["kind"].as_str()?)?;
    if def.namespaced && namespace.is_empty() {
        return None;
    }
    Some(Place {
        resource: def.resource.clone(),
        namespace: if def.namespaced { namespace.to_owned() } else { String::new() },
        name: reference["name"].as_str()?.to_owned(),
    })
}

fn owner(api: &ApiServer, namespace: &str, reference: &Value) -> Owner {
    let Some(place) = owner_place(api, namespace, reference) else { return Owner::Unknown };
    match api.get(&place.resource, &place.namespace, &place.name) {
        Some(object) if object["metadata"]["uid"] == reference["uid"] => {
            let waits = !object["metadata"]["deletionTimestamp"].is_null()
                && has_finalizer(&object, FOREGROUND);
            if waits { Owner::Waiting } else { Owner::Solid }
        }
        _ => Owner::Absent,
    }
}

fn drop_owners(
    cx: &mut Context<'_>,
    place: &Place,
    object: &Value,
    dropped: impl Fn(&Value) -> bool,
) {
    let kept: Vec<&Value> =
        references(object).iter().filter(|reference| !dropped(reference)).collect();
    let kept = if kept.is_empty() { Value::Null } else { json!(kept) };
    let metadata = &object["metadata"];
    let patch = json!({"metadata": {
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
        "ownerReferences": kept,
    }});
    patch_object(cx, place, &patch);
}

fn drop_finalizer(cx: &mut Context<'_>, place: &Place, object: &Value, name: &str) {
    let kept: Vec<&Value> = object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|finalizer| *finalizer != name)
        .collect();
    let kept = if kept.is_empty() { Value::Null } else { json!(kept) };
    patch_object(cx, place, &json!({"metadata": {"finalizers": kept}}));
}

fn patch_object(cx: &mut Context<'_>, place: &Place, patch: &Value) {
    let patched = cx.api.merge(cx.writer(), &place.resource, &place.namespace, &place.name, patch);
    if let Err(error) = patched {
        tracing::debug!(object = place.key(), %error, "the garbage collector could not patch");
    }
}
