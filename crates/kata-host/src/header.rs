//! The header by which we know our own file, and whether it was edited.

use crate::digest::hex;

const MARK: &str = "# managed-by: kata-operator; do not edit, it is put back. content-sha256=";

/// Puts the header before a text.
pub(crate) fn add(body: &str) -> String {
    format!("{MARK}{}\n{body}", hex(body.as_bytes()))
}

/// Whether a file that begins with the header has other content than we wrote.
pub(crate) fn is_edited(text: &str) -> bool {
    let rest = text.strip_prefix(MARK).and_then(|rest| rest.split_once('\n'));
    rest.is_some_and(|(digest, body)| digest != hex(body.as_bytes()))
}

/// Whether a file is one of ours, edited or not.
pub fn is_ours(text: &str) -> bool {
    text.starts_with(MARK)
}
