//! Short digests of texts, for names and for comparing states. They are not cryptographic.

/// FNV-1a of `text`, 64 bits, as 16 hexadecimal digits. The algorithm never changes, because names of
/// objects and fields of KataNodes contain such digests.
pub fn digest(text: &str) -> String {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}
