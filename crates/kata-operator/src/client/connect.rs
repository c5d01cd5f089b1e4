//! Builds a connection from a kubeconfig or the pod's service account. Only [`check`] sends a request.

use std::time::Duration;

use kata_connect::Connection;

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may carry no data: longer than a watch lasts.
const READ_TIMEOUT: Duration = Duration::from_secs(70);
/// How long the first answer may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// It is not known where the API server is.
    #[error(transparent)]
    Target(#[from] kata_connect::TargetError),
    /// The client cannot be built, mostly because of certificates or credentials.
    #[error("cannot prepare the connection to {server}")]
    Client {
        /// The API server's URL.
        server: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server does not answer.
    #[error("cannot reach the API server at {server}")]
    Unreachable {
        /// The API server's URL.
        server: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// The API server does not answer in time.
    #[error("cannot reach the API server at {server}: no answer within {} s", CHECK_TIMEOUT.as_secs())]
    Unresponsive {
        /// The API server's URL.
        server: String,
    },
    /// The API server does not accept the credentials.
    #[error("the API server at {server} does not accept the credentials: {message}")]
    Unauthorized {
        /// The API server's URL.
        server: String,
        /// The API server's message.
        message: String,
    },
}

impl ConnectError {
    /// Whether the API server does not answer, which may end without a change here.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Unresponsive { .. })
    }
}

/// Builds a client, with kube's own retries off.
///
/// # Errors
/// If there is no usable configuration.
pub fn connect(connection: &Connection) -> Result<(kube::Client, String), ConnectError> {
    let mut config = kata_connect::target(connection)?.config;
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    let agent = http::HeaderValue::from_static(super::USER_AGENT);
    config.headers.push((http::header::USER_AGENT, agent));
    let server = kata_connect::describe(&config);
    let client = kube::Client::try_from(config).map_err(|source| ConnectError::Client {
        server: server.clone(),
        source: Box::new(source),
    })?;
    Ok((client, server))
}

/// Reads the API server's version, once.
///
/// # Errors
/// If it does not answer or does not accept the credentials.
pub async fn check(client: &kube::Client, server: &str) -> Result<String, ConnectError> {
    let server = server.to_owned();
    match tokio::time::timeout(CHECK_TIMEOUT, client.apiserver_version()).await {
        Err(_) => Err(ConnectError::Unresponsive { server }),
        Ok(Ok(version)) => Ok(version.git_version),
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => {
            Err(ConnectError::Unauthorized { server, message: status.message })
        }
        Ok(Err(source)) => Err(ConnectError::Unreachable { server, source: Box::new(source) }),
    }
}
