//! Watches: caches of the kinds that matter, kept up to date, and a poke when something that matters
//! has changed.
//!
//! A cache says "nothing to do" cheaply; it never justifies disturbing a node. What a write answered is
//! absorbed too, so that the next pass sees it ([`Cache::absorb`]). Objects that cannot be read spoil
//! nothing else: the cache reports them as trouble, and the decision waits ([`kata_plan::Observed`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use kata_plan::{Kind, ObjectRef, Observed, UnreadableObject};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::client::{Client, Endpoint};
use crate::error::{CallError, Retry, chain};
use crate::ingest::{Cached, Head};
use crate::jitter::Jitter;
use crate::metrics::{Check, Metrics};

/// How long a watch lasts; a connection that died silently is noticed [`WATCH_SLACK`] later.
const WATCH_SECONDS: u32 = 60;
/// How much longer than the watch we wait for its end.
const WATCH_SLACK: Duration = Duration::from_secs(5);
/// How long a cache may be out of contact before it counts as unknown.
const STALE_AFTER: Duration = Duration::from_secs(75);
/// How long a cache may be out of contact before `/readyz` tells.
const READY_WITHOUT: Duration = Duration::from_secs(10);
/// A watch that lasted so long counts as success: what ends it later is a new trouble.
const WATCH_LASTED: Duration = Duration::from_secs(30);
/// How many bytes a watch may keep in reserve.
const SPARE: usize = 64 << 10;
/// The longest wait between two attempts.
const BACKOFF_CAP: Duration = Duration::from_secs(30);

/// The cached objects of one kind, by name.
#[derive(Debug)]
pub struct Cache<T> {
    endpoint: Endpoint,
    field_selector: Option<String>,
    /// Whether the rest is of use while one object cannot be understood.
    each_by_itself: bool,
    state: Mutex<State<T>>,
    poke: Arc<Notify>,
}

#[derive(Debug)]
struct State<T> {
    synced: bool,
    objects: BTreeMap<String, Entry<T>>,
    /// Objects that cannot be understood, with the reason.
    invalid: BTreeMap<String, Invalid>,
    /// Since when the API server does not answer us, and what it says instead.
    trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Entry<T> {
    version: u128,
    value: T,
}

/// An object that cannot be understood.
#[derive(Debug, PartialEq)]
struct Invalid {
    uid: Option<String>,
    created: Option<Timestamp>,
    error: String,
}

impl Invalid {
    /// The name of an object, as far as it has one, and why the object cannot be understood.
    fn from_text(text: &str, error: String) -> (String, Self) {
        match serde_json::from_str::<Named>(text) {
            Ok(Named { metadata: NamedMetadata { name, uid, creation_timestamp, .. } }) => {
                let created = creation_timestamp.and_then(|time| time.parse().ok());
                (name, Self { uid, created, error })
            }
            Err(_) => ("without a name".to_owned(), Self { uid: None, created: None, error }),
        }
    }
}

#[derive(Debug)]
struct Trouble {
    since: Instant,
    error: String,
    /// Whether waiting does not help.
    lasting: bool,
}

impl Trouble {
    /// Whether what was known before cannot be relied on any more.
    fn is_doubt(&self) -> bool {
        self.lasting || self.since.elapsed() >= STALE_AFTER
    }
}

#[derive(Deserialize)]
struct Named {
    metadata: NamedMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamedMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    creation_timestamp: Option<String>,
}

/// One line of a watch whose object is as expected, which nearly all are: read in one go.
#[derive(Deserialize)]
struct Line<W> {
    #[serde(rename = "type")]
    type_: String,
    object: W,
}

/// The Status object of an `ERROR` line.
#[derive(Deserialize)]
struct LineStatus {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

impl<T: Cached> Cache<T> {
    /// An empty cache that pokes `poke` when something changes.
    pub fn new(endpoint: Endpoint, field_selector: Option<String>, poke: Arc<Notify>) -> Self {
        let state = State {
            synced: false,
            objects: BTreeMap::new(),
            invalid: BTreeMap::new(),
            trouble: None,
        };
        Self { endpoint, field_selector, each_by_itself: false, state: Mutex::new(state), poke }
    }

    /// The same, and one object that cannot be understood spoils no other: see [`Cache::unreadable`].
    pub fn each_by_itself(self) -> Self {
        Self { each_by_itself: true, ..self }
    }

    /// The objects that cannot be understood, if the others are of use all the same.
    pub fn unreadable(&self, kind: Kind) -> Vec<UnreadableObject> {
        if !self.each_by_itself {
            return Vec::new();
        }
        let state = self.lock();
        let invalid = state.invalid.iter();
        invalid
            .map(|(name, invalid)| UnreadableObject {
                object: ObjectRef::new(kind, name, invalid.uid.as_deref()),
                created: invalid.created,
                error: invalid.error.clone(),
            })
            .collect()
    }

    /// The kind.
    pub fn kind(&self) -> &str {
        self.endpoint.kind()
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing panics while the lock is held; if it did, the next relist repairs the contents.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known.
    pub fn observed(&self) -> Observed<Vec<T>> {
        let state = self.lock();
        match self.doubt(&state) {
            Some((part, error)) => Observed::unknown(part, error),
            None => {
                Observed::Known(state.objects.values().map(|entry| entry.value.clone()).collect())
            }
        }
    }

    /// An object, if it is known.
    pub fn get(&self, name: &str) -> Option<T> {
        self.lock().objects.get(name).map(|entry| entry.value.clone())
    }

    /// The latest version of an object for whose value `holds` is true.
    pub fn version_if(&self, name: &str, holds: impl Fn(&T) -> bool) -> Option<u128> {
        self.lock().objects.get(name).filter(|entry| holds(&entry.value)).map(|entry| entry.version)
    }

    /// Why the contents cannot be relied on, if they cannot: of what, and the error.
    fn doubt<'a>(&self, state: &'a State<T>) -> Option<(String, &'a str)> {
        let kind = self.kind();
        if let Some(trouble) = &state.trouble
            && (!state.synced || trouble.is_doubt())
        {
            return Some((kind.to_owned(), &trouble.error));
        }
        if !state.synced {
            return Some((kind.to_owned(), "not read yet"));
        }
        if self.each_by_itself {
            return None;
        }
        let (name, invalid) = state.invalid.first_key_value()?;
        Some((format!("{kind} {name}"), &invalid.error))
    }

    /// Whether a first answer is there, be it an error.
    pub fn has_answer(&self) -> bool {
        let state = self.lock();
        state.synced || state.trouble.is_some()
    }

    /// Whether there may be an object: there is one, or it cannot be told.
    pub fn is_in_use(&self) -> bool {
        let state = self.lock();
        self.doubt(&state).is_some() || !state.objects.is_empty()
    }

    /// For `/readyz`.
    pub fn check(&self) -> Check {
        let name = format!("cache of {}", self.kind());
        // Asked at every pass: nothing is copied.
        let state = self.lock();
        let answer = self.doubt(&state).map_or(Ok(()), |(_, error)| Err(error.to_owned()));
        let silent = state
            .trouble
            .as_ref()
            .filter(|trouble| trouble.since.elapsed() >= READY_WITHOUT)
            .map_or(Ok(()), |trouble| Err(trouble.error.clone()));
        (name, answer.and(silent))
    }

    /// Lists all objects past the cache, by quorum, and takes the answer into the cache.
    ///
    /// # Errors
    /// If the list fails.
    pub async fn refresh(&self, client: &Client) -> Result<String, CallError> {
        let mut items = Vec::new();
        let mut invalid = BTreeMap::new();
        let selector = self.field_selector.as_deref();
        let version = client
            .list(&self.endpoint, selector, |text| match Self::read(text) {
                Ok((name, version, value)) => {
                    // What means the same shares the memory of what is known.
                    let known = self.get(&name).filter(|known| known.same(&value));
                    items.push((name, Entry { version, value: known.unwrap_or(value) }));
                }
                Err((name, error)) => {
                    invalid.insert(name, error);
                }
            })
            .await?;
        let listed_at = number(&version);
        let mut state = self.lock();
        // What could not be relied on any more can be again, even if it is what it was.
        let doubted = state.trouble.take().is_some_and(|trouble| trouble.is_doubt());
        let mut changed = doubted || !state.synced || state.invalid != invalid;
        for (name, found) in &invalid {
            if state.invalid.get(name) != Some(found) {
                tracing::warn!(
                    object.kind = self.kind(),
                    object.name = name,
                    error = found.error,
                    "cannot read an object"
                );
            }
        }
        let known = std::mem::take(&mut state.objects);
        let mut objects: BTreeMap<String, Entry<T>> = items.into_iter().collect();
        changed |= objects.keys().any(|name| !known.contains_key(name));
        // What the cache learned after the list was made stays.
        for (name, known) in known {
            match objects.get(&name) {
                Some(listed) if listed.version >= known.version => {
                    changed |= !listed.value.same(&known.value);
                }
                None if known.version <= listed_at => changed = true,
                Some(_) | None => {
                    objects.insert(name, known);
                }
            }
        }
        state.objects = objects;
        state.invalid = invalid;
        state.synced = true;
        drop(state);
        if changed {
            self.poke.notify_one();
        }
        Ok(version)
    }

    /// Takes an object, as a write answered it, into the cache, without a poke: the pass that wrote it
    /// knows. One that cannot be read is left to the watch.
    pub fn absorb(&self, text: &str) {
        if let Ok((name, version, value)) = Self::read(text) {
            self.put(name, version, value);
        }
    }

    /// Forgets an object that a write found to be gone.
    pub fn forget(&self, name: &str) {
        self.lock().objects.remove(name);
    }

    fn read(text: &str) -> Result<(String, u128, T), (String, Invalid)> {
        match serde_json::from_str::<T::Wire>(text).map(T::take) {
            Ok((Head { name, .. }, _)) if name.is_empty() => {
                Err(Invalid::from_text(text, "it has no name".to_owned()))
            }
            Ok((Head { name, version }, value)) => Ok((name, number(&version), value)),
            Err(error) => Err(Invalid::from_text(text, error.to_string())),
        }
    }

    /// Keeps the newer of what is known and what is new; returns whether the value changed.
    fn put(&self, name: String, version: u128, value: T) -> bool {
        let mut state = self.lock();
        let was_invalid = state.invalid.remove(&name).is_some();
        match state.objects.get_mut(&name) {
            Some(known) if version < known.version => was_invalid,
            Some(known) if known.value.same(&value) => {
                known.version = version;
                was_invalid
            }
            Some(known) => {
                *known = Entry { version, value };
                true
            }
            None => {
                state.objects.insert(name, Entry { version, value });
                true
            }
        }
    }

    /// Keeps the cache up to date, for ever.
    pub async fn follow(self: Arc<Self>, client: Client, jitter: Arc<Jitter>, metrics: Metrics) {
        let mut attempt = 0;
        // Where to go on; `None` if the objects must be listed first.
        let mut version: Option<String> = None;
        loop {
            let listed = match version.take() {
                Some(version) => Ok(version),
                None => self.refresh(&client).await,
            };
            let error = match listed {
                Ok(mut from) => {
                    let begun = Instant::now();
                    let error = self.watch_from(&client, &mut from, &metrics).await;
                    // A list that succeeds does not: lists are what must not be repeated quickly
                    // while watches are refused.
                    if begun.elapsed() >= WATCH_LASTED {
                        attempt = 0;
                    }
                    // Without a connection nothing is lost: the history goes on where it ended, and
                    // an API server that comes back need not answer everybody's lists.
                    if matches!(error, CallError::Unreachable { .. } | CallError::Timeout { .. }) {
                        version = Some(from);
                    }
                    error
                }
                Err(error) => error,
            };
            metrics.watch_restart(self.kind(), error.category());
            let wait = match error.retry() {
                // The history is gone: list again at once, but not in a tight loop.
                Retry::Reread if error.is_expired() => {
                    jitter.backoff(attempt, Duration::from_millis(100), BACKOFF_CAP)
                }
                Retry::After(wait) => jitter.spread(wait * 2).min(BACKOFF_CAP * 2),
                _ => jitter.backoff(attempt, Duration::from_millis(500), BACKOFF_CAP),
            };
            attempt = attempt.saturating_add(1);
            self.note(&error);
            tokio::time::sleep_until(Instant::now() + wait).await;
        }
    }

    /// Remembers trouble, and logs it once.
    pub(crate) fn note(&self, error: &CallError) {
        if error.is_expired() {
            return;
        }
        let lasting = matches!(error.retry(), Retry::AfterChange) || error.is_not_found();
        let text = chain(error);
        let mut state = self.lock();
        let known = state.trouble.as_ref().is_some_and(|trouble| trouble.error == text);
        let since = state.trouble.as_ref().map_or_else(Instant::now, |trouble| trouble.since);
        state.trouble = Some(Trouble { since, error: text.clone(), lasting });
        let first = !state.synced || lasting;
        drop(state);
        if !known {
            tracing::warn!(object.kind = self.kind(), error = text, "cannot watch");
            if first {
                self.poke.notify_one();
            }
        }
    }

    /// Watches from a version on; returns the error that ended it. Time limits are no errors.
    async fn watch_from(
        &self,
        client: &Client,
        version: &mut String,
        metrics: &Metrics,
    ) -> CallError {
        loop {
            let selector = self.field_selector.as_deref();
            let watch = client.watch(&self.endpoint, selector, version, WATCH_SECONDS).await;
            let stream = match watch {
                Ok(stream) => stream,
                Err(error) => return error,
            };
            // We are in contact, and all that happened since is on its way.
            self.clear_trouble();
            let end = Instant::now() + Duration::from_secs(u64::from(WATCH_SECONDS)) + WATCH_SLACK;
            let mut stream = std::pin::pin!(stream);
            let mut buffer = Buffer::default();
            let begun = version.clone();
            loop {
                match tokio::time::timeout_at(end, stream.next()).await {
                    // The connection is dead: the API server should have ended the watch by now.
                    Err(_) => {
                        metrics.watch_restart(self.kind(), "silent");
                        break;
                    }
                    Ok(None) => break,
                    Ok(Some(Err(error))) => return error,
                    Ok(Some(Ok(chunk))) => {
                        buffer.bytes.extend_from_slice(&chunk);
                        if let Err(error) = self.take_lines(&mut buffer, version) {
                            return error;
                        }
                    }
                }
            }
            // A watch that ends at once and brought nothing must not become a tight loop.
            if begun == *version {
                let early = end - WATCH_SLACK - Duration::from_secs(u64::from(WATCH_SECONDS))
                    + Duration::from_secs(1);
                tokio::time::sleep_until(early).await;
            }
            self.clear_trouble();
        }
    }

    fn clear_trouble(&self) {
        let doubted = self.lock().trouble.take().is_some_and(|trouble| trouble.is_doubt());
        if doubted {
            self.poke.notify_one();
        }
    }

    fn take_lines(&self, buffer: &mut Buffer, version: &mut String) -> Result<(), CallError> {
        let Buffer { bytes, searched } = buffer;
        let mut start = 0;
        while let Some(found) =
            bytes.get(*searched..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
        {
            let end = *searched + found;
            let line = bytes.get(start..end).unwrap_or_default();
            start = end + 1;
            *searched = start;
            if !line.iter().all(u8::is_ascii_whitespace) {
                self.take_line(line, version)?;
            }
        }
        bytes.drain(..start);
        *searched = bytes.len();
        // One large object must not cost its size for ever.
        bytes.shrink_to(SPARE);
        Ok(())
    }

    fn take_line(&self, line: &[u8], version: &mut String) -> Result<(), CallError> {
        let read = match serde_json::from_slice::<Line<T::Wire>>(line) {
            Ok(Line { type_, object }) if matches!(type_.as_str(), "ADDED" | "MODIFIED") => {
                Some(T::take(object)).filter(|(head, _)| !head.name.is_empty())
            }
            _ => None,
        };
        let changed = match read {
            Some((head, value)) => {
                let number = number(&head.version);
                *version = head.version;
                self.put(head.name, number, value)
            }
            None => self.take_other_line(line, version)?,
        };
        if changed {
            self.poke.notify_one();
        }
        Ok(())
    }

    /// A line that is not a new state of an object that can be read.
    fn take_other_line(&self, line: &[u8], version: &mut String) -> Result<bool, CallError> {
        let unreadable =
            |source| CallError::Unreadable { call: format!("watch {}", self.kind()), source };
        let Line { type_, object } =
            serde_json::from_slice::<Line<&RawValue>>(line).map_err(unreadable)?;
        let text = object.get();
        if type_ == "ERROR" {
            let status: LineStatus = serde_json::from_str(text).map_err(unreadable)?;
            return Err(CallError::Refused {
                call: format!("watch {}", self.kind()),
                code: status.code,
                reason: status.reason,
                message: status.message,
                retry_after: None,
            });
        }
        let named = serde_json::from_str::<Named>(text).map(|named| named.metadata);
        let seen = named.as_ref().map_or("", |metadata| metadata.resource_version.as_str());
        if !seen.is_empty() {
            seen.clone_into(version);
        }
        match (type_.as_str(), named) {
            ("BOOKMARK", _) | ("DELETED", Err(_)) => Ok(false),
            ("DELETED", Ok(NamedMetadata { name, resource_version, .. })) => {
                let mut state = self.lock();
                let gone = number(&resource_version);
                let was_invalid = state.invalid.remove(&name).is_some();
                // An object of the same name that was made since stays.
                let stays = state.objects.get(&name).is_some_and(|known| known.version > gone);
                Ok(was_invalid || (!stays && state.objects.remove(&name).is_some()))
            }
            _ => {
                let (name, invalid) = match Self::read(text) {
                    Ok(_) => Invalid::from_text(text, format!("unknown type of event {type_}")),
                    Err(unread) => unread,
                };
                tracing::warn!(
                    object.kind = self.kind(),
                    object.name = name,
                    error = invalid.error,
                    "cannot read an object"
                );
                let mut state = self.lock();
                state.objects.remove(&name);
                state.invalid.insert(name, invalid);
                Ok(true)
            }
        }
    }
}

/// The bytes of a watch that are not taken yet.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// How many of them hold no end of a line.
    searched: usize,
}

/// A resourceVersion as a number, in which they grow. One that is not a number counts as the newest,
/// so that the last answer wins.
fn number(version: &str) -> u128 {
    version.parse().unwrap_or(u128::MAX)
}
