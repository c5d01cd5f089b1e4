//! Keeps a cache up to date: kube-runtime's watcher, whose requests go through the operator's client, and
//! whose errors set the pace of the next attempt. This module decides nothing.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use kata_plan::Kind;
use kube::api::Api;
use kube::client::Body;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::time::Instant;

use crate::client::{Client, is_watch};
use crate::error::CallError;
use crate::ingest::CachedValue;
use crate::jitter::Jitter;
use crate::metrics::{Check, Metrics};
use crate::pacing;
use crate::watch::Cache;
use crate::watch::any::AnyCache;
use crate::watch::item::Item;
use crate::watch::state::{Expectation, Wake};

impl<T: CachedValue> AnyCache for Cache<T> {
    fn follow(
        self: Arc<Self>,
        client: Client,
        jitter: Arc<Jitter>,
        metrics: Metrics,
    ) -> BoxFuture<'static, ()> {
        Box::pin(self.run(client, jitter, metrics))
    }

    fn has_answer(&self) -> bool {
        self.lock().has_answer()
    }

    fn check(&self) -> Check {
        let state = self.lock();
        let error = state.staleness().or_else(|| state.outage()).map(str::to_owned);
        let invalid = if self.tolerates_unreadable { None } else { state.invalid() };
        let invalid = invalid.and_then(|item| Some(item.content.as_ref().err()?.error.clone()));
        (format!("cache of {}", self.kind.as_str()), error.or(invalid).map_or(Ok(()), Err))
    }

    fn is_behind(&self) -> bool {
        self.lock().is_behind()
    }

    fn relist_if_late(&self) -> Option<Instant> {
        let mut state = self.lock();
        let names = state.take_overdue();
        let next = state.next_deadline();
        drop(state);
        if let Some(names) = names {
            tracing::info!(
                object.kind = self.kind.as_str(),
                object.names = names,
                "the watch has not shown what the API server returned; listing again"
            );
            self.relist.notify_one();
        }
        next
    }

    fn await_response(&self, text: &str) {
        let item = Item::<T>::from_text(text);
        self.lock().await_change(item.name(), Expectation::Version(item.version()));
    }

    fn await_deletion(&self, name: &str) {
        let mut state = self.lock();
        if state.item(name).is_some() {
            state.await_change(name, Expectation::Change);
        }
    }
}

impl<T: CachedValue> Cache<T> {
    async fn run(self: Arc<Self>, client: Client, jitter: Arc<Jitter>, metrics: Metrics) {
        let lifetime = u32::try_from(pacing::WATCH_LIFETIME.as_secs()).unwrap_or(u32::MAX);
        let config = watcher::Config {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            ..watcher::Config::default().timeout(lifetime)
        };
        let api = self.api(client);
        let mut attempt = 0;
        loop {
            let mut events = Box::pin(watcher(api.clone(), config.clone()));
            loop {
                let event = tokio::select! {
                    biased;
                    () = self.relist.notified() => break,
                    event = events.next() => event,
                };
                let error = match event {
                    None => break,
                    Some(Ok(event)) => {
                        self.apply_event(event);
                        continue;
                    }
                    Some(Err(error)) => call_error(self.kind, error),
                };
                metrics.record_watch_restart(self.kind.as_str(), error.category());
                if self.lock().record_contact_loss() {
                    attempt = 0;
                }
                let wait = pacing::watch_retry(error.retry(), error.is_expired(), attempt, &jitter);
                attempt = attempt.saturating_add(1);
                self.record_error(&error);
                tokio::time::sleep_until(Instant::now() + wait).await;
                // After a lost connection the watch resumes where it ended, so that an API server that comes
                // back need not answer a list of every client. In other cases the kind is listed again: the
                // watcher would ask for ever for a history that is gone, and would skip a line that it cannot
                // read.
                if !error.is_transient() || self.lock().is_awaiting() {
                    break;
                }
            }
        }
    }

    /// The API of the kind, whose requests go through [`Cache::send`].
    fn api(self: &Arc<Self>, client: Client) -> Api<Item<T>> {
        let cache = Arc::clone(self);
        let service = tower::service_fn(move |request| {
            let (cache, client) = (Arc::clone(&cache), client.clone());
            async move { cache.send(&client, request).await }
        });
        let kube = kube::Client::new(service, "default");
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(kube, namespace, &self.kind),
            None => Api::all_with(kube, &self.kind),
        }
    }

    async fn send(
        &self,
        client: &Client,
        request: Request<Body>,
    ) -> Result<Response<Body>, CallError> {
        let opens_watch = is_watch(&request);
        let opened = self.lock().opened();
        if let (true, Some(opened)) = (opens_watch, opened) {
            tokio::time::sleep_until(opened + pacing::WATCH_INTERVAL).await;
        }
        let response = client.answer_watcher(self.kind.as_str(), request).await?;
        // The watch will show all changes in the meantime.
        if opens_watch && self.lock().record_contact() {
            self.wake.changed.notify_one();
        }
        Ok(response)
    }

    fn apply_event(&self, event: Event<Item<T>>) {
        let mut state = self.lock();
        let was_behind = state.is_awaiting();
        let wake = state.apply_event(event);
        let has_caught_up = was_behind && !state.is_awaiting();
        drop(state);
        match wake {
            Some(Wake::Now) => self.wake.changed.notify_one(),
            Some(Wake::Soon) => self.wake.progressed.notify_one(),
            None => {}
        }
        if has_caught_up {
            self.wake.caught_up.notify_one();
        }
    }
}

/// The watcher's error as that of the call that failed.
fn call_error(kind: Kind, error: watcher::Error) -> CallError {
    let watch = format!("watch {}", kind.as_str());
    match error {
        watcher::Error::InitialListFailed(error) => {
            CallError::of_kube(format!("list {}", kind.as_str()), error)
        }
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => {
            CallError::of_kube(watch, error)
        }
        watcher::Error::WatchError(status) => CallError::of_status(watch, *status),
        watcher::Error::NoResourceVersion => {
            let source = serde::de::Error::custom("there is no resourceVersion");
            CallError::Unreadable { call: watch, source }
        }
    }
}
