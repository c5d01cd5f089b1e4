//! The life of a payload on nodes whose containerd runs with what its package brings: its main file, an empty one, or
//! none at all.

use std::fs;
use std::path::Path;

use kata_api::node_task::{NodeAction, Outcome};

use crate::lab::{Mounted, Node, assert_same, packages};

#[test]
#[ignore = "needs a real containerd"]
fn containerd_2() {
    every_main_file("2");
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_1_7() {
    every_main_file("1.7");
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_1_6() {
    every_main_file("1.6");
}

/// As on Flatcar, where the administrator names another file by a drop-in of the unit.
#[test]
#[ignore = "needs a real containerd"]
fn a_unit_that_names_its_configuration_by_a_variable() {
    let node = Node::start("2", "variable");
    let main = node.root.join("etc/containerd/config.toml");
    let own = node.root.join("etc/containerd/own.toml");
    fs::copy(&main, &own).unwrap();
    fs::create_dir_all(node.root.join("etc/default")).unwrap();
    fs::write(
        node.root.join("etc/default/containerd"),
        "CONTAINERD_CONFIG=/etc/containerd/own.toml\n",
    )
    .unwrap();
    node.service(
        "containerd.service",
        "Environment=CONTAINERD_CONFIG=/usr/share/containerd/config.toml OTHER=1\n\
         EnvironmentFile=-/etc/default/missing\nEnvironmentFile=/etc/default/containerd\n\
         ExecStart=\nExecStart=/node/bin/containerd --config ${CONTAINERD_CONFIG}",
    );
    node.systemctl(&["restart", "containerd.service"]);
    node.until("the container runtime is ready", || node.ready());
    let before = node.files();
    let staged = node.stage("a", &node.image("3.24.0"));
    assert!(staged.status.success(), "{staged:?}");
    let report = node.run(NodeAction::Install, "a", &["kata"]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(fs::read_to_string(&own).unwrap().contains("/etc/containerd/conf.d/*.toml"));
    assert!(!fs::read_to_string(&main).unwrap().contains("conf.d"));
    let report = node.run(NodeAction::Remove, "", &[]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_same(&node.files(), &before);
}

fn every_main_file(release: &str) {
    // Debian has the same one in each of its releases, and it names no runtime.
    let debian = fs::read(packages(release).join("etc/containerd/config.toml")).unwrap();
    for (name, main) in [("none", None), ("empty", Some(Vec::new())), ("debian", Some(debian))] {
        life(release, name, main.as_deref());
    }
}

fn life(release: &str, name: &str, main: Option<&[u8]>) {
    let mut snapshots = None;
    let prepare = |root: &Path| {
        let path = root.join("etc/containerd/config.toml");
        match main {
            Some(main) => fs::write(path, main).unwrap(),
            None => fs::remove_file(path).unwrap(),
        }
        // containerd's own snapshotter is overlayfs, which not every file system can be under.
        snapshots = Some(Mounted::small(&root.join("var/lib/containerd"), "size=64m"));
    };
    let node = Node::start_on(release, &format!("stock-{name}"), prepare);
    let place = format!("{release}, {name}");
    let before = node.files();
    let change = |action, image: &str, handlers: &[&str]| {
        let report = node.run(action, image, handlers);
        assert_eq!(report.outcome, Outcome::Done, "{place}: {report:?}");
        report
    };
    for (image, version) in [("a", "3.24.0"), ("b", "3.25.0")] {
        let staged = node.stage(image, &node.image(version));
        assert!(staged.status.success(), "{place}: {staged:?}");
        let report = change(NodeAction::Install, image, &["kata"]);
        assert_eq!(report.kata_version.as_deref(), Some(version), "{place}");
        assert_eq!(node.handlers(), ["kata", "runc"].map(str::to_owned).into(), "{place}");
        change(NodeAction::Inspect, image, &["kata"]);
    }
    change(NodeAction::Install, "b", &["kata", "kata-two"]);
    assert_eq!(node.handlers(), ["kata", "kata-two", "runc"].map(str::to_owned).into(), "{place}");
    change(NodeAction::Remove, "", &[]);
    assert_eq!(node.handlers(), ["runc".to_owned()].into(), "{place}");
    assert_same(&node.files(), &before);
    drop(snapshots);
}
