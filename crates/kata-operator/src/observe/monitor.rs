//! The caches of what kata-monitor has in the cluster: two objects, each by its name.
//!
//! An operator that was given no image of kata-monitor looks once whether an earlier one left
//! something, and follows only what it finds. It must not need permissions that it was not given.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kata_api::names;
use kata_plan::{Kind, MonitorObjects, Observed};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::client::{Client, Endpoint};
use crate::error::Retry;
use crate::jitter::Jitter;
use crate::metrics::{Check, Metrics};
use crate::watch::Cache;

/// The first and the longest wait before a look that failed is repeated.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The caches of kata-monitor's objects.
#[derive(Debug)]
pub struct MonitorCaches {
    daemon_set: Arc<Single>,
    constraints: Arc<Single>,
}

/// The cache of one object.
#[derive(Debug)]
struct Single {
    cache: Arc<Cache<Value>>,
    /// Whether it shall exist, so that it matters if it cannot be read.
    wanted: bool,
    /// Whether the API server does not serve the kind.
    unserved: AtomicBool,
    /// Whether a look is over that found nothing to follow.
    settled: AtomicBool,
    poke: Arc<Notify>,
}

impl MonitorCaches {
    /// Empty caches. `wanted` is whether kata-monitor shall run, in this namespace.
    pub fn new(namespace: &str, wanted: bool, poke: &Arc<Notify>) -> Self {
        let single = |endpoint, name: &str| {
            let selector = Some(format!("metadata.name={name}"));
            Arc::new(Single {
                cache: Arc::new(Cache::new(endpoint, selector, Arc::clone(poke))),
                wanted,
                unserved: AtomicBool::new(false),
                settled: AtomicBool::new(false),
                poke: Arc::clone(poke),
            })
        };
        Self {
            daemon_set: single(Endpoint::within(Kind::DaemonSet, namespace), names::MONITOR),
            constraints: single(
                Endpoint::of(Kind::SecurityContextConstraints),
                names::MONITOR_CONSTRAINTS,
            ),
        }
    }

    fn all(&self) -> [&Arc<Single>; 2] {
        [&self.daemon_set, &self.constraints]
    }

    /// Starts to follow them.
    pub fn follow(
        &self,
        tasks: &mut JoinSet<()>,
        client: &Client,
        jitter: &Arc<Jitter>,
        metrics: &Metrics,
    ) {
        for single in self.all() {
            let (client, jitter, metrics) = (client.clone(), Arc::clone(jitter), metrics.clone());
            tasks.spawn(Arc::clone(single).follow(client, jitter, metrics));
        }
    }

    /// What is known.
    pub fn observed(&self) -> MonitorObjects {
        MonitorObjects {
            daemon_set: self.daemon_set.observed(),
            constraints: (!self.constraints.unserved.load(Ordering::Relaxed))
                .then(|| self.constraints.observed()),
        }
    }

    /// Takes what a write answered.
    pub fn absorb(&self, kind: Kind, text: &str) {
        match kind {
            Kind::DaemonSet => self.daemon_set.cache.absorb(text),
            Kind::SecurityContextConstraints => self.constraints.cache.absorb(text),
            _ => {}
        }
    }

    /// Whether each has had a first answer, be it an error.
    pub fn have_answers(&self) -> bool {
        self.all()
            .iter()
            .all(|single| single.settled.load(Ordering::Relaxed) || single.cache.has_answer())
    }

    /// For `/readyz`: what has to be read and can be.
    pub fn checks(&self) -> impl Iterator<Item = Check> {
        self.all()
            .into_iter()
            .filter(|single| single.wanted && !single.unserved.load(Ordering::Relaxed))
            .map(|single| single.cache.check())
    }

    /// Reads again what is followed, past the caches; errors show in them.
    pub async fn refresh(&self, client: &Client) {
        for single in self.all() {
            if !single.settled.load(Ordering::Relaxed) {
                // A read that fails now fails in the watch too, which tells.
                drop(single.cache.refresh(client).await);
            }
        }
    }
}

impl Single {
    fn observed(&self) -> Observed<Option<Value>> {
        self.cache.observed().map(|objects| objects.into_iter().next())
    }

    /// Follows the object, for ever; ends if there is nothing to follow.
    async fn follow(self: Arc<Self>, client: Client, jitter: Arc<Jitter>, metrics: Metrics) {
        let mut attempt = 0;
        loop {
            let begun = Instant::now();
            match self.cache.refresh(&client).await {
                Ok(_version) if self.wanted || self.exists() => break,
                Ok(_version) => return self.settle(),
                Err(error) if error.is_not_found() => {
                    self.unserved.store(true, Ordering::Relaxed);
                    return self.settle();
                }
                // Whoever shall not run it may not be allowed to look.
                Err(error) if !self.wanted && matches!(error.retry(), Retry::AfterChange) => {
                    return self.settle();
                }
                Err(error) => {
                    if self.wanted {
                        self.cache.note(&error);
                    } else {
                        // Nobody waits for it.
                        self.settled.store(true, Ordering::Relaxed);
                    }
                    let (first, cap) = LOOK_AGAIN;
                    let wait = jitter.backoff(attempt, first, cap);
                    attempt = attempt.saturating_add(1);
                    tokio::time::sleep_until(begun + wait).await;
                }
            }
        }
        self.settled.store(false, Ordering::Relaxed);
        Arc::clone(&self.cache).follow(client, jitter, metrics).await;
    }

    fn exists(&self) -> bool {
        self.cache.observed().known().is_some_and(|objects| !objects.is_empty())
    }

    fn settle(&self) {
        self.settled.store(true, Ordering::Relaxed);
        self.poke.notify_one();
    }
}
