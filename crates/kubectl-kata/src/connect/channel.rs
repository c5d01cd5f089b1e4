//! What every request passes on its way: it gets its credentials, and if it comes to nothing, the error says
//! in the user's words why.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::AUTHORIZATION;
use http::{Request, Response};
use kube::client::Body;
use tokio::sync::Mutex;
use tower::{BoxError, Layer, Service, ServiceExt as _};

use super::cause::{Broken, of_transport};
use super::credentials::Credentials;

/// Puts [`Guarded`] around a connection.
#[derive(Clone)]
pub(super) struct Channel {
    server: Arc<str>,
    credentials: Arc<Credentials>,
}

impl Channel {
    /// To this API server, with these credentials.
    pub(super) fn new(server: String, credentials: Credentials) -> Self {
        Self { server: server.into(), credentials: Arc::new(credentials) }
    }
}

impl<S> Layer<S> for Channel {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner: Arc::new(Mutex::new(inner)), channel: self.clone() }
    }
}

/// A connection whose requests have credentials and whose errors can be read.
pub(super) struct Guarded<S> {
    // The connection cannot be cloned, and credentials may have to be waited for.
    inner: Arc<Mutex<S>>,
    channel: Channel,
}

impl<S, B> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let (inner, channel) = (Arc::clone(&self.inner), self.channel.clone());
        Box::pin(async move {
            let header = channel.credentials.header().await.map_err(Broken::Credentials)?;
            if let Some(header) = header {
                request.headers_mut().insert(AUTHORIZATION, header);
            }
            let answer = match inner.lock().await.ready().await {
                Ok(service) => service.call(request),
                Err(error) => return Err(error),
            };
            answer.await.map_err(|error| {
                let cause = of_transport(error.as_ref());
                Broken::Connection { server: channel.server.to_string(), cause }.into()
            })
        })
    }
}
