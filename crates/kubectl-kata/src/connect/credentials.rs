//! As whom requests are sent: what is in the kubeconfig is left to kube; what is in a file or comes from a
//! plugin is got here, each once, and again when it is about to expire.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::plugin::{self, Given};
use crate::failure::Failure;

/// How often a file with a token is read again, as client-go does.
const FILE: Duration = Duration::from_secs(60);
/// So long before its end a token is replaced.
const MARGIN: Duration = Duration::from_secs(30);

/// The bearer token of requests, if it may change.
pub(super) struct Credentials {
    user: String,
    source: Source,
    now: Mutex<Bearer>,
}

enum Source {
    /// Nothing of it changes.
    Fixed,
    /// A file, which somebody keeps up to date.
    File(PathBuf),
    /// A program.
    Plugin(Box<ExecConfig>),
}

/// A header, and until when it is good.
struct Bearer {
    header: Option<HeaderValue>,
    until: Option<Instant>,
}

impl Credentials {
    /// The credentials of a user. What changes is taken out of `auth`, and what does not is put into it.
    ///
    /// # Errors
    /// If a file cannot be read or a plugin gives nothing.
    pub(super) async fn of(auth: &mut AuthInfo, user: &str) -> Result<Self, Failure> {
        let fixed = |auth: &mut AuthInfo| {
            (auth.exec, auth.token_file) = (None, None);
            Self {
                user: user.to_owned(),
                source: Source::Fixed,
                now: Mutex::new(Bearer { header: None, until: None }),
            }
        };
        if let Some(provider) = auth.auth_provider.take() {
            // What is left of them is the token that somebody else keeps fresh.
            match provider.config.get("id-token").filter(|_| provider.name == "oidc") {
                Some(token) => auth.token = Some(token.clone().into()),
                None => {
                    return Err(failure(
                        user,
                        format!(
                            "auth-provider {} is a thing of the past: use an exec credential plugin",
                            provider.name
                        ),
                    ));
                }
            }
        }
        if auth.token.is_some() || (auth.username.is_some() && auth.password.is_some()) {
            return Ok(fixed(auth));
        }
        let source = match (auth.token_file.take(), auth.exec.take()) {
            (Some(path), _) if !path.is_empty() => Source::File(path.into()),
            (_, Some(plugin)) => Source::Plugin(Box::new(plugin)),
            _ => return Ok(fixed(auth)),
        };
        let bearer = match &source {
            Source::Fixed => Bearer { header: None, until: None },
            Source::File(path) => of_file(path).map_err(|cause| failure(user, cause))?,
            Source::Plugin(plugin) => {
                let given = run(plugin).await.map_err(|cause| failure(user, cause))?;
                if let Some((certificate, key)) = &given.certificate {
                    auth.client_certificate_data = Some(STANDARD.encode(certificate));
                    auth.client_key_data = Some(STANDARD.encode(key).into());
                }
                of_plugin(&given).map_err(|cause| failure(user, cause))?
            }
        };
        // A certificate stays what it was when the connection was made.
        let source = if bearer.header.is_some() { source } else { Source::Fixed };
        Ok(Self { user: user.to_owned(), source, now: Mutex::new(bearer) })
    }

    /// The header of a request that is sent now.
    ///
    /// # Errors
    /// If the old one has expired and there is no new one.
    pub(super) async fn header(&self) -> Result<Option<HeaderValue>, Failure> {
        let mut now = self.now.lock().await;
        if now.until.is_some_and(|until| until <= Instant::now()) {
            match &self.source {
                Source::Fixed => {}
                // Who takes the file away does not take away what was in it.
                Source::File(path) => match of_file(path) {
                    Ok(bearer) => *now = bearer,
                    Err(_gone) => now.until = Some(Instant::now() + FILE),
                },
                Source::Plugin(plugin) => {
                    let given = run(plugin).await;
                    let bearer = given.and_then(|given| of_plugin(&given));
                    *now = bearer.map_err(|cause| failure(&self.user, cause))?;
                }
            }
        }
        Ok(now.header.clone())
    }
}

fn failure(user: &str, cause: String) -> Failure {
    let user =
        if user.is_empty() { "the service account".to_owned() } else { format!("user {user}") };
    Failure::Credentials { user, cause }
}

fn of_file(path: &PathBuf) -> Result<Bearer, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("the token cannot be read from {}: {error}", path.display()))?;
    match text.trim() {
        "" => Err(format!("there is no token in {}", path.display())),
        token => {
            let header = header(token).ok_or_else(|| {
                format!("what is in {} is no token: it must be one word", path.display())
            })?;
            Ok(Bearer { header: Some(header), until: Some(Instant::now() + FILE) })
        }
    }
}

fn of_plugin(given: &Given) -> Result<Bearer, String> {
    let Some(token) = &given.token else { return Ok(Bearer { header: None, until: None }) };
    let header =
        header(token.trim()).ok_or("the token that it gives has characters that cannot be sent")?;
    // Whatever it is worth, it is used for a moment, or a plugin would run for every request.
    let until = given.expires.map(|expires| {
        let left = Duration::try_from(expires.duration_since(Timestamp::now())).unwrap_or_default();
        Instant::now() + left.saturating_sub(MARGIN).max(Duration::from_secs(5))
    });
    Ok(Bearer { header: Some(header), until })
}

fn header(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Plugins may take long, and ask the user something.
async fn run(plugin: &ExecConfig) -> Result<Given, String> {
    let plugin = plugin.clone();
    let ended = tokio::task::spawn_blocking(move || plugin::run(&plugin)).await;
    ended.unwrap_or_else(|_ended| Err("the credential plugin was given up".to_owned()))
}
