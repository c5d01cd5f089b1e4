//! What was typed, resolved: no defaults, environment or files are left to look up.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::style::Style;

/// A source of the current time.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The form of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// For people, with more columns.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// Names only, as KIND/NAME.
    Name,
    /// Only what is not as it should be.
    Short,
    /// Markdown (codes only).
    Markdown,
}

/// Where the kubeconfig is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeconfigSource {
    /// `--kubeconfig`: must exist.
    Flag(PathBuf),
    /// `KUBECONFIG`: files to merge, of which some may not exist.
    Environment(Vec<PathBuf>),
    /// `~/.kube/config`, if it exists; else the pod's service account.
    Home(Option<PathBuf>),
}

/// Which API server, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Where the kubeconfig is.
    pub source: KubeconfigSource,
    /// The context; `None` means the current one.
    pub context: Option<String>,
    /// The cluster of the kubeconfig, instead of the context's.
    pub cluster: Option<String>,
    /// The user of the kubeconfig, instead of the context's.
    pub user: Option<String>,
    /// The API server, instead of the cluster's.
    pub server: Option<String>,
    /// A bearer token, instead of the user's credentials.
    pub token: Option<String>,
    /// Whom to impersonate.
    pub impersonate: Option<String>,
    /// Groups to impersonate.
    pub impersonate_groups: Vec<String>,
    /// The uid to impersonate.
    pub impersonate_uid: Option<String>,
    /// A file with certificate authorities, instead of the cluster's.
    pub certificate_authority: Option<PathBuf>,
    /// A file with a client certificate, instead of the user's.
    pub client_certificate: Option<PathBuf>,
    /// A file with the key of a client certificate, instead of the user's.
    pub client_key: Option<PathBuf>,
    /// Whether any certificate will do.
    pub insecure: bool,
    /// The name to look for in the certificate.
    pub tls_server_name: Option<String>,
    /// Proxies, for clusters of which the kubeconfig says nothing.
    pub proxies: Proxies,
}

/// Proxies of the environment, as it has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    /// For API servers with TLS.
    pub https: Option<String>,
    /// For those without.
    pub http: Option<String>,
    /// Hosts that are reached without a proxy.
    pub exempt: String,
}

/// Settings that all commands share.
#[derive(Clone)]
pub struct Settings {
    /// Which API server, and as whom.
    pub connection: Connection,
    /// `--namespace`.
    pub namespace: Option<String>,
    /// `--all-namespaces`.
    pub all_namespaces: bool,
    /// The form of the result.
    pub output: Output,
    /// Whether tables have titles.
    pub titles: bool,
    /// Whether warnings count as findings.
    pub fail_on_warning: bool,
    /// How long one request may take.
    pub request_timeout: Duration,
    /// How standard output looks.
    pub style: Style,
    /// The time.
    pub now: Now,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The connection may hold a token.
        f.debug_struct("Settings").field("output", &self.output).finish_non_exhaustive()
    }
}

impl Settings {
    /// Whether the result is for people.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.output, Output::Table | Output::Wide | Output::Short)
    }

    /// Whether more columns are wanted.
    pub(crate) fn is_wide(&self) -> bool {
        self.output == Output::Wide
    }

    /// The current time.
    pub(crate) fn now(&self) -> Timestamp {
        (self.now)()
    }
}
