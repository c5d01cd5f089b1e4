//! `cargo xtask fuzz containerd_toml`: see `hostlab::parsers::containerd_toml`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drop(hostlab::parsers::containerd_toml(data));
});
