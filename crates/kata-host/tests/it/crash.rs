//! SIGKILL and loss of power at every call of an install, an upgrade, a repair, a way back and a removal.

use hostlab::sweep::{self, Sweep, nodes};
use kata_api::node_task::{Outcome, TaskHandler};

use crate::node::Fault;
use crate::runs::{done, install};

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
    wanted.handlers.push(TaskHandler { name: "fast".to_owned(), shim: "clh".to_owned() });
    for (name, node) in nodes() {
        let begin = || {
            let mut node = node.clone();
            node.stage_only("a", "qemu");
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
