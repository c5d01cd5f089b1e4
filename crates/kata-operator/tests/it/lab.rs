//! Clusters to test on, and what tests ask them. Times are virtual: nothing here waits for real.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kata_operator::client::{Client, WritePermit};
use kata_operator::jitter::Jitter;
use kata_operator::metrics::Metrics;
use simcluster::clock::Clock;
use simcluster::{Cluster, Simulation};
use tokio::sync::watch;
use tokio::time::Instant;

/// When simulated clusters begin.
pub(crate) fn epoch() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// An API server without controllers and objects.
pub(crate) fn bare() -> Cluster {
    Cluster::start(Simulation::new(epoch(), Vec::new()), Clock::starting_at(epoch()))
}

/// A client of the operator's own sort.
pub(crate) fn calls(cluster: &Cluster, permit: WritePermit) -> Client {
    let (_sender, fence) = watch::channel(permit);
    let kube = kube::Client::new(cluster.client_service(), "default");
    Client::new(kube, Arc::new(Jitter::new(1)), Metrics::new(), fence)
}

/// Lets virtual time pass until `done` holds; false after `limit`.
pub(crate) async fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if done() {
            return true;
        }
        let now = Instant::now();
        if now >= end {
            return false;
        }
        tokio::time::sleep_until(now + Duration::from_secs(1)).await;
    }
}

/// How many requests of these verbs there were.
pub(crate) fn requests(cluster: &Cluster, verbs: &[&str]) -> u64 {
    cluster.with(|sim, _| {
        let counts = sim.frontend.requests();
        counts.filter(|(_, verb, _)| verbs.contains(verb)).map(|(.., count)| count).sum()
    })
}
