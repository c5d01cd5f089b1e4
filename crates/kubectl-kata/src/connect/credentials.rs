//! As which user requests are sent.
//!
//! Credentials that the kubeconfig contains are left to kube.
//! A token in a file, and a token or a certificate from a plugin, are read here: once, and again before they expire.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::plugin::{self, Certificate, Printed};
use crate::failure::Failure;

/// How often a file with a token is read again, as client-go does.
const FILE: Duration = Duration::from_secs(60);
/// How long before they expire credentials are replaced.
const MARGIN: Duration = Duration::from_secs(30);
/// How long credentials of a plugin are used at least.
const LEAST: Duration = Duration::from_secs(5);

/// The user's credentials, if they may change.
pub(super) struct Credentials {
    user: String,
    source: Source,
    current: Mutex<Current>,
}

enum Source {
    /// They do not change.
    Fixed,
    /// A file whose token another program renews.
    File(PathBuf),
    /// A program that prints credentials.
    Plugin(Box<ExecConfig>),
}

/// What requests are sent with.
#[derive(Clone)]
pub(super) struct Current {
    /// The header with the token, if there is one.
    pub(super) header: Option<HeaderValue>,
    /// The client certificate that a plugin printed, if there is one.
    pub(super) certificate: Option<Certificate>,
    /// When they are read again.
    until: Option<Instant>,
}

impl Current {
    const NONE: Self = Self { header: None, certificate: None, until: None };
}

impl Credentials {
    /// The credentials of a user. Those that change are taken out of `auth`.
    ///
    /// # Errors
    /// If a file cannot be read or a plugin prints no credentials.
    pub(super) async fn of(auth: &mut AuthInfo, user: &str) -> Result<Self, Failure> {
        if let Some(provider) = auth.auth_provider.take() {
            // Of these providers, only a token that another program renews still works.
            match provider.config.get("id-token").filter(|_| provider.name == "oidc") {
                Some(token) => auth.token = Some(token.clone().into()),
                None => {
                    let name = &provider.name;
                    let cause = format!(
                        "auth-provider {name} is not supported: use an exec credential plugin"
                    );
                    return Err(failure(user, cause));
                }
            }
        }
        let (file, plugin) = (auth.token_file.take(), auth.exec.take());
        let is_fixed = auth.token.is_some() || (auth.username.is_some() && auth.password.is_some());
        let source = match (file.filter(|path| !path.is_empty()), plugin) {
            _ if is_fixed => Source::Fixed,
            (Some(path), _) => Source::File(path.into()),
            (None, Some(plugin)) => Source::Plugin(Box::new(plugin)),
            (None, None) => Source::Fixed,
        };
        let current = source.read().await.map_err(|cause| failure(user, cause))?;
        Ok(Self { user: user.to_owned(), source, current: Mutex::new(current) })
    }

    /// The credentials of a request that is sent now.
    ///
    /// # Errors
    /// If the old ones have expired and there are no new ones.
    pub(super) async fn current(&self) -> Result<Current, Failure> {
        let mut current = self.current.lock().await;
        if current.until.is_some_and(|until| until <= Instant::now()) {
            match (self.source.read().await, &self.source) {
                (Ok(read), _) => *current = read,
                // A token stays valid when its file goes.
                (Err(_gone), Source::File(_)) => current.until = Some(Instant::now() + FILE),
                (Err(cause), _) => return Err(failure(&self.user, cause)),
            }
        }
        Ok(current.clone())
    }
}

impl Source {
    async fn read(&self) -> Result<Current, String> {
        match self {
            Self::Fixed => Ok(Current::NONE),
            Self::File(path) => of_file(path),
            Self::Plugin(plugin) => of_plugin(run(plugin).await?),
        }
    }
}

fn failure(user: &str, cause: String) -> Failure {
    let user =
        if user.is_empty() { "the service account".to_owned() } else { format!("user {user}") };
    Failure::Credentials { user, cause }
}

fn of_file(path: &Path) -> Result<Current, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("the token cannot be read from {}: {error}", path.display()))?;
    match text.trim() {
        "" => Err(format!("there is no token in {}", path.display())),
        token => {
            let header = header(token).ok_or_else(|| {
                format!("what is in {} is no token: it must be one word", path.display())
            })?;
            Ok(Current {
                header: Some(header),
                until: Some(Instant::now() + FILE),
                ..Current::NONE
            })
        }
    }
}

fn of_plugin(printed: Printed) -> Result<Current, String> {
    let header = match &printed.token {
        None => None,
        Some(token) => Some(
            header(token.trim())
                .ok_or("the token that it gives has characters that cannot be sent")?,
        ),
    };
    // If they expire at once, they are used for a moment all the same: the plugin must not run for every request.
    let until = printed.expires.map(|expires| {
        let left = Duration::try_from(expires.duration_since(Timestamp::now())).unwrap_or_default();
        Instant::now() + left.saturating_sub(MARGIN).max(LEAST)
    });
    Ok(Current { header, certificate: printed.certificate, until })
}

fn header(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// A plugin may take long, since it may ask the user something.
async fn run(plugin: &ExecConfig) -> Result<Printed, String> {
    let plugin = plugin.clone();
    let ended = tokio::task::spawn_blocking(move || plugin::run(&plugin)).await;
    ended.unwrap_or_else(|_ended| Err("the credential plugin was given up".to_owned()))
}
