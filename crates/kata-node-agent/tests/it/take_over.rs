//! A node of kata-deploy changes hands, and back, with a real containerd and sandboxes that run.
//!
//! Its files are those that it writes; the shim at its paths is the one of `fakeshim`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use hostlab::node::kata_deploy::{IMPORTED, LITERAL, drop_in};
use kata_api::node_task::{NodeAction, NodeReport, NodeTask, Outcome};

use crate::kills::Moments;
use crate::lab::{Node, assert_same, child, command, node_task, workspace};
use crate::payload;

/// How often the process is killed if `KATA_TEST_KILLS` does not say otherwise.
const KILLS: u32 = 50;
const HANDLERS: [&str; 2] = ["kata-clh", "kata-qemu"];
const SHIM: &str = "/opt/kata/bin/containerd-shim-kata-v2";
const UNIT: &str = "containerd.service";
const LOCK: &str = "/run/lock/kata-deploy.lock";

/// The task of a node that is taken over, or given back.
pub(crate) fn task(action: NodeAction) -> NodeTask {
    NodeTask { take_over: true, ..node_task(action, "a", &HANDLERS) }
}

/// What kata-deploy leaves below the root of a node.
pub(crate) fn prepare(root: &Path, is_imported: bool) {
    let put = |path: &str, content: &[u8]| {
        let path = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    let (import, path) =
        if is_imported { ("/etc/containerd/conf.d/*.toml", IMPORTED) } else { (LITERAL, LITERAL) };
    let main = root.join("etc/containerd/config.toml");
    let text = fs::read_to_string(&main).unwrap();
    fs::write(&main, format!("imports = [\"{import}\"]\n{text}")).unwrap();
    put(path, drop_in(&["qemu", "clh"]).as_bytes());
    put("/etc/modules-load.d/kata-containers-default.conf", b"vhost_vsock\nvhost_net\n");
    for shim in ["qemu", "clh"] {
        let folder = format!("/opt/kata/share/defaults/kata-containers/runtimes/{shim}");
        put(&format!("{folder}/configuration-{shim}.toml"), b"[runtime]\n");
    }
    put(SHIM, b"");
    let shim = root.join(SHIM.trim_start_matches('/'));
    fs::copy(payload::shim(), shim).unwrap();
}

/// A node that counts the starts of its containerd from now on.
fn start(name: &str, is_imported: bool) -> Node {
    let node = Node::start_on("2", name, |root| prepare(root, is_imported));
    node.service(UNIT, "ExecStartPre=/bin/sh -c \"echo >> /root/starts\"");
    node.import_pause("2");
    node
}

fn starts(node: &Node) -> usize {
    fs::read_to_string(node.root.join("root/starts")).unwrap_or_default().lines().count()
}

fn done(node: &Node, action: NodeAction) -> NodeReport {
    let report = node.run_task(&task(action));
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    report
}

#[test]
#[ignore = "needs a real containerd"]
fn where_its_folder_is_imported() {
    changes_hands("kd-import", true);
}

#[test]
#[ignore = "needs a real containerd"]
fn where_the_main_file_imports_its_file() {
    changes_hands("kd", false);
}

fn changes_hands(name: &str, is_imported: bool) {
    let node = start(name, is_imported);
    let pods = ["first", "second"].map(|name| node.pod(name, "kata-qemu"));
    let other = node.pod("other", "kata-clh");
    assert_eq!(other.program, SHIM);
    let before = node.files();
    let untouched =
        |node: &Node| pods.iter().chain([&other]).for_each(|it| node.assert_untouched(it));

    let image = node.image("3.24.0");
    assert!(node.stage("a", &image).status.success());
    if is_imported {
        waits_for_its_lock(&node);
    }

    // One restart, and the same processes; new sandboxes are ours.
    let report = done(&node, NodeAction::Install);
    assert!(report.restarted && report.handlers.is_some(), "{report:?}");
    assert_eq!(starts(&node), 1);
    untouched(&node);
    let ours = node.pod("ours", "kata-qemu");
    assert!(ours.program.starts_with("/opt/kata-operator/versions/"), "{ours:?}");
    node.restart();
    untouched(&node);
    let report = done(&node, NodeAction::Install);
    assert!(!report.changed && !report.restarted, "{report:?}");
    assert_eq!(report.earlier.first().map(|it| it.pods.len()), Some(3), "{report:?}");
    // A sandbox of it ends as it should.
    let [first, second] = &pods;
    node.end(second);

    // The way back waits for our sandbox only, and takes one restart.
    let report = node.run_task(&task(NodeAction::Remove));
    assert_eq!((report.outcome, report.sandbox_count), (Outcome::Blocked, 1), "{report:?}");
    node.end(&ours);
    let begun = starts(&node);
    assert!(done(&node, NodeAction::Remove).restarted);
    assert_eq!(starts(&node), begun + 1);
    assert_same(&node.files(), &before);
    for pod in [first, &other] {
        node.assert_untouched(pod);
    }
    let again = node.pod("again", "kata-qemu");
    assert_eq!(again.program, SHIM);
    for pod in [first, &other, &again] {
        node.end(pod);
    }
}

/// While kata-deploy works on the node, nothing is changed.
fn waits_for_its_lock(node: &Node) {
    let staged = node.files();
    // From outside, as the agent takes it: the node's systemd mounts another file system there.
    let lock = node.root.join(LOCK.trim_start_matches('/'));
    let mut holder = command("flock").arg(&lock).args(["sleep", "600"]).spawn().unwrap();
    node.until("the lock is held", || !child(holder.id()).is_empty());
    let report = node.run_task(&task(NodeAction::Install));
    assert_eq!(report.outcome, Outcome::Failed, "{report:?}");
    assert!(report.message.contains(LOCK), "{report:?}");
    assert_same(&node.files(), &staged);
    // What flock(1) started has the lock as well.
    assert!(command("kill").arg(child(holder.id())).status().unwrap().success());
    holder.wait().unwrap();
}

/// Killed at random moments in turns of take-over and way back, with sandboxes of kata-deploy running all the time.
#[test]
#[ignore = "needs a real containerd"]
fn kills_leave_nothing_that_the_next_run_cannot_mend() {
    let kills: u32 = std::env::var("KATA_TEST_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let node = start("kd-kills", false);
    let pod = node.pod("first", "kata-qemu");
    let before = node.files();
    let image = node.image("3.24.0");
    let mut moments = Moments(0x9E37_79B9_7F4A_7C15);
    let (mut killed, mut round) = (0, 0_u32);
    let mut recovered = BTreeMap::new();
    while killed < kills {
        let action = if round.is_multiple_of(2) { NodeAction::Install } else { NodeAction::Remove };
        round += 1;
        assert!(round < kills * 20, "{killed} of {round} processes were killed at work");
        let stage = || assert!(node.stage("a", &image).status.success(), "{round}");
        if action == NodeAction::Install {
            stage();
        }
        let words = serde_json::to_string(&task(action)).unwrap();
        let mut agent = node.agent(&["run", "--task", &words]);
        let mut agent = agent.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(moments.next() % 700_000));
        let process = child(agent.id());
        if !process.is_empty() {
            command("kill").args(["-9", &process]).stderr(Stdio::null()).status().unwrap();
        }
        // nsenter ends as its child did: by the signal.
        let hit = agent.wait().unwrap().code().is_none();
        killed += u32::from(hit);
        if action == NodeAction::Install {
            stage();
        }
        done(&node, action);
        node.assert_untouched(&pod);
        assert!(HANDLERS.iter().all(|name| node.handlers().contains(*name)), "{round}");
        if action == NodeAction::Remove {
            assert_same(&node.files(), &before);
        }
        *recovered.entry((action, hit)).or_insert(0) += 1;
    }
    if round % 2 == 1 {
        done(&node, NodeAction::Remove);
    }
    assert_same(&node.files(), &before);
    node.assert_untouched(&pod);
    let counted = format!(
        "{killed} processes of the node agent were killed at work in {round} take-overs and ways back; by action, and \
         whether it was hit: {recovered:?}\n"
    );
    print!("{counted}");
    fs::write(workspace().join("target/nodes/kills-take-over.txt"), counted).unwrap();
    node.end(&pod);
}
