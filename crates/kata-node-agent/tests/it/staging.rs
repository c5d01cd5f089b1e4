//! Staging on its own: what is refused. How fast it is, a bench says.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kata_api::node_task::{NodeAction, NodeReport, Outcome};
use kata_host::digest;
use kata_host::payload::{Entry, Manifest};

use crate::lab::{task, termination_message, workspace};
use crate::payload::Archive;

fn folder(name: &str) -> PathBuf {
    let folder = workspace().join(format!("target/nodes/staging-{name}"));
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(folder.join("host/opt")).unwrap();
    folder
}

/// What stages the image in the folder onto the host in it.
fn program(folder: &Path) -> Vec<OsString> {
    let words = ["node-agent", "stage", "--task", &task(NodeAction::Install, "a", &["kata"])];
    let paths = [("--host-root", "host"), ("--image-root", "image")];
    let program = std::iter::once(OsString::from(env!("CARGO_BIN_EXE_kata-node-agent")));
    let paths =
        paths.iter().flat_map(|(option, path)| [(*option).into(), folder.join(path).into()]);
    program.chain(words.iter().map(OsString::from)).chain(paths).collect()
}

fn stage(folder: &Path) -> Output {
    let words = program(folder);
    Command::new(&words[0]).args(&words[1..]).output().unwrap()
}

/// Checks the termination message of a container that stages: it is a refusal with this code and with these
/// words, or, without a code, there is none.
fn leaves(folder: &Path, code: Option<&str>, words: &str) {
    let message = termination_message(&program(folder));
    let Some(code) = code else {
        assert!(message.is_empty(), "{}", String::from_utf8_lossy(&message));
        return;
    };
    let report: NodeReport = serde_json::from_slice(&message).unwrap();
    assert_eq!((report.outcome, report.checks[0].code.as_str()), (Outcome::Refused, code));
    assert!(report.message.contains(words), "{report:?}");
}

fn archive(folder: &Path) -> Archive {
    let artifacts = folder.join("image/opt/kata-artifacts");
    let archive = Archive::create(&artifacts.join("tarballs/kata-static-x.tar.zst"));
    fs::write(artifacts.join("shim-components.json"), r#"{"shims":{"qemu":{"x86_64":["x"]}}}"#)
        .unwrap();
    archive
}

/// A tag that moved: what its image held before must not be taken for what it holds now.
#[test]
fn what_the_image_held_before_does_not_stay_staged() {
    let folder = folder("moved");
    let staged = || {
        let staging = fs::read_dir(folder.join("host/opt/kata-operator/staging")).unwrap();
        staging.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    for content in ["before", "now", "now"] {
        let mut archive = archive(&folder);
        archive.file("opt/kata/file", content.as_bytes(), 0o644);
        archive.finish();
        let output = stage(&folder);
        assert!(output.status.success(), "{output:?}");
        let [payload] = &staged()[..] else { panic!("one payload is staged: {:?}", staged()) };
        assert_eq!(fs::read_to_string(payload.join("tree/file")).unwrap(), content);
    }
    fs::remove_dir_all(&folder).unwrap();
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
        assert_eq!(output.status.code(), Some(4), "{name}: {output:?}");
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
    assert!(said.contains("\"bin\" on the way to it is a link"), "{said}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
#[ignore = "needs a mount namespace"]
fn an_image_without_a_payload_or_the_shim_is_named() {
    let folder = folder("none");
    fs::create_dir_all(folder.join("image")).unwrap();
    let said = String::from_utf8(stage(&folder).stderr).unwrap();
    assert!(said.contains("no payload"), "{said}");
    leaves(&folder, Some("KATA3026"), "no payload");
    let artifacts = folder.join("image/opt/kata-artifacts");
    fs::create_dir_all(&artifacts).unwrap();
    fs::write(artifacts.join("shim-components.json"), r#"{"shims":{"clh":{"x86_64":["x"]}}}"#)
        .unwrap();
    let said = String::from_utf8(stage(&folder).stderr).unwrap();
    assert!(said.contains("no shim qemu") && said.contains("clh"), "{said}");
    leaves(&folder, Some("KATA3023"), "no shim qemu for x86_64; it has: clh");
    // A tree has to be unpacked before that is seen, and goes again.
    fs::remove_dir_all(&artifacts).unwrap();
    let tree = folder.join("image/opt/kata/share/defaults/kata-containers");
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("configuration-clh.toml"), "").unwrap();
    let said = String::from_utf8(stage(&folder).stderr).unwrap();
    assert!(said.contains("no shim qemu") && said.contains("it has: none"), "{said}");
    let binary = folder.join("image/opt/kata/bin/containerd-shim-kata-v2");
    fs::create_dir_all(binary.parent().unwrap()).unwrap();
    fs::write(binary, "").unwrap();
    leaves(&folder, Some("KATA3023"), "no shim qemu for x86_64; it has: clh");
    assert_eq!(fs::read_dir(folder.join("host/opt/kata-operator/staging")).unwrap().count(), 0);
    fs::remove_dir_all(folder.join("image/opt/kata")).unwrap();
    fs::create_dir_all(&artifacts).unwrap();
    // What the node or its disk is at fault for is no matter of the image.
    fs::remove_dir_all(folder.join("host/opt")).unwrap();
    fs::write(folder.join("host/opt"), "").unwrap();
    fs::write(artifacts.join("shim-components.json"), r#"{"shims":{"qemu":{"x86_64":["x"]}}}"#)
        .unwrap();
    Archive::create(&artifacts.join("tarballs/kata-static-x.tar.zst")).finish();
    let output = stage(&folder);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    leaves(&folder, None, "");
    fs::remove_dir_all(folder).unwrap();
}

/// They are computed while other files are written, of files of all sizes, some with two names, some
/// replaced by what another component has in their place.
#[test]
fn the_manifest_has_the_digest_of_every_file() {
    let folder = folder("digests");
    let artifacts = folder.join("image/opt/kata-artifacts");
    let content = |number: usize, length: usize| -> Vec<u8> {
        (0..length).map(|index| (index.wrapping_mul(number + 7) >> 3).to_le_bytes()[0]).collect()
    };
    let block = 1 << 19;
    let lengths = [0, 1, block - 1, block, block + 1, 5 * block, 40 * block + 3];
    for component in ["x", "y"] {
        let path = artifacts.join(format!("tarballs/kata-static-{component}.tar.zst"));
        let mut archive = Archive::create(&path);
        for (number, length) in lengths.into_iter().enumerate() {
            if component == "x" {
                let name = format!("opt/kata/file-{number}");
                archive.file(&name, &content(number, length), 0o644);
                let link = format!("opt/kata/link-{number}");
                archive.raw(&link, tar::EntryType::Link, &name, 0o644);
            } else if number % 2 == 0 {
                let other = content(number + 100, length + 2);
                archive.file(&format!("opt/kata/file-{number}"), &other, 0o644);
            }
        }
        archive.finish();
    }
    let components = r#"{"shims":{"qemu":{"x86_64":["x"]}},"requiredComponents":{"x86_64":["y"]}}"#;
    fs::write(artifacts.join("shim-components.json"), components).unwrap();
    let output = stage(&folder);
    assert!(output.status.success(), "{output:?}");
    let staging = folder.join("host/opt/kata-operator/staging");
    let [payload] =
        &fs::read_dir(staging).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()[..]
    else {
        panic!("one payload is staged")
    };
    let manifest = Manifest::parse(&fs::read(payload.join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest.entries.len(), 2 * lengths.len());
    for (name, entry) in manifest.entries {
        let Entry::File { sha256, .. } = entry else { panic!("{name} is a file") };
        let bytes = fs::read(payload.join("tree").join(&name)).unwrap();
        assert_eq!(sha256, digest::hex(&bytes), "{name} of {} bytes", bytes.len());
    }
    fs::remove_dir_all(folder).unwrap();
}
