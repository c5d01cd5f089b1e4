//! `cargo xtask fuzz dbus_message`: values in messages of systemd.
#![no_main]

use kata_node_agent::systemd::wire::Reader;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drop(Reader::new(data).first_command());
    let mut reader = Reader::new(data);
    drop(reader.variant_string());
    drop(reader.string());
});
