//! What is particular to CRI-O: where its files are and what of them it reads, a default handler, and a reload.

use kata_api::node_task::{NodeAction, NodeTask, Outcome};
use kata_host::paths;

use crate::node::{Fault, Node, task};
use crate::runtime::Kind;

const FOLDER: &str = "/etc/crio/crio.conf.d";

fn install() -> NodeTask {
    task(NodeAction::Install, "a")
}

fn remove() -> NodeTask {
    task(NodeAction::Remove, "")
}

/// A node with these files besides an empty main file, with which CRI-O was started.
fn node(files: &[(&str, &str)]) -> Node {
    let mut node = Node::new(Kind::Crio, Some("[crio.runtime]\n"));
    for (path, text) in files {
        let folder = paths::parent(path);
        node.disk.make_dir(paths::parent(folder), 0o755).unwrap();
        node.disk.make_dir(folder, 0o755).unwrap();
        node.disk.write(path, text.as_bytes(), 0o644).unwrap();
    }
    node.stage("a");
    node.runtime.start(&mut node.disk);
    node.runtime.restarts = 0;
    node
}

#[track_caller]
fn done(node: &mut Node, task: &NodeTask) {
    let report = kata_host::run(node, task);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
}

#[track_caller]
fn refused(node: &mut Node, task: &NodeTask, code: &str, says: &str) {
    let (before, restarts) = (node.disk.all(), node.runtime.restarts);
    let report = kata_host::run(node, task);
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    let check = report.checks.iter().find(|check| check.code == code);
    let check = check.unwrap_or_else(|| panic!("no {code} in {report:?}"));
    assert!(check.message.contains(says), "{check:?}");
    assert_eq!((node.disk.all(), node.runtime.restarts), (before, restarts));
}

/// CRI-O reads them as well, and pods of the class would run on runc.
#[test]
fn a_file_in_a_subfolder_or_a_hidden_one_that_has_our_handler_is_found() {
    let other = "[crio.runtime.runtimes.kata]\nruntime_path = \"/usr/bin/runc\"\n";
    for path in ["site/90-kata.conf", ".hidden.conf", "site/.hidden"] {
        let path = format!("{FOLDER}/{path}");
        let mut before = node(&[(&path, other)]);
        refused(&mut before, &install(), "KATA3016", &path);
        // The same after us: what runs is another shim under our name.
        let mut after = node(&[]);
        done(&mut after, &install());
        after.disk.make_dir(paths::parent(&path), 0o755).unwrap();
        after.disk.write(&path, other.as_bytes(), 0o644).unwrap();
        after.runtime.start(&mut after.disk);
        let report = kata_host::run(&mut after, &task(NodeAction::Inspect, "a"));
        assert!(report.checks.iter().any(|check| check.code == "KATA3016"), "{report:?}");
    }
}

#[test]
fn a_link_that_leads_nowhere_is_named_before_a_restart() {
    let mut node = node(&[]);
    node.disk.symlink("gone.conf", &format!("{FOLDER}/20-site.conf")).unwrap();
    let says = "20-site.conf leads to no file, and CRI-O does not start with such a link";
    refused(&mut node, &install(), "KATA3011", says);
    refused(&mut node, &task(NodeAction::Preflight, "a"), "KATA3011", says);
}

#[test]
fn its_flags_its_variables_and_its_keys_say_where_its_files_and_its_socket_are() {
    const ELSEWHERE: &str = "/etc/site/conf.d";
    let listen = "[crio.api]\nlisten = \"/run/site/crio.sock\"\n";
    let on_elsewhere = format!("{ELSEWHERE}/10-site.conf");
    for (arguments, environment, files, folder, socket) in [
        (vec!["--config-dir", ELSEWHERE], "", vec![], ELSEWHERE, None),
        (vec!["-d", ELSEWHERE], "", vec![], ELSEWHERE, None),
        (vec![], "CONTAINER_CONFIG_DIR=/etc/site/conf.d", vec![], ELSEWHERE, None),
        (vec!["--listen=/run/site/crio.sock"], "", vec![], FOLDER, Some("/run/site/crio.sock")),
        (
            vec![],
            "CONTAINER_LISTEN=/run/site/crio.sock",
            vec![],
            FOLDER,
            Some("/run/site/crio.sock"),
        ),
        (
            vec!["-d", ELSEWHERE],
            "",
            vec![(on_elsewhere.as_str(), listen)],
            ELSEWHERE,
            Some("/run/site/crio.sock"),
        ),
    ] {
        let mut node = node(&files);
        for path in ["/etc/site", ELSEWHERE] {
            node.disk.make_dir(path, 0o755).unwrap();
        }
        let place = format!("{arguments:?} {environment}");
        node.runtime.command.extend(arguments.into_iter().map(str::to_owned));
        node.runtime.environment = vec![environment.to_owned()];
        node.runtime.folder = folder.to_owned();
        node.runtime.socket = socket.map(str::to_owned);
        node.runtime.start(&mut node.disk);
        node.runtime.restarts = 0;
        let before = node.etc();
        done(&mut node, &install());
        assert!(node.offers("kata"), "{place}");
        assert!(node.disk.stat(&format!("{folder}/60-kata-operator.conf")).is_some(), "{place}");
        done(&mut node, &remove());
        assert_eq!((node.etc(), node.runtime.restarts), (before, 2), "{place}");
    }
}

/// After SIGHUP it lists handlers that new sandboxes do not get.
#[test]
fn a_reload_is_not_taken_for_the_restart_that_an_interrupted_run_did_not_come_to() {
    let mut node = node(&[]);
    let mut whole = node.clone();
    whole.arm(usize::MAX, Fault::KilledBefore);
    kata_host::run(&mut whole, &install());
    let call = whole.log.iter().position(|call| call.starts_with("restart")).unwrap();
    node.arm(call, Fault::KilledBefore);
    kata_host::run(&mut node, &install());
    node.revive(false);
    assert_eq!(node.runtime.restarts, 0);
    node.runtime.reload(&node.disk);
    assert!(node.offers("kata"));
    done(&mut node, &install());
    assert_eq!(node.runtime.restarts, 1);
    done(&mut node, &install());
    assert_eq!(node.runtime.restarts, 1);
}

/// CRI-O would not start without it.
#[test]
fn a_removal_waits_while_another_file_makes_our_handler_the_default_one() {
    let path = format!("{FOLDER}/20-site.conf");
    let mut node = node(&[]);
    done(&mut node, &install());
    node.disk.write(&path, b"[crio.runtime]\ndefault_runtime = \"kata\"\n", 0o644).unwrap();
    node.runtime.start(&mut node.disk);
    let says =
        format!("{path}: default_runtime is kata, and no other file has a runtime of that name");
    refused(&mut node, &remove(), "KATA3011", &says);
    let report = kata_host::run(&mut node, &task(NodeAction::Inspect, "a"));
    assert_eq!((report.outcome, report.checks), (Outcome::Done, vec![]));
    node.disk.unlink(&path).unwrap();
    node.runtime.start(&mut node.disk);
    done(&mut node, &remove());
    assert!(!node.offers("kata") && node.offers("crun"));
}

/// A default handler without a table keeps CRI-O from starting.
#[test]
fn a_default_handler_that_left_the_files_is_named_before_a_restart() {
    let site = format!("{FOLDER}/20-site.conf");
    let table = "[crio.runtime]\ndefault_runtime = \"site\"\n[crio.runtime.runtimes.site]\n";
    let mut node = node(&[(&site, table)]);
    node.disk.write(&site, b"[crio.runtime]\ndefault_runtime = \"site\"\n", 0o644).unwrap();
    refused(&mut node, &install(), "KATA3011", "default_runtime is site");
}
