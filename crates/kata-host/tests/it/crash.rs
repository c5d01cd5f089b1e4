//! SIGKILL and loss of power at every call of an install, an upgrade, a repair, a way back and a removal.

use hostlab::sweep::{self, Sweep, nodes};

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
