//! Findings that no other test brings about, each with its code.

use kata_api::node_task::{NodeAction, NodeReport, NodeTask, Outcome, TaskHandler};
use kata_host::host::{Exit, HostErrorKind, UnitState};
use kata_host::paths;

use crate::node::{Fault, Node, V1_MAIN, V2_MAIN, task};
use crate::runtime::Kind;

fn node() -> Node {
    let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    node.stage("a");
    node.revive(false);
    node
}

fn installed() -> Node {
    let mut node = node();
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    node.revive(false);
    node
}

fn install() -> NodeTask {
    task(NodeAction::Install, "a")
}

/// Which call of an installation this is, the first being 0.
#[track_caller]
fn call(node: &Node, what: &str, number: usize) -> usize {
    let mut trial = node.clone();
    kata_host::run(&mut trial, &install());
    let mut calls = trial.log.iter().enumerate().filter(|(_, call)| call.starts_with(what));
    calls.nth(number).unwrap_or_else(|| panic!("{what} is not in {:#?}", trial.log)).0
}

#[track_caller]
fn has(report: &NodeReport, outcome: Outcome, code: &str) {
    assert_eq!(report.outcome, outcome, "{report:?}");
    assert!(report.checks.iter().any(|check| check.code == code), "no {code} in {report:?}");
}

#[test]
fn an_old_runtime_is_a_warning() {
    let mut node = Node::new(Kind::Containerd(1, 6), Some(V1_MAIN));
    node.stage("a");
    let report = kata_host::run(&mut node, &task(NodeAction::Preflight, "a"));
    has(&report, Outcome::Done, "KATA3008");
    assert!(report.checks[0].message.contains("1.6.9"), "{report:?}");
}

#[test]
fn a_runtime_that_says_it_is_not_ready_is_left_alone() {
    let mut node = node();
    node.runtime.unready = Some("cni plugin not initialized".to_owned());
    let report = kata_host::run(&mut node, &install());
    has(&report, Outcome::Refused, "KATA3010");
    assert!(report.message.contains("cni plugin not initialized"), "{report:?}");
}

#[test]
fn a_shim_that_needs_block_devices_is_refused_without_them() {
    let mut node = node();
    node.runtime.snapshotter = Some("overlayfs".to_owned());
    let mut task = install();
    task.handlers =
        vec![TaskHandler { name: "kata-fc".to_owned(), shim: "fc".to_owned(), config: None }];
    has(&kata_host::run(&mut node, &task), Outcome::Refused, "KATA3024");
}

#[test]
fn a_payload_whose_configuration_is_no_toml_is_refused() {
    let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    node.stage_with("a", "[hypervisor.qemu\n");
    has(&kata_host::run(&mut node, &install()), Outcome::Refused, "KATA3025");
}

#[test]
fn sandboxes_in_the_way_have_a_code() {
    let mut node = installed();
    node.sandbox("1", "kata");
    let report = kata_host::run(&mut node, &task(NodeAction::Remove, ""));
    has(&report, Outcome::Blocked, "KATA3030");
}

#[test]
fn what_the_runtime_would_not_load_is_taken_back_before_any_restart() {
    let mut node = node();
    let dump = call(&node, "dump ", 1);
    node.arm(dump, Fault::Fails(HostErrorKind::Failed));
    let report = kata_host::run(&mut node, &install());
    has(&report, Outcome::RolledBack, "KATA3031");
    assert!(!report.restarted, "{report:?}");
}

#[test]
fn a_restart_that_fails_is_taken_back() {
    let mut node = node();
    let restart = call(&node, "restart ", 0);
    node.arm(restart, Fault::Fails(HostErrorKind::Failed));
    let report = kata_host::run(&mut node, &install());
    has(&report, Outcome::RolledBack, "KATA3032");
    assert_eq!(report.checks[0].message, "containerd.service is active: injected");
}

#[test]
fn another_agent_on_the_node_is_waited_for_and_then_named() {
    let mut node = node();
    node.locked.push(paths::LOCK);
    let report = kata_host::run(&mut node, &install());
    has(&report, Outcome::Failed, "KATA3036");
    assert_eq!(node.writes, 0);
}

#[test]
fn what_the_node_does_not_allow_is_named() {
    let mut node = node();
    let facts = call(&node, "read facts", 0);
    node.arm(facts, Fault::Fails(HostErrorKind::Other));
    let report = kata_host::run(&mut node, &install());
    has(&report, Outcome::Failed, "KATA3037");
    assert!(report.message.contains("read facts"), "{report:?}");
}

#[test]
fn an_interrupted_change_is_named_by_whoever_only_looks() {
    let mut node = node();
    let restart = call(&node, "restart ", 0);
    node.arm(restart, Fault::KilledBefore);
    kata_host::run(&mut node, &install());
    node.revive(false);
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    has(&report, Outcome::Drifted, "KATA3038");
    assert_eq!(report.message, "A change of the node was interrupted and is not finished");
    // It names that first, before all else that it finds.
    node.disk.unlink(paths::CURRENT).unwrap();
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    assert!(report.checks.len() > 1, "{report:?}");
    assert_eq!(report.checks[0].code, "KATA3038", "{report:?}");
    assert_eq!(report.message, "A change of the node was interrupted and is not finished");
}

#[test]
fn a_release_that_was_edited_is_named_by_whoever_only_looks() {
    let mut node = installed();
    let path = format!("{}/etc/kata/configuration.toml", paths::CURRENT);
    node.disk.write(&path, b"", 0o644).unwrap();
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    has(&report, Outcome::Drifted, "KATA3041");
}

#[test]
fn a_full_disk_hides_no_drift() {
    let mut node = installed();
    node.disk_free = 1 << 20;
    let path = format!("{}/etc/kata/configuration.toml", paths::CURRENT);
    node.disk.write(&path, b"", 0o644).unwrap();
    node.disk.unlink("/etc/containerd/conf.d/60-kata-operator.toml").unwrap();
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    has(&report, Outcome::Drifted, "KATA3041");
    has(&report, Outcome::Drifted, "KATA3040");
}

#[test]
fn a_damaged_payload_hides_no_other_check() {
    let mut node = installed();
    node.facts.memory_available = 1 << 30;
    let qemu = format!("{}/payload/bin/qemu-system-x86_64", paths::CURRENT);
    node.disk.write(&qemu, b"?", 0o755).unwrap();
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    has(&report, Outcome::Drifted, "KATA3041");
    has(&report, Outcome::Drifted, "KATA3004");
}

/// Which unit, how it is, and in how many words.
#[test]
fn a_runtime_that_does_not_come_back_is_named_by_its_unit() {
    for (kind, main, unit) in [
        (Kind::Containerd(2, 1), V2_MAIN, "containerd.service"),
        (Kind::Crio, "[crio.runtime]\n", "crio.service"),
    ] {
        let mut node = Node::new(kind, Some(main));
        node.stage("a");
        node.runtime.broken = true;
        let report = kata_host::run(&mut node, &install());
        has(&report, Outcome::Unsafe, "KATA3034");
        let message = &report.checks[0].message;
        let failed = format!("{unit} is failed (exit-code, status 1): ");
        assert!(message.starts_with(&format!("{failed}cannot ask")), "{message}");
        assert!(message.contains(&format!("; before that: {failed}")), "{message}");
        assert!(!message.contains('\n') && message.len() <= 300, "{message}");
        assert!(report.message.contains(&failed), "{report:?}");
        // The next run did not see what went wrong, and reports it all the same.
        for _ in 0..2 {
            node.revive(false);
            let report = kata_host::run(&mut node, &install());
            has(&report, Outcome::Unsafe, "KATA3034");
            let message = &report.checks[0].message;
            assert!(message.starts_with(&format!("{failed}cannot ask")), "{message}");
            assert!(message.contains(&format!("; before that: {failed}")), "{message}");
        }
        // Nor is it tried again once the runtime is back, and the reason is the one of before.
        node.runtime.broken = false;
        node.revive(false);
        let report = kata_host::run(&mut node, &install());
        has(&report, Outcome::RolledBack, "KATA3032");
        assert!(report.checks[0].message.starts_with(&failed), "{report:?}");
    }
    let mut node = node();
    node.runtime.chokes_on = Some("kata".to_owned());
    let report = kata_host::run(&mut node, &install());
    has(&report, Outcome::RolledBack, "KATA3033");
    let message = &report.checks[0].message;
    assert!(message.starts_with("containerd.service is active: cannot ask CRI"), "{message}");
}

/// A file that another program has changed is the first thing to look at, however long the rest is.
#[test]
fn a_way_back_names_the_file_that_it_left_and_how_the_runtime_is_now() {
    const MAIN: &str = "/etc/containerd/config.toml";
    let mut node = Node::new(Kind::Containerd(1, 7), Some(V1_MAIN));
    node.stage("a");
    node.meanwhile = Some(("restart ", |node| {
        node.runtime.unready = Some("somewhat ".repeat(40));
        node.meanwhile = Some(("ask CRI for status", |node| {
            node.disk.write(MAIN, b"[half", 0o640).unwrap();
        }));
    }));
    let report = kata_host::run(&mut node, &install());
    has(&report, Outcome::Unsafe, "KATA3034");
    let message = &report.checks[0].message;
    let now = format!(
        "another program changed {MAIN} (left unchanged); \
         containerd.service is failed (exit-code, status 1): cannot ask CRI for "
    );
    assert!(message.starts_with(&now), "{message}");
    let before = "; before that: containerd.service is active: it is not ready: somewhat ";
    assert!(message.contains(before), "{message}");
    assert!(message.ends_with("somewhat …") && message.len() <= 300, "{message}");
}

/// All that is not as before is named, and that the runtime serves if it does.
#[test]
fn a_way_back_that_the_disk_does_not_take_names_every_file() {
    const MAIN: &str = "/etc/containerd/config.toml";
    let mut node = Node::new(Kind::Containerd(1, 7), Some(V1_MAIN));
    node.stage("a");
    node.runtime.chokes_on = Some("kata".to_owned());
    let mut edited = node.clone();
    // At the second look, after the restart.
    edited.meanwhile = Some(("ask CRI for version", |node| {
        node.meanwhile = Some(("ask CRI for version", |node| {
            node.disk.write(MAIN, b"[half", 0o640).unwrap();
        }));
    }));
    // How often something could not be put back, besides what another program owns now, and how often it served.
    let (mut both, mut served) = (0, 0);
    for (node, call) in
        [node, edited].iter().flat_map(|node| (0..300).map(move |call| (node, call)))
    {
        let mut node = node.clone();
        node.arm(call, Fault::Fails(HostErrorKind::NoSpace));
        let report = kata_host::run(&mut node, &install());
        if report.outcome != Outcome::Unsafe || !report.message.contains("going back: cannot") {
            continue;
        }
        let message = &report.checks[0].message;
        let now = message.split("; before that: ").next().unwrap();
        if node.disk.read(MAIN).unwrap() == b"[half" {
            assert!(now.contains("config.toml"), "{message}");
            both += usize::from(now.contains(&format!("another program changed {MAIN}")));
        }
        let serves = matches!(node.runtime.running, Some(Ok(_)));
        assert_eq!(now.ends_with("the container runtime serves as before"), serves, "{message}");
        served += usize::from(serves);
    }
    assert!(both > 0 && served > 0, "{both} {served}");
}

#[test]
fn a_unit_is_described_in_a_few_words() {
    let state = |active: &str, sub: &str, result: &str, exit| UnitState {
        active: active.to_owned(),
        sub: sub.to_owned(),
        result: result.to_owned(),
        exit,
    };
    for (state, said) in [
        (state("active", "running", "success", None), "active"),
        (state("inactive", "dead", "success", Some(Exit::Status(0))), "inactive (dead)"),
        (state("failed", "failed", "start-limit-hit", None), "failed (start-limit-hit)"),
        (
            state("activating", "auto-restart", "exit-code", Some(Exit::Status(1))),
            "activating (auto-restart, exit-code, status 1)",
        ),
        (state("failed", "failed", "signal", Some(Exit::Signal(9))), "failed (signal 9)"),
        (
            state("failed", "failed", "core-dump", Some(Exit::Signal(11))),
            "failed (core-dump, signal 11)",
        ),
    ] {
        assert_eq!(state.to_string(), said);
    }
}

/// A sentence loses its end and not what happened, and no word is cut in two.
#[test]
fn a_message_that_is_too_long_ends_with_a_word() {
    let mut node = node();
    node.runtime.unready = Some("somewhat ".repeat(100));
    let report = kata_host::run(&mut node, &install());
    has(&report, Outcome::Refused, "KATA3010");
    for message in [&report.message, &report.checks[0].message] {
        assert!(message.ends_with(" somewhat …"), "{message}");
        assert!((288..=300).contains(&message.len()), "{} bytes: {message}", message.len());
    }
    // What to do is not cut, but left out.
    node.runtime.unready = Some("somewhat ".repeat(20));
    let message = kata_host::run(&mut node, &install()).message;
    assert!(message.ends_with(" somewhat") && message.len() > 200, "{message}");
    // A long path is cut, and what is before it stays.
    node.runtime.unready = Some(format!("somewhat {}", "/path".repeat(80)));
    let message = &kata_host::run(&mut node, &install()).checks[0].message;
    assert!(message.ends_with(" …") && message.len() > 290, "{message}");
    node.runtime.unready = Some("ä".repeat(400));
    let message = &kata_host::run(&mut node, &install()).checks[0].message;
    assert!(message.ends_with("ä …") && message.len() <= 300, "{message}");
}
