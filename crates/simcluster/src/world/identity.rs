//! Identifiers that look random and are the same in every run.
//!
//! They are names, never secrets: whoever knows the seed knows the identifier.

/// A 64-bit digest of `text` (FNV-1a, then mixed so that near texts give far values).
pub fn digest(text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 30;
    hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash ^= hash >> 27;
    hash = hash.wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// 64 hexadecimal digits, as container runtimes name sandboxes, containers and images.
pub fn hex_id(seed: &str) -> String {
    (0..4).map(|part| format!("{:016x}", digest(&format!("{part}/{seed}")))).collect()
}

/// A random-looking UUID (version 4).
pub fn uuid(seed: &str) -> String {
    let (high, low) = (digest(&format!("high/{seed}")), digest(&format!("low/{seed}")));
    let hex = format!("{high:016x}{low:016x}");
    format!("{}-{}-4{}-a{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}

/// `length` characters of the alphabet that Kubernetes uses for generated names.
pub fn suffix(seed: &str, length: usize) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut state = digest(seed);
    (0..length)
        .map(|_| {
            let index = usize::try_from(state % 27).unwrap_or(0);
            state /= 27;
            char::from(ALPHABET[index])
        })
        .collect()
}
