//! What happens to running sandboxes: restarts, upgrades, removals, and what must never be done to them.
//! Each step was measured with the shims of runc first; here the agent has to do right by it.

use std::fs;

use kata_api::node_task::{NodeAction, Outcome};
use kata_api::sandbox_facts::{ProcessRole, SandboxFacts};

use crate::lab::{Node, assert_same};
use crate::pods::Pod;

#[test]
#[ignore = "needs a real containerd"]
fn containerd_2() {
    sandboxes("2");
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_1_7() {
    sandboxes("1.7");
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_1_6() {
    sandboxes("1.6");
}

const DROP_IN: &str = "etc/containerd/conf.d/60-kata-operator.toml";
const CURRENT: &str = "opt/kata-operator/current";
const UNIT: &str = "containerd.service";
const VERSIONS: &str = "opt/kata-operator/versions";

fn versions(node: &Node) -> usize {
    fs::read_dir(node.root.join(VERSIONS)).unwrap().count()
}

/// What people see of a sandbox of the node, without any capability.
fn shows(node: &Node, pod: &Pod) {
    let look = |pod| {
        let uid = format!("uid-{pod}");
        let words = ["sandbox", "--namespace", "shop", "--pod", pod, "--uid", &uid];
        node.agent(&words).output().unwrap()
    };
    let output = look("first");
    assert!(output.status.success(), "{output:?}");
    let facts: SandboxFacts = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&facts.sandbox_id, facts.handler.as_str()), (&pod.id, "kata"));
    assert_eq!(facts.handler_file, Some(format!("/{DROP_IN}")));
    let shims: Vec<&str> = facts
        .processes
        .iter()
        .filter(|process| process.role == ProcessRole::Shim)
        .map(|process| process.program.as_str())
        .collect();
    assert_eq!(shims, [pod.program.as_str()], "{facts:?}");
    let output = look("absent");
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("no READY sandbox of pod shop/absent"), "{error}");
}

fn sandboxes(release: &str) {
    let node = Node::start(release, "pods");
    let before = node.files();
    let [a, b, c] = ["3.24.0", "3.25.0", "3.26.0"].map(|version| node.image(version));
    node.import_pause(release);
    let install = |image, handlers: &[&str]| node.run(NodeAction::Install, image, handlers);
    let done = |image, handlers: &[&str]| {
        let report = install(image, handlers);
        assert_eq!(report.outcome, Outcome::Done, "{report:?}");
        report
    };
    assert!(node.stage("a", &a).status.success());
    done("a", &["kata"]);

    // A restart leaves sandboxes alone: that of an administrator, and ours.
    let first = node.pod("first", "kata");
    assert!(first.program.starts_with("/opt/kata-operator/versions/"), "{first:?}");
    shows(&node, &first);
    node.restart();
    node.assert_untouched(&first);
    let report = done("a", &["kata", "kata-two"]);
    assert!(report.restarted, "{report:?}");
    node.assert_untouched(&first);
    let early = node.pod("early", "kata");

    // An upgrade: no restart, new sandboxes run the new shim, the old one keeps its program.
    assert!(node.stage("b", &b).status.success());
    let incarnation = node.incarnation();
    let report = done("b", &["kata", "kata-two"]);
    assert!(report.changed && !report.restarted, "{report:?}");
    assert_eq!(node.incarnation(), incarnation);
    assert_eq!(versions(&node), 2, "the old version is in use");
    node.assert_untouched(&first);
    let second = node.pod("second", "kata-two");
    assert_ne!(second.program, first.program);
    // One that was started before the swap ends as it should, with no restart since.
    node.assert_untouched(&early);
    node.end(&early);
    let cleared = node.root.join("run/fake-shim-delete");
    // What clears up after it is looked for where its shim was, and so is the new program.
    assert_eq!(fs::read_to_string(&cleared).unwrap(), second.program);
    fs::remove_file(&cleared).unwrap();
    assert_eq!(node.incarnation(), incarnation);
    node.restart();
    node.assert_untouched(&first);
    node.assert_untouched(&second);
    // Asking again changes nothing as long as the old sandbox runs.
    let report = done("b", &["kata", "kata-two"]);
    assert!(!report.changed && !report.restarted, "{report:?}");
    assert_eq!(versions(&node), 2);

    // Neither a handler with sandboxes nor everything is taken away.
    let files = node.files();
    for report in [node.run(NodeAction::Remove, "", &[]), install("b", &["kata-two"])] {
        assert_eq!(report.outcome, Outcome::Blocked, "{report:?}");
        assert!(report.sandboxes.iter().any(|pod| pod.pod == "first" && pod.namespace == "shop"));
        assert!(!report.changed && !report.restarted, "{report:?}");
    }
    assert_same(&node.files(), &files);
    node.assert_untouched(&first);
    node.assert_untouched(&second);

    // The old shim dies: the new program clears up after it, and nothing leaks.
    node.inside("/bin/sh", &["-c", &format!("kill -9 {}", first.shim)]);
    node.until("the shim is gone", || !node.processes(&first).0);
    node.end(&first);
    assert_eq!(fs::read_to_string(cleared).unwrap(), second.program);
    let report = done("b", &["kata", "kata-two"]);
    assert!(report.changed && !report.restarted, "{report:?}");
    assert_eq!(versions(&node), 1, "the old version is not used any more");

    // An admin deletes an old version by hand while its shim runs.
    assert!(node.stage("c", &c).status.success());
    done("c", &["kata", "kata-two"]);
    let old = second.program.split('/').nth(4).unwrap();
    fs::remove_dir_all(node.root.join(VERSIONS).join(old)).unwrap();
    node.assert_untouched(&second);
    node.restart();
    node.assert_untouched(&second);
    node.end(&second);

    // One of two handlers goes, once its own sandbox has ended, while a sandbox of the other runs.
    let third = node.pod("third", "kata");
    let other = node.pod("other", "kata-two");
    let incarnation = node.incarnation();
    let report = install("c", &["kata"]);
    assert_eq!((report.outcome, report.sandbox_count), (Outcome::Blocked, 1), "{report:?}");
    assert_eq!(report.sandboxes[0].pod, "other");
    assert_eq!(node.incarnation(), incarnation);
    node.end(&other);
    let report = done("c", &["kata"]);
    assert!(report.restarted, "{report:?}");
    node.assert_untouched(&third);
    let error = node.try_pod("fourth", "kata-two").unwrap_err();
    assert!(error.contains("no runtime for \"kata-two\" is configured"), "{error}");
    assert!(!done("c", &["kata"]).restarted);
    assert!(done("c", &["kata", "kata-two"]).restarted);
    node.assert_untouched(&third);

    // A handler that is not configured any more: its sandboxes stay and can be stopped.
    let drop_in = node.root.join(DROP_IN);
    let kept = node.root.join("root/drop-in");
    fs::rename(&drop_in, &kept).unwrap();
    node.restart();
    node.assert_untouched(&third);
    let error = node.try_pod("fourth", "kata").unwrap_err();
    assert!(error.contains("no runtime for \"kata\" is configured"), "{error}");
    node.end(&third);
    fs::rename(&kept, &drop_in).unwrap();
    node.restart();

    // What the order of a removal avoids: a payload that is missing at a restart loses the sandbox for ever.
    let lost = node.pod("lost", "kata");
    let current = node.root.join(CURRENT);
    fs::rename(&current, node.root.join("root/current")).unwrap();
    node.restart();
    assert_eq!(
        node.is_ready(&lost),
        Some(false),
        "if this holds no more, the order could be another"
    );
    fs::rename(node.root.join("root/current"), &current).unwrap();
    node.restart();
    assert_eq!(node.is_ready(&lost), Some(false));
    node.stop(&lost).unwrap();
    node.remove(&lost).unwrap();
    // CRI says that it is gone, and both of its processes are left, which no program will end.
    assert_eq!(node.is_ready(&lost), None);
    assert_eq!(
        node.processes(&lost),
        (true, true),
        "if they are ended, the order could be another"
    );
    node.kill(&lost);
    assert_eq!(node.processes(&lost), (false, false));

    // Reloading by a signal is no way: it ends containerd.
    let show = |property| node.systemctl(&["show", "--property", property, "--value", UNIT]);
    let process = show("MainPID");
    node.inside("/bin/kill", &["-HUP", &process]);
    node.until("the unit has ended", || show("ActiveState") == "inactive");
    // As waitid(2) has it: killed, by signal 1. For systemd that is no failure, so that a unit that restarts
    // on failure would not come back.
    let end = ["Result", "ExecMainPID", "ExecMainCode", "ExecMainStatus"].map(show);
    assert_eq!(end, ["success", &process, "2", "1"]);
    assert!(!node.ready());
    node.restart();

    // The removal waits for the last sandbox, and leaves nothing.
    let last = node.pod("last", "kata-two");
    let report = node.run(NodeAction::Remove, "", &[]);
    assert_eq!((report.outcome, report.sandbox_count), (Outcome::Blocked, 1), "{report:?}");
    node.assert_untouched(&last);
    node.end(&last);
    let report = node.run(NodeAction::Remove, "", &[]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_eq!(report.handlers, Some(vec!["runc".to_owned()]));
    assert_same(&node.files(), &before);
}
