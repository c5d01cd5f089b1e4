//! Staging on its own: what is refused, and how fast it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use kata_api::node_task::NodeAction;

use super::lab::{command, task, workspace};
use super::payload::Archive;

fn folder(name: &str) -> PathBuf {
    let folder = workspace().join(format!("target/nodes/staging-{name}"));
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(folder.join("host/opt")).unwrap();
    folder
}

fn stage(folder: &Path) -> Output {
    command(env!("CARGO_BIN_EXE_kata-operator"))
        .args(["node-agent", "stage", "--task", &task(NodeAction::Install, "a", &["kata"])])
        .arg("--host-root")
        .arg(folder.join("host"))
        .arg("--image-root")
        .arg(folder.join("image"))
        .output()
        .unwrap()
}

fn archive(folder: &Path) -> Archive {
    let artifacts = folder.join("image/opt/kata-artifacts");
    let archive = Archive::create(&artifacts.join("tarballs/kata-static-x.tar.zst"));
    fs::write(artifacts.join("shim-components.json"), r#"{"qemu":{"x86_64":["x"]}}"#).unwrap();
    archive
}

#[test]
fn what_no_payload_may_have_is_refused_and_leaves_nothing() {
    use tar::EntryType;

    let long = "../".repeat(9);
    let bad: [(&str, EntryType, String, u32, &str); 8] = [
        ("opt/kata/../../etc/x", EntryType::Regular, String::new(), 0o644, "leads out"),
        ("etc/x", EntryType::Regular, String::new(), 0o644, "not below opt/kata"),
        ("opt/kata/x", EntryType::Symlink, "/etc/shadow".to_owned(), 0o777, "link leads out"),
        ("opt/kata/x", EntryType::Symlink, long, 0o777, "link leads out"),
        ("opt/kata/x", EntryType::Link, "etc/shadow".to_owned(), 0o644, "hard link leads out"),
        ("opt/kata/x", EntryType::Char, String::new(), 0o644, "no file, directory or link"),
        ("opt/kata/x", EntryType::Fifo, String::new(), 0o644, "no file, directory or link"),
        ("opt/kata/x", EntryType::Regular, String::new(), 0o4755, "setuid"),
    ];
    for (index, (name, kind, target, mode, reason)) in bad.into_iter().enumerate() {
        let folder = folder(&format!("refused-{index}"));
        let mut archive = archive(&folder);
        archive.raw(name, kind, &target, mode);
        archive.finish();
        let output = stage(&folder);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{name}: {output:?}");
        assert!(said.contains(reason), "{name}: {said}");
        assert!(!folder.join("host/etc").exists(), "{name}");
        let staged = fs::read_dir(folder.join("host/opt/kata-operator/staging")).unwrap().count();
        assert_eq!(staged, 0, "{name}");
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_file_twice_and_a_way_through_a_link_are_refused() {
    let folder = folder("twice");
    let mut twice = archive(&folder);
    twice.file("opt/kata/x", b"1", 0o644);
    twice.file("opt/kata/x", b"2", 0o644);
    twice.finish();
    let said = String::from_utf8(stage(&folder).stderr).unwrap();
    assert!(said.contains("twice"), "{said}");

    let mut through = archive(&folder);
    through.raw("opt/kata/bin", tar::EntryType::Symlink, "share", 0o777);
    through.file("opt/kata/bin/x", b"1", 0o644);
    through.finish();
    let said = String::from_utf8(stage(&folder).stderr).unwrap();
    assert!(said.contains("cannot write"), "{said}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_image_without_a_payload_or_the_shim_is_named() {
    let folder = folder("none");
    fs::create_dir_all(folder.join("image")).unwrap();
    let said = String::from_utf8(stage(&folder).stderr).unwrap();
    assert!(said.contains("no payload"), "{said}");
    let artifacts = folder.join("image/opt/kata-artifacts");
    fs::create_dir_all(&artifacts).unwrap();
    fs::write(artifacts.join("shim-components.json"), r#"{"clh":{"x86_64":["x"]}}"#).unwrap();
    let said = String::from_utf8(stage(&folder).stderr).unwrap();
    assert!(said.contains("no shim qemu") && said.contains("clh"), "{said}");
    fs::remove_dir_all(folder).unwrap();
}

/// Staging reads, hashes and writes every byte and makes it durable; the copy is made durable, too.
#[test]
fn staging_is_nearly_as_fast_as_a_durable_copy() {
    let folder = folder("speed");
    let tree = folder.join("image/opt/kata");
    fs::create_dir_all(tree.join("bin")).unwrap();
    fs::create_dir_all(tree.join("share/defaults/kata-containers")).unwrap();
    // What a compressor cannot make small, as the images and kernels of a payload.
    let mut state: u64 = 1;
    let block: Vec<u8> = (0..(8 << 20) / 8)
        .flat_map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_le_bytes()
        })
        .collect();
    for index in 0..32 {
        fs::write(tree.join(format!("share/file-{index}")), &block).unwrap();
    }
    for name in
        ["bin/containerd-shim-kata-v2", "share/defaults/kata-containers/configuration-qemu.toml"]
    {
        fs::write(tree.join(name), "").unwrap();
    }
    let bytes = 32 * (8_u64 << 20);
    let (mut plain, mut durable, mut staging) = (Duration::MAX, Duration::MAX, Duration::MAX);
    // The best of each, in turns, so that a neighbour's work does not decide.
    for round in 0..8 {
        let copy = folder.join(format!("copy-{round}"));
        let start = Instant::now();
        assert!(command("cp").arg("-a").args([&tree, &copy]).status().unwrap().success());
        plain = plain.min(start.elapsed());
        assert!(command("sync").arg("-f").arg(&copy).status().unwrap().success());
        durable = durable.min(start.elapsed());
        fs::remove_dir_all(copy).unwrap();
        let start = Instant::now();
        let staged = stage(&folder);
        staging = staging.min(start.elapsed());
        assert!(staged.status.success(), "{staged:?}");
        fs::remove_dir_all(folder.join("host/opt/kata-operator")).unwrap();
        if round >= 2 && staging.mul_f64(0.8) <= durable {
            break;
        }
    }
    let mebibytes = f64::from(u32::try_from(bytes >> 20).unwrap());
    let rate = |time: Duration| mebibytes / time.as_secs_f64();
    println!(
        "staging, hashed and durable: {:.0} MiB/s; cp -a and sync: {:.0} MiB/s; cp -a alone: {:.0} MiB/s",
        rate(staging),
        rate(durable),
        rate(plain)
    );
    assert!(staging.mul_f64(0.8) <= durable, "{staging:?} against {durable:?}");
    fs::remove_dir_all(folder).unwrap();
}
