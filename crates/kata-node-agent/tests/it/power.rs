//! The node's power is cut at random moments of a change: its disk is a real file system in a file, which is copied
//! while the agent is at work. Files that the agent has not synced are not in the copy. A node boots from each copy.
//!
//! All processes of the node are stopped meanwhile, so that the copy is that of one moment. A moment within a call of
//! the kernel is none of those.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kata_api::node_task::{NodeAction, NodeTask, Outcome};

use crate::boots::add_nodeadm;
use crate::kills::Moments;
use crate::lab::{Mounted, Node, SOCKET, assert_same, child, clear, command, node_task, workspace};
use crate::payload;
use crate::take_over;

/// How often the power is cut if `KATA_TEST_POWER_CUTS` does not say otherwise, on each release.
const CUTS: usize = 5;

#[test]
#[ignore = "needs a real containerd"]
fn containerd_2() {
    cut_the_power("2", "life", add_nodeadm, &life());
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_2_of_kata_deploy() {
    let [take, give] = [NodeAction::Install, NodeAction::Remove].map(take_over::task);
    for is_imported in [true, false] {
        let name = if is_imported { "kd-import" } else { "kd" };
        let prepare = |root: &Path| take_over::prepare(root, is_imported);
        cut_the_power("2", name, prepare, &[take.clone(), give.clone()]);
    }
}

#[test]
#[ignore = "needs a real containerd"]
fn containerd_1_7() {
    cut_the_power("1.7", "life", add_nodeadm, &life());
}

fn life() -> [NodeTask; 3] {
    let install = |image| node_task(NodeAction::Install, image, &["kata"]);
    [install("a"), install("b"), node_task(NodeAction::Remove, "", &[])]
}

/// Cuts it in each of these changes in turns. The last one brings back what was there before the first.
fn cut_the_power(release: &str, name: &str, prepare: impl FnOnce(&Path), tasks: &[NodeTask]) {
    let cuts: usize =
        std::env::var("KATA_TEST_POWER_CUTS").map_or(CUTS, |text| text.parse().unwrap());
    let folder = workspace().join(format!("target/nodes/power-{release}-{name}"));
    let place = workspace().join(format!("target/nodes/{release}-power-{name}"));
    for left in [&folder, &place] {
        clear(left);
    }
    fs::create_dir_all(&folder).unwrap();
    let [a, b] = ["3.24.0", "3.25.0"].map(|version| payload::image(&folder, version));
    let image = empty_disk(&folder);
    // The root is a folder on it, since it goes with the node.
    let disk = Mounted::disk(&place, &image);
    // There a change has the most steps.
    let node = Node::start_on(release, &format!("power-{name}/node"), prepare);
    assert!(command("sync").arg("--file-system").arg(&node.root).status().unwrap().success());
    let before = node.files();
    let payload = |task: &NodeTask| match task.payload_image.as_deref() {
        Some("a") => Some(a.clone()),
        Some(_) => Some(b.clone()),
        None => None,
    };
    let changes: Vec<Change> =
        tasks.iter().map(|task| Change { task: task.clone(), payload: payload(task) }).collect();
    // How long each takes undisturbed: staging, if there is any, and the run.
    let length = |change: &Change| {
        let start = Instant::now();
        change.stage(&node);
        let staging = start.elapsed();
        change.run(&node);
        (staging, start.elapsed().saturating_sub(staging))
    };
    let lengths: Vec<(Duration, Duration)> = changes.iter().map(length).collect();
    let mut moments = Moments(0x9E37_79B9_7F4A_7C15);
    let mut seen = BTreeMap::new();
    let (mut cut, mut round) = (0, 0);
    while cut < cuts {
        let change = &changes[round % changes.len()];
        let (staging, running) = lengths[round % changes.len()];
        round += 1;
        assert!(round < cuts * 20, "{cut} of {round} moments were in a change");
        // Every third time while the payload is staged.
        let stages = change.payload.is_some() && moments.next().is_multiple_of(3);
        let copied;
        if stages {
            let root = change.payload.as_ref().unwrap();
            let mut stager = quiet(node.stager(change.name(), root));
            copied = copy_during(&stager, &node, &mut moments, staging, &image);
            assert!(stager.wait().unwrap().success(), "{round}");
            change.run(&node);
        } else {
            change.stage(&node);
            let words = serde_json::to_string(&change.task).unwrap();
            let mut agent = quiet(node.agent(&["run", "--task", &words]));
            copied = copy_during(&agent, &node, &mut moments, running, &image);
            assert!(agent.wait().unwrap().success(), "{round}");
        }
        let wanted = node.files();
        if change.task.action == NodeAction::Remove {
            assert_same(&wanted, &before);
        }
        if !copied {
            continue;
        }
        cut += 1;
        let mounted = Mounted::disk(&folder.join("copy"), &folder.join("copy.ext4"));
        assert!(
            folder.join("copy/node/dev/kvm").exists(),
            "the disk is not the one that was copied"
        );
        let after = boot(release, &folder.join("copy/node"));
        let found = after.files();
        let changed = found != before && found != wanted;
        *seen.entry((change.task.action, change.name(), stages, changed)).or_insert(0) += 1;
        let place = format!("{release}, cut {cut}, {:?} {}", change.task.action, change.name());
        println!("{place}, staged: {stages}");
        assert!(after.handlers().contains("runc"), "{place}");
        change.stage(&after);
        change.run(&after);
        assert_eq!(after.handlers(), node.handlers(), "{place}");
        assert_same(&without_stamps(after.files()), &without_stamps(wanted));
        if change.task.action == NodeAction::Install {
            let inspect = NodeTask { action: NodeAction::Inspect, ..change.task.clone() };
            let report = after.run_task(&inspect);
            assert_eq!(report.outcome, Outcome::Done, "{place}: {report:?}");
        }
        changes.last().unwrap().run(&after);
        assert_same(&after.files(), &before);
        drop(after);
        drop(mounted);
    }
    let counted = format!(
        "containerd {release}, {name}: the power was cut {cut} times in {round} changes; by action, image, whether it was \
         staged, and whether the disk was neither as before the change nor as after it: {seen:?}\n"
    );
    print!("{counted}");
    // `cargo test` shows no output of a test that passes.
    fs::write(workspace().join(format!("target/nodes/power-{release}-{name}.txt")), counted)
        .unwrap();
    drop(node);
    drop(disk);
    fs::remove_dir_all(&folder).unwrap();
}

struct Change {
    task: NodeTask,
    /// The root of the image with its payload.
    payload: Option<PathBuf>,
}

impl Change {
    fn name(&self) -> &str {
        self.task.payload_image.as_deref().unwrap_or_default()
    }

    fn stage(&self, node: &Node) {
        if let Some(payload) = &self.payload {
            let staged = node.stage(self.name(), payload);
            assert!(staged.status.success(), "{staged:?}");
        }
    }

    fn run(&self, node: &Node) {
        let report = node.run_task(&self.task);
        assert_eq!(report.outcome, Outcome::Done, "{report:?}");
    }
}

/// Files without the one in which a payload has the times of its own.
fn without_stamps(mut files: BTreeMap<String, String>) -> BTreeMap<String, String> {
    files.retain(|path, _| !path.ends_with("/seal.json"));
    files
}

fn quiet(mut process: Command) -> Child {
    process.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The image of a disk with nothing on it. It takes less room than it has.
fn empty_disk(folder: &Path) -> PathBuf {
    let image = folder.join("disk.ext4");
    if image.exists() {
        fs::remove_file(&image).unwrap();
    }
    fs::File::create(&image).unwrap().set_len(4 << 30).unwrap();
    // Its journal holds every change of the test, and nothing is initialized later.
    let options = ["-q", "-N", "8192", "-J", "size=32", "-E", "lazy_itable_init=0"];
    let made = command("mkfs.ext4").args(options).arg(&image).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    image
}

/// Copies the disk of a node at some moment of at most this time of a process on it. Says whether it was at work.
fn copy_during(
    agent: &Child,
    node: &Node,
    moments: &mut Moments,
    limit: Duration,
    image: &Path,
) -> bool {
    let limit = u64::try_from(limit.as_micros()).unwrap();
    std::thread::sleep(Duration::from_micros(moments.next() % limit));
    let process = child(agent.id());
    let signal = |name: &str, process: &str| {
        command("kill").args([name, process]).stderr(Stdio::null()).status().unwrap().success()
    };
    if process.is_empty() || !signal("-STOP", &process) {
        return false;
    }
    let is_at_work = stops(&process);
    // nsenter stops with the process that it waits for. The others are those whose writing would make a copy of
    // more than one moment.
    let mut all = vec![agent.id().to_string(), process];
    if is_at_work {
        assert!(stops(&all[0]));
        for other in node.all_processes() {
            if signal("-STOP", &other) && stops(&other) {
                all.push(other);
            }
        }
        let copy = image.with_file_name("copy.ext4");
        // Another file each time: a mount namespace that another test was making keeps the last one mounted for a
        // moment, and mount(8) takes the loop device that a file has.
        let how = ["--remove-destination", "--sparse=always"];
        let copied = command("cp").args(how).args([image, &copy]).status().unwrap();
        assert!(copied.success());
    }
    for process in &all {
        signal("-CONT", process);
    }
    is_at_work
}

/// Waits until a process is stopped. It may be in a call of the kernel, which ends first. Returns `false` if the
/// process ended.
fn stops(process: &str) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        match stat.rsplit(") ").next().and_then(|rest| rest.chars().next()) {
            Some('T') => return true,
            Some('Z' | 'X') | None => return false,
            Some(_) => std::thread::sleep(Duration::from_millis(1)),
        }
        assert!(Instant::now() < end, "process {process} does not stop: {stat}");
    }
}

/// Boots the node of a copy, without what a node has in memory.
fn boot(release: &str, root: &Path) -> Node {
    for folder in ["run", "tmp"] {
        if root.join(folder).exists() {
            fs::remove_dir_all(root.join(folder)).unwrap();
        }
    }
    Node::boot(release, root.to_owned(), SOCKET)
}
