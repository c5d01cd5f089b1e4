//! `cargo xtask fuzz kubelet_arguments`: see `hostlab::parsers::kubelet_arguments`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drop(hostlab::parsers::kubelet_arguments(data));
});
