//! Amazon EKS on a real systemd and containerd: the model of `nodeadm` writes the main file anew before each boot.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use hostlab::node::nodeadm::render;
use kata_api::node_task::{NodeAction, Outcome};
use kata_host::nodeadm::{ENABLED, FILE, FOLDER, is_config};

use crate::lab::{Node, assert_same};

const MAIN: &str = "etc/containerd/config.toml";

fn below(root: &Path, path: &str) -> std::path::PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Makes a node one of Amazon EKS.
pub(crate) fn add_nodeadm(root: &Path) {
    fs::create_dir_all(below(root, FOLDER)).unwrap();
    fs::create_dir_all(below(root, ENABLED).parent().unwrap()).unwrap();
    symlink("../nodeadm-run.service", below(root, ENABLED)).unwrap();
}

/// What `nodeadm` does at a boot.
fn write_main_file(root: &Path, template: &str) {
    let mut files: Vec<_> =
        fs::read_dir(below(root, FOLDER)).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    files.retain(|path| is_config(path.file_name().unwrap().to_str().unwrap()));
    let texts = files.iter().map(|path| fs::read_to_string(path).unwrap());
    fs::write(root.join(MAIN), render(template, texts)).unwrap();
}

#[test]
#[ignore = "needs a real containerd"]
fn kata_is_there_after_a_boot_that_writes_the_main_file_anew() {
    for release in ["1.7", "2"] {
        let mut template = String::new();
        let prepare = |root: &Path| {
            template = fs::read_to_string(root.join(MAIN)).unwrap();
            add_nodeadm(root);
        };
        let mut node = Node::start_on(release, "eks", prepare);
        let before = node.files();
        let image = node.image("3.24.0");
        assert!(node.stage("a", &image).status.success());
        let report = node.run(NodeAction::Install, "a", &["kata"]);
        assert_eq!(report.outcome, Outcome::Done, "{release}: {report:?}");
        for _ in 0..2 {
            node.reboot_after(release, |root| write_main_file(root, &template));
            assert!(node.handlers().contains("kata"), "{release}: {:?}", node.handlers());
            let process = node.incarnation();
            for action in [NodeAction::Inspect, NodeAction::Install] {
                let report = node.run(action, "a", &["kata"]);
                assert_eq!(report.outcome, Outcome::Done, "{release}: {report:?}");
                assert!(!report.changed && !report.restarted, "{release}: {report:?}");
            }
            assert_eq!(node.incarnation(), process, "{release}");
        }
        // Without our file the next boot would lose it, which an inspection finds before.
        fs::remove_file(below(&node.root, FILE)).unwrap();
        let report = node.run(NodeAction::Inspect, "a", &["kata"]);
        assert_eq!(report.outcome, Outcome::Drifted, "{release}: {report:?}");
        let report = node.run(NodeAction::Install, "a", &["kata"]);
        assert!(report.changed && !report.restarted, "{release}: {report:?}");
        let report = node.run(NodeAction::Remove, "", &[]);
        assert_eq!(report.outcome, Outcome::Done, "{release}: {report:?}");
        node.reboot_after(release, |root| write_main_file(root, &template));
        assert!(!node.handlers().contains("kata"), "{release}");
        assert_same(&node.files(), &before);
    }
}
