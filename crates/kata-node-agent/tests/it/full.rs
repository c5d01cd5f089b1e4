//! The disk for the payload is full, before staging begins or while it is at work.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Stdio;

use kata_api::node_task::{NodeAction, Outcome};

use crate::lab::{Mounted, Node, command};

#[test]
#[ignore = "needs a real containerd"]
fn a_disk_without_room_for_the_payload_is_named_and_nothing_stays_on_it() {
    let mut mounted = None;
    // 1 GiB of it must stay free, and that is all that there is.
    let small = |root: &std::path::Path| {
        mounted = Some(Mounted::small(&root.join("opt"), "size=1g,mode=755"));
    };
    let node = Node::start_on("2", "disk", small);
    let mounted = mounted.unwrap();
    let image = node.image("3.24.0");
    let staged = || fs::read_dir(node.root.join("opt/kata-operator/staging")).unwrap().count();

    // Too small from the beginning.
    let output = node.stage("a", &image);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("needs more than the 0 MiB"), "{said}");
    assert!(said.contains("besides the 1024 MiB that stay free"), "{said}");
    assert_eq!(staged(), 0);

    // Another program takes the room as soon as it was found to be enough: the agent waits for the first
    // archive, which is a pipe.
    mounted.resize("1500m");
    let first = image.join("opt/kata-artifacts/tarballs/kata-static-kernel.tar.zst");
    let archive = fs::read(&first).unwrap();
    fs::remove_file(&first).unwrap();
    assert!(command("mkfifo").arg(&first).status().unwrap().success());
    let mut agent = node.stager("a", &image);
    let agent = agent.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = None;
    node.until("the archive is read", || {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_NONBLOCK);
        pipe = options.open(&first).ok();
        pipe.is_some()
    });
    mounted.resize("256k");
    pipe.take().unwrap().write_all(&archive).unwrap();
    let output = agent.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot write") && said.contains("No space left on device"), "{said}");
    assert_eq!(staged(), 0);

    // With room it is done, and nothing of the earlier ones is in the way.
    mounted.resize("4g");
    fs::remove_file(&first).unwrap();
    fs::write(&first, &archive).unwrap();
    let output = node.stage("a", &image);
    assert!(output.status.success(), "{output:?}");
    let report = node.run(NodeAction::Install, "a", &["kata"]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    let report = node.run(NodeAction::Remove, "", &[]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(!node.root.join("opt/kata-operator").exists());
    drop(mounted);
}
