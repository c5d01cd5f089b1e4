//! Exec credential plugins: a program that the kubeconfig names prints credentials.
//!
//! What it prints on standard output is secret and is never shown; what it says on standard error goes
//! straight to the user. See
//! <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins>.

use std::io::{ErrorKind, IsTerminal as _};
use std::process::{Command, Stdio};

use jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;

/// The credentials that a plugin printed: a token, a certificate, or both.
pub(super) struct Printed {
    /// A bearer token.
    pub(super) token: Option<String>,
    /// A client certificate.
    pub(super) certificate: Option<Certificate>,
    /// When they expire.
    pub(super) expires: Option<Timestamp>,
}

/// A client certificate with its key, both as PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Certificate {
    /// The certificate, and those that it was signed with.
    pub(super) chain: String,
    /// Its key.
    pub(super) key: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    expiration_timestamp: Option<String>,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    client_certificate_data: Option<String>,
    #[serde(default)]
    client_key_data: Option<String>,
}

/// Runs a plugin to its end.
///
/// # Errors
/// A sentence that names the program, the cause and the fix.
pub(super) fn run(plugin: &ExecConfig) -> Result<Printed, String> {
    let Some(program) = plugin.command.as_deref().filter(|program| !program.is_empty()) else {
        return Err("exec has no command".to_owned());
    };
    let terminal = std::io::stdin().is_terminal();
    let interactive = match plugin.interactive_mode {
        Some(ExecInteractiveMode::Never) => false,
        Some(ExecInteractiveMode::IfAvailable) | None => terminal,
        Some(ExecInteractiveMode::Always) if !terminal => {
            return Err(format!(
                "`{program}` wants to ask something (interactiveMode: Always), and there is no terminal"
            ));
        }
        Some(ExecInteractiveMode::Always) => true,
    };
    let mut spec = json!({"interactive": interactive});
    if plugin.provide_cluster_info {
        spec["cluster"] = json!(plugin.cluster);
    }
    let info = json!({"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec});
    #[expect(
        clippy::disallowed_methods,
        reason = "the kubeconfig names the program that is to be run"
    )]
    let mut command = Command::new(program);
    command.args(plugin.args.iter().flatten());
    let variables = plugin.env.iter().flatten();
    command.envs(variables.filter_map(|entry| Some((entry.get("name")?, entry.get("value")?))));
    command.env("KUBERNETES_EXEC_INFO", info.to_string());
    command.stdin(if interactive { Stdio::inherit() } else { Stdio::null() });
    command.stderr(Stdio::inherit());
    let output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            let hint = plugin.install_hint.as_deref().map(str::trim).unwrap_or_default();
            let fix = if hint.is_empty() { "install it, or put it on the PATH" } else { hint };
            format!("there is no program `{program}`: {fix}")
        }
        _ => format!("`{program}` cannot be run: {error}"),
    })?;
    if !output.status.success() {
        return Err(format!(
            "`{program}` failed with {}; its own messages are above",
            output.status
        ));
    }
    read(program, plugin.api_version.as_deref(), &output.stdout)
}

/// What a plugin printed.
fn read(program: &str, version: Option<&str>, printed: &[u8]) -> Result<Printed, String> {
    // It may be YAML: client-go reads that too. An error would quote secrets.
    let answer: Answer = serde_saphyr::from_slice(printed)
        .map_err(|_quotes| format!("what `{program}` prints is no ExecCredential"))?;
    if let (Some(wanted), Some(version)) = (version, &answer.api_version)
        && wanted != version
    {
        return Err(format!(
            "`{program}` prints an ExecCredential of {version}, and the kubeconfig says {wanted}"
        ));
    }
    let Some(status) = answer.status else {
        return Err(format!("the ExecCredential that `{program}` prints has no status"));
    };
    let expires = match &status.expiration_timestamp {
        None => None,
        Some(text) => Some(text.parse().map_err(|_no_time| {
            format!("the expirationTimestamp that `{program}` prints is {text:?}, which is no time")
        })?),
    };
    let full = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
    let token = full(status.token);
    let certificate = match (full(status.client_certificate_data), full(status.client_key_data)) {
        (Some(chain), Some(key)) => Some(Certificate { chain, key }),
        (None, None) => None,
        _ => {
            return Err(format!(
                "`{program}` prints a client certificate without its key, or a key without its certificate"
            ));
        }
    };
    if token.is_none() && certificate.is_none() {
        return Err(format!("`{program}` prints neither a token nor a client certificate"));
    }
    Ok(Printed { token, certificate, expires })
}
