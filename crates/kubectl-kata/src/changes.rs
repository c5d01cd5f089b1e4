//! Tells when something of the roll-out may have changed, so that a command that waits looks again.
//!
//! It says nothing about what changed: whoever is told reads again. A watch that breaks is a change too.
//! Between two looks nothing is missed: the watches are open before the first, and stay so.

use std::time::Duration;

use futures::future;
use futures::stream::{self, BoxStream, StreamExt as _};
use http::Request;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::time::Instant;

use crate::api::Api;
use crate::resource::{Resource, encode};

/// How long changes are gathered before somebody is told.
const GATHER: Duration = Duration::from_millis(300);
/// How many times as long as a look takes there is none: what reads thousands of objects must not keep the
/// API server busy with that.
const LEISURE: u32 = 4;
/// How long to wait before a broken watch is opened again.
const PAUSE: Duration = Duration::from_secs(2);
/// How long a watch may be silent before everything is read again all the same.
const RESYNC: Duration = Duration::from_secs(60);

/// Changes of some kinds of objects, from now on.
pub(crate) struct Changes {
    stream: BoxStream<'static, ()>,
    told: Instant,
}

impl Changes {
    /// Watches these kinds, in a namespace or in all. Afterwards is the time for the first look.
    pub(crate) async fn of(api: &Api, kinds: &[Resource], namespace: Option<&str>) -> Self {
        let opened = kinds.iter().map(|kind| {
            let (api, path) = (api.for_watches(), kind.path(namespace));
            async move {
                let first = events(&api, &path).await;
                let again = stream::unfold((api, path), async |(api, path)| {
                    tokio::time::sleep_until(Instant::now() + PAUSE).await;
                    let events = events(&api, &path).await;
                    // What happened in between is not told by any watch.
                    Some((stream::iter([()]).chain(events), (api, path)))
                });
                first.chain(again.flatten()).boxed()
            }
        });
        let streams = future::join_all(opened).await;
        Self { stream: stream::select_all(streams).boxed(), told: Instant::now() }
    }

    /// Resolves when something may have changed. What is looked at meanwhile takes until the next call.
    pub(crate) async fn next(&mut self) {
        let looked = Instant::now();
        let leisure = (self.told.elapsed() * LEISURE).min(RESYNC);
        if tokio::time::timeout_at(looked + RESYNC, self.stream.next()).await.is_ok() {
            let end = (Instant::now() + GATHER).max(looked + leisure);
            while tokio::time::timeout_at(end, self.stream.next()).await.is_ok() {}
        }
        self.told = Instant::now();
    }
}

/// A beat for every event of one watch, and one for its end.
async fn events(api: &Api, path: &str) -> BoxStream<'static, ()> {
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
    let opened = api.client.request_events::<Value>(request);
    match tokio::time::timeout(api.timeout(), opened).await {
        Ok(Ok(events)) => events
            .filter_map(async |event| match event {
                Ok(WatchEvent::Bookmark(_)) => None,
                Ok(_) | Err(_) => Some(()),
            })
            .chain(stream::iter([()]))
            .boxed(),
        Ok(Err(_)) | Err(_) => stream::iter([()]).boxed(),
    }
}
