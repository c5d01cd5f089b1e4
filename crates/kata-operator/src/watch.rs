//! Caches of the watched kinds: kube-runtime's watcher and reflector, over [`item::Item`]s that keep only what
//! is read, and what those two do not do by themselves (see ARCHITECTURE.md, "The shell").
//!
//! - A cache shows cheaply that there is nothing to do; it never justifies disturbing a node.
//!   [`Cache::read_fresh`] lists past it, for the pass that asks. The list never enters the cache.
//! - A cache that is out of contact becomes [`Observed::Unknown`].
//! - No pass sees less than the pass before it: it waits until the watch shows the writes and the fresh reads
//!   of that pass ([`AnyCache::is_behind`]). If the watch does not show them in time, the kind is listed
//!   again, which also corrects a cache whose watch has missed a change, and one that is newer than a
//!   restored etcd.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kata_plan::{Kind, Observed, UnreadableObject};
use tokio::sync::Notify;

use crate::client::{Client, Endpoint};
use crate::error::{CallError, Retry, chain};
use crate::ingest::CachedValue;

mod any;
mod follow;
mod item;
mod state;

pub use any::AnyCache;
use item::{Item, parse_version};
use state::{Expectation, State};

/// How often a fresh read lists the kind at most, if the watcher lists it meanwhile too.
const MAX_FRESH_READS: u32 = 3;
/// The field selector of an object by its name.
const NAME_SELECTOR: &str = "metadata.name=";

/// The cached objects of one kind, by name.
#[derive(Debug)]
pub struct Cache<T: CachedValue> {
    kind: Kind,
    namespace: Option<String>,
    labels: Option<String>,
    /// A selector of the only object by its name.
    fields: Option<String>,
    /// Whether the other objects stay known while one cannot be read.
    tolerates_unreadable: bool,
    state: Mutex<State<T>>,
    wake: Arc<LoopWaker>,
    /// Asks the follower to list the kind again.
    relist: Notify,
}

/// Wakes the loop.
#[derive(Debug, Default)]
pub struct LoopWaker {
    /// Something has changed that a pass must handle now.
    pub changed: Notify,
    /// Something has changed that the next pass may handle after [`crate::pacing::PROGRESS`].
    pub progressed: Notify,
    /// A cache has caught up, or a pass need not wait for it.
    pub caught_up: Notify,
}

/// The known objects of a kind at a moment.
#[derive(Clone, Debug)]
pub struct View<T> {
    /// The objects that can be read.
    pub objects: Observed<Vec<T>>,
    /// The objects that cannot be read, if the others stay known.
    pub unreadable: Vec<UnreadableObject>,
}

impl<T: CachedValue> Cache<T> {
    /// An empty cache of all objects of a kind.
    pub fn new(kind: Kind, wake: &Arc<LoopWaker>) -> Self {
        Self {
            kind,
            namespace: None,
            labels: None,
            fields: None,
            tolerates_unreadable: false,
            state: Mutex::new(State::new(kind)),
            wake: Arc::clone(wake),
            relist: Notify::new(),
        }
    }

    /// Limits the cache to the objects of a namespace.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()), ..self }
    }

    /// Limits the cache to the object with this name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { fields: Some(format!("{NAME_SELECTOR}{name}")), ..self }
    }

    /// Limits the cache to the objects with these labels.
    #[must_use]
    pub fn labelled(self, selector: &str) -> Self {
        Self { labels: Some(selector.to_owned()), ..self }
    }

    /// One object that cannot be read does not make the others unknown; see [`View::unreadable`].
    #[must_use]
    pub fn tolerate_unreadable(self) -> Self {
        Self { tolerates_unreadable: true, ..self }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing panics while the lock is held; if it did, the next list repairs the contents.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content of the cache.
    pub fn view(&self) -> View<T> {
        let state = self.lock();
        let staleness = state.staleness().map(str::to_owned);
        let items = state.items();
        drop(state);
        match staleness {
            Some(error) => self.unknown(error),
            None => self.view_of(items.iter().map(AsRef::as_ref)),
        }
    }

    /// An object, if it is known and can be read.
    pub fn get(&self, name: &str) -> Option<T> {
        self.lock().item(name)?.content.as_ref().ok().cloned()
    }

    /// Whether an object was deleted: the watch has shown it, or is to show it.
    pub fn is_gone(&self, name: &str) -> bool {
        self.lock().is_gone(name)
    }

    /// Whether there may be an object: there is one, or it is not known.
    pub fn may_have_objects(&self) -> bool {
        let state = self.lock();
        state.staleness().is_some() || !state.is_empty()
    }

    /// The version that a write must name, so that the API server refuses it if the object has changed since
    /// version `seen`; `None` if the object is known to have changed. `of` gives the version in which a value
    /// was first seen.
    pub fn version_since(&self, name: &str, seen: &str, of: impl Fn(&T) -> &str) -> Option<String> {
        let item = self.lock().item(name)?;
        let value = item.content.as_ref().ok()?;
        if of(value) == seen {
            return Some(item.resource_version().to_owned());
        }
        // The watch is behind a fresh list.
        (item.version() < parse_version(seen)).then(|| seen.to_owned())
    }

    fn unknown(&self, error: impl std::fmt::Display) -> View<T> {
        let kind = self.kind.as_str();
        let what =
            match self.fields.as_deref().and_then(|fields| fields.strip_prefix(NAME_SELECTOR)) {
                Some(name) => format!("{kind} {name}"),
                None => kind.to_owned(),
            };
        View { objects: Observed::unknown(what, error), unreadable: Vec::new() }
    }

    fn view_of<'a>(&self, items: impl Iterator<Item = &'a Item<T>>) -> View<T> {
        let mut items: Vec<&Item<T>> = items.collect();
        // The store is a hash map; a pass must not depend on its order.
        items.sort_unstable_by_key(|item| item.name());
        let unreadable: Vec<UnreadableObject> =
            items.iter().filter_map(|item| item.unreadable(self.kind)).collect();
        if let (false, Some(first)) = (self.tolerates_unreadable, unreadable.first()) {
            let what = format!("{} {}", self.kind.as_str(), first.object.name);
            let objects = Observed::unknown(what, &first.error);
            return View { objects, unreadable: Vec::new() };
        }
        let objects = items.iter().filter_map(|item| item.content.as_ref().ok().cloned());
        View { objects: Observed::Known(objects.collect()), unreadable }
    }

    /// Lists the kind past the cache, by quorum, and compares the cache with it.
    ///
    /// The answer may be late: objects that the watch has shown meanwhile are newer, and replace those of the
    /// list. Objects that only the list has shown are awaited.
    pub async fn read_fresh(&self, client: &Client) -> View<T> {
        let listed = self.list_fresh(client).await;
        listed.unwrap_or_else(|error| self.unknown(chain(&error)))
    }

    /// [`Cache::read_fresh`], with the error.
    ///
    /// # Errors
    /// If the list fails.
    pub async fn list_fresh(&self, client: &Client) -> Result<View<T>, CallError> {
        let mut attempts = 0;
        loop {
            let lists = self.lock().lists();
            let items = self.list(client).await?;
            attempts += 1;
            // If the watcher listed the kind too, it is not known which of both lists is newer.
            if self.lock().lists() == lists || attempts == MAX_FRESH_READS {
                return Ok(self.view_of(items.values()));
            }
        }
    }

    async fn list(&self, client: &Client) -> Result<BTreeMap<String, Item<T>>, CallError> {
        let endpoint = match &self.namespace {
            Some(namespace) => Endpoint::within(self.kind, namespace),
            None => Endpoint::of(self.kind),
        };
        let endpoint = match &self.labels {
            Some(labels) => endpoint.labelled(labels),
            None => endpoint,
        };
        let mut items = BTreeMap::new();
        let each = |text: &str| {
            let mut item = Item::<T>::from_text(text);
            item.compare(self.lock().item(item.name()).as_deref());
            items.insert(item.name().to_owned(), item);
        };
        let shown_before = self.lock().begin_read();
        let listed = client.list(&endpoint, self.fields.as_deref(), each).await;
        let mut state = self.lock();
        let deleted = state.end_read();
        let listed_at = parse_version(&listed?);
        // Writes after a restore may have reached the version that the watch had shown.
        let has_older = items.values().any(|item| {
            let known = state.item(item.name()).map(|known| known.version());
            known.is_some_and(|known| item.version() < known && known <= listed_at)
        });
        if listed_at < shown_before || has_older {
            drop(state);
            tracing::warn!(
                object.kind = self.kind.as_str(),
                "the resourceVersions of the API server are lower than before, as after a restore of etcd"
            );
            self.await_list();
            return Ok(items);
        }
        items.retain(|name, _| deleted.get(name).is_none_or(|gone| *gone <= listed_at));
        for known in state.items() {
            if known.version() > listed_at {
                items.insert(known.name().to_owned(), (*known).clone());
            } else if !items.contains_key(known.name()) {
                state.await_change(known.name(), Expectation::Change);
            }
        }
        for item in items.values().filter(|item| item.has_changed) {
            state.await_listed(item.name(), item.version());
        }
        Ok(items)
    }

    /// Makes the next pass wait until the kind is listed again, after a write with an unknown outcome.
    pub fn await_list(&self) {
        self.lock().await_change("", Expectation::List);
        self.relist.notify_one();
    }

    /// Records why the watch is out of contact, and logs it once.
    pub fn record_error(&self, error: &CallError) {
        if error.is_expired() {
            return;
        }
        let is_lasting = matches!(error.retry(), Retry::AfterChange) || error.is_not_found();
        let text = chain(error);
        let mut state = self.lock();
        let is_new = state.record_error(&text, is_lasting);
        let is_urgent = !state.is_synced() || is_lasting;
        drop(state);
        // A pass that waits for this cache need not wait any longer.
        self.wake.caught_up.notify_one();
        if is_new {
            tracing::warn!(object.kind = self.kind.as_str(), error = text, "cannot watch");
            if is_urgent {
                self.wake.changed.notify_one();
            }
        }
    }
}
