//! Another release of containerd starts with the files that were made for the one before.

use std::collections::BTreeMap;

use kata_api::node_task::{NodeAction, Outcome};
use kata_host::containerd::{Base, Schema, drop_in};
use kata_host::plan::Handler;

use crate::node::{Node, V1_MAIN, task};
use crate::runtime::Kind;

const OURS: &str = "/etc/containerd/conf.d/60-kata-operator.toml";

fn installed(kind: Kind, main: Option<&str>) -> (Node, BTreeMap<String, String>) {
    let mut node = Node::new(kind, main);
    let before = node.disk.all();
    node.stage("a");
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    (node, before)
}

#[test]
fn a_package_downgrade_and_an_upgrade_leave_cri_alive() {
    for (first, second) in [((2, 1), (1, 7)), ((2, 2), (1, 7)), ((1, 7), (2, 1)), ((1, 7), (2, 3))]
    {
        for main in [None, Some(V1_MAIN), Some("version = 2\n")] {
            let place = format!("{first:?} to {second:?}: {main:?}");
            let (mut node, before) = installed(Kind::Containerd(first.0, first.1), main);
            node.runtime.kind = Kind::Containerd(second.0, second.1);
            node.runtime.start(&mut node.disk);
            assert!(node.offers("runc"), "{place}");
            for action in [NodeAction::Install, NodeAction::Remove] {
                let report = kata_host::run(&mut node, &task(action, "a"));
                assert_eq!(report.outcome, Outcome::Done, "{place}: {report:?}");
            }
            assert_eq!(node.disk.all(), before, "{place}");
        }
    }
}

/// An earlier version of the agent wrote a drop-in that a containerd 1.x does not serve CRI with.
#[test]
fn a_drop_in_of_ours_that_keeps_cri_from_serving_is_named_and_removed() {
    let (mut node, before) = installed(Kind::Containerd(2, 1), Some(V1_MAIN));
    let handlers = BTreeMap::from([("kata".to_owned(), Handler::default())]);
    let old = drop_in(&Base::plain(Schema::V2), (2, 1), &toml::Table::new(), &handlers);
    node.disk.write(OURS, old.as_bytes(), 0o644).unwrap();
    node.runtime.kind = Kind::Containerd(1, 7);
    node.runtime.start(&mut node.disk);
    assert!(!node.offers("runc"));
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert_eq!(report.checks[0].code, "KATA3011", "{report:?}");
    let says = format!(
        "{OURS}, a file of Kata, keeps containerd.service from serving CRI: default_runtime_name is runc"
    );
    assert!(report.checks[0].message.starts_with(&says), "{report:?}");

    // Its sandboxes outlive that, and keep the payload until they are gone.
    node.sandbox("1", "kata");
    let report = kata_host::run(&mut node, &task(NodeAction::Remove, ""));
    assert_eq!(report.outcome, Outcome::Blocked, "{report:?}");
    assert!(node.offers("runc") && !node.offers("kata"));
    assert!(node.disk.stat("/opt/kata-operator/current").is_some());
    node.runtime.sandboxes.clear();
    let report = kata_host::run(&mut node, &task(NodeAction::Remove, ""));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_eq!(node.disk.all(), before);
}
