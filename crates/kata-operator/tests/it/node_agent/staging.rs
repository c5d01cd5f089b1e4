//! Staging on its own: what is refused. How fast it is, a bench says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

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
