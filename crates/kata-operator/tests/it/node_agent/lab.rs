//! A node with a real containerd and a real systemd, and the agent as a process.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kata_api::node_task::{
    NODE_TASK_VERSION, NodeAction, NodeReport, NodeTask, Outcome, TaskHandler,
};
use kata_operator::node_agent::cri::Client;

pub(crate) const SOCKET: &str = "run/containerd/containerd.sock";

/// The folder with the packages of a release of containerd, or `None` if the tests cannot be run here.
pub(crate) fn packages(release: &str) -> Option<PathBuf> {
    let folder = workspace().join("target/containerd").join(release);
    if folder.is_dir() {
        return Some(folder);
    }
    let asked = std::env::var_os("KATA_TEST_CONTAINERD").is_some();
    assert!(!asked, "{} is not there: .ci/containerd.sh puts it there", folder.display());
    println!("NOT RUN: no containerd {release}; .ci/containerd.sh puts it below target/containerd");
    None
}

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub(crate) fn command(program: &str) -> Command {
    Command::new(program)
}

/// A node.
pub(crate) struct Node {
    pub(crate) root: PathBuf,
    pub(crate) cri: Client,
    namespaces: Child,
}

impl Drop for Node {
    fn drop(&mut self) {
        // Its namespaces end with it, and everything in them.
        self.namespaces.kill().unwrap();
        self.namespaces.wait().unwrap();
        if !std::thread::panicking() {
            fs::remove_dir_all(&self.root).unwrap();
        }
    }
}

/// containerd's main file as an administrator wrote it, by schema.
fn main_file(release: &str) -> String {
    if release.starts_with('2') {
        "# by hand\nversion = 3\n[plugins.\"io.containerd.cri.v1.images\"]\n  snapshotter = \"native\" # no overlayfs here\n\
         [plugins.\"io.containerd.cri.v1.images\".pinned_images]\n  sandbox = \"example.invalid/pause:1\"\n\
         [plugins.\"io.containerd.cri.v1.runtime\"]\n  restrict_oom_score_adj = true\n"
            .to_owned()
    } else {
        "version = 2\n# by hand\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"example.invalid/pause:1\"\n\
         \x20 restrict_oom_score_adj = true\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n  snapshotter = \"native\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n  runtime_type = \"io.containerd.runc.v2\"\n"
            .to_owned()
    }
}

impl Node {
    /// Starts a node and waits until its container runtime is ready. `None` if that cannot be done here.
    pub(crate) fn start(release: &str, name: &str) -> Option<Self> {
        Self::start_on(release, name, |_| {})
    }

    /// The same with a root that was prepared so; what is mounted there is there from within as well.
    pub(crate) fn start_on(release: &str, name: &str, prepare: impl FnOnce(&Path)) -> Option<Self> {
        let packages = packages(release)?;
        // Short, since the path of a socket has at most 107 bytes.
        let root = workspace().join(format!("target/nodes/{release}-{name}"));
        if root.exists() {
            fs::remove_dir_all(&root).unwrap();
        }
        fs::create_dir_all(root.join("etc/containerd")).unwrap();
        prepare(&root);
        fs::write(root.join("etc/containerd/config.toml"), main_file(release)).unwrap();
        if !Path::new("/dev/kvm").exists() {
            println!("NOT RUN: there is no /dev/kvm, without which the agent rightly refuses");
            return None;
        }
        // From outside the node's folder is plain, so it gets devices of its own: the real KVM, and
        // something that can be opened for what a machine for tests may lack.
        fs::create_dir_all(root.join("dev")).unwrap();
        for (name, numbers) in
            [("kvm", ["10", "232"]), ("vhost-vsock", ["1", "3"]), ("vhost-net", ["1", "3"])]
        {
            let made =
                command("mknod").arg(root.join("dev").join(name)).arg("c").args(numbers).status();
            assert!(made.unwrap().success(), "{name}");
        }
        let log = fs::File::create(root.with_extension("log")).unwrap();
        let namespaces = command("sh")
            .arg(workspace().join(".ci/node.sh"))
            .args([&root, &packages])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let node = Self { root, cri: Client::new().unwrap(), namespaces };
        node.until("the container runtime is ready", || node.ready());
        Some(node)
    }

    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !holds() {
            let log = || fs::read_to_string(self.root.with_extension("log")).unwrap_or_default();
            assert!(Instant::now() < end, "{what}: not within 60 s\n{}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn ready(&self) -> bool {
        self.cri.status(&self.root.join(SOCKET)).is_ok_and(|status| status.runtime_ready)
    }

    /// Changes with every start of containerd.
    pub(crate) fn incarnation(&self) -> (u64, i64, i64) {
        let found = fs::metadata(self.root.join(SOCKET)).unwrap();
        (found.ino(), found.ctime(), found.ctime_nsec())
    }

    /// A command in the node's namespaces.
    pub(crate) fn inside(&self, program: &str, arguments: &[&str]) -> Output {
        command("nsenter")
            .args(["-t", &child(self.namespaces.id()), "-a", program])
            .args(arguments)
            .env("PATH", "/node/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .output()
            .unwrap()
    }

    /// The agent as a process that the node's systemd can see, as it sees those of containers.
    pub(crate) fn agent(&self, arguments: &[&str]) -> Command {
        let mut agent = command("nsenter");
        agent.args(["-t", &child(self.namespaces.id()), "-p"]);
        agent.arg(env!("CARGO_BIN_EXE_kata-operator"));
        agent.arg("node-agent").args(arguments).arg("--host-root").arg(&self.root);
        agent
    }

    /// Runs a task, and gives the report.
    pub(crate) fn run(&self, action: NodeAction, image: &str, handlers: &[&str]) -> NodeReport {
        let task = task(action, image, handlers);
        let output = self.agent(&["run", "--task", &task]).output().unwrap();
        let report: NodeReport = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let code = match report.outcome {
            Outcome::Done => 0,
            Outcome::Refused | Outcome::Blocked => 4,
            Outcome::Drifted | Outcome::RolledBack | Outcome::Unsafe | Outcome::Failed => 1,
        };
        assert_eq!(output.status.code(), Some(code), "{report:?}");
        report
    }

    /// Stages a payload out of an image.
    pub(crate) fn stage(&self, image: &str, image_root: &Path) -> Output {
        let task = task(NodeAction::Install, image, &["kata"]);
        let mut agent = self.agent(&["stage", "--task", &task]);
        agent.arg("--image-root").arg(image_root).output().unwrap()
    }

    /// Every file below `/etc`, `/opt` and `/var/lib/kata-operator` of the node.
    pub(crate) fn files(&self) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        for folder in ["etc", "opt", "var/lib/kata-operator"] {
            collect(&self.root, &self.root.join(folder), &mut files);
        }
        files
    }
}

/// The first child of a process.
pub(crate) fn child(parent: u32) -> String {
    let children = format!("/proc/{parent}/task/{parent}/children");
    let children = fs::read_to_string(children).unwrap_or_default();
    children.split_whitespace().next().unwrap_or_default().to_owned()
}

fn collect(root: &Path, path: &Path, files: &mut BTreeMap<String, String>) {
    let Ok(found) = fs::symlink_metadata(path) else { return };
    let mode = found.permissions().mode();
    let text = if found.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            collect(root, &entry.unwrap().path(), files);
        }
        format!("{mode:o}")
    } else if found.is_symlink() {
        fs::read_link(path).unwrap().display().to_string()
    } else {
        format!("{mode:o} {}", kata_host::digest::hex(&fs::read(path).unwrap()))
    };
    files.insert(path.strip_prefix(root).unwrap().display().to_string(), text);
}

pub(crate) fn task(action: NodeAction, image: &str, handlers: &[&str]) -> String {
    let removes = action == NodeAction::Remove;
    let handlers = handlers.iter().filter(|_| !removes);
    let task = NodeTask {
        version: NODE_TASK_VERSION,
        node: "node".to_owned(),
        action,
        handlers: handlers
            .map(|name| TaskHandler { name: (*name).to_owned(), shim: "qemu".to_owned() })
            .collect(),
        payload_image: (!removes).then(|| image.to_owned()),
        container_runtime: None,
        log_level: None,
        verify: false,
    };
    serde_json::to_string(&task).unwrap()
}
