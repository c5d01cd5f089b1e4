//! `cargo xtask fuzz shim_components`: kata-deploy's list of components.
#![no_main]

use kata_node_agent::stage::components;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let shims = ["qemu".to_owned()];
    drop(
        components(&String::from_utf8_lossy(data), &shims, "x86_64")
            .map_err(|error| error.to_string()),
    );
});
