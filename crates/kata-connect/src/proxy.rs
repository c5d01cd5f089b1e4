//! Through which proxy the API server is reached, as kubectl does it: the kubeconfig's, else the
//! environment's, and that not for this machine and hosts that NO_PROXY names.
//!
//! The environment's rule is that of golang.org/x/net/http/httpproxy, which kubectl uses. What kubectl did is
//! recorded in tests/it/kubectl-proxies.yaml.

use std::net::IpAddr;

use http::Uri;

use crate::{Proxies, TargetError};

/// The proxy that the kubeconfig names for a cluster. NO_PROXY is not about it.
pub(crate) fn of_cluster(text: Option<&str>, cluster: &str) -> Result<Option<Uri>, TargetError> {
    let what = || format!("proxy-url of cluster {cluster}");
    match text {
        None | Some("") => Ok(None),
        // Only a variable may leave out the scheme.
        Some(text) if !text.contains("://") => Err(TargetError::Proxy(what())),
        Some(text) => parse(text, &what()).map(Some),
    }
}

/// The proxy that the environment names for this API server.
pub(crate) fn of_environment(proxies: &Proxies, server: &Uri) -> Result<Option<Uri>, TargetError> {
    let (text, name) = match server.scheme_str() {
        Some("https") => (&proxies.https, "HTTPS_PROXY"),
        _ => (&proxies.http, "HTTP_PROXY"),
    };
    match text {
        Some(text) if !is_exempt(server, &proxies.exempt) => parse(text, name).map(Some),
        _ => Ok(None),
    }
}

/// A proxy's address may carry a password, so that messages do not quote it.
fn parse(text: &str, what: &str) -> Result<Uri, TargetError> {
    let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let parsed: Option<Uri> = full.parse().ok();
    parsed
        .filter(|url| matches!(url.scheme_str(), Some("http" | "https" | "socks5")))
        .filter(|url| url.host().is_some())
        .ok_or_else(|| TargetError::Proxy(what.to_owned()))
}

/// Whether a host is reached without a proxy.
fn is_exempt(server: &Uri, exempt: &str) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let port = server
        .port_u16()
        .unwrap_or_else(|| if server.scheme_str() == Some("https") { 443 } else { 80 });
    exempt
        .split(',')
        .map(|entry| entry.trim().to_ascii_lowercase())
        .any(|entry| covers(&entry, &host.to_ascii_lowercase(), address, &port.to_string()))
}

/// Whether an entry of NO_PROXY is about this host, which is an address or has none.
fn covers(entry: &str, host: &str, address: Option<IpAddr>, port: &str) -> bool {
    if entry == "*" {
        return true;
    }
    let range = entry.split_once('/').and_then(|(network, bits)| {
        Some((network.parse::<IpAddr>().ok()?, bits.parse::<u32>().ok()?))
    });
    if let Some((network, bits)) = range {
        return address.is_some_and(|address| is_within(address, network, bits));
    }
    let (name, wanted) = name_and_port(entry);
    if name.is_empty() || !(wanted.is_empty() || wanted == port) {
        return false;
    }
    if let Some(address) = address {
        return name
            .parse()
            .is_ok_and(|named: IpAddr| named.to_canonical() == address.to_canonical());
    }
    match name.strip_prefix("*.").or_else(|| name.strip_prefix('.')) {
        Some(domain) => is_below(host, domain),
        None => host == name || is_below(host, name),
    }
}

/// `HOST:PORT` or `[ADDRESS]:PORT` in two; without a port, the second is empty.
fn name_and_port(entry: &str) -> (&str, &str) {
    if let Some((address, rest)) = entry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        // An address in brackets without a port is nothing to kubectl.
        return rest.strip_prefix(':').map_or((entry, ""), |port| (address, port));
    }
    match entry.split_once(':') {
        // More colons are those of an address.
        Some((name, port)) if !port.contains(':') => (name, port),
        _ => (entry, ""),
    }
}

fn is_below(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

fn is_within(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let (address, network, width) = match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            (u128::from(address.to_bits()), u128::from(network.to_bits()), 32)
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => (address.to_bits(), network.to_bits(), 128),
        _ => return false,
    };
    let Some(rest) = u32::checked_sub(width, bits) else { return false };
    // A shift by the whole width leaves nothing to compare.
    address.checked_shr(rest).unwrap_or(0) == network.checked_shr(rest).unwrap_or(0)
}
