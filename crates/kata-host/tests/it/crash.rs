//! SIGKILL and loss of power at every call of an install, an upgrade and a removal.

use kata_api::node_task::{NodeAction, NodeTask, Outcome};

use crate::install::nodes;
use crate::node::{Fault, Node, task};

/// Kills the process at every call of a task, and runs the task again.
/// Returns how many points there were.
fn sweep(name: &str, node: &Node, task: &NodeTask, check: impl Fn(&str, &mut Node)) -> usize {
    let mut points = 0;
    for fault in [Fault::KilledBefore, Fault::KilledAfter] {
        for power_lost in [false, true] {
            for call in 0.. {
                let mut node = node.clone();
                node.disk.settle();
                node.arm(call, fault);
                kata_host::run(&mut node, task);
                if !node.was_hit() {
                    break;
                }
                points += 1;
                let last = node.log.last().cloned().unwrap_or_default();
                let place = format!("{name}: {fault:?}, power lost {power_lost}, {call} {last}");
                node.revive(power_lost);
                check(&place, &mut node);
            }
        }
    }
    points
}

#[test]
fn an_interrupted_install_is_finished_or_undone_by_the_next_run() {
    let mut points = 0;
    for (name, clean) in nodes() {
        let before = clean.disk.all();
        let mut node = clean.clone();
        node.stage("a");
        let mut finished = node.clone();
        kata_host::run(&mut finished, &task(NodeAction::Install, "a"));
        points += sweep(name, &node, &task(NodeAction::Install, "a"), |place, node| {
            let mut other = node.clone();
            let report = kata_host::run(node, &task(NodeAction::Install, "a"));
            assert_eq!(report.outcome, Outcome::Done, "{place}: {report:?}");
            assert_eq!(node.etc(), finished.etc(), "{place}");
            assert!(report.handlers.unwrap().contains(&"kata".to_owned()), "{place}");

            // Somebody changed their mind meanwhile.
            let report = kata_host::run(&mut other, &task(NodeAction::Remove, "a"));
            assert_eq!(report.outcome, Outcome::Done, "{place}: {report:?}");
            assert_eq!(other.disk.all(), before, "{place}");
        });
    }
    println!("{points} points");
    assert!(points > 1000, "{points}");
}

#[test]
fn an_interrupted_upgrade_is_finished_or_undone_by_the_next_run() {
    for (name, mut node) in nodes() {
        node.stage("a");
        kata_host::run(&mut node, &task(NodeAction::Install, "a"));
        node.sandbox("1", "kata");
        node.stage("b");
        let etc = node.etc();
        sweep(name, &node, &task(NodeAction::Install, "b"), |place, node| {
            let report = kata_host::run(node, &task(NodeAction::Install, "b"));
            assert_eq!(report.outcome, Outcome::Done, "{place}: {report:?}");
            assert_eq!(node.etc(), etc, "{place}");
            let shim = node.text("/opt/kata-operator/current/payload/bin/qemu-system-x86_64");
            assert_eq!(shim, "b", "{place}");
        });
    }
}

#[test]
fn an_interrupted_removal_leaves_nothing_after_the_next_run() {
    for (name, clean) in nodes() {
        let before = clean.disk.all();
        let mut node = clean.clone();
        node.stage("a");
        kata_host::run(&mut node, &task(NodeAction::Install, "a"));
        sweep(name, &node, &task(NodeAction::Remove, ""), |place, node| {
            let report = kata_host::run(node, &task(NodeAction::Remove, ""));
            assert_eq!(report.outcome, Outcome::Done, "{place}: {report:?}");
            assert_eq!(node.disk.all(), before, "{place}");
            assert!(matches!(node.runtime.running, Some(Ok(_))), "{place}");
        });
    }
}
