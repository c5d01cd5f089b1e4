//! containerd runs, its unit is active, and its CRI plugin did not start: for the kubelet the node is down.

use std::fs;

use kata_api::node_task::{NodeAction, NodeReport, Outcome};

use crate::lab::{Node, assert_same, assert_went_back};

#[test]
#[ignore = "needs a real containerd"]
fn containerd_2() {
    dead("2");
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_1_7() {
    dead("1.7");
}

/// What containerd says by itself of a default runtime that is not configured.
const CAUSE: &str = "invalid plugin config: no corresponding runtime configured";
const MAIN: &str = "etc/containerd/config.toml";
const RENDERED: &str = "etc/containerd/conf.d/80-rendered.toml";

/// A setting that `config dump` takes and the CRI plugin does not.
fn bad(release: &str) -> String {
    let plugin =
        if release == "2" { "io.containerd.cri.v1.runtime" } else { "io.containerd.grpc.v1.cri" };
    format!("[plugins.\"{plugin}\".containerd]\n  default_runtime_name = \"gone\"\n")
}

/// The finding of a code, which has to say what containerd says, in one line.
fn assert_cause(report: &NodeReport, code: &str) {
    let check = report.checks.iter().find(|check| check.code == code);
    let check = check.unwrap_or_else(|| panic!("{code}: {report:?}"));
    let text = format!("unknown service runtime.v1.RuntimeService: {CAUSE}");
    assert!(check.message.contains(&text), "{report:?}");
    assert!(!check.message.contains('\n'), "{report:?}");
}

fn dead(release: &str) {
    let node = Node::start(release, "dead");
    let before = node.files();
    assert!(node.stage("a", &node.image("3.24.0")).status.success());
    let install = |handlers: &[&str]| node.run(NodeAction::Install, "a", handlers);
    let report = install(&["kata"]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    let good = node.files();
    let active = || node.systemctl(&["show", "--property", "ActiveState", "containerd.service"]);

    // A program that renders a drop-in when the unit starts renders a bad one as soon as ours has a second handler.
    // `config dump` finds nothing wrong with it.
    fs::write(node.root.join("root/rendered.toml"), bad(release)).unwrap();
    fs::copy(node.root.join("root/rendered.toml"), node.root.join(RENDERED)).unwrap();
    let dump = node.inside(
        "/node/bin/containerd",
        &["--config", "/etc/containerd/config.toml", "config", "dump"],
    );
    assert!(dump.status.success(), "{dump:?}");
    assert!(String::from_utf8_lossy(&dump.stdout).contains("gone"), "{dump:?}");
    fs::remove_file(node.root.join(RENDERED)).unwrap();
    node.restart();
    node.service(
        "containerd.service",
        &format!(
            "ExecStartPre=/bin/sh -c 'rm -f /{RENDERED}; \
             if grep -q kata-two /etc/containerd/conf.d/60-kata-operator.toml; \
             then cp /root/rendered.toml /{RENDERED}; fi'"
        ),
    );
    let incarnation = node.incarnation();
    let report = install(&["kata", "kata-two"]);
    assert_eq!(report.outcome, Outcome::RolledBack, "{report:?}");
    assert_cause(&report, "KATA3033");
    // The message repeats it behind what the code means, as far as there is room.
    assert!(report.message.contains(CAUSE), "{report:?}");
    assert!(report.changed && report.restarted, "{report:?}");
    assert_ne!(node.incarnation(), incarnation);
    assert!(node.ready());
    assert_eq!(node.handlers(), ["kata".to_owned(), "runc".to_owned()].into());
    assert_went_back(&node.files(), &good);
    node.service("containerd.service", "");

    // An administrator has edited the main file by hand, and has not restarted containerd since.
    let main = node.root.join(MAIN);
    let text = fs::read_to_string(&main).unwrap();
    let table = "[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n";
    let edited = if release == "2" {
        format!("{text}{}", bad(release))
    } else {
        assert!(text.contains(table), "{text}");
        text.replace(table, &bad(release))
    };
    fs::write(&main, edited).unwrap();
    let edited = node.files();
    let incarnation = node.incarnation();
    for action in [NodeAction::Preflight, NodeAction::Install, NodeAction::Remove] {
        let report = node.run(action, "a", &["kata", "kata-two"]);
        assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
        let check = report.checks.first().unwrap();
        assert_eq!(check.code, "KATA3011", "{report:?}");
        assert!(check.message.contains("default_runtime_name is gone"), "{report:?}");
        assert!(!report.restarted && node.ready(), "{report:?}");
    }
    assert_eq!(node.incarnation(), incarnation);
    assert_same(&node.files(), &edited);
    fs::write(&main, &text).unwrap();
    node.restart();
    assert!(node.ready());
    let report = install(&["kata", "kata-two"]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    let two = ["kata", "kata-two", "runc"].map(str::to_owned);
    assert_eq!(node.handlers(), two.into());

    // As some packages ship it: there is no such plugin at all.
    let installed = node.files();
    fs::write(&main, format!("disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n{text}"))
        .unwrap();
    node.systemctl(&["restart", "containerd.service"]);
    let report = install(&["kata"]);
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert!(report.message.contains("disabled_plugins"), "{report:?}");
    let codes: Vec<&str> = report.checks.iter().map(|check| check.code.as_str()).collect();
    assert_eq!(codes[..2], ["KATA3011", "KATA3009"], "{report:?}");
    assert_eq!(active(), "ActiveState=active");
    fs::write(&main, &text).unwrap();
    node.restart();
    assert_same(&node.files(), &installed);

    let report = node.run(NodeAction::Remove, "", &[]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_same(&node.files(), &before);
}
