//! The revisioned store: objects, one revision counter, and a bounded log of changes.
//!
//! Every write gets the next revision; an object's resourceVersion is the revision of its last write.
//! The store knows nothing of Kubernetes semantics beyond that.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::Value;

use crate::Resource;

/// How many changes the log keeps; a watch that starts before the oldest of them gets `410 Expired`.
///
/// A change holds the object before and after it, some 50 to 100 KiB for a node, so this bounds memory:
/// a cluster that lives for weeks stays below a few hundred MiB.
pub const DEFAULT_WINDOW: usize = 5_000;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The object is new.
    Added,
    /// The object changed.
    Modified,
    /// The object is gone; `current` is its last state with the revision of the deletion.
    Deleted,
}

/// A change in the log.
#[derive(Clone, Debug)]
pub struct Event {
    /// The revision of the write.
    pub revision: u64,
    /// The object's resource.
    pub resource: Resource,
    /// The object's namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// What happened.
    pub kind: EventKind,
    /// The state before the write.
    pub previous: Option<Arc<Value>>,
    /// The state after the write; for a deletion the last state with a new resourceVersion.
    pub current: Arc<Value>,
}

type Table = BTreeMap<(String, String), Arc<Value>>;

/// Objects by resource, namespace and name.
#[derive(Debug)]
pub struct Store {
    revision: u64,
    tables: BTreeMap<Resource, Table>,
    log: VecDeque<Arc<Event>>,
    floor: u64,
    window: usize,
    /// The revision up to which changes were seen by those who must see all; `None` if nobody must.
    unseen_after: Option<u64>,
    /// How often a backup was restored.
    restores: u64,
}

/// All objects and the revision at one moment, as a backup of etcd has them.
#[derive(Clone, Debug)]
pub struct Backup {
    revision: u64,
    tables: BTreeMap<Resource, Table>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            revision: 1,
            tables: BTreeMap::new(),
            log: VecDeque::new(),
            floor: 1,
            window: DEFAULT_WINDOW,
            unseen_after: None,
            restores: 0,
        }
    }
}

impl Store {
    /// A store that goes on at `revision` with the objects of an earlier one, each with its resource,
    /// namespace and name; its log is empty.
    pub(crate) fn restored(
        revision: u64,
        objects: impl IntoIterator<Item = (Resource, String, String, Arc<Value>)>,
    ) -> Self {
        let mut tables = BTreeMap::<Resource, Table>::new();
        for (resource, namespace, name, object) in objects {
            tables.entry(resource).or_default().insert((namespace, name), object);
        }
        Self { revision, tables, floor: revision, ..Self::default() }
    }

    /// A backup of the present state; it shares the objects.
    pub fn backup(&self) -> Backup {
        Backup { revision: self.revision, tables: self.tables.clone() }
    }

    /// Goes back to a backup: objects and revision are what they were, and the log is empty. Returns how objects
    /// differ from before, as the log would have it.
    pub(crate) fn restore(&mut self, backup: &Backup) -> Vec<Event> {
        let before = std::mem::replace(&mut self.tables, backup.tables.clone());
        self.revision = backup.revision;
        self.floor = backup.revision;
        self.log.clear();
        self.restores += 1;
        let event = |resource: &Resource, key: &(String, String), kind, previous, current| Event {
            revision: backup.revision,
            resource: resource.clone(),
            namespace: key.0.clone(),
            name: key.1.clone(),
            kind,
            previous,
            current,
        };
        let mut changes = Vec::new();
        for (resource, table) in &before {
            let kept = self.tables.get(resource);
            for (key, old) in table {
                if kept.is_none_or(|kept| !kept.contains_key(key)) {
                    let (kind, old) = (EventKind::Deleted, Arc::clone(old));
                    changes.push(event(resource, key, kind, Some(Arc::clone(&old)), old));
                }
            }
        }
        for (resource, table) in &self.tables {
            for (key, new) in table {
                let old = before.get(resource).and_then(|table| table.get(key));
                let kind = match old {
                    Some(old) if Arc::ptr_eq(old, new) => continue,
                    Some(_) => EventKind::Modified,
                    None => EventKind::Added,
                };
                changes.push(event(resource, key, kind, old.cloned(), Arc::clone(new)));
            }
        }
        changes
    }

    /// How often a backup was restored; a watch that began before has no place in the log any more.
    pub fn restores(&self) -> u64 {
        self.restores
    }

    /// All objects with their resources, namespaces and names, in this order.
    pub fn iter(&self) -> impl Iterator<Item = (&Resource, &str, &str, &Arc<Value>)> {
        self.tables.iter().flat_map(|(resource, table)| {
            table.iter().map(move |((namespace, name), object)| {
                (resource, namespace.as_str(), name.as_str(), object)
            })
        })
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The object, if it exists.
    pub fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.tables.get(resource)?.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// All objects of a resource, ordered by namespace and name.
    pub fn list(&self, resource: &Resource) -> impl Iterator<Item = &Arc<Value>> {
        self.tables.get(resource).into_iter().flat_map(BTreeMap::values)
    }

    /// The objects of a resource after `after` (namespace and name), with their keys, in order.
    pub fn range(
        &self,
        resource: &Resource,
        after: Bound<(String, String)>,
    ) -> impl Iterator<Item = (&(String, String), &Arc<Value>)> {
        self.tables
            .get(resource)
            .into_iter()
            .flat_map(move |table| table.range((after.clone(), Bound::Unbounded)))
    }

    /// Writes an object, new or changed, and sets its resourceVersion.
    pub fn put(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        mut object: Value,
    ) -> Arc<Value> {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = Value::String(self.revision.to_string());
        let object = Arc::new(object);
        let previous = self
            .tables
            .entry(resource.clone())
            .or_default()
            .insert((namespace.to_owned(), name.to_owned()), Arc::clone(&object));
        let kind = if previous.is_some() { EventKind::Modified } else { EventKind::Added };
        self.record(resource, namespace, name, kind, previous, Arc::clone(&object));
        object
    }

    /// Changes the form in which the stored objects of a resource are read, without a new revision and without an
    /// event.
    pub(crate) fn reread(&mut self, resource: &Resource, change: impl Fn(&mut Value)) {
        for object in self.tables.get_mut(resource).into_iter().flat_map(BTreeMap::values_mut) {
            let mut changed = (**object).clone();
            change(&mut changed);
            if changed != **object {
                *object = Arc::new(changed);
            }
        }
    }

    /// Removes an object; returns its last state with the revision of the removal.
    pub fn remove(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<Value>> {
        let previous =
            self.tables.get_mut(resource)?.remove(&(namespace.to_owned(), name.to_owned()))?;
        self.revision += 1;
        let mut last = (*previous).clone();
        last["metadata"]["resourceVersion"] = Value::String(self.revision.to_string());
        let last = Arc::new(last);
        self.record(
            resource,
            namespace,
            name,
            EventKind::Deleted,
            Some(previous),
            Arc::clone(&last),
        );
        Some(last)
    }

    /// The changes after `revision`, oldest first; `None` if the log no longer reaches back that far.
    pub fn events_after(&self, revision: u64) -> Option<impl Iterator<Item = &Arc<Event>>> {
        if revision < self.floor {
            return None;
        }
        let start = self.log.partition_point(|event| event.revision <= revision);
        Some(self.log.range(start..))
    }

    /// Forgets all but the newest `window` changes, now and from now on.
    pub fn set_window(&mut self, window: usize) {
        self.window = window;
        self.trim();
    }

    fn record(
        &mut self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        kind: EventKind,
        previous: Option<Arc<Value>>,
        current: Arc<Value>,
    ) {
        self.log.push_back(Arc::new(Event {
            revision: self.revision,
            resource: resource.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            kind,
            previous,
            current,
        }));
        self.trim();
    }

    /// Keeps the changes after `revision` whatever the window says, because somebody has not seen
    /// them yet.
    pub(crate) fn keep_after(&mut self, revision: u64) {
        self.unseen_after = Some(revision);
        self.trim();
    }

    fn trim(&mut self) {
        let unseen = |event: &Event| self.unseen_after.is_some_and(|seen| event.revision > seen);
        while self.log.len() > self.window && !self.log.front().is_some_and(|event| unseen(event)) {
            if let Some(dropped) = self.log.pop_front() {
                self.floor = dropped.revision;
            }
        }
    }
}
