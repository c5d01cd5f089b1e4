//! Uids and generated names: they look random, and are the same in every run.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The letters that generated names use: no vowels, no digits that look like letters.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A source of uids and name suffixes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    counter: u64,
    addresses: u64,
}

impl Identity {
    /// The next 64 well-mixed bits of a counter (the `SplitMix64` generator).
    fn next(&mut self) -> u64 {
        self.counter += 1;
        let mut bits = self.counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A uid in the form of a version 4 UUID.
    pub(super) fn uid(&mut self) -> String {
        let (high, low) = (self.next(), self.next());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:x}{:03x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            8 + (low >> 62),
            (low >> 48) & 0xfff,
            low & 0xffff_ffff_ffff,
        )
    }

    /// The next address of the service network, `172.30.0.0/16`.
    pub(super) fn address(&mut self) -> String {
        self.addresses += 1;
        // .0.1 is the API server's own; hosts start at .1.1.
        let host = self.addresses - 1;
        format!("172.30.{}.{}", 1 + (host / 254) % 254, 1 + host % 254)
    }

    /// The five letters that complete a `generateName`.
    pub(super) fn suffix(&mut self) -> String {
        let mut bits = self.next();
        let count = LETTERS.len() as u64;
        (0..5)
            .map(|_| {
                let index = usize::try_from(bits % count).unwrap_or_default();
                bits /= count;
                char::from(LETTERS[index])
            })
            .collect()
    }
}

/// A time as objects carry it, in whole seconds.
pub(super) fn stamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
