//! `cargo xtask fuzz task`: see `hostlab::parsers::task`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drop(hostlab::parsers::task(data));
});
