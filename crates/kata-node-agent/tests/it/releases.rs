//! Another release of containerd comes in the place of the one under which Kata was installed, as a package upgrade or
//! downgrade brings it: containerd starts with what we wrote for the other release.

use std::fs;
use std::path::Path;

use kata_api::node_task::{NodeAction, Outcome};

use crate::lab::{Mounted, Node, assert_same};

/// Main files that both releases read.
fn main_files() -> Vec<(&'static str, Option<String>)> {
    let cri = "plugins.\"io.containerd.grpc.v1.cri\"";
    let runc = format!(
        "[{cri}.containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n\
         [{cri}.containerd.runtimes.runc.options]\nSystemdCgroup = false\n"
    );
    vec![
        ("none", None),
        ("empty", Some(String::new())),
        ("plain", Some("version = 2\n".to_owned())),
        (
            "settings",
            Some(format!("version = 2\n[{cri}]\nsandbox_image = \"example.invalid/pause:1\"\n")),
        ),
        (
            "kubeadm",
            Some(format!(
                "version = 2\n[{cri}]\nsandbox_image = \"example.invalid/pause:1\"\n{runc}"
            )),
        ),
        (
            "toolkit",
            Some(format!(
                "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n[{cri}.containerd]\n\
                 default_runtime_name = \"more\"\n{runc}[{cri}.containerd.runtimes.more]\n\
                 runtime_type = \"io.containerd.runc.v2\"\n"
            )),
        ),
    ]
}

#[test]
#[ignore = "needs a real containerd"]
fn a_downgrade_leaves_cri_alive_and_a_removal_no_trace() {
    every_main_file(["2", "1.7"]);
}

#[test]
#[ignore = "needs a real containerd"]
fn an_upgrade_leaves_cri_alive_and_a_removal_no_trace() {
    every_main_file(["1.7", "2"]);
}

fn every_main_file([first, second]: [&str; 2]) {
    for (name, main) in main_files() {
        let place = format!("{first} to {second}, {name}");
        let mut snapshots = None;
        let prepare = |root: &Path| {
            let path = root.join("etc/containerd/config.toml");
            match &main {
                Some(main) => fs::write(path, main).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
            // containerd's own snapshotter is overlayfs, which not every file system can be under.
            snapshots = Some(Mounted::small(&root.join("var/lib/containerd"), "size=64m"));
        };
        let mut node = Node::start_on(first, &format!("to-{second}-{name}"), prepare);
        let (before, handlers) = (node.files(), node.handlers());
        for again in [false, true] {
            let image = node.image("3.24.0");
            assert!(node.stage("a", &image).status.success(), "{place}");
            let report = node.run(NodeAction::Install, "a", &["kata"]);
            assert_eq!(report.outcome, Outcome::Done, "{place}: {report:?}");
            // CRI answers, with the handlers of others.
            node.reboot_with(if again { first } else { second });
            assert!(handlers.is_subset(&node.handlers()), "{place}: {:?}", node.handlers());
            // What the other release needs instead is repaired as any drift is.
            let image = node.image("3.24.0");
            assert!(node.stage("a", &image).status.success(), "{place}");
            let report = node.run(NodeAction::Install, "a", &["kata"]);
            assert_eq!(report.outcome, Outcome::Done, "{place}: {report:?}");
            assert!(node.handlers().contains("kata"), "{place}");
            let report = node.run(NodeAction::Inspect, "a", &["kata"]);
            assert_eq!(report.outcome, Outcome::Done, "{place}: {report:?}");
            let report = node.run(NodeAction::Remove, "", &[]);
            assert_eq!(report.outcome, Outcome::Done, "{place}: {report:?}");
            assert_same(&node.files(), &before);
        }
        drop(snapshots);
        drop(node);
    }
}
