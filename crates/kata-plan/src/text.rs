//! How lists of names are put into sentences: the first few, and how many more.

use crate::snapshot::SandboxedPod;

/// How many objects a message names before it only counts.
pub(crate) const NAMES: usize = 10;

/// `3 sandboxed pods still run`.
pub(crate) fn running(count: usize) -> String {
    match count {
        1 => "1 sandboxed pod still runs".to_owned(),
        count => format!("{count} sandboxed pods still run"),
    }
}

/// `3 sandboxed pods are left`, of which some may not have begun to run.
pub(crate) fn left(count: usize) -> String {
    match count {
        1 => "1 sandboxed pod is left".to_owned(),
        count => format!("{count} sandboxed pods are left"),
    }
}

/// `3 sandboxed pods use it`, of which some may not have begun to run.
pub(crate) fn using(count: usize) -> String {
    match count {
        1 => "1 sandboxed pod uses it".to_owned(),
        count => format!("{count} sandboxed pods use it"),
    }
}

/// `shop/cart (ReplicaSet cart-5d), shop/web`.
pub(crate) fn pods(pods: &[&SandboxedPod]) -> String {
    let names: Vec<String> = pods
        .iter()
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
    list(&names, NAMES)
}

/// `a, b, c and 7 more`.
pub(crate) fn list<S: AsRef<str>>(items: &[S], most: usize) -> String {
    let shown: Vec<&str> = items.iter().take(most).map(AsRef::as_ref).collect();
    match items.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// `a, b and c`.
pub(crate) fn all(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [others @ .., last] => format!("{} and {last}", others.join(", ")),
    }
}

/// `1 node`, `2 nodes`.
pub(crate) fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// A short digest in hexadecimal digits that is the same in every version: FNV-1a. It tells texts apart
/// that nobody chooses to collide.
pub(crate) fn digest(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The text cut to at most so many bytes, at a character's end.
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

/// `prefix`, as much of `name` as there is room for, and `-suffix`, as one DNS label of at most `most` bytes.
pub(crate) fn cut_name(prefix: &str, name: &str, suffix: &str, most: usize) -> String {
    let room = most.saturating_sub(prefix.len() + suffix.len() + 1);
    let label: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(room).collect();
    format!("{prefix}{}-{suffix}", label.trim_end_matches('-').to_ascii_lowercase())
}
