//! The in-process face: a `tower::Service` that goes below `kube::Client`, without sockets.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use tower::BoxError;

use crate::api::ApiError;
use crate::api::handle;
use crate::cluster::{Answer, Body, Cluster};

/// Sends requests straight to a cluster.
#[derive(Clone, Debug)]
pub struct ClusterService {
    cluster: Cluster,
}

impl ClusterService {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster }
    }
}

impl<B> tower::Service<http::Request<B>> for ClusterService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let cluster = self.cluster.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await.map_err(Into::into)?.to_bytes();
            match cluster.respond(http::Request::from_parts(parts, bytes)).await? {
                Answer::Http(response) => Ok(response),
                Answer::Exec(_) => {
                    let error = ApiError::new(
                        501,
                        "NotImplemented",
                        "commands in simulated pods need a connection over HTTP",
                    );
                    let full = |bytes| {
                        http_body_util::Full::new(bytes)
                            .map_err(|never| match never {})
                            .boxed_unsync()
                    };
                    Ok(handle::failure(&error).map(full))
                }
            }
        })
    }
}
