//! The two objects of kata-monitor, each by its name.
//!
//! An operator that runs kata-monitor follows them. Without kata-monitor the operator has no permission to
//! watch them and only lists them: once if they do not exist, else until the objects of an earlier operator
//! are gone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kata_api::names;
use kata_plan::{Kind, MonitorObjects, Observed};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::Client;
use crate::error::{Retry, chain};
use crate::jitter::Jitter;
use crate::metrics::Metrics;
use crate::pacing::{RESYNC, WATCH_FAILED};
use crate::watch::{AnyCache, Cache, LoopWaker};

/// The objects of kata-monitor.
#[derive(Debug)]
pub struct MonitorCaches {
    daemon_set: Arc<MonitorCache>,
    constraints: Arc<MonitorCache>,
}

#[derive(Debug)]
struct MonitorCache {
    cache: Arc<Cache<Value>>,
    /// Whether kata-monitor is to run, so that the object is followed.
    is_wanted: bool,
    found: Mutex<Found>,
    /// The object was deleted: list it again.
    deleted: Notify,
    wake: Arc<LoopWaker>,
}

/// The result of the lists before a watch, or instead of one.
#[derive(Clone, Debug)]
enum Found {
    /// There is no answer yet, or the cache has it.
    Nothing,
    /// The API server does not serve the kind.
    NotServed,
    /// The object, which is not followed.
    Listed(Observed<Option<Value>>),
}

impl MonitorCaches {
    /// Empty caches. `is_wanted` is whether kata-monitor is to run, in this namespace.
    pub fn new(namespace: &str, is_wanted: bool, wake: &Arc<LoopWaker>) -> Self {
        let monitored = |cache| {
            Arc::new(MonitorCache {
                cache: Arc::new(cache),
                is_wanted,
                found: Mutex::new(Found::Nothing),
                deleted: Notify::new(),
                wake: Arc::clone(wake),
            })
        };
        let constraints = Cache::new(Kind::SecurityContextConstraints, wake);
        Self {
            daemon_set: monitored(
                Cache::new(Kind::DaemonSet, wake).within(namespace).named(names::MONITOR),
            ),
            constraints: monitored(constraints.named(names::MONITOR_CONSTRAINTS)),
        }
    }

    fn all(&self) -> [&Arc<MonitorCache>; 2] {
        [&self.daemon_set, &self.constraints]
    }

    /// Starts to follow them, or to list them.
    pub fn follow(
        &self,
        tasks: &mut JoinSet<()>,
        client: &Client,
        jitter: &Arc<Jitter>,
        metrics: &Metrics,
    ) {
        for monitored in self.all() {
            let (client, jitter, metrics) = (client.clone(), Arc::clone(jitter), metrics.clone());
            tasks.spawn(Arc::clone(monitored).follow(client, jitter, metrics));
        }
    }

    pub fn view(&self) -> MonitorObjects {
        MonitorObjects {
            // Every API server serves DaemonSets.
            daemon_set: self.daemon_set.view().unwrap_or(Observed::Known(None)),
            constraints: self.constraints.view(),
        }
    }

    /// The caches that are followed.
    pub(super) fn followed(&self) -> Vec<Arc<dyn AnyCache>> {
        let any = |monitored: &Arc<MonitorCache>| -> Arc<dyn AnyCache> {
            Arc::<Cache<Value>>::clone(&monitored.cache)
        };
        let all = self.all().into_iter();
        all.filter(|monitored| monitored.is_followed()).map(any).collect()
    }

    /// The cache of a kind, if it is followed.
    pub(super) fn cache_of(&self, kind: Kind) -> Option<Arc<dyn AnyCache>> {
        let monitored = self.of(kind).filter(|monitored| monitored.is_followed())?;
        Some(Arc::<Cache<Value>>::clone(&monitored.cache))
    }

    fn of(&self, kind: Kind) -> Option<&Arc<MonitorCache>> {
        match kind {
            Kind::DaemonSet => Some(&self.daemon_set),
            Kind::SecurityContextConstraints => Some(&self.constraints),
            _ => None,
        }
    }

    /// Lists the deleted object of this kind again, if it is not followed.
    pub fn relist_deleted(&self, kind: Kind) {
        if let Some(monitored) = self.of(kind).filter(|monitored| !monitored.is_wanted) {
            monitored.deleted.notify_one();
        }
    }

    /// Whether each has a first answer, be it an error.
    pub fn have_answers(&self) -> bool {
        self.all().iter().all(|monitored| match &*monitored.lock() {
            Found::Nothing => monitored.cache.has_answer(),
            Found::NotServed | Found::Listed(_) => true,
        })
    }

    /// Compares what is followed with lists past the caches.
    pub async fn verify(&self, client: &Client) {
        for monitored in self.all() {
            if monitored.is_followed() {
                drop(monitored.cache.read_fresh(client).await);
            }
        }
    }
}

impl MonitorCache {
    fn lock(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the object is followed, or will be as soon as it can be listed.
    fn is_followed(&self) -> bool {
        self.is_wanted && !matches!(*self.lock(), Found::NotServed)
    }

    /// The object; `None` if its kind is not served.
    fn view(&self) -> Option<Observed<Option<Value>>> {
        match self.lock().clone() {
            Found::Nothing => Some(only(self.cache.view().objects)),
            Found::NotServed => None,
            Found::Listed(object) => Some(object),
        }
    }

    fn set_found(&self, found: Found) {
        *self.lock() = found;
        self.wake.changed.notify_one();
    }

    /// Follows the object, for ever, if kata-monitor is to run; else lists it until it is gone.
    async fn follow(self: Arc<Self>, client: Client, jitter: Arc<Jitter>, metrics: Metrics) {
        let mut attempt = 0;
        loop {
            let listed = self.cache.list_fresh(&client).await;
            let refused = listed.as_ref().is_err_and(|error| error.retry() == Retry::AfterChange);
            let is_stable = match listed {
                Err(error) if error.is_not_found() => return self.set_found(Found::NotServed),
                // If the list is refused, the watch's cache reports it.
                result if self.is_wanted && (result.is_ok() || refused) => break,
                Err(error) if self.is_wanted => {
                    self.cache.record_error(&error);
                    false
                }
                result => {
                    let object = only(result.map_or_else(
                        |error| Observed::unknown(self.cache.kind().as_str(), chain(&error)),
                        |view| view.objects,
                    ));
                    let is_gone = matches!(object, Observed::Known(None));
                    let is_left = matches!(&object, Observed::Known(Some(object)) if
                        object["metadata"]["deletionTimestamp"].is_null());
                    self.set_found(Found::Listed(object));
                    // An operator that does not run kata-monitor may lack the permission to list it.
                    if is_gone || refused {
                        return;
                    }
                    is_left
                }
            };
            let wait = if is_stable { RESYNC } else { WATCH_FAILED.wait(attempt, &jitter) };
            attempt = if is_stable { 0 } else { attempt.saturating_add(1) };
            tokio::select! {
                () = self.deleted.notified() => {}
                () = tokio::time::sleep_until(Instant::now() + wait) => {}
            }
        }
        Arc::clone(&self.cache).follow(client, jitter, metrics).await;
    }
}

fn only(objects: Observed<Vec<Value>>) -> Observed<Option<Value>> {
    objects.map(|objects| objects.into_iter().next())
}
