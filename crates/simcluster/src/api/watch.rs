//! Watches: cursors into the store's log that turn changes into watch events.
//!
//! A watcher has no queue: what it has not sent is still in the log. It does not wait; it says when
//! to ask again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::error::{ApiError, FieldError};
use super::fault::{CallInfo, Faults};
use super::list::{Selection, invalid_options};
use super::negotiate::Shape;
use super::registry::{ResourceDef, defined_resource};
use super::request::ListOptions;
use super::store::{Event, EventKind, Store};
use crate::resource::CRDS;

/// How often a BOOKMARK is sent.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before its end a watch sends its last BOOKMARK.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);
/// How long a watch lasts if the client does not say.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3600);
/// Roughly how much is sent at once.
const CHUNK_BYTES: usize = 1 << 20;

/// A watch in progress.
#[derive(Debug)]
pub struct Watcher {
    def: Arc<ResourceDef>,
    selection: Selection,
    shape: Shape,
    call: CallInfo,
    bookmarks: bool,
    phase: Phase,
    /// Everything up to this revision was sent, or did not concern this watch.
    cursor: u64,
    /// [`Store::restores`] when the watch began.
    restores: u64,
    /// Events are held back until then.
    held: Option<Timestamp>,
    next_bookmark: Timestamp,
    last_bookmark_sent: bool,
    ends: Timestamp,
    first: bool,
    now: Timestamp,
    present: Option<fn(&Value) -> Value>,
}

#[derive(Debug)]
enum Phase {
    /// Waiting for the store to reach a revision, to send the state as of then.
    Awaiting { revision: u64 },
    /// Sending the state as of `cursor`.
    Initial { objects: VecDeque<Arc<Value>>, announce_end: bool },
    /// Following the log.
    Live,
    /// Silent for ever, because a fault rule says so.
    Silent,
    /// Over.
    Ended,
}

/// What a watcher has to say.
#[derive(Debug)]
pub struct Output {
    /// Lines of JSON, ready to be sent.
    pub bytes: Vec<u8>,
    /// Whether the watch is over.
    pub ended: bool,
    /// When to ask again at the latest; earlier when the store changes.
    pub next: Timestamp,
}

impl Watcher {
    /// Begins a watch.
    ///
    /// # Errors
    /// `400` and `422` for options that make no sense. A revision that is too old is no error here:
    /// the watch then consists of one ERROR event.
    pub fn start(
        store: &Store,
        now: Timestamp,
        def: Arc<ResourceDef>,
        selection: Selection,
        shape: Shape,
        call: CallInfo,
        options: &ListOptions,
    ) -> Result<Self, ApiError> {
        let revision = if options.resource_version.is_empty() {
            0
        } else {
            options.resource_version.parse().map_err(|_error| {
                ApiError::new(
                    500,
                    "",
                    format!(
                        "resourceVersion: Invalid value: {0:?}: strconv.ParseUint: parsing {0:?}: invalid syntax",
                        options.resource_version,
                    ),
                )
            })?
        };
        match (options.send_initial_events, options.version_match.as_deref()) {
            (Some(_), Some("NotOlderThan")) | (None, None) => {}
            (Some(_), other) => {
                let field = "resourceVersionMatch";
                let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                let mut errors = vec![FieldError::forbidden(field, why)];
                if let Some(other) = other {
                    errors.push(FieldError::unsupported(field, other, &["NotOlderThan"]));
                }
                return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", errors));
            }
            (None, Some(_)) => {
                return Err(invalid_options(
                    "resourceVersionMatch",
                    "FieldValueForbidden",
                    "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                ));
            }
        }
        let streaming = options.send_initial_events == Some(true);
        let timeout = options.timeout_seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        let mut watcher = Self {
            def,
            selection,
            shape,
            call,
            bookmarks: options.bookmarks,
            phase: Phase::Live,
            cursor: revision,
            restores: store.restores(),
            held: None,
            next_bookmark: later(now, BOOKMARK_EVERY),
            last_bookmark_sent: false,
            ends: later(now, timeout),
            first: true,
            now,
            present: None,
        };
        if streaming && revision > store.revision() {
            watcher.phase = Phase::Awaiting { revision };
        } else if streaming || (revision == 0 && options.send_initial_events.is_none()) {
            watcher.begin_initial(store, streaming);
        } else if revision == 0 {
            watcher.cursor = store.revision();
        }
        Ok(watcher)
    }

    /// The same watch, showing objects as `present` translates them.
    #[must_use]
    pub fn presenting(mut self, present: Option<fn(&Value) -> Value>) -> Self {
        self.present = present;
        self
    }

    /// Produces what there is to send at `now`.
    pub fn poll(&mut self, store: &Store, faults: &mut Faults, now: Timestamp) -> Output {
        self.now = now;
        let mut bytes = Vec::new();
        let restored = store.restores() != self.restores;
        if (restored || now >= self.ends) && !matches!(self.phase, Phase::Silent) {
            self.phase = Phase::Ended;
        }
        if let Phase::Awaiting { revision } = self.phase
            && store.revision() >= revision
        {
            self.begin_initial(store, true);
        }
        let mut more = self.send_initial(&mut bytes);
        if !more && matches!(self.phase, Phase::Live) && self.held.is_none_or(|until| until <= now)
        {
            more = self.send_changes(store, faults, now, &mut bytes);
        }
        if !more {
            self.send_bookmark(now, &mut bytes);
        }
        Output {
            bytes,
            ended: matches!(self.phase, Phase::Ended),
            next: if more { now } else { self.deadline(now) },
        }
    }

    fn begin_initial(&mut self, store: &Store, announce_end: bool) {
        self.cursor = store.revision();
        let objects = store
            .range(&self.selection.resource, std::ops::Bound::Unbounded)
            .filter(|((namespace, _), object)| self.selection.holds(namespace, object))
            .map(|(_, object)| Arc::clone(object))
            .collect();
        self.phase = Phase::Initial { objects, announce_end };
    }

    /// Sends the initial state; returns whether there is more of it.
    fn send_initial(&mut self, bytes: &mut Vec<u8>) -> bool {
        let Phase::Initial { objects, announce_end } = &mut self.phase else { return false };
        let announce_end = *announce_end;
        let mut objects = std::mem::take(objects);
        while let Some(object) = objects.pop_front() {
            self.send(bytes, "ADDED", &object);
            if bytes.len() > CHUNK_BYTES && !objects.is_empty() {
                self.phase = Phase::Initial { objects, announce_end };
                return true;
            }
        }
        self.phase = Phase::Live;
        if announce_end && self.bookmarks {
            self.bookmark(bytes, true);
        }
        false
    }

    /// Sends changes from the log; returns whether there are more of them.
    fn send_changes(
        &mut self,
        store: &Store,
        faults: &mut Faults,
        now: Timestamp,
        bytes: &mut Vec<u8>,
    ) -> bool {
        let Some(events) = store.events_after(self.cursor) else {
            self.expire(store, bytes);
            return false;
        };
        for event in events {
            if self.ends_the_resource(event) {
                self.phase = Phase::Ended;
                return false;
            }
            let Some((kind, object)) = self.seen(event) else {
                self.cursor = event.revision;
                continue;
            };
            // An event that was held back has had its faults already.
            if self.held.take().is_none() {
                self.call.namespace.clone_from(&event.namespace);
                self.call.name.clone_from(&event.name);
                let plan = faults.on_event(&self.call);
                if plan.close {
                    self.phase = Phase::Ended;
                    return false;
                }
                if plan.silence {
                    self.phase = Phase::Silent;
                    return false;
                }
                if plan.expire {
                    self.expire(store, bytes);
                    return false;
                }
                if !plan.delay.is_zero() {
                    self.held = Some(later(now, plan.delay));
                    return false;
                }
                if plan.duplicate {
                    self.send(bytes, kind, &object);
                }
                if plan.drop {
                    self.cursor = event.revision;
                    continue;
                }
            }
            self.send(bytes, kind, &object);
            self.cursor = event.revision;
            if bytes.len() > CHUNK_BYTES {
                return true;
            }
        }
        self.cursor = self.cursor.max(store.revision());
        false
    }

    /// Whether the event is that the definition of the watched resource is gone, which ends its watches.
    fn ends_the_resource(&self, event: &Event) -> bool {
        event.resource == CRDS
            && event.kind == EventKind::Deleted
            && defined_resource(&event.current) == self.selection.resource
    }

    /// The event as this watch sees it.
    fn seen(&self, event: &Event) -> Option<(&'static str, Arc<Value>)> {
        if event.resource != self.selection.resource || event.revision <= self.cursor {
            return None;
        }
        let holds = |object: &Arc<Value>| self.selection.holds(&event.namespace, object);
        let before = event.previous.as_ref().filter(|object| holds(object));
        if event.kind == EventKind::Deleted {
            return before.map(|_| ("DELETED", Arc::clone(&event.current)));
        }
        match (before, holds(&event.current)) {
            (Some(_), true) => Some(("MODIFIED", Arc::clone(&event.current))),
            (None, true) => Some(("ADDED", Arc::clone(&event.current))),
            (Some(previous), false) => {
                let mut last = (**previous).clone();
                last["metadata"]["resourceVersion"] = json!(event.revision.to_string());
                Some(("DELETED", Arc::new(last)))
            }
            (None, false) => None,
        }
    }

    fn expire(&mut self, store: &Store, bytes: &mut Vec<u8>) {
        let error = ApiError::new(
            410,
            "Expired",
            format!("too old resource version: {} ({})", self.cursor, store.revision()),
        );
        line(bytes, "ERROR", &error.to_status());
        self.phase = Phase::Ended;
    }

    fn send(&mut self, bytes: &mut Vec<u8>, kind: &str, object: &Value) {
        let presented = self.present.map(|present| present(object));
        let object = presented.as_ref().unwrap_or(object);
        // Tables carry their columns once; every other shape has none.
        match self.shape {
            Shape::Object => line(bytes, kind, object),
            shape => {
                line(bytes, kind, &shape.object(&self.def, object, self.now, self.first));
            }
        }
        self.first = false;
    }

    fn send_bookmark(&mut self, now: Timestamp, bytes: &mut Vec<u8>) {
        if !matches!(self.phase, Phase::Live) {
            return;
        }
        let last_due = !self.last_bookmark_sent && now >= self.last_bookmark();
        if now < self.next_bookmark && !last_due {
            return;
        }
        self.next_bookmark = later(now, BOOKMARK_EVERY);
        self.last_bookmark_sent |= last_due;
        if self.bookmarks {
            self.bookmark(bytes, false);
        }
    }

    fn bookmark(&self, bytes: &mut Vec<u8>, initial_end: bool) {
        let mut metadata = json!({"resourceVersion": self.cursor.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.shape {
            Shape::Object => json!({
                "kind": self.def.kind, "apiVersion": self.def.api_version(), "metadata": metadata,
            }),
            Shape::Metadata => json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            }),
            Shape::Table { .. } => json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                "columnDefinitions": null, "rows": [],
            }),
        };
        line(bytes, "BOOKMARK", &object);
    }

    fn last_bookmark(&self) -> Timestamp {
        self.ends
            .checked_sub(SignedDuration::try_from(LAST_BOOKMARK).unwrap_or_default())
            .unwrap_or(self.ends)
    }

    fn deadline(&self, now: Timestamp) -> Timestamp {
        if matches!(self.phase, Phase::Silent) {
            return later(now, DEFAULT_TIMEOUT);
        }
        let mut next = self.ends.min(self.next_bookmark);
        if !self.last_bookmark_sent {
            next = next.min(self.last_bookmark());
        }
        if let Some(held) = self.held {
            next = next.min(held);
        }
        next.max(now)
    }
}

fn line(bytes: &mut Vec<u8>, kind: &str, object: &Value) {
    bytes.extend_from_slice(format!("{{\"type\":\"{kind}\",\"object\":").as_bytes());
    let written = serde_json::to_writer(&mut *bytes, object);
    debug_assert!(written.is_ok(), "a JSON value can be written to memory");
    bytes.extend_from_slice(b"}\n");
}

fn later(time: Timestamp, span: Duration) -> Timestamp {
    SignedDuration::try_from(span)
        .ok()
        .and_then(|span| time.checked_add(span).ok())
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::api::registry::Registry;
    use crate::api::selector::{FieldSelector, LabelSelector};
    use crate::resource::CONFIGMAPS;

    fn watcher(store: &Store, labels: &str, options: &ListOptions) -> Result<Watcher, ApiError> {
        let selection = Selection {
            resource: CONFIGMAPS,
            namespace: String::new(),
            labels: LabelSelector::parse(labels).unwrap(),
            fields: FieldSelector::default(),
        };
        let def = Arc::clone(Registry::default().get(&CONFIGMAPS).unwrap());
        let call = CallInfo::default();
        Watcher::start(store, Timestamp::UNIX_EPOCH, def, selection, Shape::Object, call, options)
    }

    fn put(store: &mut Store, name: &str, value: &str) {
        let object = json!({"metadata": {"name": name, "labels": {"v": value}}});
        store.put(&CONFIGMAPS, "n", name, object);
    }

    fn poll(watcher: &mut Watcher, store: &Store) -> (Vec<(String, Value)>, bool) {
        let output = watcher.poll(store, &mut Faults::default(), Timestamp::UNIX_EPOCH);
        let text = String::from_utf8(output.bytes).unwrap();
        let events = text.lines().map(|line| {
            let mut event: Value = serde_json::from_str(line).unwrap();
            (event["type"].as_str().unwrap().to_owned(), event["object"].take())
        });
        (events.collect(), output.ended)
    }

    fn kinds(events: &[(String, Value)]) -> Vec<String> {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or("").to_owned();
        events.iter().map(|(kind, object)| format!("{kind} {}", name(object))).collect()
    }

    #[test]
    fn a_watch_from_nothing_begins_with_the_state() {
        let mut store = Store::default();
        put(&mut store, "a", "1");
        for version in ["", "0"] {
            let options =
                ListOptions { resource_version: version.to_owned(), ..ListOptions::default() };
            let mut watcher = watcher(&store, "", &options).unwrap();
            assert_eq!(kinds(&poll(&mut watcher, &store).0), ["ADDED a"]);
            assert_eq!(kinds(&poll(&mut watcher, &store).0), [""; 0]);
        }
    }

    #[test]
    fn a_watch_from_the_future_is_silent_until_then() {
        let mut store = Store::default();
        let future = (store.revision() + 2).to_string();
        let options = ListOptions { resource_version: future, ..ListOptions::default() };
        let mut watcher = watcher(&store, "", &options).unwrap();
        for name in ["a", "b", "c"] {
            put(&mut store, name, "1");
        }
        assert_eq!(kinds(&poll(&mut watcher, &store).0), ["ADDED c"]);
    }

    #[test]
    fn a_streaming_list_ends_with_a_marked_bookmark() {
        let mut store = Store::default();
        put(&mut store, "a", "1");
        let options = ListOptions {
            send_initial_events: Some(true),
            version_match: Some("NotOlderThan".to_owned()),
            bookmarks: true,
            ..ListOptions::default()
        };
        let (events, _) = poll(&mut watcher(&store, "", &options).unwrap(), &store);
        assert_eq!(kinds(&events), ["ADDED a", "BOOKMARK "]);
        let end = &events[1].1;
        assert_eq!(end["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
        assert_eq!(end["metadata"]["resourceVersion"], store.revision().to_string());
        assert_eq!(end["kind"], "ConfigMap");

        let error =
            watcher(&store, "", &ListOptions { version_match: None, ..options }).unwrap_err();
        assert_eq!((error.code, error.reason), (422, "Invalid"));
    }

    #[test]
    fn leaving_the_selector_shows_the_old_object_with_the_new_revision() {
        let mut store = Store::default();
        put(&mut store, "a", "1");
        let now = store.revision().to_string();
        let options = ListOptions { resource_version: now, ..ListOptions::default() };
        let mut watcher = watcher(&store, "v=1", &options).unwrap();
        put(&mut store, "a", "2");
        let (events, _) = poll(&mut watcher, &store);
        assert_eq!(kinds(&events), ["DELETED a"]);
        assert_eq!(events[0].1["metadata"]["labels"]["v"], "1");
        assert_eq!(events[0].1["metadata"]["resourceVersion"], store.revision().to_string());
    }

    proptest! {
        /// What a list showed, plus what a watch from there says, is what a list shows now.
        #[test]
        fn events_lead_from_one_state_to_the_next(
            before in prop::collection::vec((0..4_u8, 0..3_u8), 0..12),
            after in prop::collection::vec((0..4_u8, 0..3_u8), 0..24),
            polls in prop::collection::vec(any::<bool>(), 24),
        ) {
            let mut store = Store::default();
            let change = |store: &mut Store, (name, value): (u8, u8)| {
                let name = format!("o{name}");
                if value == 0 {
                    store.remove(&CONFIGMAPS, "n", &name);
                } else {
                    put(store, &name, &value.to_string());
                }
            };
            let state = |store: &Store| -> BTreeMap<String, Value> {
                store
                    .list(&CONFIGMAPS)
                    .filter(|object| object["metadata"]["labels"]["v"] == "1")
                    .map(|object| (object["metadata"]["name"].to_string(), (**object).clone()))
                    .collect()
            };
            for step in before {
                change(&mut store, step);
            }
            let mut seen = state(&store);
            let now = store.revision().to_string();
            let options = ListOptions { resource_version: now, ..ListOptions::default() };
            let mut watcher = watcher(&store, "v=1", &options).unwrap();
            let mut last = store.revision();
            for (step, wanted) in after.into_iter().zip(polls) {
                change(&mut store, step);
                let events = if wanted { poll(&mut watcher, &store).0 } else { Vec::new() };
                for (kind, object) in events.into_iter() {
                    let name = object["metadata"]["name"].to_string();
                    let revision: u64 =
                        object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
                    prop_assert!(revision > last);
                    last = revision;
                    match kind.as_str() {
                        "ADDED" => prop_assert!(seen.insert(name, object).is_none()),
                        "MODIFIED" => prop_assert!(seen.insert(name, object).is_some()),
                        _ => prop_assert!(seen.remove(&name).is_some()),
                    }
                }
                if wanted {
                    prop_assert_eq!(&seen, &state(&store));
                }
            }
        }
    }
}
