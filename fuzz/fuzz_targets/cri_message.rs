//! `cargo xtask fuzz cri_message`: answers of CRI in their frames.
#![no_main]

use kata_host::host::CriStatus;
use kata_node_agent::cri::{decode, message};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    drop(decode::<message::StatusResponse>(data).map(CriStatus::from));
    drop(decode::<message::ListPodSandboxResponse>(data));
    drop(decode::<message::VersionResponse>(data));
});
