//! Ways back: what they must come through, what they leave to others, and what follows them.

use std::collections::BTreeMap;

use hostlab::sweep::nodes;
use kata_api::node_task::{
    EarlierRelease, NodeAction, NodeTask, Outcome, REPORT_BYTES, TaskHandler,
};
use kata_host::host::HostErrorKind;
use kata_host::paths;

use crate::node::{Fault, Node, V1_MAIN, V2_MAIN, task};
use crate::runs::{done, install, remove};
use crate::runtime::Kind;

const MAIN: &str = "/etc/containerd/config.toml";

/// The same payload with a handler of another name.
fn another_handler() -> NodeTask {
    let mut task = install();
    task.handlers =
        vec![TaskHandler { name: "kata-clh".to_owned(), shim: "clh".to_owned(), config: None }];
    task
}

fn serves(node: &Node) -> bool {
    matches!(node.runtime.running, Some(Ok(_)))
}

#[track_caller]
fn same(found: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>, place: &str) {
    let others = |one: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
        one.iter()
            .filter(|(path, text)| other.get(*path) != Some(*text))
            .map(|(path, text)| format!("{path}: {text}"))
            .collect::<Vec<_>>()
    };
    assert_eq!((others(found, wanted), others(wanted, found)), (vec![], vec![]), "{place}");
}

/// Every next pod needs the container runtime, also the one that would fix it.
#[test]
fn a_full_disk_does_not_keep_the_runtime_from_coming_back() {
    for (name, clean) in nodes() {
        let mut fresh = clean.clone();
        fresh.stage("a");
        fresh.runtime.chokes_on = Some("kata".to_owned());
        let mut changed = clean.clone();
        changed.stage("a");
        done(&mut changed, &install());
        changed.runtime.chokes_on = Some("kata-clh".to_owned());
        let mut killed = fresh.clone();
        killed.meanwhile = Some(("restart ", |node| node.arm(0, Fault::KilledAfter)));
        kata_host::run(&mut killed, &install());
        killed.revive(false);
        killed.runtime.start(&mut killed.disk);
        assert!(!serves(&killed), "{name}");
        for (staged, task) in
            [(&fresh, install()), (&changed, another_handler()), (&killed, install())]
        {
            for call in 0.. {
                let mut node = staged.clone();
                node.arm(call, Fault::DiskFull);
                let report = kata_host::run(&mut node, &task);
                if !node.was_hit() {
                    break;
                }
                let place = format!("{name}: full from call {call}: {report:?}\n{:#?}", node.log);
                assert!(serves(&node), "{place}");
                assert_ne!(report.outcome, Outcome::Done, "{place}");
                node.revive(false);
                node.runtime.chokes_on = None;
                if kata_host::run(&mut node, &task).outcome != Outcome::Done {
                    done(&mut node, &task);
                }
                done(&mut node, &remove());
                same(&node.disk.all(), &clean.disk.all(), &place);
            }
        }
    }
}

/// What cannot be written while the disk is full is written by the next way back.
#[test]
fn our_old_drop_in_comes_back_once_the_disk_has_room() {
    for (name, clean) in nodes() {
        let mut changed = clean.clone();
        changed.stage("a");
        done(&mut changed, &install());
        let before = changed.etc();
        changed.runtime.chokes_on = Some("kata-clh".to_owned());
        for call in 0.. {
            let mut node = changed.clone();
            node.arm(call, Fault::DiskFull);
            kata_host::run(&mut node, &another_handler());
            if !node.was_hit() {
                break;
            }
            node.revive(false);
            let report = kata_host::run(&mut node, &another_handler());
            let place = format!("{name}: full from call {call}: {report:?}\n{:#?}", node.log);
            assert_eq!(report.outcome, Outcome::RolledBack, "{place}");
            assert!(!report.message.contains("another program changed"), "{place}");
            assert_eq!(node.etc(), before, "{place}");
            assert!(node.offers("kata") && !node.offers("kata-clh"), "{place}");
        }
    }
}

/// kata-deploy puts its backup over what an administrator has corrected since.
#[test]
fn what_an_administrator_corrects_before_the_way_back_ends_is_kept() {
    for (kind, main) in [(Kind::Containerd(2, 1), V2_MAIN), (Kind::Containerd(1, 7), V1_MAIN)] {
        let mut node = Node::new(kind, Some(main));
        node.stage("a");
        node.runtime.broken = true;
        let report = kata_host::run(&mut node, &install());
        assert_eq!(report.outcome, Outcome::Unsafe, "{report:?}");
        assert_eq!(node.text(MAIN), main);
        let corrected = format!("{main}# corrected\n");
        node.disk.write(MAIN, corrected.as_bytes(), 0o640).unwrap();
        node.runtime.broken = false;
        let mut other = node.clone();
        done(&mut other, &remove());
        assert_eq!(other.text(MAIN), corrected);
        // With another file it is another plan.
        done(&mut node, &install());
        assert!(node.text(MAIN).contains("# corrected\n"));
        done(&mut node, &remove());
        assert_eq!(node.text(MAIN), corrected);
    }
}

#[test]
fn a_file_that_was_edited_while_ours_was_in_it_loses_our_line_and_nothing_else() {
    for (kind, main) in [(Kind::Containerd(2, 1), V2_MAIN), (Kind::Containerd(1, 7), V1_MAIN)] {
        let mut node = Node::new(kind, Some(main));
        node.stage("a");
        node.runtime.chokes_on = Some("kata".to_owned());
        node.meanwhile = Some(("restart ", |node| node.arm(0, Fault::KilledAfter)));
        kata_host::run(&mut node, &install());
        node.revive(false);
        let with_ours = node.text(MAIN);
        assert!(with_ours.contains("conf.d/*.toml"), "{with_ours}");
        let edited = format!("{with_ours}# corrected\n");
        node.disk.write(MAIN, edited.as_bytes(), 0o600).unwrap();
        kata_host::run(&mut node, &install());
        assert_eq!(node.text(MAIN), format!("{main}# corrected\n"));
        assert!(serves(&node));

        // What is no TOML was broken by another program, which may be still at it.
        let mut node = Node::new(kind, Some(main));
        node.stage("a");
        node.meanwhile = Some(("restart ", |node| {
            node.disk.write(MAIN, b"[half", 0o640).unwrap();
        }));
        let report = kata_host::run(&mut node, &install());
        assert_eq!(report.outcome, Outcome::Unsafe, "{report:?}");
        assert_eq!(node.text(MAIN), "[half");
        node.disk.write(MAIN, main.as_bytes(), 0o640).unwrap();
        done(&mut node, &remove());
        assert_eq!(node.text(MAIN), main);
    }
}

/// The container runtime reads another file by then, with the import or without it.
#[test]
fn a_file_that_is_not_the_main_one_any_more_loses_our_line_and_no_other_file_takes_its_place() {
    let moved = "/etc/containerd/moved.toml";
    for (kind, main) in [
        (Kind::Containerd(2, 1), Some(V2_MAIN)),
        (Kind::Containerd(2, 1), None),
        (Kind::Containerd(1, 7), Some(V1_MAIN)),
    ] {
        let clean = Node::new(kind, main);
        for (imports, installs, gone) in [
            (true, false, false),
            (true, true, false),
            (true, false, true),
            (false, false, false),
            (false, true, false),
            (false, true, true),
        ] {
            let mut node = clean.clone();
            node.stage("a");
            done(&mut node, &install());
            let mut text = node.text(MAIN);
            if !imports {
                let lines = text.split_inclusive('\n');
                text = lines.filter(|line| !line.starts_with("imports")).collect();
            }
            text.push_str("# theirs\n");
            node.disk.write(moved, text.as_bytes(), 0o600).unwrap();
            if gone {
                node.disk.unlink(MAIN).unwrap();
            }
            node.runtime.command = ["/usr/bin/containerd", "-c", moved].map(str::to_owned).to_vec();
            node.runtime.main = moved.to_owned();
            node.runtime.start(&mut node.disk);
            let place = format!("{kind:?} {main:?} {imports} {installs} {gone}");
            if installs {
                done(&mut node, &install());
                assert!(node.offers("kata"), "{place}");
            }
            done(&mut node, &remove());
            assert_eq!(node.text(moved), text, "{place}");
            let mut wanted = clean.disk.all();
            if gone {
                wanted.remove(MAIN);
            }
            // Their file is in it.
            wanted.insert("/etc/containerd".to_owned(), "directory 755".to_owned());
            let mut found = node.disk.all();
            found.remove(moved);
            same(&found, &wanted, &place);
        }
    }
}

#[test]
fn a_removal_is_not_given_up_because_an_earlier_installation_had_to_be_undone() {
    for (name, clean) in nodes() {
        let mut node = clean.clone();
        node.stage("a");
        node.runtime.broken = true;
        let report = kata_host::run(&mut node, &install());
        assert_eq!(report.outcome, Outcome::Unsafe, "{name}: {report:?}");
        node.runtime.broken = false;
        let report = done(&mut node, &remove());
        assert!(report.checks.iter().all(|check| !check.fatal), "{name}: {report:?}");
        assert!(report.checks.iter().any(|check| check.code == "KATA3038"), "{name}: {report:?}");
        same(&node.disk.all(), &clean.disk.all(), name);
    }
}

#[test]
fn another_state_is_tried_after_the_way_back_and_the_same_one_is_not() {
    for (name, clean) in nodes() {
        let mut node = clean.clone();
        node.stage("a");
        node.runtime.chokes_on = Some("kata".to_owned());
        node.meanwhile = Some(("restart ", |node| node.arm(0, Fault::KilledAfter)));
        kata_host::run(&mut node, &install());
        node.revive(false);
        let mut same = node.clone();
        let report = kata_host::run(&mut same, &install());
        assert_eq!(report.outcome, Outcome::RolledBack, "{name}: {report:?}");
        let report = done(&mut node, &another_handler());
        assert!(report.handlers.unwrap().contains(&"kata-clh".to_owned()), "{name}");
    }
}

#[test]
fn what_somebody_else_writes_at_the_same_moment_is_left_and_the_change_tried_again() {
    let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    node.stage("a");
    node.meanwhile = Some(("write /etc/containerd/conf.d", |node| {
        node.disk.write(MAIN, format!("{V2_MAIN}# theirs\n").as_bytes(), 0o640).unwrap();
    }));
    let report = kata_host::run(&mut node, &install());
    assert_eq!(report.outcome, Outcome::Failed, "{report:?}");
    assert_eq!(report.checks[0].code, "KATA3037", "{report:?}");
    assert_eq!(node.text(MAIN), format!("{V2_MAIN}# theirs\n"));
    assert!(!report.restarted && node.disk.list("/etc/containerd/conf.d").is_none());
    done(&mut node, &install());
    done(&mut node, &remove());
    assert_eq!(node.text(MAIN), format!("{V2_MAIN}# theirs\n"));
}

#[test]
fn a_dump_that_does_not_come_says_nothing_about_the_configuration() {
    for kind in [HostErrorKind::TimedOut, HostErrorKind::Unreachable] {
        for number in [0, 1] {
            let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
            node.stage("a");
            node.revive(false);
            let mut trial = node.clone();
            done(&mut trial, &install());
            let mut calls =
                trial.log.iter().enumerate().filter(|(_, call)| call.starts_with("dump "));
            let (call, _) = calls.nth(number).unwrap();
            let etc = node.etc();
            node.arm(call, Fault::Fails(kind));
            let report = kata_host::run(&mut node, &install());
            assert_eq!(report.outcome, Outcome::Failed, "{report:?}");
            assert_eq!(report.checks[0].code, "KATA3037", "{report:?}");
            assert!(!report.restarted);
            assert_eq!(node.etc(), etc);
            done(&mut node, &install());
        }
    }
}

/// CRI-O does not report the paths of a handler, so what it offers does not prove which drop-in is live.
#[test]
fn a_changed_drop_in_is_not_taken_for_live_before_a_restart() {
    let mut node = Node::new(Kind::Crio, Some("[crio.runtime]\n"));
    node.stage("a");
    done(&mut node, &install());
    let good = node.text(paths::CRIO_DROP_IN);
    let edited = good.replace("/run/vc", "/run/elsewhere");
    node.disk.write(paths::CRIO_DROP_IN, edited.as_bytes(), 0o644).unwrap();
    node.runtime.start(&mut node.disk);
    node.meanwhile = Some(("restart ", |node| node.arm(0, Fault::KilledBefore)));
    kata_host::run(&mut node, &install());
    // It is counted from the next call on: the restart was done. So go back to before it.
    node.disk.write(paths::CRIO_DROP_IN, edited.as_bytes(), 0o644).unwrap();
    node.runtime.start(&mut node.disk);
    node.disk.write(paths::CRIO_DROP_IN, good.as_bytes(), 0o644).unwrap();
    node.revive(false);
    let restarts = node.runtime.restarts;
    let report = done(&mut node, &install());
    assert!(report.restarted, "{report:?}");
    assert_eq!(node.runtime.restarts, restarts + 1);
    assert!(!done(&mut node, &install()).restarted);
}

#[test]
fn a_sandbox_that_is_started_during_an_upgrade_keeps_its_version() {
    for (name, mut node) in nodes() {
        node.stage("a");
        done(&mut node, &install());
        node.stage("b");
        node.meanwhile = Some(("rename /opt/kata-operator/.current", |node| {
            node.sandbox("late", "kata");
        }));
        done(&mut node, &task(NodeAction::Install, "b"));
        assert_eq!(node.runtime.sandboxes.len(), 1, "{name}");
        assert_eq!(node.disk.list(paths::VERSIONS).unwrap().len(), 2, "{name}");
        assert_eq!(node.disk.list(paths::RELEASES).unwrap().len(), 2, "{name}");
        done(&mut node, &task(NodeAction::Install, "b"));
        assert_eq!(node.disk.list(paths::VERSIONS).unwrap().len(), 2, "{name}");
        node.runtime.sandboxes.clear();
        done(&mut node, &task(NodeAction::Install, "b"));
        assert_eq!(node.disk.list(paths::VERSIONS).unwrap().len(), 1, "{name}");
    }
}

#[test]
fn a_sandbox_that_is_started_during_a_removal_keeps_the_payload_until_it_is_gone() {
    for (name, clean) in nodes() {
        let mut node = clean.clone();
        node.stage("a");
        done(&mut node, &install());
        node.meanwhile = Some(("unlink /etc", |node| node.sandbox("late", "kata")));
        let report = kata_host::run(&mut node, &remove());
        assert_eq!(report.outcome, Outcome::Blocked, "{name}: {report:?}");
        assert_eq!(report.sandboxes[0].pod, "web-late", "{name}");
        assert_eq!(node.disk.list(paths::VERSIONS).unwrap().len(), 1, "{name}");
        assert!(serves(&node), "{name}");
        let report = kata_host::run(&mut node, &remove());
        assert_eq!(report.outcome, Outcome::Blocked, "{name}: {report:?}");
        node.runtime.sandboxes.clear();
        done(&mut node, &remove());
        same(&node.disk.all(), &clean.disk.all(), name);
    }
}

#[test]
fn a_sandbox_that_is_started_during_an_upgrade_that_is_undone_keeps_its_version() {
    for (name, mut node) in nodes() {
        node.stage("a");
        done(&mut node, &install());
        node.sandbox("old", "kata");
        node.stage("b");
        node.meanwhile = Some(("rename /opt/kata-operator/.current", |node| {
            node.sandbox("late", "kata");
            node.arm(0, Fault::KilledAfter);
        }));
        kata_host::run(&mut node, &task(NodeAction::Install, "b"));
        node.revive(false);
        // The desired state changed meanwhile.
        for _ in 0..2 {
            done(&mut node, &install());
            assert_eq!(node.disk.list(paths::VERSIONS).unwrap().len(), 2, "{name}");
            assert_eq!(node.disk.list(paths::RELEASES).unwrap().len(), 2, "{name}");
        }
        node.runtime.sandboxes.retain(|sandbox| sandbox.id == "old");
        done(&mut node, &install());
        assert_eq!(node.disk.list(paths::VERSIONS).unwrap().len(), 1, "{name}");
        assert_eq!(node.disk.list(paths::RELEASES).unwrap().len(), 1, "{name}");
    }
}

/// The journal was deleted, and the first removal takes the drop-in away.
#[test]
fn a_removal_without_a_journal_waits_for_the_sandboxes_that_it_finds_late() {
    for (name, clean) in nodes() {
        let mut node = clean.clone();
        node.stage("a");
        done(&mut node, &install());
        node.disk.unlink(paths::STATE).unwrap();
        node.meanwhile = Some(("unlink /etc", |node| node.sandbox("late", "kata")));
        for _ in 0..2 {
            let report = kata_host::run(&mut node, &remove());
            assert_eq!(report.outcome, Outcome::Blocked, "{name}: {report:?}");
            assert_eq!(node.disk.list(paths::VERSIONS).unwrap().len(), 1, "{name}");
            assert!(serves(&node) && !node.offers("kata"), "{name}");
        }
        node.runtime.sandboxes.clear();
        done(&mut node, &remove());
        // The import that the journal knew of stays: nothing else shows that it is ours.
        let left = |node: &Node| {
            node.disk.list("/opt").into_iter().chain(node.disk.list("/var/lib")).flatten().count()
        };
        assert_eq!(left(&node), left(&clean), "{name}");
    }
}

/// The first installation of all leaves no journal behind that could say what its sandboxes run of.
#[test]
fn a_sandbox_that_is_started_during_a_first_installation_that_is_undone_keeps_its_version() {
    for (name, mut node) in nodes() {
        for image in ["a", "b"] {
            node.stage(image);
            node.runtime.chokes_on = Some("kata".to_owned());
            node.meanwhile = Some(("restart ", |node| {
                let id = format!("late-{}", node.runtime.sandboxes.len());
                node.sandbox(&id, "kata");
            }));
            let report = kata_host::run(&mut node, &task(NodeAction::Install, image));
            assert_eq!(report.outcome, Outcome::RolledBack, "{name}: {report:?}");
        }
        node.runtime.chokes_on = None;
        node.stage("c");
        // With a handler of another name, too.
        let mut other = task(NodeAction::Install, "c");
        other.handlers = another_handler().handlers;
        let kept = |node: &Node| {
            let count = |folder| node.disk.list(folder).unwrap().len();
            (count(paths::VERSIONS), count(paths::RELEASES))
        };
        for _ in 0..2 {
            done(&mut node, &other);
            assert_eq!(kept(&node), (3, 3), "{name}");
        }
        node.runtime.sandboxes.clear();
        done(&mut node, &other);
        assert_eq!(kept(&node), (1, 1), "{name}");
    }
}

/// What still runs on an earlier release is reported as long as it runs, with the version.
#[test]
fn pods_on_an_earlier_release_are_reported_until_they_end() {
    for (name, mut node) in nodes() {
        node.stage("a");
        done(&mut node, &install());
        node.sandbox("old", "kata");
        node.stage("b");
        let report = done(&mut node, &task(NodeAction::Install, "b"));
        node.sandbox("new", "kata");
        let inspection = kata_host::run(&mut node, &task(NodeAction::Inspect, "b"));
        for report in [report, inspection] {
            let earlier = EarlierRelease {
                kata_version: Some("3.24.0".to_owned()),
                pods: vec![EarlierRelease::listed("uid-old").to_owned()],
                more_pods: 0,
                of_kata_deploy: false,
            };
            assert_eq!(report.earlier, [earlier], "{name}: {report:?}");
        }
        node.runtime.sandboxes.retain(|sandbox| sandbox.id != "old");
        let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "b"));
        assert_eq!(report.earlier, [], "{name}: {report:?}");
    }
}

/// However many there are, the report fits, and counts them all.
#[test]
fn a_report_counts_the_pods_that_it_has_no_room_for() {
    let (name, mut node) = nodes().remove(0);
    node.stage("a");
    done(&mut node, &install());
    for number in 0..1_000 {
        node.sandbox(&format!("{number:04}"), "kata");
    }
    node.stage("b");
    let report = done(&mut node, &task(NodeAction::Install, "b"));
    assert!(serde_json::to_vec(&report).unwrap().len() <= REPORT_BYTES, "{name}");
    let [earlier] = report.earlier.as_slice() else { panic!("{report:?}") };
    let listed = i64::try_from(earlier.pods.len()).unwrap();
    assert!(listed > 200 && listed + earlier.more_pods == 1_000, "{listed}, {}", earlier.more_pods);
}
