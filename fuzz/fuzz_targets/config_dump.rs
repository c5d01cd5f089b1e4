//! `cargo xtask fuzz config_dump`: see `hostlab::parsers::config_dump`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drop(hostlab::parsers::config_dump(data));
});
