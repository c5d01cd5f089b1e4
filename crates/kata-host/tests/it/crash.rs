//! SIGKILL and loss of power at every call of an install, an upgrade, a repair, a way back and a removal.

use std::collections::BTreeMap;

use hostlab::sweep::{self, Sweep, nodes};
use kata_api::node_task::{NodeAction, NodeTask, Outcome, TaskHandler};
use kata_host::{paths, payload};

use crate::node::{Fault, Node, task};
use crate::runs::{done, install, remove};

fn assert_sound(sweep: &Sweep, least: u64) {
    assert_eq!(sweep.failures, Vec::<String>::new());
    assert!(sweep.points > least, "{} points", sweep.points);
}

#[test]
fn an_interrupted_install_is_finished_or_undone_by_the_next_run() {
    assert_sound(&sweep::install(), 1000);
}

#[test]
fn an_interrupted_upgrade_is_finished_or_undone_by_the_next_run() {
    assert_sound(&sweep::upgrade(), 1000);
}

#[test]
fn an_interrupted_repair_is_finished_by_the_next_run() {
    assert_sound(&sweep::repair(), 1000);
}

#[test]
fn an_interrupted_way_back_is_taken_to_its_end_by_the_next_run() {
    assert_sound(&sweep::rollback(), 1000);
}

#[test]
fn an_interrupted_removal_leaves_nothing_after_the_next_run() {
    assert_sound(&sweep::removal(), 1000);
}

/// The disk without temporary files, which the next run removes.
fn lasting(node: &Node) -> BTreeMap<String, String> {
    let mut all = node.disk.all();
    all.retain(|path, _| !path.contains(".kata-operator-tmp") && path != paths::RESERVE);
    all
}

/// The node is examined before another run could repair it.
#[test]
fn a_finished_run_survives_a_loss_of_power() {
    for (name, mut node) in nodes() {
        node.stage("a");
        let mut repair = install();
        repair.verify = true;
        let shim = format!("{}/payload/bin/containerd-shim-kata-v2", paths::CURRENT);
        for (task, image) in [(install(), ""), (repair, "a"), (upgrade(), "b"), (remove(), "")] {
            if task.verify {
                node.disk.rot(&shim);
            }
            if !image.is_empty() {
                node.stage(image);
            }
            node.disk.settle();
            done(&mut node, &task);
            let before = lasting(&node);
            node.revive(true);
            assert_eq!(lasting(&node), before, "{name}, {:?} {image}", task.action);
        }
    }
}

fn upgrade() -> NodeTask {
    task(NodeAction::Install, "b")
}

/// The next run takes a folder under its final name for complete.
#[test]
fn an_interrupted_run_leaves_payloads_and_releases_complete_or_absent() {
    let (_, mut node) = nodes().remove(0);
    node.stage("a");
    done(&mut node, &install());
    node.stage("b");
    let folders = |node: &Node| -> BTreeMap<String, BTreeMap<String, String>> {
        let mut folders: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for (path, content) in lasting(node) {
            let name = [paths::VERSIONS, paths::RELEASES].into_iter().find_map(|above| {
                let rest = path.strip_prefix(above)?.strip_prefix('/')?;
                Some(format!("{above}/{}", rest.split('/').next()?))
            });
            if let Some(name) = name {
                folders.entry(name).or_default().insert(path, content);
            }
        }
        folders
    };
    for task in [upgrade(), remove()] {
        node.disk.settle();
        let mut finished = node.clone();
        done(&mut finished, &task);
        let mut whole = folders(&node);
        whole.extend(folders(&finished));
        let faults = [Fault::KilledBefore, Fault::KilledAfter];
        for (fault, power_lost) in faults.into_iter().flat_map(|it| [(it, false), (it, true)]) {
            for call in 0.. {
                let mut node = node.clone();
                node.arm(call, fault);
                kata_host::run(&mut node, &task);
                if !node.was_hit() {
                    break;
                }
                let last = node.log.last().cloned().unwrap_or_default();
                node.revive(power_lost);
                for (name, found) in folders(&node) {
                    let place = format!("{name} after {fault:?} {call}, {last}");
                    assert_eq!(Some(&found), whole.get(&name), "{place}");
                }
            }
        }
        node = finished;
    }
}

/// The container that stages leaves out a payload that is there, and the change before would clear it away.
#[test]
fn an_interrupted_change_does_not_clear_away_what_the_next_one_was_staged_for() {
    for is_installed in [true, false] {
        let (_, mut node) = nodes().remove(0);
        node.stage("a");
        if is_installed {
            done(&mut node, &install());
        }
        node.stage("b");
        node.disk.settle();
        let mut points = 0;
        for fault in [Fault::KilledBefore, Fault::KilledAfter] {
            for call in 0.. {
                let mut node = node.clone();
                node.arm(call, fault);
                kata_host::run(&mut node, &upgrade());
                if !node.was_hit() {
                    break;
                }
                node.revive(false);
                let shims = ["qemu".to_owned()];
                if !payload::is_present(&mut node, "a", "a", &shims, false).unwrap() {
                    node.stage("a");
                }
                let report = kata_host::run(&mut node, &install());
                let place = format!("{fault:?} {call}, {is_installed}: {}", report.message);
                assert_eq!(report.outcome, Outcome::Done, "{place}");
                points += 1;
            }
        }
        assert!(points > 100, "{points}");
    }
}

#[test]
fn a_payload_that_was_staged_outlives_a_loss_of_power() {
    for (name, mut node) in nodes() {
        node.stage("a");
        node.revive(true);
        done(&mut node, &install());
        assert!(node.offers("kata"), "{name}");
    }
}

/// What was installed before may seem to have the other shim, too, since all configurations are in one archive.
#[test]
fn a_shim_is_taken_from_the_payload_that_was_staged_for_it() {
    let mut wanted = install();
    wanted.handlers.push(TaskHandler {
        name: "fast".to_owned(),
        shim: "clh".to_owned(),
        config: None,
    });
    for (name, node) in nodes() {
        let begin = || {
            let mut node = node.clone();
            node.stage_for("a", &["qemu"]);
            done(&mut node, &install());
            node.stage("a");
            node
        };
        let digest = kata_host::run(&mut begin(), &wanted).payload_digest;
        assert!(digest.is_some(), "{name}");
        for call in 0.. {
            let mut node = begin();
            node.arm(call, Fault::KilledBefore);
            kata_host::run(&mut node, &wanted);
            let was_hit = node.was_hit();
            node.revive(false);
            // Nothing is staged again, since what was staged is on the node.
            let report = kata_host::run(&mut node, &wanted);
            assert_eq!(report.outcome, Outcome::Done, "{name} {call}: {report:?}");
            assert_eq!(report.payload_digest, digest, "{name} {call}");
            if !was_hit {
                break;
            }
        }
    }
}

/// No restart of ours brings a change of another program into effect that was there before the last look.
#[test]
fn another_program_may_write_at_any_call() {
    assert_sound(&sweep::foreign_changes(), 500);
}
