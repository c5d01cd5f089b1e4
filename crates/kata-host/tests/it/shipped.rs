//! The main files as distributions ship them: a change of ours changes no other key of the merged configuration.

use hostlab::shipped::{self, foreign_changes};
use kata_api::node_task::{Outcome, TaskHandler};
use toml::Table;

use crate::node::Node;
use crate::runs::{done, install, remove};

/// What the container runtime makes of its files.
fn merged(node: &Node) -> Table {
    node.runtime.load(&node.disk, &node.runtime.main).unwrap()
}

/// Every main file with every container runtime that may find it, alone and with every set of drop-ins of others
/// with which it starts.
fn nodes() -> Vec<(String, Node)> {
    let mut nodes = Vec::new();
    for shipped in shipped::all() {
        for kind in shipped.kinds {
            let place = format!("{}, {kind:?}", shipped.name);
            nodes.push((place.clone(), shipped.node(*kind)));
            for (name, drop_ins) in shipped::DROP_INS.iter().filter(|_| shipped.is_plain()) {
                let node = shipped.node_with(*kind, drop_ins);
                nodes.extend(node.map(|node| (format!("{place}, {name}"), node)));
            }
        }
    }
    assert!(nodes.len() > 500, "{}", nodes.len());
    nodes
}

#[test]
fn a_change_leaves_every_other_key_of_a_shipped_main_file_as_it_is() {
    let mut two = install();
    two.handlers.push(TaskHandler {
        name: "kata-two".to_owned(),
        shim: "clh".to_owned(),
        config: None,
    });
    for (place, mut node) in nodes() {
        let (disk, before) = (node.disk.all(), merged(&node));
        node.stage("a");
        for (task, offers) in [(install(), 1), (two.clone(), 2), (install(), 1), (remove(), 0)] {
            let report = kata_host::run(&mut node, &task);
            assert_eq!(report.outcome, Outcome::Done, "{place}: {report:?}");
            let after = merged(&node);
            let ours = ["kata", "kata-two"];
            assert_eq!(foreign_changes(&before, &after, &ours), Vec::<String>::new(), "{place}");
            let offered = ours.iter().filter(|name| node.offers(name)).count();
            assert_eq!(offered, offers, "{place}");
            // The next run finds nothing to do.
            assert!(!done(&mut node, &task).changed, "{place}, {:?}", task.action);
        }
        assert_eq!(node.disk.all(), disk, "{place}");
    }
}
