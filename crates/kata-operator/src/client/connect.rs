//! Builds a connection from a kubeconfig or the pod's service account. Only [`check`] sends a request.

use std::path::PathBuf;
use std::time::Duration;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::settings::{Connection, KubeconfigSource};

/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may carry no data: longer than a watch lasts.
const READ_TIMEOUT: Duration = Duration::from_secs(70);
/// How long the first answer may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A kubeconfig file cannot be read or contains an error.
    #[error("cannot use kubeconfig {}", path.display())]
    Kubeconfig {
        path: PathBuf,
        #[source]
        source: Box<KubeconfigError>,
    },
    /// The kubeconfig names no usable context, cluster or user.
    #[error("cannot use the kubeconfig{}", context.as_ref().map(|name| format!(" with context {name}")).unwrap_or_default())]
    Context {
        /// The context that was asked for.
        context: Option<String>,
        #[source]
        source: Box<KubeconfigError>,
    },
    /// There is no kubeconfig, and the process is not in a pod.
    #[error(
        "no kubeconfig found and not running in a pod; give --kubeconfig FILE or set KUBECONFIG"
    )]
    NoKubeconfig {
        /// Why the service account cannot be used.
        #[source]
        source: Box<kube::config::InClusterError>,
    },
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
pub async fn connect(connection: &Connection) -> Result<(kube::Client, String), ConnectError> {
    let mut config = config(connection).await?;
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let client = kube::Client::try_from(config).map_err(|source| ConnectError::Client {
        server: server.clone(),
        source: Box::new(source),
    })?;
    Ok((client, server))
}

async fn config(connection: &Connection) -> Result<Config, ConnectError> {
    let options =
        KubeConfigOptions { context: connection.context.clone(), ..KubeConfigOptions::default() };
    let mut merged: Option<Kubeconfig> = None;
    let (files, must_exist) = match &connection.source {
        KubeconfigSource::Flag(path) => (std::slice::from_ref(path), true),
        KubeconfigSource::Environment(paths) => (paths.as_slice(), false),
        KubeconfigSource::Home(path) => (path.as_slice(), false),
    };
    for path in files {
        // As with kubectl, the files of KUBECONFIG need not all exist.
        if !must_exist && !path.exists() {
            continue;
        }
        let failed =
            |source| ConnectError::Kubeconfig { path: path.clone(), source: Box::new(source) };
        let next = Kubeconfig::read_from(path).map_err(failed)?;
        merged = Some(match merged {
            None => next,
            Some(first) => first.merge(next).map_err(failed)?,
        });
    }
    match merged {
        Some(kubeconfig) => {
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|source| {
                ConnectError::Context {
                    context: connection.context.clone(),
                    source: Box::new(source),
                }
            })
        }
        None => Config::incluster()
            .map_err(|source| ConnectError::NoKubeconfig { source: Box::new(source) }),
    }
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
