//! From the files, the flags and the environment to which API server to talk to, and as whom. Files are read
//! here; nothing is sent.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use kube::config::{AuthInfo, Cluster, InClusterError, Kubeconfig, KubeconfigError, LoadDataError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::{Connection, Source, TargetError, proxy};

/// How many names a message shows.
const NAMES: usize = 5;

/// What a kubeconfig, or a pod, says of the API server.
#[derive(Debug)]
pub struct Target {
    /// The API server, and who the user is.
    pub config: Config,
    /// The user's name in the kubeconfig; empty without one.
    pub user: String,
    /// The context; `None` without one.
    pub context: Option<String>,
}

impl Target {
    fn without_context(config: Config) -> Self {
        Self { config, user: String::new(), context: None }
    }
}

/// Where the API server is, and who the user is.
///
/// # Errors
/// If it is not said, or said wrongly, where the API server is.
pub fn target(connection: &Connection) -> Result<Target, TargetError> {
    let server = connection.server.as_deref().map(|server| url(server, "--server")).transpose()?;
    let mut target = match (read(&connection.source)?, server) {
        (Some(kubeconfig), server) => chosen(&kubeconfig, connection, server)
            .map_err(|error| of_files(error, &connection.source))?,
        (None, Some(server)) => Target::without_context(Config::new(server)),
        (None, None) => {
            let config = service_account().map_err(|error| dangling(error, &connection.source))?;
            Target::without_context(config)
        }
    };
    let config = &mut target.config;
    if config.proxy_url.is_none() {
        config.proxy_url = proxy::of_environment(&connection.proxies, &config.cluster_url)?;
    }
    if let Some(name) = &connection.tls_server_name {
        config.tls_server_name = Some(name.clone());
    }
    if let Some(path) = &connection.certificate_authority {
        config.root_cert_file = None;
        config.root_cert =
            Some(certificates(&file(path, "--certificate-authority")?, "--certificate-authority")?);
    }
    config.accept_invalid_certs |= connection.insecure;
    override_user(&mut config.auth_info, connection)?;
    let proxied =
        config.proxy_url.as_ref().is_some_and(|proxy| proxy.scheme_str() == Some("https"));
    let plain = config.cluster_url.scheme_str() == Some("http") && !proxied;
    if config.root_cert.is_none() && (plain || config.accept_invalid_certs) {
        // No certificate is checked, so the system's authorities are not read: there may be none.
        config.root_cert = Some(Vec::new());
    }
    Ok(target)
}

/// Names the files of KUBECONFIG if none of them exists and nothing else says where the API server is.
fn dangling(error: TargetError, source: &Source) -> TargetError {
    match (error, source) {
        (TargetError::NoKubeconfig, Source::Environment(files)) if !files.is_empty() => {
            let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
            TargetError::Context(format!(
                "KUBECONFIG names {}, which does not exist, and this does not run in a pod",
                list(&files)
            ))
        }
        (error, _) => error,
    }
}

/// Names the files in which something is missing or wrong.
fn of_files(error: TargetError, source: &Source) -> TargetError {
    match (error, std::env::join_paths(files(source))) {
        (TargetError::Context(cause), Ok(paths)) => {
            TargetError::Kubeconfig { path: PathBuf::from(paths), cause }
        }
        (error, _) => error,
    }
}

/// The files that are read. As with kubectl, only that of the flag must exist.
fn files(source: &Source) -> Vec<&PathBuf> {
    match source {
        Source::Flag(path) => vec![path],
        Source::Environment(paths) => paths.iter().filter(|path| path.exists()).collect(),
        Source::Home(path) => path.iter().filter(|path| path.exists()).collect(),
    }
}

/// All files as one; `None` if there are none.
fn read(source: &Source) -> Result<Option<Kubeconfig>, TargetError> {
    let mut merged: Option<Kubeconfig> = None;
    for path in files(source) {
        let failed = |error: KubeconfigError| TargetError::Kubeconfig {
            path: path.clone(),
            cause: self::cause(&error),
        };
        let next = Kubeconfig::read_from(path).map_err(failed)?;
        merged = Some(match merged {
            None => next,
            Some(first) => first.merge(next).map_err(failed)?,
        });
    }
    Ok(merged)
}

/// What the context, or a flag, chooses.
fn chosen(
    kubeconfig: &Kubeconfig,
    connection: &Connection,
    flag: Option<http::Uri>,
) -> Result<Target, TargetError> {
    let wanted = connection
        .context
        .as_ref()
        .or(kubeconfig.current_context.as_ref())
        .filter(|n| !n.is_empty());
    let contexts = &kubeconfig.contexts;
    let context = match wanted {
        Some(name) => {
            let named = contexts.iter().find(|context| context.name == *name);
            let names = || contexts.iter().map(|context| context.name.as_str()).collect::<Vec<_>>();
            let context = named.and_then(|context| context.context.clone());
            Some(context.ok_or_else(|| absent("context", name, &names()))?)
        }
        // Enough is said without one.
        None if connection.cluster.is_some() || connection.server.is_some() => None,
        None if contexts.is_empty() => {
            return Err(TargetError::Context(
                "it has no context at all; give another file with --kubeconfig FILE".to_owned(),
            ));
        }
        None => {
            let names: Vec<&str> = contexts.iter().map(|context| context.name.as_str()).collect();
            return Err(TargetError::Context(format!(
                "it has no current context: choose one with --context NAME; {}",
                offered(&names)
            )));
        }
    };
    let cluster_name =
        connection.cluster.clone().or_else(|| context.as_ref().map(|c| c.cluster.clone()));
    let cluster = match cluster_name.filter(|name| !name.is_empty()) {
        Some(name) => {
            let named = kubeconfig.clusters.iter().find(|cluster| cluster.name == name);
            let names = || kubeconfig.clusters.iter().map(|c| c.name.as_str()).collect::<Vec<_>>();
            let cluster = named.and_then(|cluster| cluster.cluster.clone());
            (cluster.ok_or_else(|| absent("cluster", &name, &names()))?, name)
        }
        None => (Cluster::default(), String::new()),
    };
    let user = connection.user.clone().or_else(|| context.as_ref().and_then(|c| c.user.clone()));
    let user = user.filter(|name| !name.is_empty());
    let mut auth = match &user {
        Some(name) => {
            let named = kubeconfig.auth_infos.iter().find(|user| user.name == *name);
            let names =
                || kubeconfig.auth_infos.iter().map(|u| u.name.as_str()).collect::<Vec<_>>();
            let named = named.ok_or_else(|| absent("user", name, &names()))?;
            named.auth_info.clone().unwrap_or_default()
        }
        None => AuthInfo::default(),
    };
    if let Some(plugin) = &mut auth.exec
        && plugin.provide_cluster_info
    {
        let described = (&cluster.0).try_into();
        plugin.cluster =
            Some(described.map_err(|error: KubeconfigError| TargetError::Context(cause(&error)))?);
    }
    let namespace = context.and_then(|context| context.namespace);
    let mut config = server(&cluster.0, &cluster.1, flag)?;
    config.auth_info = auth;
    if let Some(namespace) = namespace.filter(|namespace| !namespace.is_empty()) {
        config.default_namespace = namespace;
    }
    Ok(Target { config, user: user.unwrap_or_default(), context: wanted.cloned() })
}

/// The API server of a cluster of the kubeconfig.
fn server(cluster: &Cluster, name: &str, flag: Option<http::Uri>) -> Result<Config, TargetError> {
    let address = match (flag, &cluster.server) {
        (Some(server), _) => server,
        (None, Some(server)) if !server.is_empty() => {
            url(server, &format!("the server of cluster {name}"))?
        }
        _ => return Err(TargetError::Context(format!("cluster {name} has no server"))),
    };
    let mut config = Config::new(address);
    let what = format!("the certificate authority of cluster {name}");
    // Data goes before a file, as with kubectl.
    let pem = match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
        (Some(data), _) if !data.is_empty() => Some(
            STANDARD
                .decode(data)
                .map_err(|error| TargetError::Context(format!("{what} is no base64: {error}")))?,
        ),
        (_, Some(path)) if !path.is_empty() => Some(file(Path::new(path), &what)?),
        _ => None,
    };
    config.root_cert = pem.map(|pem| certificates(&pem, &what)).transpose()?;
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or(false);
    config.tls_server_name = cluster.tls_server_name.clone().filter(|name| !name.is_empty());
    config.disable_compression = cluster.disable_compression.unwrap_or(false);
    config.proxy_url = proxy::of_cluster(cluster.proxy_url.as_deref(), name)?;
    Ok(config)
}

/// What flags say of the user.
fn override_user(auth: &mut AuthInfo, connection: &Connection) -> Result<(), TargetError> {
    if let Some(token) = &connection.token {
        *auth = AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() };
    }
    let text = |path: &std::path::PathBuf| Some(path.to_string_lossy().into_owned());
    if let Some(path) = &connection.client_certificate {
        (auth.client_certificate, auth.client_certificate_data) = (text(path), None);
    }
    if let Some(path) = &connection.client_key {
        (auth.client_key, auth.client_key_data) = (text(path), None);
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
        return Err(TargetError::Flags("--as-group and --as-uid need --as USER".to_owned()));
    }
    Ok(())
}

/// The service account of the pod that this runs in.
fn service_account() -> Result<Config, TargetError> {
    Config::incluster().map_err(|error| match error {
        InClusterError::ReadEnvironmentVariable(_) => TargetError::NoKubeconfig,
        InClusterError::ReadDefaultNamespace(source)
        | InClusterError::ReadCertificateBundle(source) => TargetError::Context(format!(
            "there is none, and the pod's service account cannot be read: {source}; is \
                 automountServiceAccountToken false?"
        )),
        error => TargetError::Context(format!(
            "there is none, and the pod's service account cannot be used: {error}"
        )),
    })
}

fn url(text: &str, what: &str) -> Result<http::Uri, TargetError> {
    // As with kubectl, HOST:PORT alone is meant to be without TLS.
    let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let parsed: Option<http::Uri> = full.parse().ok();
    parsed
        .filter(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some())
        .ok_or_else(|| {
            TargetError::Context(format!(
                "{what} is {text:?}, which is no URL: write https://HOST:PORT"
            ))
        })
}

fn file(path: &Path, what: &str) -> Result<Vec<u8>, TargetError> {
    std::fs::read(path).map_err(|error| {
        TargetError::Context(format!("{what} cannot be read from {}: {error}", path.display()))
    })
}

/// Certificates as DER.
fn certificates(pem: &[u8], what: &str) -> Result<Vec<Vec<u8>>, TargetError> {
    let parsed: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(pem).collect();
    match parsed {
        Ok(certificates) if !certificates.is_empty() => {
            Ok(certificates.iter().map(|certificate| certificate.to_vec()).collect())
        }
        Ok(_none) => {
            Err(TargetError::Context(format!("{what} has no certificate: it must be PEM")))
        }
        Err(error) => Err(TargetError::Context(format!("{what} is no PEM: {error}"))),
    }
}

/// The first of them, and how many more there are.
fn list<S: AsRef<str>>(items: &[S]) -> String {
    let shown: Vec<&str> = items.iter().take(NAMES).map(AsRef::as_ref).collect();
    match items.len().saturating_sub(NAMES) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn absent(what: &str, name: &str, names: &[&str]) -> TargetError {
    TargetError::Context(format!("it has no {what} {name}; {}", offered(names)))
}

fn offered(names: &[&str]) -> String {
    if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", list(names)) }
}

/// What is wrong with a kubeconfig, without what is in it.
pub fn cause(error: &KubeconfigError) -> String {
    let material = |what: &str, error: &LoadDataError| match error {
        LoadDataError::DecodeBase64(error) => format!("{what} is no base64: {error}"),
        LoadDataError::ReadFile(error, path) => {
            format!("{what} cannot be read from {}: {error}", path.display())
        }
        LoadDataError::NoBase64DataOrFile => format!("{what} is missing"),
    };
    match error {
        KubeconfigError::ReadConfig(error, _path) => error.to_string(),
        // The message quotes the file, which has secrets in it.
        KubeconfigError::Parse(error) => {
            let place = error
                .location()
                .map(|place| format!(", as line {}, column {} shows", place.line(), place.column()))
                .unwrap_or_default();
            format!("it is no kubeconfig{place}")
        }
        KubeconfigError::LoadCertificateAuthority(error) => {
            material("the certificate authority", error)
        }
        KubeconfigError::LoadClientCertificate(error) => material("the client certificate", error),
        KubeconfigError::LoadClientKey(error) => material("the client key", error),
        error => error.to_string(),
    }
}
