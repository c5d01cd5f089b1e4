//! Takes out of texts what looks like a credential, and gives addresses other names. Pure.
//!
//! [`super::project`] decides which fields are kept; this is a second safeguard.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use serde_json::Value;

const GONE: &str = "(redacted)";

/// What was taken out so far. An address has the same name wherever it is.
#[derive(Clone, Debug, Default)]
pub(in crate::commands) struct Redactor {
    credentials: usize,
    addresses: BTreeMap<IpAddr, usize>,
}

impl fmt::Display for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} credentials, {} addresses", self.credentials, self.addresses.len())
    }
}

impl Redactor {
    /// How many credentials and addresses were taken out.
    pub(super) fn total(&self) -> usize {
        self.credentials + self.addresses.len()
    }

    /// Takes them out of all texts of a value.
    pub(super) fn value(&mut self, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.value(field)),
            Value::String(text) => *text = self.text(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Takes out of lines what looks like a credential: values of keys that are called like one, bearer tokens,
    /// JSON Web Tokens, and the user in front of a host. Addresses get other names.
    pub(in crate::commands) fn text(&mut self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        // The value is still to come, as after `password:` and `Bearer`.
        let mut expected = false;
        let end =
            |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | '`' | '(' | ')');
        for piece in text.split_inclusive(end) {
            let word = piece.trim_end_matches(end);
            let rest = piece.get(word.len()..).unwrap_or_default();
            // What stands between a key and its value is not the value.
            if word.chars().all(|c| matches!(c, ':' | '=')) {
                clean.push_str(piece);
                expected &= !rest.contains('\n');
                continue;
            }
            let lower = word.to_ascii_lowercase();
            let announces = matches!(lower.as_str(), "bearer" | "basic")
                || lower.strip_suffix([':', '=']).is_some_and(is_secret);
            if std::mem::take(&mut expected) && !announces {
                clean.push_str(GONE);
                self.credentials += 1;
            } else if let Some(at) = secret_value(word) {
                clean.push_str(word.get(..at).unwrap_or_default());
                clean.push_str(GONE);
                self.credentials += 1;
            } else if let Some((before, after)) = user_of_host(word) {
                clean.push_str(before);
                clean.push_str(GONE);
                clean.push_str(&self.without_addresses(after));
                self.credentials += 1;
            } else {
                clean.push_str(&self.without_addresses(word));
            }
            clean.push_str(rest);
            // JSON puts a quote between the key and its colon.
            expected =
                (announces || (is_secret(&lower) && rest.starts_with('"'))) && !rest.contains('\n');
        }
        clean
    }

    /// A word whose IP addresses are replaced, except loopback and unspecified ones.
    fn without_addresses(&mut self, word: &str) -> String {
        let mut clean = String::with_capacity(word.len());
        let mut rest = word;
        let is_part = |c: char| c.is_ascii_hexdigit() || matches!(c, '.' | ':');
        while let Some(start) = rest.find(is_part) {
            let (before, from) = rest.split_at_checked(start).unwrap_or((rest, ""));
            clean.push_str(before);
            let length = from.find(|c| !is_part(c)).unwrap_or(from.len());
            let (run, after) = from.split_at_checked(length).unwrap_or((from, ""));
            let is_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
            let inside = before.chars().next_back().is_some_and(is_word)
                || after.chars().next().is_some_and(is_word);
            match address(run).filter(|_| !inside) {
                Some((address, tail)) => {
                    let number = self.addresses.len() + 1;
                    let number = *self.addresses.entry(address).or_insert(number);
                    clean.push_str(&format!("address-{number}{tail}"));
                }
                None => clean.push_str(run),
            }
            rest = after;
        }
        clean + rest
    }
}

/// The address at the beginning of a text of digits, points and colons, and what follows: a port, or a point.
fn address(run: &str) -> Option<(IpAddr, &str)> {
    let whole = run.trim_end_matches(['.', ':']);
    let ends = [whole.len(), whole.rfind(':').unwrap_or(whole.len())];
    ends.into_iter().find_map(|end| {
        let (text, _) = run.split_at_checked(end)?;
        let address: IpAddr = text.parse().ok()?;
        let is_everywhere = address.is_loopback() || address.is_unspecified();
        (!is_everywhere).then_some((address, run.get(end..)?))
    })
}

/// Whether something that is called so is a credential.
fn is_secret(key: &str) -> bool {
    let key = key.rsplit(['.', '?', '&', '-', '_']).next().unwrap_or(key);
    matches!(
        key,
        "token" | "password" | "passwd" | "secret" | "apikey" | "credential" | "authorization"
    )
}

/// Where the credential in a word begins.
fn secret_value(word: &str) -> Option<usize> {
    if word.starts_with("eyJ") && word.matches('.').count() == 2 {
        return Some(0);
    }
    let at = word.find(['=', ':'])?;
    let (key, value) = word.split_at_checked(at)?;
    (value.len() > 1 && !value.starts_with("://") && is_secret(&key.to_ascii_lowercase()))
        .then_some(at + 1)
}

/// A word before and after the user and password of its host. The digest of an image is not a host.
fn user_of_host(word: &str) -> Option<(&str, &str)> {
    let start = word.find("://").map_or(0, |at| at + 3);
    let (before, rest) = word.split_at_checked(start)?;
    let authority = rest.split('/').next()?;
    let (user, host) = authority.rsplit_once('@')?;
    let is_digest = ["sha256:", "sha512:"].iter().any(|digest| host.starts_with(digest));
    (!is_digest && !user.is_empty()).then_some((before, rest.get(user.len()..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_do_not_get_into_the_collection_with_a_log() {
        let lines = [
            ("level=info token=s3cret node=a", "level=info token=(redacted) node=a"),
            ("Authorization: Bearer s3cret, next", "Authorization: Bearer (redacted), next"),
            ("{\"password\":\"s3cret\",\"a\":1}", "{\"password\":\"(redacted)\",\"a\":1}"),
            (
                "pull https://me:s3cret@registry.example.com/a:b",
                "pull https://(redacted)@registry.example.com/a:b",
            ),
            ("jwt eyJhbGciOi.eyJzdWIi.s3cret end", "jwt (redacted) end"),
            ("registry-password: s3cret", "registry-password: (redacted)"),
            ("the token of pod a/b is valid", "the token of pod a/b is valid"),
            ("GET https://10.0.0.1:6443/api?limit=500", "GET https://10.0.0.1:6443/api?limit=500"),
            ("password:\nnext line", "password:\nnext line"),
            (
                "image me:s3cret@registry.example.com/a:1",
                "image (redacted)@registry.example.com/a:1",
            ),
            (
                "image registry.example.com/a@sha256:0123",
                "image registry.example.com/a@sha256:0123",
            ),
        ];
        for (line, clean) in lines {
            let mut redactor = Redactor::default();
            let found = redactor.text(line).replace("address-1", "10.0.0.1");
            assert_eq!(found, clean);
            assert_eq!(redactor.credentials, usize::from(line.contains("s3cret")), "{line}");
        }
    }

    #[test]
    fn an_address_has_the_same_other_name_everywhere() {
        let mut redactor = Redactor::default();
        for (line, clean) in [
            ("dial tcp 192.0.2.7:6443: refused", "dial tcp address-1:6443: refused"),
            ("https://[2001:db8::7]:6443/api", "https://[address-2]:6443/api"),
            ("from 2001:db8::7 to 192.0.2.7.", "from address-2 to address-1."),
            (
                "listens on 127.0.0.1:8080 and [::1]:80, 0.0.0.0",
                "listens on 127.0.0.1:8080 and [::1]:80, 0.0.0.0",
            ),
            (
                "at 12:30:45 kata 4.1.0 v1.2.3.4 ip-10-0-0-1",
                "at 12:30:45 kata 4.1.0 v1.2.3.4 ip-10-0-0-1",
            ),
        ] {
            assert_eq!(redactor.text(line), clean);
        }
        assert_eq!(redactor.to_string(), "0 credentials, 2 addresses");
    }
}
