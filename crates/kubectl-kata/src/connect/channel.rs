//! The connection that every request takes: it adds the credentials, and if the request fails, the error names the
//! cause in the user's words.
//!
//! A client certificate belongs to a connection, not to a request. When a plugin printed another one, new requests
//! take a new connection, and those that are under way, such as watches, end on the old one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{Request, Response};
use jiff::Timestamp;
use kata_connect::ServerTime;
use kube::client::Body;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tower::{BoxError, Service};

use super::cause::{self, Broken, of_transport};
use super::credentials::Credentials;
use super::plugin::Certificate;
use crate::failure::Failure;

/// Requests to one API server with the credentials of one user.
#[derive(Clone)]
pub(super) struct Channel(Arc<Shared>);

struct Shared {
    server: String,
    config: kube::Config,
    credentials: Credentials,
    time: ServerTime,
    connection: Mutex<Connection>,
}

struct Connection {
    client: kube::Client,
    /// The certificate of a plugin that it was made with.
    certificate: Option<Certificate>,
}

impl Channel {
    /// To the API server of a configuration, with these credentials.
    ///
    /// # Errors
    /// If the configuration or the credentials cannot be used.
    pub(super) async fn new(
        config: kube::Config,
        server: String,
        credentials: Credentials,
        time: ServerTime,
    ) -> Result<Self, Failure> {
        let certificate = credentials.current().await?.certificate;
        let connection = Connection::new(&config, &server, certificate)?;
        let connection = Mutex::new(connection);
        Ok(Self(Arc::new(Shared { server, config, credentials, time, connection })))
    }
}

impl Connection {
    fn new(
        config: &kube::Config,
        server: &str,
        certificate: Option<Certificate>,
    ) -> Result<Self, Failure> {
        let mut config = config.clone();
        if let Some(Certificate { chain, key }) = &certificate {
            config.auth_info.client_certificate_data = Some(STANDARD.encode(chain));
            config.auth_info.client_key_data = Some(STANDARD.encode(key).into());
        }
        let asks_system = config.root_cert.is_none();
        let client = kube::Client::try_from(config).map_err(|error| Failure::Client {
            cause: cause::of_client(&error, asks_system),
            server: server.to_owned(),
        })?;
        Ok(Self { client, certificate })
    }
}

impl Shared {
    async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, Broken> {
        let current = self.credentials.current().await.map_err(Broken::Credentials)?;
        if let Some(header) = current.header {
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        let client = {
            let mut connection = self.connection.lock().await;
            if connection.certificate != current.certificate {
                *connection = Connection::new(&self.config, &self.server, current.certificate)
                    .map_err(Broken::Credentials)?;
            }
            connection.client.clone()
        };
        let sent = Instant::now();
        let response = client.send(request).await.map_err(|error| Broken::Connection {
            server: self.server.clone(),
            cause: of_transport(&error),
        })?;
        if response.status().is_success() {
            self.time.learn(response.headers(), Timestamp::now(), sent.elapsed());
        }
        Ok(response)
    }
}

impl Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.send(request).await.map_err(BoxError::from) })
    }
}
