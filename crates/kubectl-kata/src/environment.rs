//! The environment of the process and its terminal, and the settings that follow from them and from the command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use kata_connect::{Connection, Proxies, Source};
use kata_manifests::manifests::IMAGE;

use crate::arguments::{Colour, GlobalArguments};
use crate::settings::{Now, Settings};
use crate::style::Style;

/// How long one request may take if nothing else is said.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// What we use of the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvVars {
    /// `KUBECONFIG`.
    pub kubeconfig: Option<OsString>,
    /// `HOME`, or `USERPROFILE`, which Windows sets.
    pub home: Option<PathBuf>,
    /// `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, or the same in small letters.
    pub proxies: Proxies,
    /// `NO_COLOR`.
    pub no_color: bool,
    /// `CLICOLOR_FORCE`.
    pub force_color: bool,
    /// `TERM`.
    pub term: String,
    /// `LC_ALL`, else `LC_CTYPE`, else `LANG`.
    pub locale: String,
}

impl EnvVars {
    /// The environment of this process.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the environment"
    )]
    pub fn of_process() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        Self {
            proxies: Proxies::new(text),
            kubeconfig: std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()),
            home: std::env::var_os("HOME")
                .or_else(|| std::env::var_os("USERPROFILE"))
                .map(PathBuf::from),
            no_color: text("NO_COLOR").is_some(),
            force_color: text("CLICOLOR_FORCE").is_some_and(|value| value != "0"),
            term: text("TERM").unwrap_or_default(),
            locale: text("LC_ALL")
                .or_else(|| text("LC_CTYPE"))
                .or_else(|| text("LANG"))
                .unwrap_or_default(),
        }
    }
}

/// What standard output and standard error are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terminal {
    /// Whether standard output is a terminal.
    pub out: bool,
    /// Whether standard error is a terminal.
    pub err: bool,
    /// Columns of the terminal, if it is one.
    pub width: Option<usize>,
    /// Its lines.
    pub height: Option<usize>,
}

/// From what was typed and the environment to settings. Pure.
pub fn settings(
    global: &GlobalArguments,
    environment: &EnvVars,
    terminal: Terminal,
    now: Now,
) -> Settings {
    let source = Source::new(
        global.kubeconfig.as_deref(),
        environment.kubeconfig.as_deref(),
        environment.home.as_deref(),
    );
    let colour = match global.color {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto if environment.no_color => false,
        Colour::Auto if environment.force_color => true,
        Colour::Auto => terminal.out && environment.term != "dumb",
    };
    let locale = environment.locale.to_ascii_lowercase();
    // No locale at all is that of containers and of CI, which show UTF-8.
    let unicode = locale.is_empty() || locale.contains("utf-8") || locale.contains("utf8");
    Settings {
        connection: Connection {
            source,
            context: global.context.clone(),
            cluster: global.cluster.clone(),
            user: global.user.clone(),
            server: global.server.clone(),
            token: global.token.clone(),
            impersonate: global.impersonate.clone(),
            impersonate_groups: global.impersonate_groups.clone(),
            impersonate_uid: global.impersonate_uid.clone(),
            certificate_authority: global.certificate_authority.clone(),
            client_certificate: global.client_certificate.clone(),
            client_key: global.client_key.clone(),
            insecure: global.insecure_skip_tls_verify,
            tls_server_name: global.tls_server_name.clone(),
            proxies: environment.proxies.clone(),
        },
        namespace: global.namespace.clone(),
        all_namespaces: global.all_namespaces,
        output: global.output,
        titles: !global.no_headers,
        fail_on_warning: global.fail_on.is_some(),
        request_timeout: match global.request_timeout {
            None => REQUEST_TIMEOUT,
            Some(Duration::ZERO) => Duration::MAX,
            Some(timeout) => timeout,
        },
        style: Style {
            colour,
            unicode,
            width: terminal.width.filter(|_| terminal.out),
            rows: terminal.height.filter(|_| terminal.out && environment.term != "dumb"),
        },
        now,
        published: IMAGE.map(str::to_owned),
    }
}
