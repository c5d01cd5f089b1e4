//! The grammars of names, labels and keys, with the texts by which the API server explains them.

use crate::api::registry::ResourceDef;

/// The most bytes that all annotations of an object may have.
pub(super) const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// Finalizers that need no domain.
pub(super) const KNOWN_FINALIZERS: [&str; 3] = ["foregroundDeletion", "kubernetes", "orphan"];

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
    an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// What is wrong with an object's name.
pub(super) fn object_name(def: &ResourceDef, name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("must not be empty".to_owned());
    }
    match (def.resource.group.as_ref(), def.resource.plural.as_ref()) {
        ("", "namespaces") => dns_label(name),
        ("", "services") => {
            let starts = name.starts_with(|first: char| first.is_ascii_lowercase());
            if starts && dns_label(name).is_none() {
                None
            } else if name.len() > 63 {
                Some("must be no more than 63 bytes".to_owned())
            } else {
                Some(LABEL_1035.to_owned())
            }
        }
        ("rbac.authorization.k8s.io", _) => path_segment(name),
        _ => subdomain(name),
    }
}

/// What is wrong with a DNS label.
pub(super) fn dns_label(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some("must be no more than 63 bytes".to_owned());
    }
    (!is_label(text)).then(|| LABEL.to_owned())
}

fn subdomain(text: &str) -> Option<String> {
    if text.len() > 253 {
        return Some("must be no more than 253 bytes".to_owned());
    }
    (!text.split('.').all(is_label)).then(|| SUBDOMAIN.to_owned())
}

fn path_segment(text: &str) -> Option<String> {
    if text == "." || text == ".." {
        return Some(format!("may not be '{text}'"));
    }
    ["/", "%"]
        .into_iter()
        .find(|part| text.contains(part))
        .map(|part| format!("may not contain '{part}'"))
}

/// What is wrong with a label's value.
pub(super) fn label_value(text: &str) -> Option<String> {
    if text.len() > 63 {
        return Some("must be no more than 63 bytes".to_owned());
    }
    (!text.is_empty() && !is_word(text)).then(|| VALUE.to_owned())
}

/// What is wrong with a label's key, an annotation's key or a finalizer.
pub(super) fn qualified(text: &str) -> Option<String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            return Some("prefix part must be non-empty".to_owned());
        }
        if let Some(why) = subdomain(prefix) {
            return Some(format!("prefix part {why}"));
        }
    }
    if name.is_empty() {
        return Some("name part must be non-empty".to_owned());
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 bytes".to_owned());
    }
    (!is_word(name)).then(|| QUALIFIED.to_owned())
}

fn is_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().all(|byte| plain(byte) || byte == b'-')
        && text.bytes().next().is_some_and(plain)
        && text.bytes().last().is_some_and(plain)
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().last().is_some_and(|byte| byte.is_ascii_alphanumeric())
}
