//! A toolkit writes the whole configuration of a real containerd back, our tables among it (NVIDIA/gpu-operator #1323).

use std::fs;
use std::path::Path;

use kata_api::node_task::{NodeAction, Outcome};

use crate::lab::{Node, assert_same};

const MAIN: &str = "etc/containerd/config.toml";
const CONF_D: &str = "etc/containerd/conf.d";

fn restart(node: &Node) {
    node.systemctl(&["restart", "containerd.service"]);
    node.until("the container runtime is ready", || node.ready());
}

/// What containerd prints of its configuration.
fn dumped(node: &Node) -> String {
    let main = format!("/{MAIN}");
    let output = node.inside("/node/bin/containerd", &["--config", &main, "config", "dump"]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Our table in a file of its own.
fn table(root: &Path) -> String {
    let ours = fs::read_to_string(root.join(CONF_D).join("60-kata-operator.toml")).unwrap();
    ours.lines().skip(1).map(|line| format!("{line}\n")).collect()
}

#[test]
#[ignore = "needs a real containerd"]
fn a_copy_of_our_tables_stays_and_only_a_removal_waits_for_its_end() {
    for release in ["1.7", "2"] {
        let node = Node::start(release, "copies");
        let before = node.files();
        let image = node.image("3.24.0");
        assert!(node.stage("a", &image).status.success());
        let report = node.run(NodeAction::Install, "a", &["kata"]);
        assert_eq!(report.outcome, Outcome::Done, "{release}: {report:?}");
        let own = fs::read_to_string(node.root.join(MAIN)).unwrap();
        let whole = dumped(&node);
        let changed = whole.replace("oom_score = 0", "oom_score = -999");
        assert_ne!(whole, changed, "{release}");
        let drop_in = format!("{CONF_D}/10-copy.toml");
        for (name, path, text) in [
            ("all", MAIN, whole.clone()),
            ("all, and a key changed", MAIN, changed),
            ("our table", &drop_in, table(&node.root)),
        ] {
            let place = format!("{release}, {name}");
            fs::write(node.root.join(path), &text).unwrap();
            restart(&node);
            for action in [NodeAction::Install, NodeAction::Inspect] {
                let report = node.run(action, "a", &["kata"]);
                assert_eq!(report.outcome, Outcome::Done, "{place}: {report:?}");
                assert!(node.handlers().contains("kata"), "{place}");
            }
            let process = node.incarnation();
            let report = node.run(NodeAction::Remove, "", &[]);
            assert_eq!(report.outcome, Outcome::Refused, "{place}: {report:?}");
            let says = format!(
                "/{path}, which another program wrote, has a copy of the table of the runtime kata: "
            );
            let named = |it: &kata_api::node_task::FailedCheck| {
                it.code == "KATA3016" && it.message.starts_with(&says)
            };
            assert!(report.checks.iter().any(named), "{place}: {report:?}");
            assert_eq!(node.incarnation(), process, "{place}");
            fs::write(node.root.join(MAIN), &own).unwrap();
            if path != MAIN {
                fs::remove_file(node.root.join(path)).unwrap();
            }
            restart(&node);
        }
        // Our copy of the section of 1.x follows once more.
        let report = node.run(NodeAction::Install, "a", &["kata"]);
        assert_eq!(report.outcome, Outcome::Done, "{release}: {report:?}");
        let report = node.run(NodeAction::Remove, "", &[]);
        assert_eq!(report.outcome, Outcome::Done, "{release}: {report:?}");
        assert_same(&node.files(), &before);
    }
}
