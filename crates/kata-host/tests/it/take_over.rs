//! A node of kata-deploy changes hands in one transaction, and back.

use hostlab::node::kata_deploy::{self, IMPORTED, LITERAL, SETTINGS, drop_in, take_over};
use hostlab::sweep;
use kata_api::node_task::{NodeAction, NodeReport, NodeTask, Outcome, TaskHandler};
use kata_host::paths;

use crate::node::Node;
use crate::runs::done;

const LOCK: &str = "/run/lock/kata-deploy.lock";

fn node(is_imported: bool) -> Node {
    let mut node = kata_deploy::node(is_imported);
    node.stage("a");
    node
}

fn take() -> NodeTask {
    take_over(NodeAction::Install, "a")
}

fn give() -> NodeTask {
    take_over(NodeAction::Remove, "")
}

/// The task once the KataConfig does not say `takeOver` any more.
fn dropped(task: NodeTask) -> NodeTask {
    NodeTask { take_over: false, ..task }
}

fn without_ours(node: &Node) -> Vec<(String, String)> {
    node.disk.all().into_iter().filter(|(path, _)| !path.starts_with(paths::ROOT)).collect()
}

fn ready(node: &Node) -> Vec<&str> {
    let ready = node.runtime.sandboxes.iter().filter(|sandbox| sandbox.ready);
    ready.map(|sandbox| sandbox.id.as_str()).collect()
}

#[track_caller]
fn message<'a>(report: &'a NodeReport, code: &str) -> &'a str {
    let check = report.checks.iter().find(|check| check.code == code);
    &check.unwrap_or_else(|| panic!("no {code} in {report:?}")).message
}

/// Refused, and nothing was changed or restarted.
#[track_caller]
fn refused(node: &mut Node, task: &NodeTask) -> String {
    let (before, restarts) = (node.disk.all(), node.runtime.restarts);
    let report = kata_host::run(node, task);
    assert_eq!(report.outcome, Outcome::Refused, "{report:?}");
    assert_eq!((node.disk.all(), node.runtime.restarts), (before, restarts));
    message(&report, "KATA3052").to_owned()
}

#[test]
fn a_node_changes_hands_with_one_restart_and_back_with_one() {
    for (is_imported, path) in [(true, IMPORTED), (false, LITERAL)] {
        let mut node = node(is_imported);
        let before = without_ours(&node);
        let report = done(&mut node, &take());
        assert_eq!((node.runtime.restarts, report.restarted), (1, true));
        assert_eq!(ready(&node), ["its-1", "its-2"]);
        let text = node.text("/etc/containerd/config.toml");
        assert!(!text.contains("kata-deploy"), "{text}");
        // Where only the main file named it, it stays in the tree.
        assert_eq!(node.disk.read(path).is_none(), is_imported);
        assert_eq!(
            message(&report, "KATA3053"),
            format!(
                "not taken over: {SETTINGS}/50-user-overrides.toml, \
                 /etc/modules-load.d/kata-containers-default.conf"
            )
        );
        let again = done(&mut node, &take());
        assert!(!again.changed && !again.restarted, "{again:?}");
        assert_eq!(again.earlier.len(), 1, "{again:?}");
        let report = done(&mut node, &give());
        assert_eq!((node.runtime.restarts, report.restarted), (2, true));
        assert_eq!(without_ours(&node), before);
        assert_eq!(ready(&node), ["its-1", "its-2"]);
        assert!(node.offers("kata-qemu") && node.disk.stat(paths::ROOT).is_none());
    }
}

/// 1,000 points and more, each with and without a loss of power.
#[test]
fn an_interrupted_take_over_is_finished_or_undone_by_the_next_run() {
    let swept = sweep::take_over();
    assert_eq!(swept.failures, Vec::<String>::new());
    assert!(swept.points > 1000, "{} points", swept.points);
}

#[test]
fn without_take_over_the_node_is_left_to_kata_deploy() {
    let mut node = node(true);
    let before = node.disk.all();
    let report = kata_host::run(&mut node, &dropped(take()));
    assert_eq!(report.outcome, Outcome::Refused);
    let found = message(&report, "KATA3016");
    assert_eq!(found, format!("{IMPORTED} configures the handler kata-clh"));
    assert_eq!(node.disk.all(), before);
}

#[test]
fn what_is_not_its_handlers_alone_is_refused_by_name() {
    let with = |node: &mut Node, text: &str| {
        let text = format!("{}{text}", drop_in(&["qemu", "clh"]));
        node.disk.write(IMPORTED, text.as_bytes(), 0o644).unwrap();
        node.runtime.start(&mut node.disk);
    };
    let mut nydus = node(true);
    with(&mut nydus, "[proxy_plugins.nydus]\ntype = \"snapshot\"\naddress = \"/run/nydus\"\n");
    assert_eq!(
        refused(&mut nydus, &take()),
        format!(
            "{IMPORTED} sets proxy_plugins, and only handlers with shims and configurations below /opt/kata can be \
             taken over: change the values of kata-deploy, or remove it from the node"
        )
    );
    let mut user = node(true);
    let path = "/etc/containerd/conf.d/zz-kata-deploy-user.toml";
    user.disk.write(path, b"[metrics]\naddress = \"127.0.0.1:1338\"\n", 0o644).unwrap();
    user.runtime.start(&mut user.disk);
    assert!(refused(&mut user, &take()).starts_with(path));
    let mut its_pod = node(true);
    its_pod.sandbox("pod", "");
    its_pod.runtime.sandboxes.last_mut().unwrap().pod = "kata-deploy-x7k2p".to_owned();
    assert_eq!(
        refused(&mut its_pod, &take()),
        "pod shop/kata-deploy-x7k2p of kata-deploy runs on the node, and would undo the take-over: stop it with `kubectl kata \
         takeover begin`"
    );
    let mut rust = node(true);
    let text = drop_in(&["qemu", "clh"]).replace("/opt/kata/bin", "/opt/kata/runtime-rs/bin");
    rust.disk.write(IMPORTED, text.as_bytes(), 0o644).unwrap();
    rust.runtime.start(&mut rust.disk);
    assert!(refused(&mut rust, &take()).contains("the shim in Rust"));
}

#[test]
fn a_node_on_which_kata_deploy_works_is_left_alone_until_it_has_ended() {
    let mut node = node(true);
    node.locked.push(LOCK);
    let before = node.disk.all();
    let report = kata_host::run(&mut node, &take());
    assert_eq!(report.outcome, Outcome::Failed);
    assert_eq!(
        message(&report, "KATA3052"),
        format!("kata-deploy is working on the node: {LOCK} was not free within 60 s")
    );
    assert_eq!(node.disk.all(), before);
    node.locked.clear();
    done(&mut node, &take());
}

/// A handler that the KataConfig does not name goes, and a sandbox of it could not be stopped by it any more.
#[test]
fn a_sandbox_of_a_handler_that_would_go_is_in_the_way() {
    let mut node = node(true);
    let only: Vec<TaskHandler> = take().handlers.into_iter().take(1).collect();
    let task = NodeTask { handlers: only, ..take() };
    let report = kata_host::run(&mut node, &task);
    assert_eq!((report.outcome, node.runtime.restarts), (Outcome::Blocked, 0));
    assert_eq!(report.sandboxes[0].handler, "kata-clh");
    node.runtime.sandboxes.retain(|sandbox| sandbox.id != "its-2");
    done(&mut node, &task);
    assert!(!node.offers("kata-clh"));
}

#[test]
fn a_take_over_that_fails_brings_its_bytes_and_handlers_back() {
    for is_imported in [true, false] {
        let mut node = node(is_imported);
        let before = without_ours(&node);
        node.first_answers = vec![kata_host::host::HostErrorKind::Unimplemented; 3];
        let report = kata_host::run(&mut node, &take());
        assert_eq!(report.outcome, Outcome::RolledBack, "{report:?}");
        let mut after = without_ours(&node);
        after.retain(|(path, _)| !path.starts_with(paths::STATE_DIR));
        assert_eq!(after, before);
        assert!(node.offers("kata-qemu"));
        assert_eq!(ready(&node), ["its-1", "its-2"]);
    }
}

#[test]
fn a_way_back_waits_for_sandboxes_of_ours_only() {
    let mut node = node(true);
    let before = without_ours(&node);
    done(&mut node, &take());
    node.sandbox("ours", "kata-qemu");
    let report = kata_host::run(&mut node, &give());
    assert_eq!((report.outcome, report.sandbox_count), (Outcome::Blocked, 1));
    assert_eq!(report.sandboxes[0].pod, "web-ours");
    node.runtime.sandboxes.retain(|sandbox| sandbox.id != "ours");
    done(&mut node, &give());
    assert_eq!(without_ours(&node), before);
}

/// It may have been started from our payload, which stays until it has ended; those that come after need only its own.
#[test]
fn a_sandbox_that_slips_into_a_way_back_keeps_our_payload() {
    let mut node = node(true);
    let before = without_ours(&node);
    done(&mut node, &take());
    node.meanwhile = Some(("restart", |node| node.sandbox("slipped", "kata-qemu")));
    let report = kata_host::run(&mut node, &give());
    assert_eq!((report.outcome, report.sandbox_count), (Outcome::Blocked, 1), "{report:?}");
    assert!(node.disk.stat(paths::CURRENT).is_some());
    node.meanwhile = None;
    node.sandbox("new", "kata-qemu");
    let report = kata_host::run(&mut node, &give());
    assert_eq!((report.outcome, report.sandbox_count), (Outcome::Blocked, 1));
    node.runtime.sandboxes.retain(|sandbox| sandbox.id != "slipped");
    done(&mut node, &give());
    assert_eq!((without_ours(&node), node.runtime.restarts), (before, 2));
}

/// Its tree goes with the last sandbox that was started from it, and then there is no way back.
#[test]
fn what_was_kept_goes_once_no_sandbox_uses_it() {
    let mut node = node(false);
    done(&mut node, &take());
    done(&mut node, &dropped(take()));
    assert!(node.disk.stat("/opt/kata").is_some());
    let inspect = dropped(take_over(NodeAction::Inspect, "a"));
    done(&mut node, &inspect);
    node.runtime.sandboxes.clear();
    let report = kata_host::run(&mut node, &inspect);
    assert_eq!(report.outcome, Outcome::Drifted);
    assert_eq!(message(&report, "KATA3040"), "/opt/kata of kata-deploy is not used any more");
    let report = done(&mut node, &dropped(take()));
    assert!(report.changed && node.disk.stat("/opt/kata").is_none());
    assert_eq!(node.runtime.restarts, 1);
    assert!(node.offers("kata-qemu"));
    // A removal is one as on any other node then.
    done(&mut node, &give());
    assert!(!node.offers("kata-qemu"));
}

#[test]
fn a_removal_without_take_over_takes_its_tree_along_and_waits_for_its_sandboxes() {
    let mut node = node(true);
    done(&mut node, &take());
    let report = kata_host::run(&mut node, &dropped(give()));
    assert_eq!((report.outcome, report.sandbox_count), (Outcome::Blocked, 2));
    node.runtime.sandboxes.clear();
    done(&mut node, &dropped(give()));
    assert!(node.disk.stat("/opt/kata").is_none() && node.disk.stat(IMPORTED).is_none());
}

#[test]
fn a_tree_that_is_gone_is_not_given_back() {
    let mut node = node(true);
    done(&mut node, &take());
    node.disk.remove_tree("/opt/kata");
    assert_eq!(
        refused(&mut node, &give()),
        "/opt/kata/bin/containerd-shim-kata-v2, the shim that kata-deploy's files name, is not there any more: remove \
         spec.takeOver, and the removal goes on without giving anything back"
    );
}

/// An admin added an import to the main file since.
#[test]
fn a_main_file_that_was_edited_since_gets_its_import_back() {
    let mut node = node(false);
    done(&mut node, &take());
    let main = "/etc/containerd/config.toml";
    let text = node.text(main).replace("overlayfs", "native");
    node.disk.write(main, text.as_bytes(), 0o644).unwrap();
    node.runtime.start(&mut node.disk);
    done(&mut node, &give());
    let text = node.text(main);
    assert!(text.contains("native") && text.contains(LITERAL), "{text}");
    assert!(!text.contains("kata-operator"), "{text}");
    assert!(node.offers("kata-qemu"));
}

/// containerd's log level came with its drop-in.
#[test]
fn an_installation_with_debug_is_taken_over_and_given_back() {
    for (is_imported, path) in [(true, IMPORTED), (false, LITERAL)] {
        let mut node = node(is_imported);
        let text = format!("{}[debug]\nlevel = \"debug\"\n", drop_in(&["qemu", "clh"]));
        node.disk.write(path, text.as_bytes(), 0o644).unwrap();
        node.runtime.start(&mut node.disk);
        let before = without_ours(&node);
        done(&mut node, &take());
        done(&mut node, &give());
        assert_eq!(without_ours(&node), before);
    }
}

/// The sandboxes of its handlers are in no list of ours.
#[test]
fn a_tree_that_another_file_names_stays() {
    let mut node = node(true);
    done(&mut node, &take());
    let gpu = drop_in(&["gpu"]);
    node.disk.write("/etc/containerd/conf.d/gpu.toml", gpu.as_bytes(), 0o644).unwrap();
    node.runtime.start(&mut node.disk);
    node.runtime.sandboxes.clear();
    done(&mut node, &dropped(take()));
    assert!(node.disk.stat("/opt/kata").is_some());
    done(&mut node, &dropped(give()));
    assert!(node.disk.stat("/opt/kata").is_some() && node.offers("kata-gpu"));
}

/// Its files are back already, and a sandbox of ours still runs when the field goes.
#[test]
fn a_way_back_that_was_begun_ends_without_take_over() {
    let mut node = node(true);
    let before = without_ours(&node);
    done(&mut node, &take());
    node.meanwhile = Some(("restart", |node| node.sandbox("slipped", "kata-qemu")));
    assert_eq!(kata_host::run(&mut node, &give()).outcome, Outcome::Blocked);
    node.meanwhile = None;
    node.runtime.sandboxes.retain(|sandbox| sandbox.id != "slipped");
    done(&mut node, &dropped(give()));
    assert_eq!((without_ours(&node), node.runtime.restarts), (before, 2));
}
