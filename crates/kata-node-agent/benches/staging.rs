//! How fast the node agent is: staging against `cp -a` of the same tree in the same run, a run that has
//! nothing to do, and how long CRI is away for a change.
//!
//! `cargo bench -p kata-node-agent --bench staging`. Staging reads, hashes and writes every byte and makes it
//! durable; `cp -a` copies, and `sync` after it makes the copy durable. Medians of nine rounds, in turns.
//! Two bounds are measured besides. No staging that verifies what it stages can be faster than the copy and
//! the hash together, divided by the processors; and none that makes it durable can be faster than the disk,
//! which gets the files past the system's memory, with nothing else to be done.
//! The rest needs a real containerd, which `.ci/containerd.sh` puts below `target`, and
//! `cargo build --release -p fakeshim`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench prints, or ends"
)]
#![expect(clippy::disallowed_methods, reason = "a bench starts the programs that it measures")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kata_api::node_task::NodeAction;
use kata_node_agent::cri::Client;
use sha2::{Digest as _, Sha256};

#[path = "../tests/it/lab.rs"]
#[expect(dead_code, reason = "the tests need more of it")]
mod lab;
#[path = "../tests/it/payload.rs"]
#[expect(dead_code, reason = "the tests need more of it")]
mod payload;

use lab::Node;

/// Runs that have nothing to do.
const NO_OPS: usize = 100;
const ROUNDS: usize = 9;
const FILES: u64 = 32;
const FILE_BYTES: usize = 8 << 20;

fn main() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-staging");
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    let tree = tree(&folder);
    archive(&folder, &tree);
    let (mut plain, mut durable, mut staging) = (Vec::new(), Vec::new(), Vec::new());
    let (mut hashing, mut direct) = (Vec::new(), Vec::new());
    let (mut cold_plain, mut cold_staging) = (Vec::new(), Vec::new());
    let mut unpacking = Vec::new();
    for round in 0..ROUNDS {
        let copy = folder.join(format!("copy-{round}"));
        let start = Instant::now();
        run(Command::new("cp").arg("-a").args([&tree, &copy]));
        plain.push(start.elapsed());
        run(Command::new("sync").arg("-f").arg(&copy));
        durable.push(start.elapsed());
        fs::remove_dir_all(copy).unwrap();
        let start = Instant::now();
        run(&mut stage(&folder, "image"));
        staging.push(start.elapsed());
        fs::remove_dir_all(folder.join("host/opt/kata-operator")).unwrap();
        let start = Instant::now();
        run(&mut stage(&folder, "archive"));
        unpacking.push(start.elapsed());
        fs::remove_dir_all(folder.join("host/opt/kata-operator")).unwrap();
        forget(&tree);
        let copy = folder.join(format!("cold-{round}"));
        let start = Instant::now();
        run(Command::new("cp").arg("-a").args([&tree, &copy]));
        cold_plain.push(start.elapsed());
        fs::remove_dir_all(copy).unwrap();
        forget(&tree);
        let start = Instant::now();
        run(&mut stage(&folder, "image"));
        cold_staging.push(start.elapsed());
        fs::remove_dir_all(folder.join("host/opt/kata-operator")).unwrap();
        hashing.push(hash(&tree));
        direct.push(to_disk(&tree, &folder.join("direct")));
    }
    let rates = [
        ("staging", staging),
        ("cp -a and sync -f", durable),
        ("cp -a", plain),
        ("SHA-256, one thread", hashing),
        ("the disk alone", direct),
        ("staging from the disk", cold_staging),
        ("cp -a from the disk", cold_plain),
        ("staging from .tar.zst", unpacking),
    ]
    .map(|(name, times)| (name, rate(times)));
    let processors = std::thread::available_parallelism().unwrap().get();
    let bound =
        f64::from(u32::try_from(processors).unwrap()) * rates[3].1 / (rates[2].1 + rates[3].1);
    println!(
        "copy and SHA-256 on {processors} processors: at most {:3.0} % of cp -a",
        100.0 * bound
    );
    println!("the disk alone: {:3.0} % of cp -a", 100.0 * rates[4].1 / rates[2].1);
    println!(
        "staging from the disk: {:3.0} % of cp -a from the disk",
        100.0 * rates[5].1 / rates[6].1
    );
    for (name, rate) in &rates {
        println!("{name:22} {rate:6.0} MiB/s, {:3.0} % of staging", 100.0 * rate / rates[0].1);
    }
    fs::remove_dir_all(folder).unwrap();
    let mut node = Node::start("2", "bench");
    // What drops its capabilities before it begins takes time.
    node.confined = false;
    agent(&node);
}

/// A run that has nothing to do, and how long CRI does not serve in a change.
fn agent(node: &Node) {
    let images = node.root.join("tmp");
    fs::create_dir_all(&images).unwrap();
    let image = payload::image(&images, "3.24.0");
    assert!(node.stage("a", &image).status.success());
    node.run(NodeAction::Install, "a", &["kata"]);
    let task = lab::task(NodeAction::Install, "a", &["kata"]);
    let arguments = ["run", "--task", &task];
    let mut times: Vec<Duration> = (0..NO_OPS)
        .map(|_| {
            let start = Instant::now();
            run(&mut node.agent(&arguments));
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let processor = processor_time(&node.agent(&arguments), 20);
    println!("no-op                {:?} median, {processor:?} of the processor", times[NO_OPS / 2]);
    let mut outages = Vec::new();
    for handlers in [&["kata", "kata-two"][..], &["kata"]].into_iter().cycle().take(6) {
        let change = outage(node, || drop(node.run(NodeAction::Install, "a", handlers)));
        let restart = outage(node, || {
            let arguments = ["restart", "containerd.service"];
            assert!(node.inside("/usr/bin/systemctl", &arguments).status.success());
        });
        outages.push((change, restart));
    }
    println!("CRI away             {outages:?}: for a change, and for a plain restart");
}

/// The longest time for which CRI was not ready while something was done.
fn outage(node: &Node, act: impl FnOnce()) -> Duration {
    let socket = node.root.join(lab::SOCKET);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let client = Client::new().unwrap();
            let (mut longest, mut since) = (Duration::ZERO, Instant::now());
            while !over.load(Ordering::Relaxed) {
                if client.status(&socket).is_ok_and(|status| status.runtime_ready) {
                    longest = longest.max(since.elapsed());
                    since = Instant::now();
                }
            }
            longest
        });
        act();
        node.until("the container runtime is ready", || node.ready());
        over.store(true, Ordering::Relaxed);
        watching.join().unwrap()
    })
}

/// The processor's time that a command takes, the mean of so many runs. It does not depend on who else is
/// at work on the machine.
fn processor_time(agent: &Command, runs: u32) -> Duration {
    let mut seconds = 0.0;
    for _ in 0..runs {
        let output = Command::new("bash")
            .args(["-c", "TIMEFORMAT='%3U %3S'; time \"$@\" >/dev/null 2>&1", "bash"])
            .arg(agent.get_program())
            .args(agent.get_args())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        seconds += said.split_whitespace().map(|time| time.parse::<f64>().unwrap()).sum::<f64>();
    }
    Duration::from_secs_f64(seconds / f64::from(runs))
}

/// A tree that a compressor cannot make small, as the images and kernels of a payload.
fn tree(folder: &Path) -> PathBuf {
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

/// Takes the large files of a tree out of the system's memory, so that who copies them reads the disk.
fn forget(tree: &Path) {
    for index in 0..FILES {
        let file = fs::File::open(tree.join(format!("share/file-{index}"))).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

/// How long it takes to read and hash the large files of a tree.
fn hash(tree: &Path) -> Duration {
    let start = Instant::now();
    let mut buffer = vec![0; 1 << 18];
    for index in 0..FILES {
        let mut file = fs::File::open(tree.join(format!("share/file-{index}"))).unwrap();
        let mut hash = Sha256::new();
        loop {
            match file.read(&mut buffer).unwrap() {
                0 => break,
                length => hash.update(&buffer[..length]),
            }
        }
        std::hint::black_box(hash.finalize());
    }
    start.elapsed()
}

/// How long the disk takes to have the large files of a tree, which are read before and not hashed.
fn to_disk(tree: &Path, folder: &Path) -> Duration {
    const ALIGNMENT: usize = 1 << 12;
    fs::create_dir(folder).unwrap();
    let mut buffer = vec![0; FILE_BYTES + ALIGNMENT];
    let start = buffer.as_ptr().align_offset(ALIGNMENT);
    let block = &mut buffer[start..start + FILE_BYTES];
    let mut took = Duration::ZERO;
    for index in 0..FILES {
        let name = format!("file-{index}");
        fs::File::open(tree.join("share").join(&name)).unwrap().read_exact(block).unwrap();
        let past_memory = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        let mut options = fs::OpenOptions::new();
        let start = Instant::now();
        let mut file = options
            .write(true)
            .create_new(true)
            .custom_flags(past_memory)
            .open(folder.join(name))
            .unwrap();
        file.write_all(block).unwrap();
        file.sync_all().unwrap();
        took += start.elapsed();
    }
    fs::remove_dir_all(folder).unwrap();
    took
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The tree as kata-deploy's images have it: a compressed archive.
fn archive(folder: &Path, tree: &Path) {
    let artifacts = folder.join("archive/opt/kata-artifacts");
    let mut archive = payload::Archive::create(&artifacts.join("tarballs/kata-static-all.tar.zst"));
    for (name, mode) in
        [("bin", 0o755), ("share/defaults/kata-containers", 0o644), ("share", 0o644)]
    {
        for entry in fs::read_dir(tree.join(name)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let inside = path.strip_prefix(tree).unwrap().display();
                archive.file(&format!("./opt/kata/{inside}"), &fs::read(&path).unwrap(), mode);
            }
        }
    }
    archive.finish();
    let components = serde_json::json!({"shims": {"qemu": {std::env::consts::ARCH: ["all"]}}});
    fs::write(artifacts.join("shim-components.json"), components.to_string()).unwrap();
}

/// `kata-operator node-agent stage` out of an image.
fn stage(folder: &Path, image: &str) -> Command {
    let task = serde_json::json!({
        "version": 1, "node": "bench", "action": "Install",
        "handlers": [{"name": "kata", "shim": "qemu"}], "payloadImage": "bench",
    });
    let mut stage = Command::new(env!("CARGO_BIN_EXE_kata-node-agent"));
    stage.args(["node-agent", "stage", "--task", &task.to_string(), "--image-root"]);
    stage.arg(folder.join(image)).arg("--host-root").arg(folder.join("host"));
    stage
}

/// Mebibytes per second, by the median.
fn rate(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    let bytes = FILES * FILE_BYTES as u64;
    let mebibytes = f64::from(u32::try_from(bytes >> 20).unwrap());
    mebibytes / times[times.len() / 2].as_secs_f64()
}
