//! Health and metrics over HTTP, for the kubelet and for Prometheus. It only reads.
//!
//! Any pod of the cluster may be able to connect, so connections are bounded in number and in time. If there are too many,
//! the oldest is closed: a client that asks at once is answered within milliseconds and is not the oldest by then.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::metrics::Metrics;

/// How long the loop may go without a heartbeat: longer than an idle loop does, and than a read with its
/// retries takes while the API server does not answer.
const LIVE_LIMIT: Duration = Duration::from_secs(180);
/// How many connections an address has at most.
const CONNECTIONS: usize = 64;
/// How long a client may take to send the head of its request.
const HEAD_LIMIT: Duration = Duration::from_secs(5);
/// How long a connection may last, which has one request.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);
/// How long to wait after a connection could not be accepted, for example since no file descriptor is left.
const PAUSE: Duration = Duration::from_secs(1);

/// Binds an address.
///
/// # Errors
/// If the address is in use, or is not an address of this machine.
pub async fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves `/livez` and `/readyz`, until dropped.
pub async fn serve_health(listener: TcpListener, metrics: Metrics) {
    serve(listener, health_routes(metrics)).await;
}

/// Serves `/metrics`, until dropped.
pub async fn serve_metrics(listener: TcpListener, metrics: Metrics) {
    serve(listener, metrics_routes(metrics)).await;
}

/// Serves all of them at one address, until dropped.
pub async fn serve_both(listener: TcpListener, metrics: Metrics) {
    serve(listener, health_routes(metrics.clone()).merge(metrics_routes(metrics))).await;
}

fn health_routes(metrics: Metrics) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/healthz", get(livez))
        .route("/readyz", get(readyz))
        .with_state(metrics)
}

fn metrics_routes(metrics: Metrics) -> Router {
    Router::new().route("/metrics", get(scrape)).with_state(metrics)
}

async fn serve(listener: TcpListener, routes: Router) {
    // They end with this future.
    let mut connections = JoinSet::new();
    let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(error = %error, "cannot accept a connection for health or metrics");
                tokio::time::sleep_until(Instant::now() + PAUSE).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        oldest_first.retain(|connection| !connection.is_finished());
        if oldest_first.len() >= CONNECTIONS
            && let Some(oldest) = oldest_first.pop_front()
        {
            oldest.abort();
        }
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_LIMIT)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes.clone()));
        // What a client does wrong is no news.
        let ended = async move { drop(tokio::time::timeout(CONNECTION_LIMIT, connection).await) };
        oldest_first.push_back(connections.spawn(ended));
    }
}

async fn livez(State(metrics): State<Metrics>) -> (StatusCode, String) {
    let elapsed = metrics.time_since_heartbeat();
    if elapsed <= LIVE_LIMIT {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        let seconds = elapsed.as_secs();
        (StatusCode::SERVICE_UNAVAILABLE, format!("no heartbeat of the loop for {seconds} s\n"))
    }
}

async fn readyz(State(metrics): State<Metrics>, RawQuery(query): RawQuery) -> (StatusCode, String) {
    let (ready, checks) = metrics.checks();
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let verbose =
        query.is_some_and(|query| query.split('&').any(|part| part.starts_with("verbose")));
    if ready && !verbose {
        return (code, "ok\n".to_owned());
    }
    let mut text = String::new();
    for (name, outcome) in checks {
        match outcome {
            Ok(()) => text.push_str(&format!("[+] {name} ok\n")),
            Err(error) => text.push_str(&format!("[-] {name} failed: {error}\n")),
        }
    }
    text.push_str(if ready { "readyz check passed\n" } else { "readyz check failed\n" });
    (code, text)
}

async fn scrape(State(metrics): State<Metrics>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], metrics.text())
}
