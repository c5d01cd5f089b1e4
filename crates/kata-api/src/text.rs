//! Counts and lists in messages.

use std::borrow::Borrow;

/// `1 node`, `2 nodes`.
pub fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// `a, b, c and 7 more`.
pub fn list<S: AsRef<str>>(items: &[S], most: usize) -> String {
    let shown: Vec<&str> = items.iter().take(most).map(AsRef::as_ref).collect();
    list_of(&shown, items.len())
}

/// `a, b and 2 more`: the items that are shown, of so many.
pub fn list_of<S: Borrow<str>>(shown: &[S], all: usize) -> String {
    match all.saturating_sub(shown.len()) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
