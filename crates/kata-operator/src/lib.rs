//! The operator: observes the cluster, lets [`kata_plan`] decide, applies the plan and reports.
//!
//! ```text
//! watch ─▶ poke ─▶ reconcile: observe (I/O) ─▶ kata_plan::decide (pure) ─▶ apply (I/O) ─▶ report (I/O)
//!                     ▲                                                                     │
//!                     └────────────────────────── look again ◀──────────────────────────────┘
//! ```
//!
//! Decisions must not be made here. [`run`] is everything but the command line, so that a simulation
//! runs the same operator in process.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::channel;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub mod announce;
pub mod apply;
pub mod arguments;
pub mod client;
pub mod clock;
pub mod distribution;
pub mod error;
pub mod ingest;
pub mod jitter;
pub mod lease;
pub mod manifests;
pub mod metrics;
pub mod node_agent;
pub mod observe;
pub mod platform;
pub mod probe;
pub mod reconcile;
pub mod report;
mod rival;
pub mod server;
pub mod settings;
pub mod traces;
pub mod uninstall;
pub mod watch;

pub use settings::Settings;

use client::{Client, WritePermit};
use jitter::Jitter;
use metrics::Metrics;

/// How long a pass may take to end after the signal to stop.
const STOP_LIMIT: Duration = Duration::from_secs(6);
/// How long releasing the lease may take after that. The sum stays below 10 s.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);

/// Why the operator ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An address cannot be served.
    #[error("cannot serve {what} at {address}")]
    Bind {
        /// Health or metrics.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another operator may be working now.
    #[error("lost the lease")]
    LeaseLost,
}

/// Runs the operator until `shutdown` completes. Cancel safe: dropping the future is like a crash, after
/// which another run goes on where this one was.
///
/// # Errors
/// If an address cannot be served, or the lease is lost.
pub async fn run(
    kube: kube::Client,
    settings: Settings,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let metrics = Metrics::new();
    let jitter = Arc::new(Jitter::new(settings.seed));
    let mut servers = JoinSet::new();
    serve(&mut servers, &settings, &metrics).await?;
    let (stop, stopped) = channel(false);
    let mut shutdown = std::pin::pin!(shutdown);

    let Some(election) = settings.election.clone() else {
        let (_permit, fence) = channel(WritePermit::Always);
        let client = Client::new(kube, Arc::clone(&jitter), metrics.clone(), fence);
        metrics.leading(true);
        let controller = reconcile::Controller::new(settings, client, jitter, metrics, stopped);
        // On the heap, so that callers need not hold it on their stack.
        let mut work = Box::pin(controller.work());
        tokio::select! {
            biased;
            () = &mut shutdown => {}
            () = &mut work => return Ok(()),
        }
        stop.send_replace(true);
        finish(work).await;
        return Ok(());
    };

    let (permit, fence) = channel(WritePermit::None);
    let (_always, unfenced) = channel(WritePermit::Always);
    let client = Client::new(kube, Arc::clone(&jitter), metrics.clone(), fence);
    let candidate = lease::Candidate::new(election.identity, election.timing);
    let lease_jitter = Jitter::new(settings.seed.rotate_left(1));
    let mut election = lease::Election::new(
        client.unfenced(unfenced),
        &settings.namespace,
        candidate,
        settings.clock,
        &lease_jitter,
        permit,
        metrics.clone(),
    );
    tokio::select! {
        biased;
        () = &mut shutdown => return Ok(()),
        () = election.win() => {}
    }
    let controller = reconcile::Controller::new(settings, client, jitter, metrics, stopped);
    // On the heap, so that callers need not hold it on their stack.
    let mut work = Box::pin(controller.work());
    tokio::select! {
        biased;
        () = &mut shutdown => {}
        // Dropping the work ends all of it: this process writes no more.
        () = election.hold() => return Err(RunError::LeaseLost),
        () = &mut work => {}
    }
    stop.send_replace(true);
    finish(work).await;
    if tokio::time::timeout(RELEASE_LIMIT, election.release()).await.is_err() {
        tracing::warn!("cannot release the lease in time");
    }
    Ok(())
}

/// Lets the pass that is under way end.
async fn finish(work: impl Future<Output = ()>) {
    let end = Instant::now() + STOP_LIMIT;
    if tokio::time::timeout_at(end, work).await.is_err() {
        tracing::warn!("stopped in the middle of a pass; the next run goes on from there");
    }
}

async fn serve(
    servers: &mut JoinSet<()>,
    settings: &Settings,
    metrics: &Metrics,
) -> Result<(), RunError> {
    let bind = async |what, address| {
        server::bind(address).await.map_err(|source| RunError::Bind { what, address, source })
    };
    match (settings.health_address, settings.metrics_address) {
        (Some(health), Some(other)) if health == other => {
            let listener = bind("health and metrics", health).await?;
            servers.spawn(server::serve_both(listener, metrics.clone()));
        }
        (health, scrape) => {
            if let Some(address) = health {
                let listener = bind("health", address).await?;
                servers.spawn(server::serve_health(listener, metrics.clone()));
            }
            if let Some(address) = scrape {
                let listener = bind("metrics", address).await?;
                servers.spawn(server::serve_metrics(listener, metrics.clone()));
            }
        }
    }
    Ok(())
}
