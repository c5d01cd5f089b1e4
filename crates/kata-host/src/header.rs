//! The header by which we know our own file, and whether somebody edited it.

use crate::digest::hex;

const MARK: &str = "# managed-by: kata-operator; do not edit, it is put back. content-sha256=";

/// Puts the header before a text.
pub(crate) fn add(body: &str) -> String {
    format!("{MARK}{}\n{body}", hex(body.as_bytes()))
}

/// Whether a file is one of ours, edited or not.
pub fn is_ours(text: &str) -> bool {
    text.starts_with(MARK)
}
