//! A tar archive in the format ustar (POSIX.1-1988), plain or compressed, in memory. Pure.

use std::io::{self, Write as _};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;

const BLOCK: usize = 512;

/// The files as an archive. Names longer than 100 bytes are cut at their beginning.
pub(super) fn tar<'a>(
    files: impl Iterator<Item = (String, &'a [u8])>,
    modified: Timestamp,
) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, content) in files {
        archive.extend_from_slice(&header(&name, content.len(), modified));
        archive.extend_from_slice(content);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    archive.resize(archive.len() + 2 * BLOCK, 0);
    archive
}

/// The same compressed, in the format gzip (RFC 1952).
///
/// # Errors
/// Never; the encoder's type has an error.
pub(super) fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn header(name: &str, size: usize, modified: Timestamp) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, length: usize, bytes: &[u8]| {
        for (to, from) in header.iter_mut().skip(at).take(length).zip(bytes) {
            *to = *from;
        }
    };
    let cut = name.len().saturating_sub(100);
    put(0, 100, name.as_bytes().get(cut..).unwrap_or_default());
    put(100, 8, b"0000644\0");
    put(108, 8, b"0000000\0");
    put(116, 8, b"0000000\0");
    put(124, 12, format!("{size:011o}\0").as_bytes());
    let seconds = modified.as_second().max(0);
    put(136, 12, format!("{seconds:011o}\0").as_bytes());
    put(148, 8, b"        ");
    put(156, 1, b"0");
    put(257, 8, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    let mut put = |at: usize, bytes: &[u8]| {
        for (to, from) in header.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    };
    put(148, format!("{sum:06o}\0 ").as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_headers_with_sums_and_whole_blocks() {
        let files = [("d/a.txt".to_owned(), &b"hello\n"[..])];
        let archive = tar(files.into_iter(), Timestamp::from_second(1_700_000_000).unwrap());
        assert_eq!(archive.len(), 4 * BLOCK);
        assert!(archive.starts_with(b"d/a.txt\0"));
        assert_eq!(&archive[124..136], b"00000000006\0");
        assert_eq!(&archive[257..262], b"ustar");
        assert_eq!(&archive[BLOCK..BLOCK + 6], b"hello\n");
        let sum: u32 = archive[..BLOCK]
            .iter()
            .enumerate()
            .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) })
            .sum();
        assert_eq!(&archive[148..154], format!("{sum:06o}").as_bytes());
    }
}
