//! `cargo xtask fuzz manifest`: see `hostlab::parsers::manifest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drop(hostlab::parsers::manifest(data));
});
