//! Why there is no answer, in words: whoever reads them knows neither hyper nor rustls.

use std::error::Error;
use std::io::ErrorKind;

use jiff::Timestamp;
use kube::client::RustlsTlsError;
use rustls::{AlertDescription, CertificateError};

use super::CONNECT_TIMEOUT;
use crate::failure::Failure;

/// Why a request was not sent, or not answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// There is no connection.
    #[error("no connection to {server}: {cause}")]
    Connection {
        /// The API server.
        server: String,
        /// Why.
        cause: String,
    },
    /// There are no credentials any more.
    #[error(transparent)]
    Credentials(Failure),
}

/// What it means for a command that a request came to nothing.
pub(crate) fn failure(what: &str, error: kube::Error) -> Failure {
    let cause = match error {
        kube::Error::Service(error) => match error.downcast::<Broken>() {
            Ok(broken) => match *broken {
                Broken::Credentials(failure) => return failure,
                broken => broken.to_string(),
            },
            Err(error) => {
                format!("the API server does not answer: {}", of_transport(error.as_ref()))
            }
        },
        // Its Debug text is in its Display text.
        kube::Error::Api(status) => {
            format!("the API server failed: {} ({})", status.message, status.code)
        }
        error => format!("the API server does not answer: {}", of_transport(&error)),
    };
    Failure::Unreachable { what: what.to_owned(), cause }
}

/// Why a client cannot be made; `asks_system` says whether the system's authorities are to be trusted.
pub(super) fn of_client(error: &kube::Error, asks_system: bool) -> String {
    match error {
        kube::Error::InferKubeconfig(error) => kata_connect::cause(error),
        kube::Error::RustlsTls(RustlsTlsError::AddRootCertificate(_)) if asks_system => {
            "the kubeconfig names no certificate authority, and this machine has none either; set \
             certificate-authority of the cluster, or give --certificate-authority FILE"
                .to_owned()
        }
        kube::Error::RustlsTls(error) => error.to_string(),
        error => of_transport(error),
    }
}

/// The cause that is furthest down, in words where it is known: what is above it says only in which layer
/// it was met.
pub(super) fn of_transport(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(words) = known(error) {
            return words;
        }
        last = error;
        next = error.source();
    }
    let text = last.to_string();
    // So hyper calls an answer that is none, of a server that expects TLS.
    if text.starts_with("invalid HTTP") {
        return "it does not speak HTTP; is the address one of https://?".to_owned();
    }
    text
}

fn known(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(of_tls(error));
    }
    let error = error.downcast_ref::<std::io::Error>()?;
    if let Some(inner) = error.get_ref() {
        if let Some(words) = known(inner) {
            return Some(words);
        }
        if inner.source().is_some() {
            return None;
        }
    }
    Some(match error.kind() {
        ErrorKind::ConnectionRefused => {
            "connection refused; is the API server up, and is the address right?".to_owned()
        }
        ErrorKind::TimedOut => format!(
            "nothing answers within {} s; is the address right, and is a VPN or a proxy needed?",
            CONNECT_TIMEOUT.as_secs()
        ),
        ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe => {
            "the other side closed it".to_owned()
        }
        _ => error.to_string(),
    })
}

fn of_tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(error) => of_certificate(error),
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired => {
                "it wants a client certificate, and the user has none".to_owned()
            }
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError
            | AlertDescription::UnsupportedCertificate => {
                "it does not accept the user's client certificate; is it one of this cluster?"
                    .to_owned()
            }
            AlertDescription::CertificateExpired => {
                "the user's client certificate has expired; get a new one".to_owned()
            }
            AlertDescription::CertificateRevoked => {
                "the user's client certificate was revoked; get a new one".to_owned()
            }
            AlertDescription::UnrecognisedName => {
                "it does not know the name in the address; give the right one with --tls-server-name NAME"
                    .to_owned()
            }
            _ => error.to_string(),
        },
        rustls::Error::InvalidMessage(_) => {
            "it does not speak TLS; is the address one of http://?".to_owned()
        }
        _ => error.to_string(),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    let time = |time: &rustls::pki_types::UnixTime| {
        let seconds = i64::try_from(time.as_secs()).ok();
        let time = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
        time.map_or_else(|| "an unknown time".to_owned(), |time| time.to_string())
    };
    match error {
        CertificateError::UnknownIssuer => {
            "its certificate is signed by an authority that is not trusted; set certificate-authority of \
             the cluster in the kubeconfig, or give --certificate-authority FILE"
                .to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            // As `DnsName("kubernetes")` and `IpAddress(10.0.0.1)`.
            let names: Vec<&str> = presented
                .iter()
                .filter_map(|name| name.split_once('(')?.1.strip_suffix(')'))
                .map(|name| name.trim_matches('"'))
                .collect();
            format!(
                "its certificate is not for {}, but for {}; if one of these is meant, give it with \
                 --tls-server-name NAME",
                expected.to_str(),
                if names.is_empty() { "no name at all".to_owned() } else { names.join(", ") }
            )
        }
        CertificateError::ExpiredContext { not_after, .. } => format!(
            "its certificate expired at {}, if the clock of this machine is right",
            time(not_after)
        ),
        CertificateError::NotValidYetContext { not_before, .. } => format!(
            "its certificate is good from {} on; is the clock of this machine right?",
            time(not_before)
        ),
        error => format!("its certificate is not good: {error}"),
    }
}
