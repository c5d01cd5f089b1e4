//! Removals from disks that are full, which only a removal may free.

use std::collections::BTreeMap;

use hostlab::sweep::{self, nodes};
use kata_api::node_task::{NodeAction, Outcome};
use kata_host::host::{Host as _, HostErrorKind};
use kata_host::paths;

use crate::node::{Fault, Node, V1_MAIN, V2_MAIN, task};
use crate::runs::{done, install, remove};
use crate::runtime::Kind;

/// From now on the disk takes no byte more.
fn fill(node: &mut Node) {
    node.capacity = Some(node.disk.used());
}

fn installed(clean: &Node) -> Node {
    let mut node = clean.clone();
    node.stage("a");
    done(&mut node, &install());
    node
}

#[track_caller]
fn same(found: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>, place: &str) {
    let names = |all: &BTreeMap<String, String>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(wanted), "{place}");
    assert_eq!(found, wanted, "{place}");
}

#[test]
fn a_removal_succeeds_on_a_full_disk() {
    for (name, clean) in nodes() {
        let mut node = installed(&clean);
        fill(&mut node);
        // That there is no room is so: nothing else can be installed.
        let reserve = node.disk.used_by(paths::RESERVE);
        assert!(node.make_dir("/opt/x", 0o755).is_err(), "{name}");
        done(&mut node, &remove());
        same(&node.disk.all(), &clean.disk.all(), name);
        assert!(!node.offers("kata"), "{name}");
        assert_eq!(reserve, paths::RESERVE_BYTES, "{name}");
    }
}

#[test]
fn an_interrupted_removal_from_a_full_disk_is_finished_by_the_next_one() {
    let sweep = sweep::removal_from_a_full_disk();
    assert_eq!(sweep.failures, Vec::<String>::new());
    assert!(sweep.points > 1000, "{} points", sweep.points);
}

/// An installation of an earlier version of the agent reserved nothing.
#[test]
fn what_nobody_needs_makes_room_where_none_was_reserved() {
    for what in ["staged", "half unpacked", "another version"] {
        for (name, clean) in nodes() {
            let mut node = installed(&clean);
            match what {
                "staged" => node.stage("b"),
                "half unpacked" => {
                    let folder = format!("{}/.unpacking", paths::STAGING);
                    node.disk.make_dir(&folder, 0o755).unwrap();
                    let part = vec![0; 1 << 20];
                    node.disk.write(&format!("{folder}/part"), &part, 0o644).unwrap();
                }
                _ => {
                    let folder = format!("{}/0123456789ab", paths::VERSIONS);
                    node.disk.make_dir(&folder, 0o755).unwrap();
                    let part = vec![0; 1 << 20];
                    node.disk.write(&format!("{folder}/part"), &part, 0o644).unwrap();
                }
            }
            node.disk.unlink(paths::RESERVE).unwrap();
            fill(&mut node);
            done(&mut node, &remove());
            same(&node.disk.all(), &clean.disk.all(), &format!("{name}, {what}"));
        }
    }
}

/// What new sandboxes would be started from stays until the removal is known to be one.
#[test]
fn a_removal_that_is_undone_has_the_payload_and_the_room_of_before() {
    for (kind, main) in [(Kind::Containerd(2, 1), V2_MAIN), (Kind::Containerd(1, 7), V1_MAIN)] {
        let mut node = installed(&Node::new(kind, Some(main)));
        let before = node.disk.all();
        fill(&mut node);
        node.runtime.broken = true;
        let report = kata_host::run(&mut node, &remove());
        assert_eq!(report.outcome, Outcome::Unsafe, "{report:?}");
        node.runtime.broken = false;
        node.meanwhile = Some(("ask for unit", |node| node.sandbox("late", "kata")));
        let report = kata_host::run(&mut node, &remove());
        assert_eq!(report.outcome, Outcome::Blocked, "{report:?}");
        same(&node.disk.all(), &before, "undone");
        assert!(node.offers("kata"));
        node.runtime.sandboxes.clear();
        done(&mut node, &remove());
    }
}

#[test]
fn room_is_reserved_once_and_only_while_something_is_installed() {
    let clean = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    let mut node = clean.clone();
    node.stage("a");
    node.runtime.chokes_on = Some("kata".to_owned());
    let report = kata_host::run(&mut node, &install());
    assert_eq!(report.outcome, Outcome::RolledBack, "{report:?}");
    assert!(node.disk.stat(paths::RESERVE).is_none());
    node.runtime.chokes_on = None;
    done(&mut node, &install());
    assert!(node.disk.stat(paths::RESERVE).is_some());
    node.revive(false);
    done(&mut node, &install());
    assert_eq!(node.writes, 0, "{:?}", node.log);
    // An upgrade finds it there.
    node.stage("b");
    node.revive(false);
    done(&mut node, &task(NodeAction::Install, "b"));
    assert!(!node.log.iter().any(|call| call.starts_with("reserve")), "{:?}", node.log);
}

/// An earlier version of the agent reserved nothing, and an agent that is killed a part.
#[test]
fn a_run_that_has_nothing_to_do_reserves_what_is_missing() {
    for (name, clean) in nodes() {
        let whole = installed(&clean);
        for part in [None, Some(0), Some(4096)] {
            let mut node = whole.clone();
            node.disk.unlink(paths::RESERVE).unwrap();
            if let Some(bytes) = part {
                node.disk.reserve(paths::RESERVE, bytes).unwrap();
            }
            let report = done(&mut node, &install());
            assert!(!report.changed && !report.restarted, "{name}: {report:?}");
            assert_eq!(node.disk.used_by(paths::RESERVE), paths::RESERVE_BYTES, "{name} {part:?}");
            node.revive(false);
            done(&mut node, &install());
            assert_eq!(node.writes, 0, "{name} {part:?}: {:?}", node.log);
        }
    }
}

/// What is given up for a removal that cannot begin is there for the next one.
#[test]
fn a_removal_that_cannot_make_room_keeps_what_it_has() {
    for (name, clean) in nodes() {
        let mut whole = installed(&clean);
        whole.stage("b");
        let mut seen = 0;
        for call in 0.. {
            let mut node = whole.clone();
            node.arm(call, Fault::Fails(HostErrorKind::Other));
            let report = kata_host::run(&mut node, &remove());
            if !node.was_hit() {
                break;
            }
            if report.outcome == Outcome::Done || node.disk.stat(paths::STATE).is_none() {
                continue;
            }
            let left = node.disk.used_by(paths::RESERVE);
            let state = kata_host::journal::parse(&node.disk.read(paths::STATE).unwrap()).unwrap();
            if state.transaction.is_none() && state.installed.is_some() {
                seen += 1;
                let place = format!("{name}: call {call} failed: {report:?}\n{:#?}", node.log);
                assert_eq!(left, paths::RESERVE_BYTES, "{place}");
            }
        }
        assert!(seen > 10, "{name}: {seen}");
    }
}

/// The first installation of all was interrupted, and then the disk ran full.
#[test]
fn an_interrupted_installation_is_undone_on_a_full_disk() {
    for (name, clean) in nodes() {
        for call in 0.. {
            let mut node = clean.clone();
            node.stage("a");
            node.arm(call, Fault::KilledAfter);
            kata_host::run(&mut node, &install());
            if !node.was_hit() {
                break;
            }
            let last = node.log.last().cloned().unwrap_or_default();
            node.revive(false);
            fill(&mut node);
            let report = kata_host::run(&mut node, &remove());
            let place = format!("{name}: killed at {call} {last}: {report:?}\n{:#?}", node.log);
            assert_eq!(report.outcome, Outcome::Done, "{place}");
            same(&node.disk.all(), &clean.disk.all(), &place);
        }
    }
}
