//! The words of a line: quoted ones, objects, numbers and spans of time.

use std::time::Duration;

use jiff::SignedDuration;

/// An object, by kind and name.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Singular, plural, short name or kind, as kubectl takes it.
    pub(crate) kind: String,
    pub(crate) name: String,
    /// `None` means default, if the kind is namespaced.
    pub(crate) namespace: Option<String>,
}

impl Target {
    /// The namespace to ask in.
    pub(crate) fn namespace(&self, namespaced: bool) -> &str {
        if namespaced { self.namespace.as_deref().unwrap_or("default") } else { "" }
    }
}

/// Splits a line at spaces, but not inside of quotes.
pub(crate) fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut current: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(end), c) if c == end => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                current.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(current.take()),
            (_, c) => current.get_or_insert_default().push(c),
        }
    }
    if let Some(quote) = quote {
        return Err(format!("a {quote} is not closed"));
    }
    words.extend(current);
    Ok(words)
}

/// An object and the words after it.
pub(crate) fn target<'a, 'b>(words: &'a [&'b str]) -> Result<(Target, &'a [&'b str]), String> {
    let (kind, name, rest) = match words {
        [both, rest @ ..] if both.contains('/') => {
            let (kind, name) = both.split_once('/').unwrap_or_default();
            (kind, name, rest)
        }
        [kind, name, rest @ ..] => (*kind, *name, rest),
        _ => return Err("an object is missing: write KIND NAME [-n NAMESPACE]".to_owned()),
    };
    let (namespace, rest) = match rest {
        ["-n", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
        rest => (None, rest),
    };
    Ok((Target { kind: kind.to_owned(), name: name.to_owned(), namespace }, rest))
}

pub(crate) fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_not_a_number| format!("{text:?} is not a number in range"))
}

/// A span such as `90s`, `5m` or `1h30m`.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    text.parse::<SignedDuration>()
        .ok()
        .and_then(|span| Duration::try_from(span).ok())
        .ok_or_else(|| format!("{text:?} is not a span of time: write 90s, 5m or 1h30m"))
}
