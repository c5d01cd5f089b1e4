//! Install, upgrade, repair and removal as they should go, on every kind of container runtime.

use kata_api::node_task::{NodeAction, Outcome};
use kata_host::paths;

use hostlab::sweep::nodes;

use crate::node::task;

#[test]
fn a_handler_is_there_after_one_restart_and_gone_without_a_trace() {
    for (name, mut node) in nodes() {
        let before = node.disk.all();
        node.stage("a");
        let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
        assert_eq!(report.outcome, Outcome::Done, "{name}: {report:?}");
        assert!(report.changed && report.restarted, "{name}");
        assert_eq!(node.runtime.restarts, 1, "{name}");
        assert!(report.handlers.unwrap().contains(&"kata".to_owned()), "{name}");
        assert_eq!(report.kata_version.as_deref(), Some("3.24.0"));

        let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
        assert_eq!(report.outcome, Outcome::Done, "{name}: {report:?}");

        let report = kata_host::run(&mut node, &task(NodeAction::Remove, "a"));
        assert_eq!(report.outcome, Outcome::Done, "{name}: {report:?}");
        assert_eq!(node.runtime.restarts, 2, "{name}");
        assert!(!report.handlers.unwrap().contains(&"kata".to_owned()), "{name}");
        assert_eq!(node.disk.all(), before, "{name}");
    }
}

#[test]
fn the_same_state_applied_a_hundred_times_writes_nothing() {
    for (name, mut node) in nodes() {
        node.stage("a");
        kata_host::run(&mut node, &task(NodeAction::Install, "a"));
        let restarts = node.runtime.restarts;
        node.revive(false);
        for _ in 0..100 {
            let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
            assert_eq!(report.outcome, Outcome::Done, "{name}: {report:?}");
            assert!(!report.changed && !report.restarted, "{name}");
        }
        assert_eq!((node.writes, node.runtime.restarts), (0, restarts), "{name}");
    }
}

#[test]
fn an_upgrade_needs_no_restart_and_keeps_what_a_sandbox_uses() {
    for (name, mut node) in nodes() {
        node.stage("a");
        kata_host::run(&mut node, &task(NodeAction::Install, "a"));
        node.sandbox("1", "kata");
        node.stage("b");
        let report = kata_host::run(&mut node, &task(NodeAction::Install, "b"));
        assert_eq!(report.outcome, Outcome::Done, "{name}: {report:?}");
        assert!(report.changed && !report.restarted, "{name}: {report:?}");
        assert_eq!(node.disk.list(paths::VERSIONS).unwrap().len(), 2, "{name}");
        let shim = node.text(&format!("{}/payload/bin/qemu-system-x86_64", paths::CURRENT));
        assert_eq!(shim, "b", "{name}");

        node.runtime.sandboxes.clear();
        let report = kata_host::run(&mut node, &task(NodeAction::Install, "b"));
        assert!(report.changed && !report.restarted, "{name}");
        assert_eq!(node.disk.list(paths::VERSIONS).unwrap().len(), 1, "{name}");
        assert_eq!(node.disk.list(paths::RELEASES).unwrap().len(), 1, "{name}");
    }
}

#[test]
fn a_runtime_that_does_not_come_up_is_rolled_back_and_comes_back() {
    for (name, mut node) in nodes() {
        let etc = node.etc();
        node.stage("a");
        node.runtime.chokes_on = Some("kata".to_owned());
        let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
        assert_eq!(report.outcome, Outcome::RolledBack, "{name}: {report:?}");
        assert_eq!(report.checks[0].code, "KATA3033", "{name}");
        assert_eq!(node.etc(), etc, "{name}");
        assert_eq!(node.runtime.restarts, 2, "{name}");
        assert!(matches!(node.runtime.running, Some(Ok(_))), "{name}");
    }
}

#[test]
fn a_call_that_fails_ends_the_run_with_a_report_and_not_with_half_a_change() {
    use crate::node::Fault;
    use kata_host::host::HostErrorKind;

    for (name, clean) in nodes() {
        let mut staged = clean.clone();
        staged.stage("a");
        for kind in [HostErrorKind::NoSpace, HostErrorKind::TimedOut, HostErrorKind::Unreachable] {
            for call in 0.. {
                let mut node = staged.clone();
                node.arm(call, Fault::Fails(kind));
                let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
                if !node.was_hit() {
                    break;
                }
                let place = format!("{name}: {call} fails with {kind:?}: {report:?}");
                assert!(matches!(node.runtime.running, Some(Ok(_))), "{place}");
                match report.outcome {
                    Outcome::Done => {}
                    Outcome::RolledBack | Outcome::Refused => {
                        // The node itself was in the way, and the next time it may not be. The operator
                        // does not try again what was rolled back.
                        let restarted = report.outcome == Outcome::Refused || report.restarted;
                        assert!(restarted, "{place}");
                        assert_eq!(node.etc(), clean.etc(), "{place}");
                        assert!(!report.message.is_empty(), "{place}");
                    }
                    Outcome::Failed => assert!(!report.message.is_empty(), "{place}"),
                    Outcome::Unsafe | Outcome::Blocked | Outcome::Drifted => panic!("{place}"),
                }
                node.revive(false);
                let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
                assert_eq!(report.outcome, Outcome::Done, "{place}, then {report:?}");
            }
        }
    }
}
