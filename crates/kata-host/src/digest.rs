//! SHA-256 as text.

use sha2::{Digest as _, Sha256};

/// The SHA-256 of bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    text(&Sha256::digest(bytes))
}

/// Bytes in lower-case hexadecimal.
pub fn text(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|half| char::from_digit(u32::from(half), 16))
        .collect()
}
