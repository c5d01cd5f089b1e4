//! Our drop-in among the files of others: what it must not wake, keep, show or leave behind.

use hostlab::sweep;
use kata_api::node_task::{NodeAction, Outcome};
use kata_host::paths;

use crate::node::{Fault, Node, V1_MAIN, V2_MAIN, task};
use crate::runs::{done, install, remove};
use crate::runtime::Kind;

const MAIN: &str = "/etc/containerd/config.toml";
const CONF_D: &str = "/etc/containerd/conf.d";
const OURS: &str = "/etc/containerd/conf.d/60-kata-operator.toml";

/// A drop-in of the admin's that makes another runtime the default one.
const NVIDIA: &str = "[plugins.\"io.containerd.cri.v1.runtime\".containerd]\ndefault_runtime_name = \"nvidia\"\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.nvidia]\nruntime_type = \"io.containerd.runc.v2\"\n";
/// A section that containerd 1.x merges from any file, also if another file has the one of CRI.
const METRICS: &str = "[metrics]\naddress = \"0.0.0.0:1338\"\n";

fn with_file(mut node: Node, path: &str, text: &str) -> Node {
    node.disk.make_dir(paths::parent(path), 0o755).unwrap();
    node.disk.write(path, text.as_bytes(), 0o644).unwrap();
    node.disk.settle();
    node
}

#[test]
fn a_file_that_nobody_imports_is_not_brought_to_life() {
    for (kind, main, dormant) in [
        (Kind::Containerd(2, 1), V2_MAIN, NVIDIA),
        (Kind::Containerd(1, 7), V1_MAIN, METRICS),
        (Kind::Containerd(1, 7), V1_MAIN, NVIDIA),
    ] {
        let node = Node::new(kind, Some(main));
        let mut node = with_file(node, &format!("{CONF_D}/99-nvidia.toml"), dormant);
        let before = node.disk.all();
        node.stage("a");
        let report = done(&mut node, &install());
        assert_eq!(report.handlers.unwrap(), ["kata", "runc"]);
        let Some(Ok(live)) = &node.runtime.running else { panic!("it does not serve") };
        let live = toml::to_string(live).unwrap();
        assert!(!live.contains("nvidia") && !live.contains("1338"), "{live}");
        assert!(!done(&mut node, &install()).changed);
        assert_eq!(
            kata_host::run(&mut node, &task(NodeAction::Inspect, "a")).outcome,
            Outcome::Done
        );
        done(&mut node, &remove());
        assert_eq!(node.disk.all(), before);
    }
}

/// A toolkit reads the whole configuration, changes a key, and writes all of it to the main file.
#[test]
fn a_copy_of_our_tables_in_a_file_of_others_is_tolerated_and_a_removal_waits_until_it_is_gone() {
    for (kind, main) in [
        (Kind::Containerd(2, 1), V2_MAIN),
        (Kind::Containerd(1, 7), V1_MAIN),
        (Kind::Crio, "[crio.runtime]\n"),
    ] {
        let mut node = Node::new(kind, Some(main));
        let before = node.disk.all();
        node.stage("a");
        done(&mut node, &install());
        let path = node.runtime.main.clone();
        let own = node.text(&path);
        let whole = node.runtime.load(&node.disk, &path).unwrap();
        node.disk.write(&path, toml::to_string(&whole).unwrap().as_bytes(), 0o640).unwrap();
        node.runtime.start(&mut node.disk);
        // On 1.x our own copy of the section is made anew.
        done(&mut node, &install());
        let restarts = node.runtime.restarts;
        let inspected = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
        assert_eq!(inspected.outcome, Outcome::Done, "{kind:?} {inspected:?}");
        assert!(node.offers("kata"), "{kind:?}");
        let report = kata_host::run(&mut node, &remove());
        assert_eq!(report.outcome, Outcome::Refused, "{kind:?} {report:?}");
        let check = &report.checks[0];
        assert_eq!(check.code, "KATA3016");
        let says = format!(
            "{path}, which another program wrote, has a copy of the table of the runtime kata"
        );
        assert!(check.message.starts_with(&says), "{check:?}");
        assert!(node.offers("kata") && node.runtime.restarts == restarts, "{kind:?}");
        // The same of a handler that is to go while another one comes.
        let mut other = install();
        other.handlers[0].name = "kata-two".to_owned();
        let report = kata_host::run(&mut node, &other);
        assert_eq!(report.outcome, Outcome::Refused, "{kind:?} {report:?}");
        assert!(report.checks.iter().any(|it| it.message.starts_with(&says)), "{report:?}");
        // It is put right, and the next try removes Kata.
        node.disk.write(&path, own.as_bytes(), 0o640).unwrap();
        node.runtime.start(&mut node.disk);
        done(&mut node, &remove());
        assert_eq!(node.disk.all(), before, "{kind:?}");
    }
}

/// containerd 1.6.20 looks for it below its working directory, and does not read what is beside its main file.
#[test]
fn a_relative_import_is_no_place_for_ours() {
    for (kind, main) in [(Kind::Containerd(1, 6), V1_MAIN), (Kind::Containerd(2, 1), V2_MAIN)] {
        let main = format!("imports = [\"conf.d/*.toml\"]\n{main}");
        let mut node =
            with_file(Node::new(kind, Some(&main)), &format!("{CONF_D}/a.toml"), METRICS);
        node.runtime.start(&mut node.disk);
        let before = node.disk.all();
        node.stage("a");
        done(&mut node, &install());
        let text = node.text(MAIN);
        let own = "/etc/containerd/kata-operator.d";
        assert!(text.contains("conf.d/*.toml") && text.contains(own), "{text}");
        assert!(node.disk.stat(&format!("{own}/60-kata-operator.toml")).is_some());
        assert!(!done(&mut node, &install()).changed);
        done(&mut node, &remove());
        assert_eq!(node.disk.all(), before);
    }
}

#[test]
fn an_import_that_another_tool_relies_on_by_now_is_left() {
    let mut node = Node::new(Kind::Containerd(2, 1), Some(V2_MAIN));
    node.stage("a");
    done(&mut node, &install());
    let theirs = format!("{CONF_D}/99-nvidia.toml");
    node.disk.write(&theirs, NVIDIA.as_bytes(), 0o644).unwrap();
    node.runtime.start(&mut node.disk);
    let report = done(&mut node, &remove());
    assert_eq!(report.handlers.unwrap(), ["nvidia", "runc"]);
    assert!(node.text(MAIN).contains("conf.d/*.toml"));
    assert_eq!((node.text(&theirs).as_str(), node.disk.stat(OURS)), (NVIDIA, None));
    assert!(node.disk.stat(paths::STATE_DIR).is_none() && node.disk.stat(paths::ROOT).is_none());
    // A new installation finds an import of another program.
    let etc = node.etc();
    node.stage("a");
    done(&mut node, &install());
    done(&mut node, &remove());
    assert_eq!(node.etc(), etc);
}

#[test]
fn a_main_file_behind_a_link_is_read_through_it() {
    let text = format!("imports = [\"{CONF_D}/*.toml\"]\n{V2_MAIN}[debug]\nlevel = \"warn\"\n");
    let mut node = with_file(
        Node::new(Kind::Containerd(2, 1), Some(V2_MAIN)),
        "/etc/containerd/real.conf",
        &text,
    );
    node.disk.unlink(MAIN).unwrap();
    node.disk.symlink("real.conf", MAIN).unwrap();
    node.runtime.start(&mut node.disk);
    let etc = node.etc();
    node.stage("a");
    done(&mut node, &install());
    assert!(!done(&mut node, &install()).changed);
    done(&mut node, &remove());
    assert_eq!(node.etc(), etc);
}

/// k3s renders another name of the folder after an update of its containerd.
#[test]
fn a_drop_in_follows_the_folder_that_is_imported() {
    let folder = "/var/lib/rancher/k3s/agent/etc/containerd";
    let main = format!("{folder}/config.toml");
    let import = |names: &[&str]| {
        let names: Vec<_> =
            names.iter().map(|name| format!("\"{folder}/{name}/*.toml\"")).collect();
        format!("imports = [{}]\n{V2_MAIN}", names.join(", "))
    };
    let (old, new) = ("config.toml.d", "config-v3.toml.d");
    let node = Node::of("k3s.service", &main, &import(&[old]), None);
    let clean = with_file(node, &main, &import(&[new])).disk.all();
    let mut node = Node::of("k3s.service", &main, &import(&[old]), None);
    node.stage("a");
    done(&mut node, &install());
    node.disk.write(&main, import(&[new]).as_bytes(), 0o644).unwrap();
    node.runtime.start(&mut node.disk);
    let removed = node.clone();
    let drop_in = |node: &Node, name: &str| {
        node.disk.stat(&format!("{folder}/{name}/60-kata-operator.toml")).is_some()
    };
    done(&mut node, &install());
    assert_eq!((drop_in(&node, old), drop_in(&node, new)), (false, true));
    assert!(!done(&mut node, &install()).changed);
    node.disk.write(&main, import(&[new, old]).as_bytes(), 0o644).unwrap();
    done(&mut node, &install());
    node.disk.write(&main, import(&[new]).as_bytes(), 0o644).unwrap();
    // Also if the removal is the first to see the other folder.
    for mut node in [node, removed] {
        done(&mut node, &remove());
        assert_eq!(node.disk.all(), clean);
    }
}

#[test]
fn a_drop_in_of_ours_in_an_earlier_folder_is_not_taken_for_somebody_elses() {
    let import = format!("imports = [\"{CONF_D}/*.toml\"]\n{V2_MAIN}");
    let both =
        format!("imports = [\"/etc/containerd/new.d/*.toml\", \"{CONF_D}/*.toml\"]\n{V2_MAIN}");
    let mut node = Node::new(Kind::Containerd(2, 1), Some(&import));
    node.stage("a");
    done(&mut node, &install());
    // The journal was lost, and another import was put before the old one.
    node.disk.remove_tree(paths::STATE_DIR);
    node.disk.write(MAIN, both.as_bytes(), 0o640).unwrap();
    node.runtime.start(&mut node.disk);
    let mut other = node.clone();
    done(&mut node, &install());
    assert_eq!(node.disk.stat(OURS), None);
    assert!(node.text("/etc/containerd/new.d/60-kata-operator.toml").contains("kata-qemu"));
    assert_eq!(done(&mut other, &remove()).handlers.unwrap(), ["runc"]);
    assert_eq!(other.disk.stat(OURS), None);
}

/// The copy of the section may have the password of a registry.
#[test]
fn a_copied_section_is_for_those_who_may_read_the_original() {
    for (mode, kind, main, drop_in) in [
        (0o600, Kind::Containerd(1, 7), V1_MAIN, 0o600),
        (0o640, Kind::Containerd(1, 6), V1_MAIN, 0o640),
        (0o755, Kind::Containerd(1, 7), V1_MAIN, 0o644),
        (0o600, Kind::Containerd(2, 1), V2_MAIN, 0o644),
    ] {
        let mut node = Node::new(kind, None);
        node.disk.make_dir("/etc/containerd", 0o755).unwrap();
        node.disk.write(MAIN, main.as_bytes(), mode).unwrap();
        node.runtime.start(&mut node.disk);
        node.stage("a");
        done(&mut node, &install());
        assert_eq!(node.disk.stat(OURS).unwrap().mode, drop_in, "{kind:?}");
        assert_eq!(node.disk.stat(paths::STATE_DIR).unwrap().mode, 0o700);
        assert_eq!(node.disk.stat(paths::STATE).unwrap().mode, 0o600);
    }
}

#[test]
fn a_drop_in_that_lost_its_header_is_named_and_the_runtime_not_restarted() {
    for (name, mut node) in sweep::nodes() {
        node.stage("a");
        done(&mut node, &install());
        let path = if node.runtime.kind == Kind::Crio { paths::CRIO_DROP_IN } else { OURS };
        let good = node.text(path);
        let (_, body) = good.split_once('\n').unwrap();
        node.disk.write(path, body.as_bytes(), 0o644).unwrap();
        let restarts = node.runtime.restarts;
        let report = kata_host::run(&mut node, &remove());
        assert_eq!(report.outcome, Outcome::Refused, "{name}: {report:?}");
        assert_eq!(report.checks[0].code, "KATA3015", "{name}: {report:?}");
        assert!(report.message.contains(path), "{name}: {report:?}");
        assert_eq!((node.text(path).as_str(), node.runtime.restarts), (body, restarts), "{name}");
        node.disk.unlink(path).unwrap();
        done(&mut node, &remove());
    }
}

/// CRI-O reads all that is in its folder, and does not start with half a file.
#[test]
fn an_interrupted_write_leaves_nothing_in_the_folder_that_crio_reads() {
    let mut clean = Node::new(Kind::Crio, Some("[crio.runtime]\n"));
    clean.stage("a");
    clean.revive(false);
    for fault in [Fault::KilledBefore, Fault::KilledAfter] {
        for call in 0.. {
            let mut node = clean.clone();
            node.arm(call, fault);
            kata_host::run(&mut node, &install());
            if !node.was_hit() {
                break;
            }
            let names = node.disk.list(paths::parent(paths::CRIO_DROP_IN)).unwrap();
            let drop_in = paths::name(paths::CRIO_DROP_IN);
            assert!(names.iter().all(|name| name == drop_in), "{names:?} after call {call}");
        }
    }
}

/// Containerd 1.x takes all files for the version of the last one that has one.
#[test]
fn the_last_version_of_all_files_decides_on_containerd_1() {
    let main = format!("version = 1\nimports = [\"{CONF_D}/*.toml\"]\n");
    let theirs = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"registry.local/pause:9\"\n";
    for minor in [6, 7] {
        let node = Node::new(Kind::Containerd(1, minor), Some(&main));
        let mut node = with_file(node, &format!("{CONF_D}/10-theirs.toml"), theirs);
        node.runtime.start(&mut node.disk);
        let before = node.disk.all();
        node.stage("a");
        let report = done(&mut node, &install());
        assert_eq!(report.handlers.unwrap(), ["kata", "runc"]);
        let Some(Ok(live)) = &node.runtime.running else { panic!("it does not serve") };
        assert!(toml::to_string(live).unwrap().contains("registry.local/pause:9"), "{live}");
        done(&mut node, &remove());
        assert_eq!(node.disk.all(), before);
    }
}
