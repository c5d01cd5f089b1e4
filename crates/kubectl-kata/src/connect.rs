//! From a kubeconfig, or the pod's service account, to a client. Nothing is sent here, but what an exec
//! credential plugin of the kubeconfig does.

use std::time::Duration;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::failure::Failure;
use crate::settings::{Connection, KubeconfigSource};

/// How long the connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How this program calls itself to the API server.
const USER_AGENT: &str = concat!("kubectl-kata/v", env!("CARGO_PKG_VERSION"));

/// Builds a client.
///
/// # Errors
/// If there is no usable configuration.
pub async fn connect(connection: &Connection) -> Result<kube::Client, Failure> {
    let mut config = config(connection).await?;
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Each request has its own limit; watches and logs have none.
    config.read_timeout = None;
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(USER_AGENT)));
    let wrong = |name: &str| Failure::Usage(format!("{name} is no URL of an API server"));
    if let Some(server) = &connection.server {
        config.cluster_url = server.parse().map_err(|_invalid| wrong(server))?;
    }
    if let Some(name) = &connection.tls_server_name {
        config.tls_server_name = Some(name.clone());
    }
    config.accept_invalid_certs |= connection.insecure;
    let auth = &mut config.auth_info;
    if let Some(token) = &connection.token {
        *auth = kube::config::AuthInfo {
            token: Some(token.clone().into()),
            ..kube::config::AuthInfo::default()
        };
    }
    if connection.impersonate.is_some() {
        auth.impersonate = connection.impersonate.clone();
    }
    if !connection.impersonate_groups.is_empty() {
        auth.impersonate_groups = Some(connection.impersonate_groups.clone());
    }
    if connection.impersonate_uid.is_some() {
        auth.impersonate_uid = connection.impersonate_uid.clone();
    }
    if auth.impersonate.is_none()
        && (auth.impersonate_groups.is_some() || auth.impersonate_uid.is_some())
    {
        return Err(Failure::Usage("--as-group and --as-uid need --as USER".to_owned()));
    }
    let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    kube::Client::try_from(config)
        .map_err(|source| Failure::Client { server, source: Box::new(source) })
}

async fn config(connection: &Connection) -> Result<Config, Failure> {
    let options = KubeConfigOptions {
        context: connection.context.clone(),
        cluster: connection.cluster.clone(),
        user: connection.user.clone(),
    };
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
        let failed = |source| Failure::Kubeconfig { path: path.clone(), source: Box::new(source) };
        let next = Kubeconfig::read_from(path).map_err(failed)?;
        merged = Some(match merged {
            None => next,
            Some(first) => first.merge(next).map_err(failed)?,
        });
    }
    match merged {
        Some(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|source| Failure::Context { source: Box::new(source) }),
        None => {
            Config::incluster().map_err(|source| Failure::NoKubeconfig { source: Box::new(source) })
        }
    }
}
