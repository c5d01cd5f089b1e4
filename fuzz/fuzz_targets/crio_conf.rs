//! `cargo xtask fuzz crio_conf`: see `hostlab::parsers::crio_conf`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drop(hostlab::parsers::crio_conf(data));
});
