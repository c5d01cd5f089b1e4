//! `cargo xtask fuzz payload_tar`: the same, before it is compressed.
#![no_main]

mod staging;

/// The largest block of zstd.
const BLOCK: usize = 128 << 10;

/// A frame of zstd with the data as they are (RFC 8878).
fn frame(data: &[u8]) -> Vec<u8> {
    // The magic number, no optional fields, and a window of 128 KiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];
    let mut blocks: Vec<&[u8]> = data.chunks(BLOCK).collect();
    blocks.push(&[]);
    for (left, block) in (0..blocks.len()).rev().zip(blocks) {
        let header = (block.len() << 3) | usize::from(left == 0);
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.extend_from_slice(block);
    }
    frame
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    staging::stage(&frame(data));
});
