//! The agent's process is killed at random moments, again and again, against a real containerd.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use kata_api::node_task::{NodeAction, Outcome};

use crate::lab::{Node, child, command, task, workspace};

/// How often the process is killed if `KATA_TEST_KILLS` does not say otherwise.
const KILLS: u32 = 50;

/// Random enough to spread moments, and the same in every run.
pub(crate) struct Moments(pub(crate) u64);

impl Moments {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Everything that is not ours: what `/etc` has besides the drop-in and the import, and the rest of `/opt`.
fn foreign(node: &Node) -> BTreeMap<String, String> {
    let mut files = node.files();
    files.retain(|path, _| !path.contains("kata-operator") && !path.starts_with("etc/containerd"));
    files
}

#[test]
#[ignore = "needs a real containerd"]
fn a_killed_agent_leaves_nothing_that_the_next_one_cannot_mend() {
    let node = Node::start("2", "kills");
    fs::create_dir_all(node.root.join("opt/other")).unwrap();
    fs::write(node.root.join("opt/other/file"), "of another program").unwrap();
    fs::write(node.root.join("etc/containerd/other.toml"), "# of another program").unwrap();
    let before = node.files();
    let others = foreign(&node);
    let a = node.image("3.24.0");
    let b = node.image("3.25.0");
    let kills: u32 = std::env::var("KATA_TEST_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let mut moments = Moments(0x9E37_79B9_7F4A_7C15);
    let (mut killed, mut round) = (0, 0);
    let mut recovered = BTreeMap::new();
    while killed < kills {
        // Installs, upgrades and removals in turns; those that the process survived do not count.
        let (action, image, root) = match round % 3 {
            0 => (NodeAction::Install, "a", &a),
            1 => (NodeAction::Install, "b", &b),
            _ => (NodeAction::Remove, "", &a),
        };
        round += 1;
        assert!(round < kills * 20, "{killed} of {round} processes were killed at work");
        let words = task(action, image, &["kata"]);
        // Every other time the container that stages is the one that is killed.
        let stages = action == NodeAction::Install && moments.next().is_multiple_of(2);
        if action == NodeAction::Install && !stages {
            assert!(node.stage(image, root).status.success());
        }
        let mut agent = node.agent(&[if stages { "stage" } else { "run" }, "--task", &words]);
        if stages {
            agent.arg("--image-root").arg(root);
        }
        let mut agent = agent.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // A change takes a few hundred milliseconds, so the moments are spread over those.
        let limit = if stages { 200_000 } else { 700_000 };
        std::thread::sleep(Duration::from_micros(moments.next() % limit));
        let process = child(agent.id());
        if !process.is_empty() {
            command("kill").args(["-9", &process]).stderr(Stdio::null()).status().unwrap();
        }
        // nsenter ends as its child did: by the signal.
        let hit = agent.wait().unwrap().code().is_none();
        killed += u32::from(hit);
        assert_eq!(foreign(&node), others, "{round}");
        // Now and then nothing is checked before the next kill.
        if moments.next().is_multiple_of(4) {
            continue;
        }
        if action == NodeAction::Install {
            let staged = node.stage(image, root);
            assert!(staged.status.success(), "{round}: {staged:?}");
        }
        let report = node.run(action, image, &["kata"]);
        assert_eq!(report.outcome, Outcome::Done, "{round}: {report:?}");
        assert!(node.ready(), "{round}: {report:?}");
        let handlers = node.handlers();
        let offered = handlers.contains("kata");
        assert_eq!(offered, action == NodeAction::Install, "{round}: {report:?}");
        assert!(handlers.contains("runc"), "{round}: {report:?}");
        if action == NodeAction::Remove {
            assert_eq!(node.files(), before, "{round}");
        }
        *recovered.entry((action, hit)).or_insert(0) += 1;
    }
    let counted = format!(
        "{killed} processes of the node agent were killed at work in {round} rounds; looked at by action, and \
         whether it was hit: {recovered:?}\n"
    );
    print!("{counted}");
    // `cargo test` shows no output of a test that passes.
    fs::write(workspace().join("target/nodes/kills.txt"), counted).unwrap();
    let report = node.run(NodeAction::Remove, "", &[]);
    assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    assert_eq!(node.files(), before);
}
