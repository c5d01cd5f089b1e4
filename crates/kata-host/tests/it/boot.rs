//! Amazon EKS, where `nodeadm` writes containerd's main file anew at each boot: Kata is there after it, and nothing has to
//! be repaired.

use hostlab::sweep::nodes;
use kata_api::node_task::{NodeAction, Outcome};
use kata_host::host::Mount;
use kata_host::nodeadm::{ENABLED, FILE, FOLDER, read};
use kata_host::paths;

use crate::node::{Fault, Node, V1_MAIN, V2_MAIN, task};
use crate::runs::{done, install, remove};
use crate::runtime::Kind;

const MAIN: &str = "/etc/containerd/config.toml";
const OURS: &str = "/etc/containerd/conf.d/*.toml";

fn both() -> [Node; 2] {
    let mut both =
        [Node::eks(Kind::Containerd(2, 1), V2_MAIN), Node::eks(Kind::Containerd(1, 7), V1_MAIN)];
    both.iter_mut().for_each(|node| node.stage("a"));
    both
}

fn boot(node: &mut Node) {
    node.disk.settle();
    node.revive(true);
}

fn inspected(node: &mut Node) -> Outcome {
    kata_host::run(node, &task(NodeAction::Inspect, "a")).outcome
}

#[test]
fn kata_is_there_after_a_boot_without_a_restart_by_us() {
    for mut node in both() {
        let mut before = node.disk.all();
        before.retain(|path, _| !path.starts_with(paths::ROOT));
        done(&mut node, &install());
        assert_eq!(node.runtime.restarts, 1);
        for _ in 0..2 {
            boot(&mut node);
            node.runtime.restarts = 0;
            assert!(node.offers("kata") && node.offers("runc"));
            assert_eq!(inspected(&mut node), Outcome::Done);
            assert!(!done(&mut node, &install()).changed);
            assert_eq!(node.runtime.restarts, 0);
        }
        done(&mut node, &remove());
        assert!(node.disk.stat(FILE).is_none() && !node.offers("kata"));
        boot(&mut node);
        assert_eq!(node.disk.all(), before);
    }
}

#[test]
fn a_power_cut_at_any_call_is_repaired_by_the_next_run() {
    for fresh in both() {
        let mut before = fresh.disk.all();
        before.retain(|path, _| !path.starts_with(paths::ROOT));
        let mut installed = fresh.clone();
        done(&mut installed, &install());
        boot(&mut installed);
        for (node, task) in [(&fresh, install()), (&installed, remove())] {
            for fault in [Fault::KilledBefore, Fault::KilledAfter] {
                for call in 0.. {
                    let mut node = node.clone();
                    node.arm(call, fault);
                    kata_host::run(&mut node, &task);
                    if !node.was_hit() {
                        break;
                    }
                    node.revive(true);
                    done(&mut node, &task);
                    boot(&mut node);
                    let place = format!("{:?} {fault:?} {call}", task.action);
                    if task.action == NodeAction::Remove {
                        assert!(!node.offers("kata"), "{place}");
                        assert_eq!(node.disk.all(), before, "{place}");
                    } else {
                        assert!(node.offers("kata"), "{place}");
                        assert_eq!(inspected(&mut node), Outcome::Done, "{place}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_imports_of_others_stay() {
    let user_data = format!("imports = [\"/etc/containerd/own.toml\"]\n{V2_MAIN}");
    let mut node = Node::eks(Kind::Containerd(2, 1), &user_data);
    node.disk.write("/etc/containerd/own.toml", b"[debug]\nlevel = \"warn\"\n", 0o644).unwrap();
    let other = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  containerd:\n    config: |\n      \
                 imports = [\"/etc/containerd/other.toml\"]\n";
    node.disk.write(&format!("{FOLDER}/10-other.yaml"), other.as_bytes(), 0o644).unwrap();
    node.disk.write("/etc/containerd/other.toml", b"[metrics]\naddress = \"x\"\n", 0o644).unwrap();
    node.runtime.start(&mut node.disk);
    node.stage("a");
    done(&mut node, &install());
    // With a `*`, since no containerd starts without a file that is imported by its name.
    let all = ["/etc/containerd/other.tom*l", "/etc/containerd/own.tom*l", OURS];
    let ours = |node: &Node| read(&node.text(FILE)).unwrap().imports.unwrap();
    assert_eq!(ours(&node), all);
    boot(&mut node);
    assert!(node.offers("kata"));
    let main: toml::Table = node.text(MAIN).parse().unwrap();
    assert_eq!(main["imports"].as_array().unwrap().len(), 3, "{main}");
    assert_eq!(inspected(&mut node), Outcome::Done);
    // Its owner takes it away, and the node boots before a run of ours.
    node.disk.unlink(&format!("{FOLDER}/10-other.yaml")).unwrap();
    node.disk.unlink("/etc/containerd/other.toml").unwrap();
    boot(&mut node);
    assert!(node.offers("kata"));
    assert_eq!((inspected(&mut node), ours(&node)), (Outcome::Done, all.map(str::to_owned).into()));
}

#[test]
fn a_node_config_that_is_not_understood_takes_nothing_out_of_ours() {
    for mut node in both() {
        let other = format!("{FOLDER}/10-other.yaml");
        let text =
            "spec: {containerd: {config: \"imports = [\\\"/etc/containerd/x*.toml\\\"]\"}}\n";
        node.disk.write(&other, text.as_bytes(), 0o644).unwrap();
        done(&mut node, &install());
        let ours = node.text(FILE);
        assert!(ours.contains("/etc/containerd/x*.toml"));
        for unclear in ["a: [", "spec: {containerd: {config: '['}}\n"] {
            node.disk.write(&other, unclear.as_bytes(), 0o644).unwrap();
            assert_eq!(inspected(&mut node), Outcome::Done);
            let report = done(&mut node, &install());
            assert!(report.checks.iter().any(|check| check.code == "KATA3046"), "{report:?}");
            assert_eq!(node.text(FILE), ours);
        }
    }
}

#[test]
fn settings_of_version_2_are_not_left_without_an_effect_by_ours() {
    let [mut node, mut older] = both();
    let text = "spec: {containerd: {config: 'plugins.\"io.containerd.grpc.v1.cri\".registry.config_path = \"/x\"'}}\n";
    for node in [&mut node, &mut older] {
        node.disk.write(&format!("{FOLDER}/20-site.yaml"), text.as_bytes(), 0o644).unwrap();
    }
    let report = kata_host::run(&mut node, &install());
    let check = report.checks.iter().find(|check| check.code == "KATA3045").unwrap();
    assert!(check.message.contains("20-site.yaml, replace the plugin of version 2"), "{check:?}");
    assert!(report.message.contains("by those of version 3"), "{report:?}");
    done(&mut older, &install());
    boot(&mut older);
    assert!(older.offers("kata"));
}

#[test]
fn a_file_that_imports_each_of_ours_by_name_brings_none_of_them_back() {
    let [_, mut node] = both();
    done(&mut node, &install());
    let own = node.text(MAIN);
    let named = "imports = [\"/etc/containerd/config.toml\", \"/etc/containerd/conf.d/60-kata-operator.toml\", ";
    node.disk.write(MAIN, own.replace("imports = [", named).as_bytes(), 0o644).unwrap();
    done(&mut node, &install());
    assert_eq!(read(&node.text(FILE)).unwrap().imports.unwrap(), [OURS]);
}

#[test]
fn what_is_no_node_config_is_not_read() {
    for mut node in both() {
        let text = "spec: {containerd: {config: 'imports = []'}}\n";
        for name in ["70-site.yaml.bak", "README", ".70-site.yaml.swp"] {
            node.disk.write(&format!("{FOLDER}/{name}"), text.as_bytes(), 0o644).unwrap();
        }
        node.disk.make_dir(&format!("{FOLDER}/80-old.yaml"), 0o755).unwrap();
        done(&mut node, &install());
        boot(&mut node);
        assert!(node.offers("kata"));
        let broken = format!("{FOLDER}/90-broken.json");
        node.disk.write(&broken, b"\xff", 0o644).unwrap();
        // Kata is there, so it is a warning.
        let report = done(&mut node, &install());
        assert!(report.checks.iter().any(|check| check.code == "KATA3046"), "{report:?}");
        done(&mut node, &remove());
        let report = kata_host::run(&mut node, &install());
        assert!(report.checks.iter().any(|check| check.code == "KATA3045"), "{report:?}");
    }
}

#[test]
fn an_import_that_others_rely_on_stays_with_the_file_that_keeps_it() {
    let [mut node, _] = both();
    done(&mut node, &install());
    node.disk.write("/etc/containerd/conf.d/90-site.toml", b"[debug]\n", 0o644).unwrap();
    node.runtime.start(&mut node.disk);
    done(&mut node, &remove());
    assert!(node.text(MAIN).contains("conf.d") && node.disk.stat(FILE).is_some());
}

#[test]
fn an_import_that_was_there_before_ours_needs_no_file_of_ours() {
    let with_import = format!("imports = [\"{OURS}\"]\n{V2_MAIN}");
    let mut node = Node::eks(Kind::Containerd(2, 1), &with_import);
    node.disk.make_dir("/etc/containerd/conf.d", 0o755).unwrap();
    node.disk.write("/etc/containerd/conf.d/90-site.toml", b"[debug]\n", 0o644).unwrap();
    node.runtime.start(&mut node.disk);
    node.stage("a");
    done(&mut node, &install());
    assert!(node.disk.stat(FILE).is_some());
    done(&mut node, &remove());
    assert!(node.text(MAIN).contains("conf.d") && node.disk.stat(FILE).is_none());
}

#[test]
fn a_removal_takes_the_file_away_where_nodeadm_is_off_by_now_or_its_folder_read_only() {
    for mut node in both() {
        done(&mut node, &install());
        node.disk.unlink(ENABLED).unwrap();
        let read_only = Mount { read_only: true, file_system_read_only: true, ..Mount::default() };
        node.mounts.push((FOLDER.to_owned(), read_only));
        done(&mut node, &remove());
        assert!(node.disk.stat(FILE).is_none());
    }
}

#[test]
fn a_file_that_was_changed_is_put_back_without_a_restart() {
    for mut node in both() {
        done(&mut node, &install());
        let text = node.text(FILE);
        for changed in [None, Some(text.replace("conf.d", "conf.e"))] {
            match changed {
                None => node.disk.unlink(FILE).unwrap(),
                Some(changed) => node.disk.write(FILE, changed.as_bytes(), 0o644).unwrap(),
            }
            assert_eq!(inspected(&mut node), Outcome::Drifted);
            let restarts = node.runtime.restarts;
            assert!(done(&mut node, &install()).changed);
            assert_eq!((node.text(FILE), node.runtime.restarts), (text.clone(), restarts));
        }
    }
}

#[test]
fn a_file_that_would_take_our_import_away_is_named() {
    for mut node in both() {
        let other = format!("{FOLDER}/70-site.yaml");
        let text = "spec: {containerd: {config: \"imports = [\\\"/etc/x.toml\\\"]\"}}\n";
        node.disk.write(&other, text.as_bytes(), 0o644).unwrap();
        let report = kata_host::run(&mut node, &install());
        assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
        let check = report.checks.iter().find(|check| check.code == "KATA3045").unwrap();
        let says =
            format!("add {OURS} to the imports in {other}, or give it a name that sorts before");
        assert!(check.message.starts_with(&says), "{check:?}");
        // The report says it whole, too.
        assert!(report.message.contains("else the next boot drops Kata"), "{report:?}");
        for harmless in [
            "spec: {cluster: {name: a}}\n",
            &text.replace("/etc/x.toml", OURS),
            &text.replace("x.toml", "containerd/conf.d/*"),
        ] {
            node.disk.write(&other, harmless.as_bytes(), 0o644).unwrap();
            done(&mut node, &install());
        }
    }
}

#[test]
fn without_a_place_for_the_file_the_next_boot_is_warned_of() {
    let read_only = Mount { read_only: true, file_system_read_only: true, ..Mount::default() };
    for node in both() {
        let (mut missing, mut mounted) = (node.clone(), node);
        assert!(missing.disk.remove_dir(FOLDER));
        mounted.mounts.push((FOLDER.to_owned(), read_only));
        for mut node in [missing, mounted] {
            let report = done(&mut node, &install());
            assert!(report.checks.iter().any(|check| check.code == "KATA3046"), "{report:?}");
            boot(&mut node);
            assert!(!node.offers("kata"));
            assert_eq!(inspected(&mut node), Outcome::Drifted);
            done(&mut node, &install());
            assert!(node.offers("kata"));
            // The user data has the import, as the message asks for.
            let template = node.nodeadm.take().unwrap();
            node.nodeadm = Some(format!("imports = [\"{OURS}\"]\n{template}"));
            boot(&mut node);
            let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
            assert_eq!((report.outcome, report.checks), (Outcome::Done, Vec::new()));
            assert!(node.offers("kata"));
            done(&mut node, &remove());
        }
    }
}

#[test]
fn a_main_file_that_nodeadm_migrated_gets_no_file_that_would_change_its_template() {
    let migrated =
        format!("{V2_MAIN}[plugins.\"io.containerd.gc.v1.scheduler\"]\n  pause_threshold = 0.02\n");
    let mut node = Node::eks(Kind::Containerd(2, 1), &migrated);
    node.stage("a");
    let report = done(&mut node, &install());
    let check = report.checks.iter().find(|check| check.code == "KATA3046").unwrap();
    assert!(check.message.contains("the plugins of version 3"), "{check:?}");
    assert!(node.offers("kata") && node.disk.stat(FILE).is_none());
    assert_eq!(inspected(&mut node), Outcome::Done);
    // Where ours is there, another program has written such a file.
    let [mut node, _] = both();
    done(&mut node, &install());
    let whole = format!("{}{}", node.text(MAIN), &migrated[V2_MAIN.len()..]);
    node.disk.write(MAIN, whole.as_bytes(), 0o644).unwrap();
    node.runtime.start(&mut node.disk);
    assert_eq!(inspected(&mut node), Outcome::Done);
}

#[test]
fn a_file_of_another_in_the_place_of_ours_is_left() {
    for mut node in both() {
        node.disk.write(FILE, b"kind: NodeConfig\n", 0o644).unwrap();
        let report = kata_host::run(&mut node, &install());
        assert!(report.checks.iter().any(|check| check.code == "KATA3015"), "{report:?}");
        assert_eq!(node.text(FILE), "kind: NodeConfig\n");
    }
}

#[test]
fn other_nodes_get_no_such_file() {
    for (name, mut node) in nodes() {
        node.stage("a");
        done(&mut node, &install());
        assert!(node.disk.stat(FILE).is_none(), "{name}");
        assert!(node.disk.stat(paths::ROOT).is_some());
    }
}
