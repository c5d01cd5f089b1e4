//! `cargo xtask fuzz journal`: see `hostlab::parsers::read_journal`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drop(hostlab::parsers::read_journal(data));
});
