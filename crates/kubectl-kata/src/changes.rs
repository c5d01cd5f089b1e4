//! Tells when something of the roll-out may have changed, so that a command that waits looks again.
//!
//! It says nothing about what changed: whoever is told reads again. A watch that breaks is a change too.

use std::pin::Pin;
use std::time::Duration;

use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use http::Request;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::time::Instant;

use crate::api::Api;
use crate::resource::{Resource, encode};

/// How long changes are gathered before somebody is told.
const GATHER: Duration = Duration::from_millis(300);
/// How long to wait before a broken watch is opened again.
const PAUSE: Duration = Duration::from_secs(2);
/// How long a watch may be silent before everything is read again all the same.
const RESYNC: Duration = Duration::from_secs(60);

/// Changes of some kinds of objects, from now on.
pub(crate) struct Changes<'a> {
    stream: Pin<Box<dyn Stream<Item = ()> + 'a>>,
}

impl<'a> Changes<'a> {
    /// Watches these kinds, in a namespace or in all.
    pub(crate) fn of(api: &'a Api, kinds: &[Resource], namespace: Option<&str>) -> Self {
        let streams: Vec<BoxStream<'a, ()>> = kinds
            .iter()
            .map(|kind| {
                let path = kind.path(namespace);
                stream::unfold(true, move |first| {
                    let path = path.clone();
                    async move {
                        if !first {
                            tokio::time::sleep_until(Instant::now() + PAUSE).await;
                        }
                        Some((events(api, path).await, false))
                    }
                })
                .flatten()
                .boxed()
            })
            .collect();
        Self { stream: Box::pin(stream::select_all(streams)) }
    }

    /// Resolves when something may have changed.
    pub(crate) async fn next(&mut self) {
        let resync = Instant::now() + RESYNC;
        if tokio::time::timeout_at(resync, self.stream.next()).await.is_err() {
            return;
        }
        let end = Instant::now() + GATHER;
        while tokio::time::timeout_at(end, self.stream.next()).await.is_ok() {}
    }
}

/// A beat for every event of one watch, and one for its end.
async fn events(api: &Api, path: String) -> BoxStream<'static, ()> {
    let version = match api.text("watch", &format!("{path}?limit=1")).await {
        Ok(text) => serde_json::from_str::<Value>(&text)
            .ok()
            .and_then(|list| list["metadata"]["resourceVersion"].as_str().map(str::to_owned)),
        Err(_failed) => None,
    };
    let Some(version) = version else { return stream::iter([()]).boxed() };
    let uri = format!("{path}?watch=1&resourceVersion={}&timeoutSeconds=240", encode(&version));
    let Ok(request) = Request::get(uri).body(Vec::new()) else {
        return stream::iter([()]).boxed();
    };
    match api.client.request_events::<Value>(request).await {
        Ok(events) => events
            .filter_map(async |event| match event {
                Ok(WatchEvent::Bookmark(_)) => None,
                Ok(_) | Err(_) => Some(()),
            })
            .chain(stream::iter([()]))
            .boxed(),
        Err(_failed) => stream::iter([()]).boxed(),
    }
}
