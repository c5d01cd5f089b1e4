//! The comparison of the merged configurations: every part of a change that would take effect otherwise than it
//! should is undone before the container runtime has seen it.

use hostlab::runtime::Twist;
use hostlab::sweep::nodes;
use kata_api::node_task::{NodeTask, Outcome, TaskHandler};

use crate::node::Node;
use crate::runs::{done, install, remove};
use crate::runtime::Kind;

/// The nodes whose container runtime prints its merged configuration. CRI-O prints none.
fn printing() -> Vec<(&'static str, Node)> {
    let nodes = nodes().into_iter().filter(|(_, node)| node.runtime.kind != Kind::Crio);
    let nodes: Vec<_> = nodes.collect();
    assert_eq!(nodes.len(), 7);
    nodes
}

/// Runs a task for which the container runtime would make something else of its files; the node must be as
/// before then, and the same task succeed without the fault.
#[track_caller]
fn undone(name: &str, node: &mut Node, task: &NodeTask, twist: Twist, says: &str) {
    let etc = node.etc();
    let (restarts, running) = (node.runtime.restarts, node.runtime.running.clone());
    node.runtime.prints = Some(twist);
    let report = kata_host::run(node, task);
    let place = format!("{name}, {twist:?}: {report:?}");
    assert_eq!(report.outcome, Outcome::RolledBack, "{place}");
    assert_eq!(report.checks[0].code, "KATA3031", "{place}");
    assert!(report.checks[0].message.ends_with(says), "{place}");
    assert!(report.message.contains("was rolled back without a restart"), "{place}");
    assert!(!report.restarted, "{place}");
    assert_eq!(node.etc(), etc, "{place}");
    assert_eq!((node.runtime.restarts, &node.runtime.running), (restarts, &running), "{place}");
    node.runtime.prints = None;
    done(node, task);
}

#[test]
fn what_would_take_effect_otherwise_is_undone_without_a_restart() {
    let code = "KATA3031";
    for (twist, says) in [
        (Twist::IgnoresOurs, "the handler kata does not take effect"),
        (Twist::OtherConfiguration, "the handler kata takes effect with other paths"),
        (Twist::OtherShim, "the handler kata takes effect with other paths"),
    ] {
        for (name, mut node) in printing() {
            node.stage("a");
            undone(name, &mut node, &install(), twist, says);
            assert!(node.offers("kata"), "{code}");
        }
    }
}

/// The drop-in of containerd 1.x replaces a section, and one of another schema may do more.
#[test]
fn a_drop_in_that_would_cost_or_change_another_handler_is_undone_without_a_restart() {
    for (name, node) in printing() {
        let section = match name {
            "1.7" | "1.7, no file" | "1.6" => "io.containerd.grpc.v1.cri",
            _ => "io.containerd.cri.v1.runtime",
        };
        let key = format!("the key plugins.{section}.containerd.runtimes.runc");
        for (twist, says) in [
            (Twist::LosesDefault, format!("{key} would change")),
            (Twist::ChangesDefault, format!("{key}.runtime_type would change")),
        ] {
            let mut node = node.clone();
            node.stage("a");
            undone(name, &mut node, &install(), twist, &says);
        }
    }
}

/// Another file configures it as well, or an import is read twice.
#[test]
fn a_handler_that_would_not_go_is_left_and_nothing_restarted() {
    for (name, mut node) in printing() {
        node.stage("a");
        done(&mut node, &install());
        let says = "the handler kata is still configured by another file";
        let mut other = install();
        other.handlers =
            vec![TaskHandler { name: "kata-clh".to_owned(), shim: "clh".to_owned(), config: None }];
        undone(name, &mut node.clone(), &other, Twist::KeepsOurs, says);
        undone(name, &mut node, &remove(), Twist::KeepsOurs, says);
        assert!(!node.offers("kata"), "{name}");
    }
}
