//! The operator: observes the cluster, lets [`kata_plan`] decide, applies the plan and reports.
//!
//! ```text
//! watch ─▶ wake ─▶ reconcile: observe (I/O) ─▶ kata_plan::decide (pure) ─▶ apply (I/O) ─▶ report (I/O)
//!                     ▲                                                                     │
//!                     └─────────────────────────── requeue ◀───────────────────────────────┘
//! ```
//!
//! This crate makes no decisions. [`run`] is the whole operator except the command line, so that a simulation
//! can run it in process.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kata_api::names::LEASE;
use tokio::sync::watch::channel;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub mod apply;
pub mod client;
pub mod clock;
pub mod error;
pub mod event_recorder;
mod fight;
pub mod ingest;
pub mod jitter;
pub mod lease;
pub mod metrics;
pub mod observe;
pub mod pacing;
pub mod platform;
pub mod reconcile;
pub mod report;
pub mod server;
pub mod settings;
pub mod uninstall;
pub mod watch;

pub use settings::Settings;

use client::{Client, WritePermit};
use jitter::Jitter;
use kata_api::platform::Platform;
use metrics::Metrics;
use platform::Detected;

/// How long a pass may take to end after the signal to stop.
const STOP_LIMIT: Duration = Duration::from_secs(6);
/// How long releasing the lease may take after that. The sum stays below 10 s.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);

/// Why the operator stopped without a signal.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An address cannot be served.
    #[error("cannot serve {what} at {address}")]
    Bind {
        /// Health or metrics.
        what: &'static str,
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
}

/// The operator's namespace on a cluster of this kind, where neither a flag nor the pod names one.
///
/// # Errors
/// If the API groups cannot be read.
pub async fn usual_namespace(
    kube: kube::Client,
    settings: &Settings,
) -> Result<&'static str, error::CallError> {
    let (_permit, fence) = channel(WritePermit::None);
    let jitter = Arc::new(Jitter::new(settings.seed));
    let client = Client::new(kube, jitter, Metrics::new(), settings.clock.clone(), fence);
    let detected = platform::detect(&client, settings.platform).await?;
    Ok(match detected {
        Detected::Kubernetes => Platform::Kubernetes.namespace(),
        Detected::Openshift | Detected::Unsupported => Platform::Openshift.namespace(),
    })
}

/// Runs the operator until `shutdown` completes. Cancel safe: dropping the future has the effect of a crash;
/// the next run continues from the state of the cluster.
///
/// # Errors
/// If an address cannot be served.
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
        let client =
            Client::new(kube, Arc::clone(&jitter), metrics.clone(), settings.clock.clone(), fence);
        metrics.set_leading(true);
        let controller = reconcile::Controller::new(settings, client, jitter, metrics, stopped);
        // On the heap, so that callers need not hold it on their stack.
        let mut work = Box::pin(controller.run());
        tokio::select! {
            biased;
            () = &mut shutdown => {}
            () = &mut work => return Ok(()),
        }
        stop.send_replace(true);
        finish_pass(work).await;
        return Ok(());
    };

    let (permit, fence) = channel(WritePermit::None);
    let (_always, unfenced) = channel(WritePermit::Always);
    let client =
        Client::new(kube, Arc::clone(&jitter), metrics.clone(), settings.clock.clone(), fence);
    let candidate = lease::Candidate::new(election.identity, election.timing);
    let lease_jitter = Jitter::new(settings.seed.rotate_left(1));
    let mut elector = lease::LeaderElector::new(
        client.unfenced(unfenced),
        &settings.namespace,
        candidate,
        &lease_jitter,
        permit,
        metrics.clone(),
    );
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => return Ok(()),
            () = elector.acquire_lease() => {}
        }
        let controller = reconcile::Controller::new(
            settings.clone(),
            client.clone(),
            Arc::clone(&jitter),
            metrics.clone(),
            stopped.clone(),
        );
        // On the heap, so that callers need not hold it on their stack.
        let mut work = Box::pin(controller.run());
        tokio::select! {
            biased;
            () = &mut shutdown => {}
            () = elector.renew_until_lost() => {
                // Continuing drops `work`, so this process writes nothing until it is the leader again.
                tracing::warn!(
                    lease = LEASE,
                    fix = "nothing if it happens once: pods and changes of nodes go on; if it repeats, check how fast the API server answers",
                    "lost the Lease: it was not renewed in time, or another process holds it; this process writes nothing until it leads again"
                );
                continue;
            }
            () = &mut work => {}
        }
        stop.send_replace(true);
        finish_pass(work).await;
        break;
    }
    if tokio::time::timeout(RELEASE_LIMIT, elector.release_lease()).await.is_err() {
        tracing::warn!(
            lease = LEASE,
            fix = lease::RELEASE_FIX,
            "cannot release the Lease in time: the API server did not answer"
        );
    }
    Ok(())
}

/// Waits for the current pass to end, for [`STOP_LIMIT`] at most.
async fn finish_pass(work: impl Future<Output = ()>) {
    let end = Instant::now() + STOP_LIMIT;
    if tokio::time::timeout_at(end, work).await.is_err() {
        tracing::warn!("stopped in the middle of a pass; the next run continues from there");
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
