//! `cargo xtask fuzz cri_verbose`: see `hostlab::parsers::cri_verbose`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drop(hostlab::parsers::cri_verbose(data));
});
