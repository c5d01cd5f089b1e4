//! Phrases for messages, and texts that are cut to a length.

use std::time::Duration;

pub(crate) use kata_api::digest::digest;
pub(crate) use kata_api::text::{count, list, list_of};

use crate::snapshot::SandboxedPod;

/// How many objects a message names; it only counts the rest.
pub(crate) const NAMES: usize = 10;

/// `3 sandboxed pods still run`.
pub(crate) fn pods_running(count: usize) -> String {
    match count {
        1 => "1 sandboxed pod still runs".to_owned(),
        count => format!("{count} sandboxed pods still run"),
    }
}

/// `3 sandboxed pods are left`, of which some may not have begun to run.
pub(crate) fn pods_left(count: usize) -> String {
    match count {
        1 => "1 sandboxed pod is left".to_owned(),
        count => format!("{count} sandboxed pods are left"),
    }
}

/// `3 sandboxed pods use it`, of which some may not have begun to run.
pub(crate) fn pods_using(count: usize) -> String {
    match count {
        1 => "1 sandboxed pod uses it".to_owned(),
        count => format!("{count} sandboxed pods use it"),
    }
}

/// `shop/cart (ReplicaSet cart-5d), shop/web`.
pub(crate) fn pods(pods: &[&SandboxedPod]) -> String {
    let shown: Vec<String> = pods
        .iter()
        .take(NAMES)
        .map(|pod| {
            let unscheduled = pod.node.is_none().then(|| "not scheduled".to_owned());
            let notes: Vec<String> = pod.owner.iter().cloned().chain(unscheduled).collect();
            if notes.is_empty() {
                format!("{}/{}", pod.namespace, pod.name)
            } else {
                format!("{}/{} ({})", pod.namespace, pod.name, notes.join(", "))
            }
        })
        .collect();
    list_of(&shown, pods.len())
}

/// `a, b and c`.
pub(crate) fn join_and(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    }
}

/// `30 minutes`, or `45 seconds` of what is not whole minutes.
pub(crate) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let (number, unit) = if seconds > 0 && seconds.is_multiple_of(60) {
        (seconds / 60, "minute")
    } else {
        (seconds, "second")
    };
    count(usize::try_from(number).unwrap_or(usize::MAX), unit)
}

/// Cuts the text to at most `most` bytes, at the end of a character.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most.saturating_sub(3))
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or_default();
    format!("{}...", &text[..end])
}

/// A DNS label of at most `most` bytes: `prefix`, the beginning of `name`, and `-suffix`.
pub(crate) fn cut_name(prefix: &str, name: &str, suffix: &str, most: usize) -> String {
    let room = most.saturating_sub(prefix.len() + suffix.len() + 1);
    let label: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(room).collect();
    format!("{prefix}{}-{suffix}", label.trim_end_matches('-').to_ascii_lowercase())
}
