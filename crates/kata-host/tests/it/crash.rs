//! SIGKILL and loss of power at every call of an install, an upgrade, a repair, a way back and a removal.

use hostlab::sweep::{self, Sweep};

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
