//! The look at the container runtime after its restart: what it offers, and which sandboxes it still has.

use std::time::Duration;

use hostlab::runtime::Twist;
use hostlab::sweep::nodes;
use kata_api::node_task::{NodeReport, NodeTask, Outcome, TaskHandler};
use kata_host::host::HostErrorKind;

use crate::node::{Fault, Node, V2_MAIN};
use crate::runs::{done, install, remove};
use crate::runtime::Kind;

/// Runs a task after whose restart the container runtime has something else; it must be as before then.
#[track_caller]
fn rolled_back(name: &str, node: &mut Node, task: &NodeTask, twist: Twist, says: &str) {
    let etc = node.etc();
    let (restarts, running) = (node.runtime.restarts, node.runtime.running.clone());
    node.runtime.takes_in = Some(twist);
    let report = kata_host::run(node, task);
    let place = format!("{name}, {twist:?}: {report:?}");
    assert_eq!(report.outcome, Outcome::RolledBack, "{place}");
    assert_eq!(report.checks[0].code, "KATA3033", "{place}");
    let says = format!("{} is active: {says}", node.runtime.unit);
    assert_eq!(report.checks[0].message, says, "{place}");
    assert!(report.message.contains("the change was rolled back"), "{place}");
    assert_eq!(node.etc(), etc, "{place}");
    assert_eq!((node.runtime.restarts, &node.runtime.running), (restarts + 2, &running), "{place}");
    node.runtime.takes_in = None;
    done(node, task);
}

#[test]
fn a_runtime_that_offers_something_else_is_rolled_back() {
    let code = "KATA3033";
    for (name, node) in nodes() {
        let default = if node.runtime.kind == Kind::Crio { "crun" } else { "runc" };
        for (twist, says) in [
            (Twist::IgnoresOurs, "it does not offer the handler kata".to_owned()),
            (Twist::LosesDefault, format!("it does not offer the handler {default} any more")),
            (Twist::OtherConfiguration, "it has the handler kata with other paths".to_owned()),
            (Twist::OtherShim, "it has the handler kata with other paths".to_owned()),
        ] {
            let mut node = node.clone();
            node.stage("a");
            if node.runtime.kind == Kind::Crio && says.ends_with("paths") {
                // Before 1.33 it reports the names of its handlers only.
                let mut old = node.clone();
                old.runtime.version = Some("1.32.9".to_owned());
                old.runtime.takes_in = Some(twist);
                done(&mut old, &install());
            }
            rolled_back(name, &mut node, &install(), twist, &says);
            assert!(node.offers("kata") && node.offers(default), "{name}: {code}");
        }
    }
}

/// CRI-O with a thousand containers takes a minute.
#[test]
fn a_runtime_that_takes_a_minute_to_answer_is_waited_for() {
    for (_, mut node) in nodes() {
        node.stage("a");
        node.starts_for = Duration::from_secs(60);
        done(&mut node, &install());
        assert_eq!(node.runtime.restarts, 1);
    }
}

/// containerd that reads the state of many snapshots first takes minutes. Neither the run that has restarted it nor one
/// after a kill begins that anew.
#[test]
fn a_unit_that_takes_minutes_to_start_is_waited_for_and_not_restarted_meanwhile() {
    for (name, mut node) in nodes() {
        node.stage("a");
        node.activates_for = Duration::from_secs(270);
        let mut alone = node.clone();
        done(&mut alone, &install());
        assert_eq!(alone.runtime.restarts, 1, "{name}");
        for twist in [None, Some(Twist::IgnoresOurs)] {
            for fault in [Fault::KilledBefore, Fault::KilledAfter] {
                for call in 0.. {
                    let mut node = node.clone();
                    node.runtime.takes_in = twist;
                    node.arm(call, fault);
                    kata_host::run(&mut node, &install());
                    if !node.was_hit() {
                        break;
                    }
                    node.revive(false);
                    for _ in 0..2 {
                        kata_host::run(&mut node, &install());
                    }
                    assert_eq!(node.restarts_while_starting, 0, "{name}, {twist:?}, call {call}");
                    assert_eq!(node.offers("kata"), twist.is_none(), "{name}, call {call}");
                }
            }
        }
    }
}

#[test]
fn a_unit_that_does_not_come_up_in_time_is_said_to_be_still_starting() {
    for (name, mut node) in nodes() {
        node.stage("a");
        node.activates_for = Duration::from_secs(400);
        let report = kata_host::run(&mut node, &install());
        assert_eq!(report.outcome, Outcome::RolledBack, "{name}: {report:?}");
        let says = "it was still starting after 300 s";
        assert!(report.checks.iter().any(|check| check.message.contains(says)), "{report:?}");
        assert!(!node.offers("kata"), "{name}");
    }
}

/// containerd serves no CRI for a moment before its plugin does, and may end and be started again meanwhile.
#[test]
fn only_consecutive_final_answers_end_the_wait() {
    let (dead, away) = (HostErrorKind::Unimplemented, HostErrorKind::Unreachable);
    for (in_a_row, outcome) in [(2, Outcome::Done), (3, Outcome::RolledBack)] {
        for (name, mut node) in nodes() {
            node.stage("a");
            node.first_answers = [vec![dead; in_a_row], vec![away], vec![dead; 2]].concat();
            let report = kata_host::run(&mut node, &install());
            assert_eq!(report.outcome, outcome, "{name}, {in_a_row}: {report:?}");
        }
    }
}

#[test]
fn a_handler_that_stays_after_its_removal_is_rolled_back() {
    for (name, mut node) in nodes() {
        node.stage("a");
        done(&mut node, &install());
        let says = "it still offers the handler kata";
        let mut other = install();
        other.handlers =
            vec![TaskHandler { name: "kata-clh".to_owned(), shim: "clh".to_owned(), config: None }];
        rolled_back(name, &mut node.clone(), &other, Twist::KeepsOurs, says);
        rolled_back(name, &mut node, &remove(), Twist::KeepsOurs, says);
        assert!(!node.offers("kata"), "{name}");
    }
}

fn lost(report: &NodeReport) -> Option<&str> {
    let mut lost = report.checks.iter().filter(|check| check.code == "KATA3039");
    let first = lost.next()?;
    assert!(!first.fatal && lost.next().is_none(), "{report:?}");
    Some(&first.message)
}

fn with_sandboxes(mut node: Node) -> Node {
    node.stage("a");
    for (id, handler) in [("1", ""), ("2", "runc"), ("3", "runc")] {
        node.sandbox(id, handler);
    }
    node.runtime.sandboxes[2].ready = false;
    node
}

/// Another restart would not bring it back, so that the change stays; but the admin has to know.
#[test]
fn a_sandbox_that_a_restart_costs_is_named_and_nothing_undone() {
    for (name, node) in nodes() {
        let mut node = with_sandboxes(node);
        node.runtime.kills = Some("2".to_owned());
        let report = done(&mut node, &install());
        assert_eq!(lost(&report), Some("shop/web-2"), "KATA3039: {name}: {report:?}");
        let says = "Sandboxes that ran before the restart of the container runtime no longer run: shop/web-2. ";
        assert!(report.message.starts_with(says), "{name}: {report:?}");
        assert_eq!(node.runtime.restarts, 1, "{name}");
        assert!(node.offers("kata"), "{name}");
        // It is reported once, by the run that restarted the container runtime.
        assert_eq!(lost(&done(&mut node, &install())), None, "{name}");
    }
}

#[test]
fn sandboxes_that_a_restart_leaves_are_not_named() {
    for (name, node) in nodes() {
        let mut node = with_sandboxes(node);
        let mut ended = node.clone();
        let report = done(&mut node, &install());
        assert_eq!((lost(&report), report.message.as_str()), (None, ""), "{name}: {report:?}");
        // One that had ended before the restart was not lost by it.
        ended.meanwhile = Some(("write /etc", |node| node.runtime.sandboxes.clear()));
        assert_eq!(lost(&done(&mut ended, &install())), None, "{name}");
        assert!(ended.meanwhile.is_none(), "{name}");
    }
}

/// The list of before the first restart counts, also if the second one finds less.
#[test]
fn a_sandbox_that_is_lost_by_a_change_that_is_undone_is_named_with_it() {
    for twist in [None, Some(Twist::LosesDefault)] {
        let mut node = with_sandboxes(Node::new(Kind::Containerd(2, 1), Some(V2_MAIN)));
        node.runtime.kills = Some("1".to_owned());
        node.runtime.takes_in = twist;
        node.runtime.chokes_on = twist.is_none().then(|| "kata".to_owned());
        let report = kata_host::run(&mut node, &install());
        assert_eq!(report.outcome, Outcome::RolledBack, "{report:?}");
        assert_eq!(report.checks[0].code, "KATA3033", "{report:?}");
        assert_eq!(lost(&report), Some("shop/web-1"), "{report:?}");
        assert!(report.message.contains("the change was rolled back"), "{report:?}");
    }
}

#[test]
fn of_many_lost_sandboxes_some_are_named_and_all_counted() {
    let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    node.stage("a");
    for id in 0..2000 {
        node.sandbox(&format!("{id}"), "runc");
    }
    node.meanwhile = Some(("restart ", |node| {
        node.runtime.sandboxes.iter_mut().for_each(|sandbox| sandbox.ready = false);
    }));
    let report = done(&mut node, &install());
    assert_eq!(lost(&report), Some("shop/web-0, shop/web-1, shop/web-2 and 1997 more"));
}
