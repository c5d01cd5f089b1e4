//! Through which proxy the API server is reached, by the rules that kubectl follows: the kubeconfig's, else
//! the environment's, and that not for hosts that `NO_PROXY` names.

use std::net::IpAddr;

use http::Uri;

use crate::failure::Failure;
use crate::settings::Proxies;

/// The proxy for this API server, if there is one.
pub(super) fn choose(
    of_cluster: Option<&str>,
    proxies: &Proxies,
    server: &Uri,
) -> Result<Option<Uri>, Failure> {
    if let Some(text) = of_cluster.filter(|text| !text.is_empty()) {
        return parse(text, "proxy-url of the cluster").map(Some);
    }
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
fn parse(text: &str, what: &str) -> Result<Uri, Failure> {
    let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let parsed: Option<Uri> = full.parse().ok();
    parsed
        .filter(|url| matches!(url.scheme_str(), Some("http" | "https" | "socks5")))
        .filter(|url| url.host().is_some())
        .ok_or_else(|| {
            Failure::Context(format!(
                "{what} is no proxy that can be used: write http://HOST:PORT, https://HOST:PORT or \
                 socks5://HOST:PORT"
            ))
        })
}

/// Whether a host is reached without a proxy: this machine, and whatever `NO_PROXY` names, as a host or
/// domain (which is also about what is below it), an address, or a range of addresses.
fn is_exempt(server: &Uri, exempt: &str) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let port = server
        .port_u16()
        .unwrap_or_else(|| if server.scheme_str() == Some("https") { 443 } else { 80 });
    exempt.split(',').map(str::trim).filter(|entry| !entry.is_empty()).any(|entry| {
        if entry == "*" {
            return true;
        }
        if let Some((network, bits)) = entry.split_once('/') {
            return address
                .zip(network.parse().ok())
                .zip(bits.parse().ok())
                .is_some_and(|((address, network), bits)| is_within(address, network, bits));
        }
        let entry = entry.to_ascii_lowercase();
        // An IPv6 address has colons of its own.
        let (name, wanted_port) = match entry.rsplit_once(':') {
            Some((name, number)) if !name.contains(':') || name.ends_with(']') => {
                (name.to_owned(), number.parse::<u16>().ok())
            }
            _ => (entry.clone(), None),
        };
        if wanted_port.is_some_and(|wanted| wanted != port) {
            return false;
        }
        let name = name.trim_matches(['[', ']']);
        if address.is_some() {
            return name.parse().ok() == address;
        }
        match name.strip_prefix("*.").or_else(|| name.strip_prefix('.')) {
            Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
            None => host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')),
        }
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_exempt_as_with_kubectl() {
        let exempt = |server: &str, list: &str| is_exempt(&server.parse().unwrap(), list);
        for (server, list) in [
            ("https://localhost:6443", ""),
            ("https://127.0.0.1:6443", ""),
            ("https://[::1]:6443", ""),
            ("https://api.example.com:6443", "*"),
            ("https://api.example.com:6443", "other, example.com"),
            ("https://api.example.com:6443", ".example.com"),
            ("https://api.example.com:6443", "*.example.com"),
            ("https://api.Example.com:6443", "API.example.com:6443"),
            ("https://10.1.2.3", "10.0.0.0/8"),
            ("https://10.1.2.3", "10.1.2.3"),
            ("https://[fd00::7]:6443", "fd00::/8"),
            ("https://[fd00::7]:6443", "fd00::7"),
            ("https://[fd00::7]:6443", "[fd00::7]:6443"),
            ("https://10.1.2.3", "0.0.0.0/0"),
        ] {
            assert!(exempt(server, list), "{server} {list}");
        }
        for (server, list) in [
            ("https://api.example.com:6443", ""),
            ("https://example.com", ".example.com"),
            ("https://badexample.com", "example.com"),
            ("https://api.example.com:6443", "api.example.com:443"),
            ("https://10.1.2.3", "10.1.2.0/31"),
            ("https://10.1.2.3", "10.1.2.3/40"),
            ("https://10.1.2.3", "fd00::/8"),
            ("https://api.example.com", "10.0.0.0/8"),
        ] {
            assert!(!exempt(server, list), "{server} {list}");
        }
    }

    #[test]
    fn the_environment_is_for_those_whom_the_kubeconfig_says_nothing() {
        let proxies = Proxies {
            https: Some("proxy.example.com:3128".to_owned()),
            http: None,
            exempt: "internal.example.com".to_owned(),
        };
        let of = |cluster: Option<&str>, server: &str| {
            choose(cluster, &proxies, &server.parse().unwrap())
                .unwrap()
                .map(|proxy| proxy.to_string())
        };
        let outside = "https://api.example.com:6443";
        assert_eq!(of(None, outside).as_deref(), Some("http://proxy.example.com:3128/"));
        assert_eq!(of(None, "https://api.internal.example.com"), None);
        assert_eq!(of(None, "http://api.example.com"), None);
        let own = Some("socks5://127.0.0.1:1080");
        assert_eq!(of(own, outside).as_deref(), Some("socks5://127.0.0.1:1080/"));
        let bad = choose(Some("ftp://me:secret@host"), &proxies, &outside.parse().unwrap());
        let said = bad.unwrap_err().chain();
        assert!(said.contains("no proxy that can be used") && !said.contains("secret"), "{said}");
    }
}
