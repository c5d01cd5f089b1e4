//! Links of the node lead where they do on the node, also if this container has others at those paths.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use kata_api::node_task::NodeAction;
use kata_host::host::{FileKind, Host as _};
use kata_host::paths;
use kata_node_agent::linux::Linux;

use crate::lab::{command, task, workspace};
use crate::payload;

/// A root with nothing in it, and a folder beside it that no link of the node may lead to.
fn node(name: &str) -> (PathBuf, PathBuf) {
    let folder = workspace().join(format!("target/nodes/links-{name}"));
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(folder.join("host")).unwrap();
    fs::create_dir_all(folder.join("outside")).unwrap();
    (folder.join("host"), folder.join("outside"))
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn a_link_in_the_middle_of_a_path_leads_below_the_root() {
    let (root, outside) = node("middle");
    // The same path exists for this process, and is another folder.
    let same = root.join(outside.strip_prefix("/").unwrap());
    fs::create_dir_all(&same).unwrap();
    fs::create_dir(root.join("etc")).unwrap();
    symlink(&outside, root.join("etc/containerd")).unwrap();
    fs::write(same.join("config.toml"), "the node's").unwrap();
    fs::write(outside.join("config.toml"), "the container's").unwrap();

    let mut host = Linux::new(&root).unwrap();
    let main = "/etc/containerd/config.toml";
    assert_eq!(host.read(main).unwrap().unwrap(), b"the node's");
    assert_eq!(host.read_start(main).unwrap().unwrap(), b"the node's");
    assert_eq!(host.sha256(main).unwrap(), kata_host::digest::hex(b"the node's"));
    assert_eq!(host.stat(main).unwrap().unwrap().size, 10);
    assert_eq!(host.list("/etc/containerd").unwrap().unwrap(), ["config.toml"]);

    host.make_dir("/etc/containerd/conf.d", 0o755).unwrap();
    host.write("/etc/containerd/conf.d/.x", b"x", 0o600).unwrap();
    host.sync_file("/etc/containerd/conf.d/.x").unwrap();
    host.rename("/etc/containerd/conf.d/.x", "/etc/containerd/conf.d/x.toml").unwrap();
    host.sync_dir("/etc/containerd/conf.d").unwrap();
    host.symlink("x.toml", "/etc/containerd/conf.d/y.toml").unwrap();
    host.reserve("/etc/containerd/conf.d/room", 8192).unwrap();
    assert!(host.lock("/etc/containerd/lock").unwrap());
    assert_eq!(names(&same.join("conf.d")), ["room", "x.toml", "y.toml"]);
    assert_eq!(names(&same), ["conf.d", "config.toml", "lock"]);
    for name in ["room", "x.toml", "y.toml"] {
        host.unlink(&format!("/etc/containerd/conf.d/{name}")).unwrap();
    }
    assert!(host.remove_dir("/etc/containerd/conf.d").unwrap());
    assert_eq!(names(&same), ["config.toml", "lock"]);
    assert_eq!(names(&outside), ["config.toml"]);
    assert_eq!(fs::read(outside.join("config.toml")).unwrap(), b"the container's");
}

#[test]
fn a_link_at_the_end_is_what_a_look_sees_and_a_reader_follows() {
    let (root, _) = node("end");
    for folder in ["etc", "srv/deep"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::write(root.join("srv/file"), "text").unwrap();
    symlink("/srv/deep/../file", root.join("etc/absolute")).unwrap();
    symlink("../../../../../../srv/file", root.join("etc/above")).unwrap();
    symlink("/nowhere/file", root.join("etc/dangling")).unwrap();
    symlink("circle", root.join("etc/circle")).unwrap();
    let mut host = Linux::new(&root).unwrap();
    for (path, target) in
        [("/etc/absolute", "/srv/deep/../file"), ("/etc/above", "../../../../../../srv/file")]
    {
        let found = host.stat(path).unwrap().unwrap();
        assert_eq!(found.kind, FileKind::Link { target: target.to_owned() });
        assert_eq!(host.read(path).unwrap().unwrap(), b"text", "{path}");
    }
    assert!(host.stat("/etc/dangling").unwrap().is_some());
    assert_eq!(host.read("/etc/dangling").unwrap(), None);
    assert_eq!(host.read("/../../etc/absolute").unwrap().unwrap(), b"text");
    assert!(host.stat("/etc/circle").unwrap().is_some());
    let circle = host.read("/etc/circle/file").unwrap_err();
    assert!(circle.reason.starts_with("Too many levels of symbolic links"), "{circle}");
    // What is removed is the link.
    host.unlink("/etc/absolute").unwrap();
    assert!(host.stat("/etc/absolute").unwrap().is_none());
    assert_eq!(host.read("/srv/file").unwrap().unwrap(), b"text");
}

/// The folder of ours that was last looked into is another one once a link changed.
#[test]
fn what_leads_elsewhere_now_is_seen() {
    let (root, _) = node("changed");
    fs::create_dir_all(root.join("opt/kata-operator")).unwrap();
    let mut host = Linux::new(&root).unwrap();
    for (name, size) in [("a", 1), ("b", 2)] {
        host.make_dir(&format!("/opt/kata-operator/{name}"), 0o755).unwrap();
        host.write(&format!("/opt/kata-operator/{name}/x"), &vec![0; size], 0o644).unwrap();
    }
    host.symlink("a", "/opt/kata-operator/current").unwrap();
    let x = "/opt/kata-operator/current/x";
    assert_eq!(host.stat(x).unwrap().unwrap().size, 1);
    host.symlink("b", "/opt/kata-operator/.next").unwrap();
    assert_eq!(host.stat(x).unwrap().unwrap().size, 1);
    host.rename("/opt/kata-operator/.next", "/opt/kata-operator/current").unwrap();
    assert_eq!(host.stat(x).unwrap().unwrap().size, 2);
    host.unlink("/opt/kata-operator/current").unwrap();
    assert!(host.stat(x).unwrap().is_none());
}

#[test]
fn a_payload_is_staged_where_opt_leads_to() {
    let (root, outside) = node("opt");
    let same = root.join(outside.strip_prefix("/").unwrap());
    for folder in [&same, &root.join("run/lock")] {
        fs::create_dir_all(folder).unwrap();
    }
    symlink(&outside, root.join("opt")).unwrap();
    let image = payload::image(root.parent().unwrap(), "3.24.0");
    for said in ["staged a", "already"] {
        let output = command(env!("CARGO_BIN_EXE_kata-node-agent"))
            .args(["node-agent", "stage", "--task", &task(NodeAction::Install, "a", &["kata"])])
            .arg("--host-root")
            .arg(&root)
            .arg("--image-root")
            .arg(&image)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8(output.stdout).unwrap().contains(said));
    }
    assert_eq!(names(&same), ["kata-operator"]);
    assert_eq!(names(&outside), Vec::<String>::new());
}

/// Everybody may create entries where locks are.
#[test]
fn a_link_or_a_pipe_in_the_place_of_the_lock_is_not_used() {
    let (root, outside) = node("lock");
    let lock = root.join(paths::LOCK.trim_start_matches('/'));
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    let target = outside.join("made-by-root");
    let same = root.join(target.strip_prefix("/").unwrap());
    fs::create_dir_all(same.parent().unwrap()).unwrap();
    symlink(&target, &lock).unwrap();
    let said = format!(
        "cannot lock {}: it is no regular file, so another program has put it there; remove it",
        paths::LOCK
    );
    let refusal = || Linux::new(&root).unwrap().lock(paths::LOCK).unwrap_err().to_string();
    assert_eq!(refusal(), said);
    assert!(!target.exists() && !same.exists());
    fs::remove_file(&lock).unwrap();
    // A program that opens a pipe waits for a reader.
    assert!(command("mkfifo").arg(&lock).status().unwrap().success());
    assert_eq!(refusal(), said);
    fs::remove_file(&lock).unwrap();
    assert!(Linux::new(&root).unwrap().lock(paths::LOCK).unwrap());
}

/// Only root may give a file away, so that a test without its rights can see no more than that none is needed
/// where nothing changes.
#[test]
fn a_file_takes_the_owner_and_the_group_of_another_one() {
    let (root, _) = node("owner");
    let mut host = Linux::new(&root).unwrap();
    for name in ["/old", "/new"] {
        host.write(name, b"", 0o640).unwrap();
    }
    let owner = |name: &str| {
        let found = fs::metadata(root.join(name)).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o7777)
    };
    let ours = owner("new");
    host.take_owner("/new", "/old").unwrap();
    host.take_owner("/new", "/missing").unwrap();
    assert_eq!(owner("new"), ours);
    if chown(root.join("old"), Some(1), Some(998)).is_ok() {
        host.take_owner("/new", "/old").unwrap();
        assert_eq!(owner("new"), (1, 998, 0o640));
    }
}

/// An administrator's ACL on a configuration of the container runtime stays when our import is added to it.
#[test]
fn a_file_takes_the_extended_attributes_of_another_one() {
    let (root, _) = node("attributes");
    let mut host = Linux::new(&root).unwrap();
    for name in ["/old", "/new"] {
        host.write(name, b"", 0o640).unwrap();
    }
    // As `setfacl -m u:998:r` makes it: version 2, then tag, permissions and ID of each entry.
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (0x01_u16, 6_u16, u32::MAX),
        (0x02, 4, 998),
        (0x04, 4, u32::MAX),
        (0x10, 4, u32::MAX),
        (0x20, 0, u32::MAX),
    ] {
        acl.extend(tag.to_le_bytes().into_iter().chain(permissions.to_le_bytes()));
        acl.extend(id.to_le_bytes());
    }
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(root.join("old"), name, value, rustix::fs::XattrFlags::empty())
            .unwrap();
    };
    set("system.posix_acl_access", &acl);
    set("user.note", b"kept");
    host.take_owner("/new", "/old").unwrap();
    let get = |name: &str| {
        let mut value = vec![0; 256];
        let length = rustix::fs::getxattr(root.join("new"), name, &mut value[..]).unwrap();
        value.truncate(length);
        value
    };
    assert_eq!(get("system.posix_acl_access"), acl);
    assert_eq!(get("user.note"), b"kept");
    assert_eq!(fs::metadata(root.join("new")).unwrap().mode() & 0o777, 0o640);
    // An ACL that the folder gave it goes: it would open the file to others than the old one was open to.
    host.write("/plain", b"", 0o640).unwrap();
    host.take_owner("/new", "/plain").unwrap();
    let mut value = vec![0; 256];
    let gone = rustix::fs::getxattr(root.join("new"), "system.posix_acl_access", &mut value[..]);
    assert_eq!(gone, Err(rustix::io::Errno::NODATA));
    assert_eq!(fs::metadata(root.join("new")).unwrap().mode() & 0o777, 0o640);
}

/// What the system says has a number in Rust's words, which says nothing to anybody.
#[test]
fn no_message_has_a_number_of_the_system() {
    let (root, _) = node("numbers");
    fs::create_dir_all(root.join("run/lock")).unwrap();
    let mut host = Linux::new(&root).unwrap();
    let missing = host.write("/etc/x", b"", 0o644).unwrap_err();
    assert_eq!(missing.to_string(), "cannot write /etc/x: No such file or directory");
    let error = host.cri_version("/run/cri.sock").unwrap_err();
    assert!(error.reason.ends_with("No such file or directory"), "{error}");
    let systemd = host.unit("containerd.service").unwrap_err();
    assert!(systemd.reason.ends_with("private: No such file or directory"), "{systemd}");
    let output = command(env!("CARGO_BIN_EXE_kata-node-agent"))
        .args(["node-agent", "self-copy", "--to", "/dev/null/agent"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("Not a directory") && !said.contains("os error"), "{said}");
}
