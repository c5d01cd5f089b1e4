//! Another program changes a file of the container runtime and restarts nothing: what runs, what is on disk and what
//! would be on disk with us are three things, and a restart for Kata is about all of them.

use kata_api::node_task::{ForeignChanges, NodeAction, NodeReport, NodeTask, Outcome};
use kata_host::Configuration;
use kata_host::host::CriStatus;

use crate::node::{Node, V1_MAIN, V2_MAIN, task};
use crate::runtime::Kind;

const MAIN: &str = "/etc/containerd/config.toml";
const OTHERS: &str = "/etc/containerd/others.d";
const DROP_IN: &str = "/etc/containerd/others.d/10-other.toml";
const HANDLER: &str = "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.other]\nruntime_type = \"io.containerd.runc.v2\"\n";
const GONE: &str =
    "[plugins.\"io.containerd.cri.v1.runtime\".containerd]\ndefault_runtime_name = \"gone\"\n";

/// A node that runs with a handler of another program, in a drop-in of it.
fn node() -> Node {
    let main = format!("imports = [\"{OTHERS}/*.toml\"]\n{V2_MAIN}");
    let mut node = Node::new(Kind::Containerd(2, 1), Some(&main));
    node.disk.make_dir(OTHERS, 0o755).unwrap();
    node.disk.write(DROP_IN, HANDLER.as_bytes(), 0o644).unwrap();
    node.stage("a");
    node.runtime.start(&mut node.disk);
    node.runtime.restarts = 0;
    node
}

fn installed() -> Node {
    let mut node = node();
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    node.runtime.restarts = 0;
    node
}

fn activate(action: NodeAction) -> NodeTask {
    NodeTask { foreign_changes: ForeignChanges::Activate, ..task(action, "a") }
}

#[track_caller]
fn message<'a>(report: &'a NodeReport, code: &str) -> &'a str {
    let check = report.checks.iter().find(|check| check.code == code);
    &check.unwrap_or_else(|| panic!("no {code} in {report:?}")).message
}

/// Refused with this code, and nothing was changed or restarted.
#[track_caller]
fn refused(node: &mut Node, task: &NodeTask, code: &str) -> String {
    let (before, restarts) = (node.disk.all(), node.runtime.restarts);
    let report = kata_host::run(node, task);
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert!(!report.changed && !report.restarted, "{report:?}");
    assert_eq!((node.disk.all(), node.runtime.restarts), (before, restarts));
    message(&report, code).to_owned()
}

#[test]
fn a_node_waits_until_the_owner_of_a_change_restarts_its_runtime() {
    let mut node = node();
    node.disk.unlink(DROP_IN).unwrap();
    for action in [NodeAction::Preflight, NodeAction::Install] {
        assert_eq!(
            refused(&mut node, &task(action, "a"), "KATA3047"),
            "/etc/containerd/others.d was changed after containerd.service started; the process and the \
             files differ in containerd.runtimes.other"
        );
    }
    node.runtime.start(&mut node.disk);
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!((report.outcome, report.checks), (Outcome::Done, vec![]));
}

/// Of the images of containerd 2 CRI reports nothing: that they may differ is enough.
#[test]
fn what_the_runtime_does_not_report_is_not_taken_for_equal() {
    let mut node = node();
    let main = node.text(MAIN).replace("overlayfs", "native");
    node.disk.write(MAIN, main.as_bytes(), 0o640).unwrap();
    assert_eq!(
        refused(&mut node, &task(NodeAction::Install, "a"), "KATA3047"),
        "/etc/containerd/config.toml was changed after containerd.service started; CRI reports no difference, \
         and does not report every setting"
    );
    // Before 1.33 CRI-O reports nothing.
    for (version, text, says) in [
        ("1.32.4", "[crio.runtime]\n", "what the process runs with is not known"),
        ("1.34.1", "[crio.runtime]\n", "and does not report every setting"),
        (
            "1.34.1",
            "[crio.runtime.runtimes.other]\nruntime_path = \"/usr/bin/runc\"\n",
            "the process and the files differ in runtimes.other",
        ),
    ] {
        let mut crio = Node::new(Kind::Crio, Some("[crio.runtime]\n"));
        crio.runtime.version = Some(version.to_owned());
        crio.stage("a");
        let other = "/etc/crio/crio.conf.d/10-other.conf";
        crio.disk.write(other, text.as_bytes(), 0o644).unwrap();
        let said = refused(&mut crio, &task(NodeAction::Install, "a"), "KATA3047");
        assert!(said.starts_with(&format!("{other} was changed after crio.service")), "{said}");
        assert!(said.ends_with(says), "{version}: {said}");
    }
}

fn crio() -> Node {
    let mut node = Node::new(Kind::Crio, Some("[crio.runtime]\n"));
    node.stage("a");
    node
}

/// It counts once a file was changed, and not of the files with which CRI-O was started.
#[test]
fn a_complaint_of_cri_os_program_refuses_a_change_of_another_program_only() {
    let mut node = crio();
    node.runtime.complains = Some("pinns is not there".to_owned());
    let mut changed = node.clone();
    assert_eq!(kata_host::run(&mut node, &task(NodeAction::Install, "a")).outcome, Outcome::Done);
    let other = "/etc/crio/crio.conf.d/10-other.conf";
    changed.disk.write(other, b"[crio.runtime]\n", 0o644).unwrap();
    // A unit that starts CRI-O through another program cannot be asked.
    let mut wrapped = changed.clone();
    wrapped.runtime.command.insert(0, "/usr/bin/env".to_owned());
    refused(&mut wrapped, &task(NodeAction::Install, "a"), "KATA3047");
    let said = refused(&mut changed, &activate(NodeAction::Install), "KATA3011");
    assert_eq!(said, format!("{other}: pinns is not there"));
}

#[test]
fn a_file_of_variables_that_was_changed_is_a_change_of_another_program() {
    let variables = "/etc/sysconfig/crio";
    let mut node = crio();
    node.disk.make_dir("/etc/sysconfig", 0o755).unwrap();
    node.disk.write(variables, b"A=1\n", 0o644).unwrap();
    node.runtime.environment_files = vec![variables.to_owned()];
    node.runtime.start(&mut node.disk);
    let mut changed = node.clone();
    assert_eq!(kata_host::run(&mut node, &task(NodeAction::Install, "a")).outcome, Outcome::Done);
    changed.disk.write(variables, b"A=2\n", 0o644).unwrap();
    let said = refused(&mut changed, &task(NodeAction::Install, "a"), "KATA3047");
    assert!(said.starts_with(&format!("{variables} was changed")), "{said}");
}

#[test]
fn a_file_of_kata_that_cri_o_cannot_read_is_named_and_a_removal_takes_it_away() {
    let mut node = crio();
    assert_eq!(kata_host::run(&mut node, &task(NodeAction::Install, "a")).outcome, Outcome::Done);
    let ours = "/etc/crio/crio.conf.d/60-kata-operator.conf";
    node.runtime.complains = Some(format!("unable to decode configuration {ours}"));
    // It serves, and another file was changed: that counts, and not what is wrong with ours.
    let mut serves = node.clone();
    serves.disk.write("/etc/crio/crio.conf.d/10-other.conf", b"[crio.runtime]\n", 0o644).unwrap();
    refused(&mut serves, &task(NodeAction::Remove, ""), "KATA3047");
    node.runtime.running = None;
    let said = refused(&mut node, &task(NodeAction::Install, "a"), "KATA3011");
    assert!(said.starts_with(&format!("{ours}, a file of Kata, keeps crio.service")), "{said}");
    let report = kata_host::run(&mut node, &task(NodeAction::Remove, ""));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(node.disk.stat(ours).is_none() && node.offers("crun"));
}

#[test]
fn a_file_that_is_no_toml_is_named_once() {
    let mut node = crio();
    node.disk.write("/etc/crio/crio.conf.d/10-other.conf", b"a = = 1\n", 0o644).unwrap();
    let report = kata_host::run(&mut node, &task(NodeAction::Preflight, "a"));
    let codes: Vec<&str> = report.checks.iter().map(|check| check.code.as_str()).collect();
    assert_eq!(codes, ["KATA3011"], "{report:?}");
}

/// A handler that is not on disk any more was lost before our restart, and not by it.
#[test]
fn an_admin_may_let_the_restart_activate_the_change_which_is_named() {
    let mut node = node();
    node.disk.unlink(DROP_IN).unwrap();
    let report = kata_host::run(&mut node, &activate(NodeAction::Install));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(message(&report, "KATA3048").ends_with("containerd.runtimes.other"), "{report:?}");
    assert!(node.offers("kata") && !node.offers("other"));
}

#[test]
fn no_restart_is_into_a_file_that_cannot_start() {
    for (more, says) in [
        (GONE, "default_runtime_name is gone, and no runtime has that name"),
        (
            "disabled_plugins = [\"cri\"]\n",
            "disabled_plugins has cri, without which there is no CRI",
        ),
    ] {
        for mut node in [node(), installed()] {
            let good = node.text(MAIN);
            let main = if more.starts_with('[') {
                format!("{good}{more}")
            } else {
                format!("{more}{good}")
            };
            node.disk.write(MAIN, main.as_bytes(), 0o640).unwrap();
            let has_kata = node.offers("kata");
            let action = if has_kata { NodeAction::Remove } else { NodeAction::Install };
            for task in [task(action, "a"), activate(action)] {
                let said = refused(&mut node, &task, "KATA3011");
                assert!(said.starts_with(MAIN) && said.ends_with(says), "{said}");
            }
            assert!(node.offers("other"), "{more}");
            // The program that broke it repairs it.
            node.disk.write(MAIN, good.as_bytes(), 0o640).unwrap();
            node.runtime.start(&mut node.disk);
            let report = kata_host::run(&mut node, &task(action, "a"));
            assert_eq!(report.outcome, Outcome::Done, "{more}: {report:?}");
        }
    }
}

/// A reboot would show it as well.
#[test]
fn an_inspection_warns_of_what_the_next_restart_would_do() {
    let mut node = installed();
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    assert_eq!((report.outcome, report.checks), (Outcome::Done, vec![]));
    let good = node.text(MAIN);
    node.disk.write(MAIN, format!("{good}{GONE}").as_bytes(), 0o640).unwrap();
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_eq!(
        message(&report, "KATA3048"),
        "containerd.service would not start again: /etc/containerd/config.toml: default_runtime_name is gone, and no runtime has \
         that name"
    );
}

/// What needs no restart does not wait for one.
#[test]
fn another_version_of_the_payload_does_not_wait() {
    let mut node = installed();
    node.disk.unlink(DROP_IN).unwrap();
    node.stage("b");
    let report = kata_host::run(&mut node, &task(NodeAction::Preflight, "b"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "b"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(!report.restarted && node.offers("other"), "{report:?}");
    assert!(!refused(&mut node, &task(NodeAction::Remove, ""), "KATA3047").is_empty());
}

/// A change that was undone because of what others had written is tried again once that is gone.
#[test]
fn a_foreign_reason_that_is_gone_does_not_undo_a_change_again() {
    for kind in [Kind::Containerd(2, 1), Kind::Containerd(1, 7)] {
        let main = if kind == Kind::Containerd(1, 7) { V1_MAIN } else { V2_MAIN };
        let mut node = Node::new(kind, Some(main));
        node.stage("a");
        // Another program writes between our last look and the restart, and the agent dies in the restart.
        node.meanwhile = Some(("restart", |node| {
            let good = node.text(MAIN);
            let id = if good.contains("version = 2") {
                "io.containerd.grpc.v1.cri"
            } else {
                "io.containerd.cri.v1.runtime"
            };
            node.disk.write("/etc/good.toml", good.as_bytes(), 0o640).unwrap();
            node.runtime.chokes_on = Some("kata".to_owned());
            let more =
                format!("[plugins.\"{id}\".containerd.runtimes.more]\nruntime_type = \"more\"\n");
            node.disk.write(MAIN, format!("{good}{more}").as_bytes(), 0o640).unwrap();
            node.arm(0, hostlab::node::Fault::KilledAfter);
        }));
        kata_host::run(&mut node, &task(NodeAction::Install, "a"));
        node.revive(false);
        // The other program takes its own back.
        let good = node.text("/etc/good.toml");
        node.disk.write(MAIN, good.as_bytes(), 0o640).unwrap();
        node.runtime.chokes_on = None;
        node.runtime.start(&mut node.disk);
        let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
        assert_eq!(report.outcome, Outcome::Done, "{kind:?}: {report:?}");
    }
}

/// What real programs print of the files that they run with, and what they report then, do not differ.
#[test]
fn the_words_of_real_programs_are_understood() {
    for (release, status, dump) in [
        ("1.6", include_str!("recorded/status-1.6.json"), include_str!("recorded/dump-1.6.toml")),
        ("1.7", include_str!("recorded/status-1.7.json"), include_str!("recorded/dump-1.7.toml")),
        ("2.1", include_str!("recorded/status-2.1.json"), include_str!("recorded/dump-2.1.toml")),
    ] {
        let status = CriStatus { config: Some(status.to_owned()), ..CriStatus::default() };
        let running = Configuration::running(&status);
        let differs = |dump: &str| {
            let printed = Configuration::printed(dump).unwrap();
            assert_eq!(printed.cannot_start(&std::collections::BTreeSet::new()), None, "{release}");
            running.differences(&printed, &std::collections::BTreeSet::new())
        };
        assert_eq!(differs(dump), Vec::<String>::new(), "{release}");
        let other = dump.replace("restrict_oom_score_adj = true", "restrict_oom_score_adj = false");
        assert_eq!(differs(&other), ["restrict_oom_score_adj"], "{release}");
        let other = dump.replace("runtimes.runc", "runtimes.crun");
        let both = ["containerd.runtimes.crun", "containerd.runtimes.runc"];
        assert_eq!(
            differs(
                &other
                    .replace("default_runtime_name = 'runc'", "")
                    .replace("default_runtime_name = \"runc\"", "")
            ),
            both,
            "{release}"
        );
    }
}

/// The same of CRI-O 1.36.3 with the defaults of its project but for a storage driver, cgroups and host ports. What it
/// prints of its defaults are comments.
#[test]
fn the_words_of_the_real_cri_o_are_understood() {
    let ours = std::collections::BTreeSet::from(["kata".to_owned()]);
    let status = include_str!("recorded/crio-1.36.json").to_owned();
    let status = CriStatus { config: Some(status), ..CriStatus::default() };
    let running = Configuration::running(&status);
    let dump = include_str!("recorded/crio-1.36.toml");
    let differs = |dump: &str| running.differences(&Configuration::printed(dump).unwrap(), &ours);
    assert_eq!(differs(dump), Vec::<String>::new());
    let handlers = Configuration::printed(dump).unwrap().handlers();
    assert_eq!(handlers, Some(std::collections::BTreeSet::from(["crun".to_owned()])));
    for (from, to, keys) in [
        ("[crio.runtime]", "[crio.runtime]\npids_limit = 4096", vec!["pids_limit"]),
        (
            "runtime_root = \"/run/crun\"",
            "runtime_root = \"/run/x\"",
            vec!["runtimes.crun.runtime_root"],
        ),
        ("runtimes.crun]", "runtimes.other]", vec!["runtimes.other", "runtimes.crun"]),
        (
            "[crio.image]",
            "[crio.runtime.runtimes.kata]\nruntime_type = \"vm\"\n[crio.image]",
            vec![],
        ),
    ] {
        assert_eq!(differs(&dump.replace(from, to)), keys, "{to}");
    }
    let invalid = dump.replace("\"cgroupfs\"", "\"foo\"");
    let says = Configuration::printed(&invalid).unwrap().cannot_start(&ours).unwrap();
    assert_eq!(says, "cgroup_manager is foo, and CRI-O knows systemd and cgroupfs");
    // Before 1.33 it reports its image, and nothing of its runtimes.
    let old = "{\"sandboxImage\":\"registry.k8s.io/pause:3.9\"}".to_owned();
    let old = CriStatus { config: Some(old), ..CriStatus::default() };
    assert_eq!(Configuration::running(&old), Configuration::Unknown);
}

/// The restarted runtime serves without our handler, and meanwhile another program has disabled CRI in its file.
#[test]
fn a_way_back_does_not_restart_a_runtime_that_serves_into_a_file_that_cannot_start() {
    let mut node = node();
    node.runtime.takes_in = Some(crate::runtime::Twist::IgnoresOurs);
    node.meanwhile = Some(("restart", |node| {
        node.meanwhile = Some(("ask CRI for status", |node| {
            let text = format!("disabled_plugins = [\"cri\"]\n{}", node.text(MAIN));
            node.disk.write(MAIN, text.as_bytes(), 0o640).unwrap();
        }));
    }));
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Unsafe, "{report:?}");
    let says = "containerd.service serves and was not restarted, since it would not start";
    assert!(message(&report, "KATA3034").contains(says), "{report:?}");
    assert!(node.offers("other") && node.runtime.restarts == 1);
    // It is gone on with once the file is repaired.
    let text = node.text(MAIN).replace("disabled_plugins = [\"cri\"]\n", "");
    node.disk.write(MAIN, text.as_bytes(), 0o640).unwrap();
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::RolledBack, "{report:?}");
    assert!(node.offers("other") && !node.offers("kata"));
}

/// Nor does a file that an editor leaves beside the drop-ins.
#[test]
fn another_mode_of_a_file_is_no_reason_to_wait() {
    let mut node = node();
    node.disk.chmod(MAIN, 0o600);
    node.disk.write("/etc/containerd/others.d/.10-other.toml.swp", b"", 0o600).unwrap();
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(message(&report, "KATA3048").ends_with("does not report every setting"), "{report:?}");
}

/// The admin has made our handler the default one, and it runs.
#[test]
fn a_default_runtime_of_ours_is_there_but_for_a_removal() {
    let mut node = installed();
    let main = format!("{}{}", node.text(MAIN), GONE.replace("gone", "kata"));
    node.disk.write(MAIN, main.as_bytes(), 0o640).unwrap();
    node.runtime.start(&mut node.disk);
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    assert_eq!((report.outcome, report.checks), (Outcome::Done, vec![]));
    node.stage("b");
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "b"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    let said = refused(&mut node, &task(NodeAction::Remove, ""), "KATA3011");
    assert!(said.contains("default_runtime_name is kata"), "{said}");
}
