//! What happens to a node besides us: sandboxes, edits by hand, damage, and a runtime that stays down.

use hostlab::disk::Disk;
use hostlab::sweep::{self, nodes};
use kata_api::node_task::{NodeAction, Outcome, REPORT_BYTES, TaskHandler};
use kata_host::host::Device;
use kata_host::paths;

use crate::node::{Node, V1_MAIN, V2_MAIN, task};
use crate::runtime::Kind;

fn installed(kind: Kind, main: &str) -> Node {
    let mut node = Node::new(kind, Some(main));
    node.stage("a");
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    node.revive(false);
    node
}

#[test]
fn a_removal_waits_for_running_sandboxes_and_names_them() {
    for (name, mut node) in nodes() {
        node.stage("a");
        kata_host::run(&mut node, &task(NodeAction::Install, "a"));
        for id in 0..2000 {
            node.sandbox(&format!("with-a-rather-long-name-{id}"), "kata");
        }
        node.sandbox("other", "runc");
        let before = node.disk.all();
        let report = kata_host::run(&mut node, &task(NodeAction::Remove, ""));
        assert_eq!(report.outcome, Outcome::Blocked, "{name}: {report:?}");
        assert_eq!((report.sandbox_count, report.sandboxes.len()), (2000, 10), "{name}");
        assert!(serde_json::to_vec(&report).unwrap().len() <= REPORT_BYTES);
        assert_eq!(node.disk.all(), before, "{name}");

        // Those that are not READY have no virtual machine.
        node.runtime.sandboxes.iter_mut().for_each(|sandbox| sandbox.ready = false);
        let report = kata_host::run(&mut node, &task(NodeAction::Remove, ""));
        assert_eq!(report.outcome, Outcome::Done, "{name}: {report:?}");
    }
}

#[test]
fn a_handler_with_sandboxes_is_neither_dropped_nor_given_another_shim() {
    let mut node = installed(Kind::Containerd(2, 1), V2_MAIN);
    node.sandbox("1", "kata");
    let mut other = task(NodeAction::Install, "a");
    other.handlers =
        vec![TaskHandler { name: "kata".to_owned(), shim: "clh".to_owned(), config: None }];
    let report = kata_host::run(&mut node, &other);
    assert_eq!(report.outcome, Outcome::Blocked, "{report:?}");
    other.handlers =
        vec![TaskHandler { name: "kata-clh".to_owned(), shim: "clh".to_owned(), config: None }];
    let report = kata_host::run(&mut node, &other);
    assert_eq!(report.outcome, Outcome::Blocked, "{report:?}");
    assert_eq!(node.writes, 0);
    node.runtime.sandboxes.clear();
    let report = kata_host::run(&mut node, &other);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_eq!(report.handlers.unwrap(), ["kata-clh", "runc"]);
}

#[test]
fn an_edited_drop_in_is_put_back_without_a_restart_if_nothing_is_live_of_it() {
    let mut node = installed(Kind::Containerd(2, 1), V2_MAIN);
    let path = "/etc/containerd/conf.d/60-kata-operator.toml";
    let good = node.text(path);
    node.disk.write(path, format!("{good}\n# a remark\n").as_bytes(), 0o644).unwrap();
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    assert_eq!(report.outcome, Outcome::Drifted, "{report:?}");
    assert_eq!(report.checks[0].code, "KATA3040");
    // The reader of the report adds what to do about it, and only once.
    assert_eq!(report.message, format!("{path} was edited"));
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert!(report.changed && !report.restarted, "{report:?}");
    assert_eq!(node.text(path), good);
}

#[test]
fn a_runtime_without_our_handler_is_restarted_though_the_files_are_right() {
    let mut node = installed(Kind::Containerd(2, 1), V2_MAIN);
    node.disk.rename("/etc/containerd/conf.d", "/etc/containerd/away").unwrap();
    node.runtime.start(&mut node.disk);
    node.disk.rename("/etc/containerd/away", "/etc/containerd/conf.d").unwrap();
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    assert_eq!(report.checks[0].code, "KATA3042", "{report:?}");
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(report.restarted);
}

/// On containerd 1.x our drop-in has a copy of the section, which an edit of the main file makes old.
#[test]
fn a_main_file_that_was_edited_is_copied_anew_on_1_x() {
    let mut node = installed(Kind::Containerd(1, 7), V1_MAIN);
    let main = "/etc/containerd/config.toml";
    let edited = node.text(main).replace("pause:9", "pause:10");
    node.disk.write(main, edited.as_bytes(), 0o640).unwrap();
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    assert_eq!(report.outcome, Outcome::Drifted, "{report:?}");
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert_eq!(report.checks[0].code, "KATA3047", "{report:?}");
    // Its owner restarts containerd, which our copy of the section keeps from taking the edit in.
    node.runtime.start(&mut node.disk);
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(report.checks.iter().any(|check| check.code == "KATA3048"), "{report:?}");
    assert!(node.text("/etc/containerd/conf.d/60-kata-operator.toml").contains("pause:10"));

    // The removal takes out our import and leaves the edit.
    let report = kata_host::run(&mut node, &task(NodeAction::Remove, ""));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_eq!(node.text(main), V1_MAIN.replace("pause:9", "pause:10"));
}

/// Neither its size nor the time of its last modification shows it.
#[test]
fn a_changed_file_whose_time_was_set_back_is_repaired() {
    let mut node = installed(Kind::Containerd(2, 1), V2_MAIN);
    let qemu = format!("{}/payload/bin/qemu-system-x86_64", paths::CURRENT);
    let (good, before) = (node.text(&qemu), node.disk.stat(&qemu).unwrap());
    node.disk.change_and_restore_time(&qemu);
    let after = node.disk.stat(&qemu).unwrap();
    assert_eq!((after.size, after.modified), (before.size, before.modified));
    node.stage("a");
    // A run that does not read every file finds it nevertheless.
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(report.changed && !report.restarted, "{report:?}");
    assert_eq!(node.text(&qemu), good);
}

#[test]
fn a_damaged_payload_is_repaired_without_a_restart() {
    let mut node = installed(Kind::Containerd(2, 1), V2_MAIN);
    let restarts = node.runtime.restarts;
    let qemu = format!("{}/payload/bin/qemu-system-x86_64", paths::CURRENT);
    node.disk.write(&qemu, b"?", 0o755).unwrap();
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    assert_eq!(report.outcome, Outcome::Drifted, "{report:?}");
    assert_eq!(report.checks[0].code, "KATA3041", "{report:?}");
    assert!(report.message.contains("bin/qemu-system-x86_64"), "{report:?}");
    let report = kata_host::run(&mut node, &task(NodeAction::Preflight, "a"));
    assert_eq!(report.outcome, Outcome::Done, "an installation would bring a copy: {report:?}");
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert_eq!(report.checks[0].code, "KATA3022", "{report:?}");
    node.stage("a");
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_eq!(node.text(&qemu), "a");
    assert_eq!(node.runtime.restarts, restarts);
    assert!(node.disk.list(paths::STAGING).unwrap().is_empty());
}

/// An inspection reports damage of any file of a payload, and an installation with a fresh copy fixes it.
#[test]
fn whatever_of_a_payload_is_damaged_is_drift_and_is_repaired() {
    type Damage = fn(&mut Node, &str);
    let damages: [(&str, Damage); 7] = [
        ("the shim is for no machine", |node, version| {
            let shim = format!("{version}/tree/bin/containerd-shim-kata-v2");
            let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
            elf.resize(80, 0);
            elf[18] = 183;
            node.disk.write(&shim, &elf, 0o755).unwrap();
        }),
        ("a configuration is no TOML", |node, version| {
            let path = "tree/share/defaults/kata-containers/configuration-qemu.toml";
            node.disk.write(&format!("{version}/{path}"), b"[[", 0o644).unwrap();
        }),
        ("a configuration is another one", |node, version| {
            let path = "tree/share/defaults/kata-containers/configuration-qemu.toml";
            node.disk.write(&format!("{version}/{path}"), b"[runtime]\n", 0o644).unwrap();
        }),
        ("a link is gone", |node, version| {
            let path = "tree/share/kata-containers/vmlinux.container";
            node.disk.unlink(&format!("{version}/{path}")).unwrap();
        }),
        ("a directory is gone", |node, version| {
            node.disk.remove_tree(&format!("{version}/tree/share"));
        }),
        ("the manifest is cut off", |node, version| {
            node.disk.write(&format!("{version}/manifest.json"), b"{", 0o644).unwrap();
        }),
        ("all of it is gone", |node, version| node.disk.remove_tree(version)),
    ];
    for (name, damage) in damages {
        let mut node = installed(Kind::Containerd(2, 1), V2_MAIN);
        let good = node.disk.all();
        let restarts = node.runtime.restarts;
        let versions = node.disk.list(paths::VERSIONS).unwrap();
        damage(&mut node, &format!("{}/{}", paths::VERSIONS, versions[0]));
        let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
        assert_eq!(report.outcome, Outcome::Drifted, "{name}: {report:?}");
        node.stage("a");
        let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
        assert_eq!(report.outcome, Outcome::Done, "{name}: {report:?}");
        let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
        assert_eq!(report.outcome, Outcome::Done, "{name}: {report:?}");
        assert_eq!(node.runtime.restarts, restarts, "{name}");
        // The seal has the times of the new files.
        let files = |all: std::collections::BTreeMap<String, String>| -> Vec<(String, String)> {
            all.into_iter().filter(|(path, _)| !path.ends_with("seal.json")).collect()
        };
        assert_eq!(files(node.disk.all()), files(good), "{name}");
    }
}

/// A bad disk changes neither size nor times: who believes those finds nothing.
#[test]
fn a_file_that_rotted_is_found_by_reading_it_and_repaired_by_an_installation_that_verifies() {
    let mut node = installed(Kind::Containerd(2, 1), V2_MAIN);
    let qemu = format!("{}/payload/bin/qemu-system-x86_64", paths::CURRENT);
    node.disk.rot(&qemu);
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    assert_eq!(report.outcome, Outcome::Drifted, "{report:?}");
    node.stage("a");
    let mut verify = task(NodeAction::Install, "a");
    verify.verify = true;
    let report = kata_host::run(&mut node, &verify);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_eq!(node.text(&qemu), "a");
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
}

#[test]
fn a_staged_copy_that_is_damaged_itself_repairs_nothing() {
    let mut node = installed(Kind::Containerd(2, 1), V2_MAIN);
    let qemu = format!("{}/payload/bin/qemu-system-x86_64", paths::CURRENT);
    node.disk.write(&qemu, b"?", 0o755).unwrap();
    node.stage("a");
    let staged = node.disk.list(paths::STAGING).unwrap();
    let copy = format!("{}/{}/tree/bin/qemu-system-x86_64", paths::STAGING, staged[0]);
    node.disk.write(&copy, b"!", 0o755).unwrap();
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert_eq!(node.text(&qemu), "?");
}

/// A program of the payload's image may have run with the staging folder, see docs/privileges.md.
#[test]
fn nothing_in_the_staging_folder_is_followed() {
    type Change = (&'static str, fn(&mut Disk, &str));
    let changes: [Change; 7] = [
        ("the payload is a link", |disk, folder| {
            disk.rename(folder, "/opt/elsewhere").unwrap();
            disk.symlink("/opt/elsewhere", folder).unwrap();
        }),
        ("its tree is a link", |disk, folder| {
            disk.rename(&format!("{folder}/tree"), "/opt/elsewhere").unwrap();
            disk.symlink("/opt/elsewhere", &format!("{folder}/tree")).unwrap();
        }),
        ("a folder of the tree is a link", |disk, folder| {
            disk.rename(&format!("{folder}/tree/bin"), "/opt/elsewhere").unwrap();
            disk.symlink("/opt/elsewhere", &format!("{folder}/tree/bin")).unwrap();
        }),
        ("manifest.json is a link", |disk, folder| {
            disk.rename(&format!("{folder}/manifest.json"), "/opt/elsewhere").unwrap();
            disk.symlink("/opt/elsewhere", &format!("{folder}/manifest.json")).unwrap();
        }),
        ("manifest.json is a pipe", |disk, folder| {
            let path = format!("{folder}/manifest.json");
            disk.unlink(&path).unwrap();
            disk.make_pipe(&path).unwrap();
        }),
        ("stage.json is a pipe", |disk, folder| {
            let path = format!("{folder}/stage.json");
            disk.unlink(&path).unwrap();
            disk.make_pipe(&path).unwrap();
        }),
        ("manifest.json is too large", |disk, folder| {
            let path = format!("{folder}/manifest.json");
            let mut text = disk.read(&path).unwrap();
            text.resize((16 << 20) + 1, b' ');
            disk.write(&path, &text, 0o644).unwrap();
        }),
    ];
    for (what, change) in changes {
        let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
        node.stage("a");
        let staged = node.disk.list(paths::STAGING).unwrap();
        change(&mut node.disk, &format!("{}/{}", paths::STAGING, staged[0]));
        let before = node.disk.all();
        let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
        assert_eq!(report.outcome, Outcome::Refused, "{what}: {report:?}");
        assert_eq!(node.disk.all(), before, "{what}");
    }
}

#[test]
fn a_seal_that_is_a_pipe_is_not_read_and_the_files_are_compared_instead() {
    let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    node.stage("a");
    let staged = node.disk.list(paths::STAGING).unwrap();
    let path = format!("{}/{}/seal.json", paths::STAGING, staged[0]);
    node.disk.unlink(&path).unwrap();
    node.disk.make_pipe(&path).unwrap();
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
}

#[test]
fn a_release_that_was_edited_is_put_back() {
    let mut node = installed(Kind::Containerd(2, 1), V2_MAIN);
    let path = format!("{}/etc/kata/configuration.toml", paths::CURRENT);
    let good = node.text(&path);
    assert!(
        good.contains("/opt/kata-operator/versions/") && !good.contains("/opt/kata/"),
        "{good}"
    );
    node.disk.write(&path, b"", 0o644).unwrap();
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert!(report.changed && !report.restarted, "{report:?}");
    assert_eq!(node.text(&path), good);
}

#[test]
fn a_log_level_changes_the_shims_configuration_without_a_restart() {
    let mut node = installed(Kind::Containerd(2, 1), V2_MAIN);
    let mut debug = task(NodeAction::Install, "a");
    debug.log_level = Some("debug".to_owned());
    let report = kata_host::run(&mut node, &debug);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert!(report.changed && !report.restarted, "{report:?}");
    let text = node.text(&format!("{}/etc/kata/configuration.toml", paths::CURRENT));
    assert_eq!(text.matches("\nenable_debug = true").count(), 3, "{text}");
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert!(report.changed && !report.restarted, "{report:?}");
}

#[test]
fn a_runtime_that_stays_down_is_unsafe_and_every_run_goes_on_with_going_back() {
    let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    let etc = node.etc();
    node.stage("a");
    node.runtime.broken = true;
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Unsafe, "{report:?}");
    assert_eq!(report.checks[0].code, "KATA3034");
    assert_eq!(node.etc(), etc);
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    assert_ne!(report.outcome, Outcome::Done, "{report:?}");
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Unsafe, "{report:?}");
    node.runtime.broken = false;
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::RolledBack, "{report:?}");
    let report = kata_host::run(&mut node, &task(NodeAction::Install, "a"));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
}

#[test]
fn five_hundred_installs_and_removals_leave_nothing() {
    let sweep = sweep::loops(500);
    assert_eq!(sweep.failures, Vec::<String>::new());
    assert_eq!(sweep.points, 500 * nodes().len() as u64);
}

#[test]
fn a_plan_reads_as_a_diff_and_what_happens_to_units() {
    let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    node.stage("a");
    node.revive(false);
    let plan = kata_host::plan(&mut node, &task(NodeAction::Install, "a")).unwrap().unwrap();
    assert_eq!(node.writes, 0);
    let text = plan.to_string();
    for line in [
        "--- /dev/null",
        "+++ /etc/containerd/conf.d/60-kata-operator.toml",
        "+runtime_type = \"io.containerd.kata-qemu.v2\"",
        "--- /etc/containerd/config.toml",
        "+imports = [\"/etc/containerd/conf.d/*.toml\"]",
        "# restart unit: containerd.service",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    // It is data: what is in the journal is carried out as it was decided.
    let copy: kata_host::HostPlan =
        serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
    assert_eq!(copy, plan);
}

/// A run that is only to show what it would do does none of it.
#[test]
fn a_plan_has_the_kernel_load_nothing() {
    let loads = |node: &Node| node.log.iter().filter(|call| call.starts_with("load ")).count();
    for (device, module) in
        [(Device::VhostVsock, "vhost_vsock"), (Device::VhostNet, "vhost_net"), (Device::Kvm, "")]
    {
        let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
        node.stage("a");
        node.broken_device = Some(device);
        node.revive(false);
        let before = node.disk.all();
        let plan = kata_host::plan(&mut node, &task(NodeAction::Install, "a"));
        assert_eq!((node.writes, loads(&node)), (0, 0), "{module}: {:#?}", node.log);
        assert_eq!(node.disk.all(), before);
        match (device, plan) {
            (Device::VhostNet, Ok(Some(_))) => {}
            (Device::VhostVsock, Err(reasons)) => {
                assert!(reasons[0].starts_with("KATA3002 "), "{reasons:?}");
                let says = "cannot be opened; a run first asks the kernel for vhost_vsock";
                assert!(reasons[0].contains(says), "{reasons:?}");
            }
            (Device::Kvm, Err(reasons)) => {
                assert!(reasons[0].starts_with("KATA3001 "), "{reasons:?}");
            }
            (_, plan) => panic!("{device:?}: {plan:?}"),
        }
        kata_host::run(&mut node, &task(NodeAction::Install, "a"));
        assert_eq!(loads(&node), usize::from(device != Device::Kvm), "{:#?}", node.log);
    }
}
