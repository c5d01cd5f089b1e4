//! The HTTP face: axum on 127.0.0.1, HTTP/1.1 and HTTP/2, without TLS and without authentication.
//!
//! It moves bytes; every decision is made in `api::handle`.

mod exec;

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts, Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use tokio::net::TcpListener;

use crate::api::ApiError;
use crate::api::handle;
use crate::cluster::{Answer, Cluster, ConnectionBroken};

/// The largest request body, as in the real API server.
const MAX_BODY: usize = 3 << 20;

/// Serves the cluster; returns the address once it accepts connections.
pub(crate) async fn serve(cluster: Cluster, port: u16) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let address = listener.local_addr()?;
    let stop = cluster.clone();
    let router = Router::new().fallback(answer).with_state(cluster);
    tokio::spawn(async move {
        let served = axum::serve(listener, router)
            .with_graceful_shutdown(async move { stop.stopped().await })
            .await;
        if let Err(error) = served {
            tracing::warn!(%error, "the simulated API server stopped");
        }
    });
    Ok(address)
}

async fn answer(State(cluster): State<Cluster>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await.ok();
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        let error = ApiError::new(
            413,
            "RequestEntityTooLarge",
            format!("limit is {MAX_BODY} bytes for the body of a request"),
        );
        return failure(&error);
    };
    match cluster.respond(http::Request::from_parts(parts, body)).await {
        Ok(Answer::Http(response)) => response.map(axum::body::Body::new),
        Ok(Answer::Exec(request)) => match upgrade {
            Some(upgrade) => exec::upgrade(upgrade, cluster, request),
            None => failure(&ApiError::new(
                400,
                "BadRequest",
                "the simulated API server runs commands over WebSocket only: upgrade required",
            )),
        },
        // A body that fails before its first byte makes hyper close the connection before it has
        // sent the head.
        Err(broken) => {
            Response::new(axum::body::Body::from_stream(stream::iter([Err::<
                Bytes,
                ConnectionBroken,
            >(broken)])))
        }
    }
}

fn failure(error: &ApiError) -> Response {
    handle::failure(error).map(axum::body::Body::from)
}
