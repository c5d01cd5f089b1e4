//! How fast a payload is staged, against `cp -a` of the same tree in the same run.
//!
//! `cargo bench -p kata-operator --bench staging`. Staging reads, hashes and writes every byte and makes it
//! durable; `cp -a` copies, and `sync` after it makes the copy durable. Medians of nine rounds, in turns.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, or ends")]
#![expect(clippy::disallowed_methods, reason = "a bench starts the programs that it measures")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const ROUNDS: usize = 9;
const FILES: u64 = 32;
const FILE_BYTES: usize = 8 << 20;

fn main() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-staging");
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    let tree = payload(&folder);
    let (mut plain, mut durable, mut staging) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let copy = folder.join(format!("copy-{round}"));
        let start = Instant::now();
        run(Command::new("cp").arg("-a").args([&tree, &copy]));
        plain.push(start.elapsed());
        run(Command::new("sync").arg("-f").arg(&copy));
        durable.push(start.elapsed());
        fs::remove_dir_all(copy).unwrap();
        let start = Instant::now();
        run(stage(&folder).arg("--host-root").arg(folder.join("host")));
        staging.push(start.elapsed());
        fs::remove_dir_all(folder.join("host/opt/kata-operator")).unwrap();
    }
    let rates = [("staging", staging), ("cp -a and sync -f", durable), ("cp -a", plain)]
        .map(|(name, times)| (name, rate(times)));
    for (name, rate) in &rates {
        println!("{name:20} {rate:6.0} MiB/s, {:3.0} % of staging", 100.0 * rate / rates[0].1);
    }
    fs::remove_dir_all(folder).unwrap();
}

/// A tree that a compressor cannot make small, as the images and kernels of a payload.
fn payload(folder: &Path) -> PathBuf {
    let tree = folder.join("image/opt/kata");
    fs::create_dir_all(tree.join("bin")).unwrap();
    fs::create_dir_all(tree.join("share/defaults/kata-containers")).unwrap();
    fs::create_dir_all(folder.join("host/opt")).unwrap();
    let mut state: u64 = 1;
    let block: Vec<u8> = (0..FILE_BYTES / 8)
        .flat_map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_le_bytes()
        })
        .collect();
    for index in 0..FILES {
        fs::write(tree.join(format!("share/file-{index}")), &block).unwrap();
    }
    for name in
        ["bin/containerd-shim-kata-v2", "share/defaults/kata-containers/configuration-qemu.toml"]
    {
        fs::write(tree.join(name), "").unwrap();
    }
    tree
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// `kata-operator node-agent stage` out of the image's tree.
fn stage(folder: &Path) -> Command {
    let task = serde_json::json!({
        "version": 1, "node": "bench", "action": "Install",
        "handlers": [{"name": "kata", "shim": "qemu"}], "payloadImage": "bench",
    });
    let mut stage = Command::new(env!("CARGO_BIN_EXE_kata-operator"));
    stage.args(["node-agent", "stage", "--task", &task.to_string(), "--image-root"]);
    stage.arg(folder.join("image"));
    stage
}

/// Mebibytes per second, by the median.
fn rate(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    let bytes = FILES * FILE_BYTES as u64;
    let mebibytes = f64::from(u32::try_from(bytes >> 20).unwrap());
    mebibytes / times[times.len() / 2].as_secs_f64()
}
