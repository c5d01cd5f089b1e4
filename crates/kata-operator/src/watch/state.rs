//! The state of a cache: kube's reflector, whether the watch is in contact, and what it must still show. This
//! module sends nothing and wakes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use kata_plan::Kind;
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::watcher::Event;
use tokio::time::Instant;

use crate::ingest::CachedValue;
use crate::pacing;
use crate::watch::item::Item;

/// The state of a cache.
#[derive(Debug)]
pub(super) struct State<T: CachedValue> {
    kind: Kind,
    writer: Writer<Item<T>>,
    objects: Store<Item<T>>,
    /// The newest version that the watch has shown.
    shown: u128,
    listing: Listing,
    /// What the watch must show before the next pass, by the object's name.
    awaited: BTreeMap<String, Awaited>,
    /// How many fresh reads are in progress, and what the watch saw deleted meanwhile.
    reads: usize,
    deleted: BTreeMap<String, u128>,
    error: Option<WatchError>,
    /// When the watch was opened last, and since when it has been in contact.
    opened: Option<Instant>,
    in_contact_since: Option<Instant>,
}

/// The watcher's lists.
#[derive(Debug, Default)]
struct Listing {
    begun: u64,
    completed: u64,
    /// What the last list has shown so far.
    objects: usize,
    shown: u128,
    has_changed: bool,
}

/// An object that a watch must still show.
#[derive(Debug)]
struct Awaited {
    expectation: Expectation,
    since: Instant,
    /// How many lists were begun before; a later one shows everything.
    after_list: u64,
}

/// What a watch must show of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expectation {
    /// This version of the object, or a later one.
    Version(u128),
    /// Any change, such as its deletion.
    Change,
    /// A list that is begun from now on.
    List,
}

/// When an event of a watch wakes the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    /// It shows a change that the loop does not know.
    Now,
    /// It shows only progress; see [`CachedValue::is_progress_since`].
    Soon,
}

/// Why a watch is out of contact.
#[derive(Debug)]
struct WatchError {
    since: Instant,
    text: String,
    /// Whether the error stays until its cause is fixed.
    is_lasting: bool,
}

impl WatchError {
    /// Whether the cached objects can no longer be relied on.
    fn makes_stale(&self) -> bool {
        self.is_lasting || self.since.elapsed() >= pacing::STALE_AFTER
    }
}

impl<T: CachedValue> State<T> {
    pub(super) fn new(kind: Kind) -> Self {
        let writer = Writer::new(kind);
        Self {
            kind,
            objects: writer.as_reader(),
            writer,
            shown: 0,
            listing: Listing::default(),
            awaited: BTreeMap::new(),
            reads: 0,
            deleted: BTreeMap::new(),
            error: None,
            opened: None,
            in_contact_since: None,
        }
    }

    /// Whether a list is complete.
    pub(super) fn is_synced(&self) -> bool {
        self.listing.completed > 0
    }

    /// How many lists the watcher has completed.
    pub(super) fn lists(&self) -> u64 {
        self.listing.completed
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub(super) fn items(&self) -> Vec<Arc<Item<T>>> {
        self.objects.state()
    }

    pub(super) fn item(&self, name: &str) -> Option<Arc<Item<T>>> {
        self.objects.get(&ObjectRef::new_with(name, self.kind))
    }

    /// An object that cannot be read, if there is one.
    pub(super) fn invalid(&self) -> Option<Arc<Item<T>>> {
        self.objects.find(|item| item.content.is_err())
    }

    /// Why the contents cannot be relied on, if they cannot.
    pub(super) fn staleness(&self) -> Option<&str> {
        match &self.error {
            Some(error) if !self.is_synced() || error.makes_stale() => Some(&error.text),
            _ => (!self.is_synced()).then_some("not read yet"),
        }
    }

    /// Whether there is a first answer, be it an error.
    pub(super) fn has_answer(&self) -> bool {
        self.is_synced() || self.error.is_some()
    }

    /// The error of a watch that has been out of contact for so long that `/readyz` reports it.
    pub(super) fn outage(&self) -> Option<&str> {
        let error = self.error.as_ref()?;
        (error.since.elapsed() >= pacing::NOT_READY_AFTER).then_some(&error.text)
    }

    /// Records why the watch is out of contact; returns whether that is new.
    pub(super) fn record_error(&mut self, text: &str, is_lasting: bool) -> bool {
        let since = self.error.as_ref().map_or_else(Instant::now, |known| known.since);
        let is_new = self.error.as_ref().is_none_or(|known| known.text != text);
        self.error = Some(WatchError { since, text: text.to_owned(), is_lasting });
        is_new
    }

    /// Records that a watch was opened; returns whether the contents can be relied on again.
    pub(super) fn record_contact(&mut self) -> bool {
        let now = Instant::now();
        self.opened = Some(now);
        self.in_contact_since.get_or_insert(now);
        self.error.take().is_some_and(|error| error.makes_stale())
    }

    /// When the watch was opened last.
    pub(super) fn opened(&self) -> Option<Instant> {
        self.opened
    }

    /// Records that the contact was lost; returns whether it had been stable.
    pub(super) fn record_contact_loss(&mut self) -> bool {
        let since = self.in_contact_since.take();
        since.is_some_and(|since| since.elapsed() >= pacing::WATCH_STABLE)
    }

    /// Begins a fresh read; returns the newest version that the watch has shown.
    pub(super) fn begin_read(&mut self) -> u128 {
        self.reads += 1;
        self.shown
    }

    /// Ends a fresh read; returns what the watch saw deleted meanwhile.
    pub(super) fn end_read(&mut self) -> BTreeMap<String, u128> {
        self.reads -= 1;
        match self.reads {
            0 => std::mem::take(&mut self.deleted),
            _ => self.deleted.clone(),
        }
    }

    /// Whether the watch has not shown yet what is awaited. A watch that has been out of contact for too long
    /// is not waited for.
    pub(super) fn is_behind(&self) -> bool {
        let is_stale = self.error.as_ref().is_some_and(WatchError::makes_stale);
        !is_stale && self.is_awaiting()
    }

    pub(super) fn is_awaiting(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Awaits what the watch must show, unless it has shown it. Before the first list, nothing is awaited.
    pub(super) fn await_change(&mut self, name: &str, expectation: Expectation) {
        let is_shown = match expectation {
            Expectation::Version(version) => {
                version <= self.shown
                    || self.item(name).is_some_and(|item| item.version() >= version)
            }
            Expectation::Change | Expectation::List => false,
        };
        if !is_shown {
            self.insert_awaited(name, expectation);
        }
    }

    /// Awaits a version that a fresh list has shown, unless the cache has it. The watch may have missed this
    /// version even if it has shown a newer one of another object.
    pub(super) fn await_listed(&mut self, name: &str, version: u128) {
        if self.item(name).is_none_or(|item| item.version() < version) {
            self.insert_awaited(name, Expectation::Version(version));
        }
    }

    /// Whether an object was deleted: the watch has shown it, or is to show it. An object whose creation the watch is
    /// to show was not.
    pub(super) fn is_gone(&self, name: &str) -> bool {
        match self.awaited.get(name).map(|awaited| awaited.expectation) {
            Some(expectation) => expectation == Expectation::Change,
            None => self.is_synced() && self.item(name).is_none(),
        }
    }

    fn insert_awaited(&mut self, name: &str, expectation: Expectation) {
        if self.is_synced() {
            let awaited =
                Awaited { expectation, since: Instant::now(), after_list: self.listing.begun };
            self.awaited.insert(name.to_owned(), awaited);
        }
    }

    /// When the first awaited object is overdue.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.awaited.values().map(|awaited| awaited.since + pacing::CATCH_UP).min()
    }

    /// The names of some overdue objects; all awaited objects get a new deadline. A watch without contact
    /// lists the kind anyway.
    pub(super) fn take_overdue(&mut self) -> Option<String> {
        let now = Instant::now();
        if self.error.is_some() || self.next_deadline()? > now {
            return None;
        }
        self.awaited.values_mut().for_each(|awaited| awaited.since = now);
        let names: Vec<&str> = self.awaited.keys().take(5).map(String::as_str).collect();
        Some(names.join(", "))
    }

    /// Applies an event of the watcher; returns when it wakes the loop, `None` if the loop knows what it shows.
    pub(super) fn apply_event(&mut self, mut event: Event<Item<T>>) -> Option<Wake> {
        let wake = match &mut event {
            Event::Init => {
                let Listing { begun, completed, .. } = self.listing;
                let has_changed = !self.is_synced();
                self.listing =
                    Listing { begun: begun + 1, completed, has_changed, ..Listing::default() };
                None
            }
            Event::InitApply(item) => {
                self.compare(item);
                self.listing.objects += 1;
                self.listing.shown = self.listing.shown.max(item.version());
                self.listing.has_changed |= item.has_changed;
                None
            }
            Event::InitDone => {
                self.listing.completed += 1;
                let Listing { begun, objects, shown, has_changed, completed: _ } = self.listing;
                self.shown = shown;
                self.awaited.retain(|_, awaited| awaited.after_list >= begun);
                // If each listed object is cached, and as many are cached as listed, none is gone.
                (has_changed || objects != self.objects.len()).then_some(Wake::Now)
            }
            Event::Apply(item) => {
                self.compare(item);
                let awaited = self.record_shown(item);
                // The pass that wrote this version knows it.
                let is_unknown =
                    item.has_changed && awaited != Some(Expectation::Version(item.version()));
                let wake = if self.is_progress(item) { Wake::Soon } else { Wake::Now };
                is_unknown.then_some(wake)
            }
            Event::Delete(item) => {
                self.record_shown(item);
                if self.reads > 0 {
                    self.deleted.insert(item.name().to_owned(), item.version());
                }
                self.item(item.name()).is_some().then_some(Wake::Now)
            }
        };
        self.writer.apply_watcher_event(&event);
        wake
    }

    /// Whether the object shows only progress since it was cached.
    fn is_progress(&self, item: &Item<T>) -> bool {
        let known = self.item(item.name());
        let known = known.as_ref().and_then(|known| known.content.as_ref().ok());
        known.zip(item.content.as_ref().ok()).is_some_and(|(old, new)| new.is_progress_since(old))
    }

    /// Records that the watch has shown a version of an object; returns what was awaited of it.
    fn record_shown(&mut self, item: &Item<T>) -> Option<Expectation> {
        self.shown = self.shown.max(item.version());
        let expectation = self.awaited.get(item.name())?.expectation;
        let is_shown = match expectation {
            Expectation::Version(version) => version <= item.version(),
            Expectation::Change => true,
            Expectation::List => false,
        };
        if is_shown {
            self.awaited.remove(item.name());
        }
        Some(expectation)
    }

    /// Compares an object with the cached one, and logs it if it has become unreadable.
    fn compare(&self, item: &mut Item<T>) {
        item.compare(self.item(item.name()).as_deref());
        if let (true, Err(invalid)) = (item.has_changed, &item.content) {
            tracing::warn!(
                object.kind = self.kind.as_str(),
                object.name = item.name(),
                error = invalid.error,
                "cannot read an object"
            );
        }
    }
}
