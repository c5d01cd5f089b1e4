//! To which API server a program talks, as whom and through which proxy: kubectl's rules, for the operator and
//! the plugin alike; and what time it is there.
//!
//! Kubeconfigs and the certificates that they name are read here. Nothing is sent, and no variable of the
//! environment is looked up: the programs hand over what they found.

mod kubeconfig;
mod proxy;
mod server_time;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

pub use kubeconfig::{Target, cause, target};
pub use server_time::ServerTime;

/// Where the kubeconfig is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `--kubeconfig`: must exist.
    Flag(PathBuf),
    /// `KUBECONFIG`: files to merge, of which some may not exist.
    Environment(Vec<PathBuf>),
    /// `~/.kube/config`, if it exists; else the pod's service account.
    Home(Option<PathBuf>),
}

impl Source {
    /// By `--kubeconfig`, else the variable KUBECONFIG, else below the home directory.
    pub fn new(flag: Option<&Path>, variable: Option<&OsStr>, home: Option<&Path>) -> Self {
        match (flag, variable) {
            (Some(path), _) => Self::Flag(path.to_owned()),
            (None, Some(paths)) => Self::Environment(
                std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty()).collect(),
            ),
            (None, None) => Self::Home(home.map(|home| home.join(".kube").join("config"))),
        }
    }
}

/// Which API server, and as whom. What flags say goes before what the kubeconfig says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Where the kubeconfig is.
    pub source: Source,
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

impl Connection {
    /// What the kubeconfig and the environment say, and no flag.
    pub fn new(source: Source, proxies: Proxies) -> Self {
        Self {
            source,
            context: None,
            cluster: None,
            user: None,
            server: None,
            token: None,
            impersonate: None,
            impersonate_groups: Vec::new(),
            impersonate_uid: None,
            certificate_authority: None,
            client_certificate: None,
            client_key: None,
            insecure: false,
            tls_server_name: None,
            proxies,
        }
    }
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

impl Proxies {
    /// From the variables HTTPS_PROXY, HTTP_PROXY and NO_PROXY, or the same in small letters; `variable`
    /// gives the value of one that is set and not empty.
    pub fn new(variable: impl Fn(&str) -> Option<String>) -> Self {
        let either = |name: &str| variable(name).or_else(|| variable(&name.to_ascii_lowercase()));
        Self {
            https: either("HTTPS_PROXY"),
            http: either("HTTP_PROXY"),
            exempt: either("NO_PROXY").unwrap_or_default(),
        }
    }
}

/// Leaves of the user what may be sent without TLS, if the API server has none: whom to impersonate. kubectl does the same: any host on the path could read the credentials.
pub fn keep_credentials_for_tls(config: &mut kube::Config) {
    if config.cluster_url.scheme_str() == Some("http") {
        let auth = &mut config.auth_info;
        *auth = kube::config::AuthInfo {
            impersonate: auth.impersonate.take(),
            impersonate_groups: auth.impersonate_groups.take(),
            impersonate_uid: auth.impersonate_uid.take(),
            impersonate_user_extra: auth.impersonate_user_extra.take(),
            ..kube::config::AuthInfo::default()
        };
    }
}

/// The API server, and the proxy on the way to it, for messages: without a password of the proxy's.
pub fn describe(config: &kube::Config) -> String {
    let server = config.cluster_url.to_string();
    let server = server.trim_end_matches('/');
    let Some(proxy) = &config.proxy_url else { return server.to_owned() };
    let port = proxy.port().map(|port| format!(":{port}")).unwrap_or_default();
    let (scheme, host) = (proxy.scheme_str().unwrap_or_default(), proxy.host().unwrap_or_default());
    format!("{server} through the proxy {scheme}://{host}{port}")
}

/// Why it is not known where the API server is. No message quotes what may be secret.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// Flags that do not go together.
    #[error("{0}")]
    Flags(String),
    /// A kubeconfig file cannot be read or contains an error.
    #[error("cannot use kubeconfig {}: {cause}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// The kubeconfig, or what stands in for it, does not say where the API server is, or says it wrongly.
    #[error("cannot use the kubeconfig: {0}")]
    Context(String),
    /// A proxy's address cannot be used.
    #[error(
        "{0} is no proxy that can be used: write http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT"
    )]
    Proxy(String),
    /// No kubeconfig, and not in a pod.
    #[error(
        "no kubeconfig found and not running in a pod; give --kubeconfig FILE or set KUBECONFIG"
    )]
    NoKubeconfig,
}
