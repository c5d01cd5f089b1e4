//! From a kubeconfig, or the pod's service account, to a client. Nothing is sent here, but what an exec
//! credential plugin of the kubeconfig does.

mod cause;
mod channel;
mod credentials;
mod plugin;

use std::time::Duration;

use kata_connect::{Connection, ServerTime, Target};

pub(crate) use cause::failure;

use crate::failure::Failure;
use channel::Channel;
use credentials::Credentials;

/// How long the connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How this program calls itself to the API server.
const USER_AGENT: &str = concat!("kubectl-kata/v", env!("CARGO_PKG_VERSION"));

/// A cluster that can be asked.
#[expect(missing_debug_implementations, reason = "the client has none")]
pub struct Connected {
    /// What asks it.
    pub client: kube::Client,
    /// Where it is, in words: the API server, and the context of the kubeconfig if there is one.
    pub place: String,
}

/// Builds a client, from whose answers `time` learns.
///
/// # Errors
/// If there is no usable configuration, or if there are no credentials.
pub async fn connect(connection: &Connection, time: ServerTime) -> Result<Connected, Failure> {
    let Target { mut config, user, context } = kata_connect::target(connection)?;
    kata_connect::keep_credentials_for_tls(&mut config);
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Each request has its own limit; watches and logs have none.
    config.read_timeout = None;
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(USER_AGENT)));
    let server = kata_connect::describe(&config);
    let place = match context {
        Some(context) => format!("{server} (context {context})"),
        None => server.clone(),
    };
    let credentials = Credentials::of(&mut config.auth_info, &user).await?;
    let namespace = config.default_namespace.clone();
    let channel = Channel::new(config, server, credentials, time).await?;
    Ok(Connected { client: kube::Client::new(channel, namespace), place })
}
