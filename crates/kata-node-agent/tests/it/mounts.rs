//! How folders of the node are mounted, as a check by a process finds it: what no change could write to, or
//! start, is named before anything is changed; a mount that only this process has read-only is not.

use std::ffi::OsString;
use std::fs;

use kata_api::node_task::{NodeAction, NodeReport, Outcome};

use crate::lab::{task, termination_message, workspace};

#[test]
#[ignore = "needs a mount namespace"]
fn folders_that_allow_no_change_are_named() {
    let host = workspace().join("target/nodes/mounts");
    drop(fs::remove_dir_all(&host));
    for folder in ["dev", "etc", "opt", "run/lock", "sys", "usr/lib", "var/lib"] {
        fs::create_dir_all(host.join(folder)).unwrap();
    }
    let at = host.display();
    let check = |mounts: &str| {
        let script = format!("{mounts}; exec >/dev/null; exec \"$@\"");
        let words = [
            "sh",
            "-c",
            &script,
            "sh",
            env!("CARGO_BIN_EXE_kata-node-agent"),
            "node-agent",
            "run",
            "--task",
            &task(NodeAction::Preflight, "a", &["kata"]),
            "--host-root",
            host.to_str().unwrap(),
        ];
        let message = termination_message(&words.map(OsString::from));
        let report: NodeReport = serde_json::from_slice(&message).unwrap();
        assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
        let found = report.checks.into_iter().filter(|check| check.code == "KATA3017");
        found.map(|check| check.message).collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    assert_eq!(check("true"), none);
    let own = format!("mount -t tmpfs t {at}/var && mount -o remount,bind,ro {at}/var");
    assert_eq!(check(&own), none);
    let found = check(&format!("mount -t tmpfs -o ro t {at}/var"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("/var/lib/kata-operator is mounted read-only"), "{found:?}");
    let found = check(&format!("mount -t tmpfs -o noexec t {at}/opt"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("/opt is mounted with noexec"), "{found:?}");
    fs::remove_dir_all(host).unwrap();
}
