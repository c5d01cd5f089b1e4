//! `cargo xtask fuzz payload_zstd`: an archive of kata-deploy, as it is in an image.
#![no_main]

mod staging;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    staging::stage(data);
});
