//! A node with a real containerd and a real systemd, and the agent as a process.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use kata_api::node_task::{
    ForeignChanges, NODE_TASK_VERSION, NodeAction, NodeReport, NodeTask, Outcome, TaskHandler,
};
use kata_node_agent::cri::Client;

use crate::payload;

pub(crate) const SOCKET: &str = "run/containerd/containerd.sock";

/// What the Job of a node adds to no capabilities at all for what changes the node, see docs/privileges.md.
const CHANGES: &str = "-all,+chown,+dac_override,+fowner";
/// The same for what only looks.
const LOOKS: &str = "-all,+dac_override";

/// The folder with the packages of a release of containerd. `2` is the newest 2.x that is there.
pub(crate) fn packages(release: &str) -> PathBuf {
    let all = workspace().join("target/containerd");
    let minor = |folder: &PathBuf| {
        let name = folder.file_name()?.to_str()?;
        let rest = name.strip_prefix(release)?;
        if rest.is_empty() { Some(0) } else { rest.strip_prefix('.')?.parse::<u32>().ok() }
    };
    let folders = fs::read_dir(&all).into_iter().flatten().map(|entry| entry.unwrap().path());
    folders.filter(|it| minor(it).is_some()).max_by_key(minor).unwrap_or_else(|| {
        panic!("no containerd {release} below {}: run .ci/containerd.sh", all.display())
    })
}

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// What a program leaves in a container's termination message, where the kubelet has made a file for it.
pub(crate) fn termination_message(program: &[OsString]) -> Vec<u8> {
    let mut namespace = command("unshare");
    namespace.args(["--mount", "--propagation", "private"]);
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        namespace.args(["--user", "--map-root-user"]);
    }
    let inside = "mount -t tmpfs tmpfs /dev && : > /dev/termination-log || exit 9; \"$@\"; \
                  cat /dev/termination-log";
    let output = namespace.args(["sh", "-c", inside, "sh"]).args(program).output().unwrap();
    assert!(output.status.success(), "a mount namespace cannot be made: {output:?}");
    output.stdout
}

/// On a machine without KVM, a library that answers what the agent asks KVM for. What a test then finds says nothing
/// about KVM.
fn kvm_stand_in() -> Option<&'static Path> {
    static LIBRARY: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        if Path::new("/dev/kvm").exists() {
            return None;
        }
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kvm-stand-in.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/kvm.c");
        let mut compiler = command("cc");
        compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&library).arg(source);
        let compiled = compiler.output().unwrap();
        assert!(compiled.status.success(), "{compiled:?}");
        Some(library)
    });
    LIBRARY.as_deref()
}

/// Lets what the node's systemd starts find the library, as the agent does.
fn preload(root: &Path, library: &Path) {
    let settings = root.join("etc/systemd/system.conf.d");
    fs::create_dir_all(&settings).unwrap();
    fs::create_dir_all(root.join("node")).unwrap();
    fs::copy(library, root.join("node/kvm-stand-in.so")).unwrap();
    let variable = "[Manager]\nDefaultEnvironment=LD_PRELOAD=/node/kvm-stand-in.so\n";
    fs::write(settings.join("kvm.conf"), variable).unwrap();
}

pub(crate) fn command(program: &str) -> Command {
    Command::new(program)
}

/// A node.
pub(crate) struct Node {
    pub(crate) root: PathBuf,
    pub(crate) cri: Client,
    /// CRI's socket.
    pub(crate) socket: PathBuf,
    /// Whether the agent has no more capabilities than the Job gives it.
    pub(crate) confined: bool,
    namespaces: Child,
}

impl Drop for Node {
    fn drop(&mut self) {
        let gone = self.power_off();
        if !std::thread::panicking() {
            assert!(gone, "control groups of {} outlived it", self.root.display());
            fs::remove_dir_all(&self.root).unwrap();
        }
    }
}

/// A file system that a test mounted.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    /// A small one in memory.
    pub(crate) fn small(at: &Path, options: &str) -> Self {
        fs::create_dir_all(at).unwrap();
        let mounted = Self(at.to_owned());
        let arguments = ["-t", "tmpfs", "-o", options, "tmpfs"];
        assert!(command("mount").args(arguments).arg(at).status().unwrap().success());
        mounted
    }

    /// The file system in a disk's image. It does not write by itself for five minutes, so that only what a process
    /// syncs gets into the image.
    pub(crate) fn disk(at: &Path, image: &Path) -> Self {
        fs::create_dir_all(at).unwrap();
        let mounted = Self(at.to_owned());
        let mount = command("mount").args(["-o", "loop,commit=300"]).args([image, at]).output();
        let mount = mount.unwrap();
        assert!(mount.status.success(), "{mount:?}");
        mounted
    }

    /// Gives it another size.
    pub(crate) fn resize(&self, size: &str) {
        let options = format!("remount,size={size}");
        assert!(command("mount").args(["-o", &options]).arg(&self.0).status().unwrap().success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        command("umount").arg("--lazy").arg(&self.0).status().unwrap();
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
    /// Starts a node and waits until its container runtime is ready.
    pub(crate) fn start(release: &str, name: &str) -> Self {
        Self::start_on(release, name, |_| {})
    }

    /// The same with a root that was prepared so; what is mounted there is there from within as well. containerd's
    /// main file is there already.
    pub(crate) fn start_on(release: &str, name: &str, prepare: impl FnOnce(&Path)) -> Self {
        Self::start_with(release, name, SOCKET, prepare)
    }

    /// The same with CRI at another socket.
    pub(crate) fn start_with(
        release: &str,
        name: &str,
        socket: &str,
        prepare: impl FnOnce(&Path),
    ) -> Self {
        // Short, since the path of a socket has at most 107 bytes.
        let root = workspace().join(format!("target/nodes/{release}-{name}"));
        clear(&root);
        fs::create_dir_all(root.join("etc/containerd")).unwrap();
        fs::write(root.join("etc/containerd/config.toml"), main_file(release)).unwrap();
        prepare(&root);
        // From outside the node's folder is plain, so it gets devices of its own: the real KVM, and
        // something that can be opened for what a machine for tests may lack.
        fs::create_dir_all(root.join("dev")).unwrap();
        let kvm = match kvm_stand_in() {
            None => ["10", "232"],
            Some(library) => {
                preload(&root, library);
                ["1", "3"]
            }
        };
        for (name, numbers) in
            [("kvm", kvm), ("vhost-vsock", ["1", "3"]), ("vhost-net", ["1", "3"])]
        {
            let made =
                command("mknod").arg(root.join("dev").join(name)).arg("c").args(numbers).status();
            assert!(made.unwrap().success(), "{name}");
        }
        Self::boot(release, root, socket)
    }

    /// Boots a node with the files that are below its root.
    pub(crate) fn boot(release: &str, root: PathBuf, socket: &str) -> Self {
        let namespaces = namespaces(release, &root);
        let socket = root.join(socket);
        let cri = Client::new().unwrap();
        let node = Self { root, cri, socket, confined: true, namespaces };
        node.until("the container runtime is ready", || node.ready());
        node
    }

    /// Ends everything that runs on the node, and says whether that is so.
    fn power_off(&mut self) -> bool {
        // Its namespaces end with it, and everything in them.
        self.namespaces.kill().unwrap();
        self.namespaces.wait().unwrap();
        // Its control groups do not; they can be removed once its processes are gone.
        let group = format!("*/kata-node-{}", self.namespaces.id());
        let below = format!("{group}/*");
        let either = ["(", "-path", &group, "-o", "-path", &below, ")"];
        let removed = || {
            let mut find = command("find");
            find.args(["/sys/fs/cgroup", "-depth", "-type", "d"]).args(either).arg("-delete");
            find.stderr(Stdio::null()).status().unwrap().success()
        };
        let end = Instant::now() + Duration::from_secs(10);
        let mut gone = removed();
        while !gone && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
            gone = removed();
        }
        gone
    }

    /// Boots the node anew, with another release of containerd in the place of the one that it had.
    pub(crate) fn reboot_with(&mut self, release: &str) {
        self.reboot_after(release, |_| {});
    }

    /// The same after something was done to the files below its root.
    pub(crate) fn reboot_after(&mut self, release: &str, prepare: impl FnOnce(&Path)) {
        assert!(self.power_off());
        for folder in ["run", "tmp"] {
            fs::remove_dir_all(self.root.join(folder)).unwrap();
        }
        prepare(&self.root);
        self.namespaces = namespaces(release, &self.root);
        self.until("the container runtime is ready", || self.ready());
    }

    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !holds() {
            let log = || fs::read_to_string(log(&self.root)).unwrap_or_default();
            assert!(Instant::now() < end, "{what}: not within 60 s\n{}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn ready(&self) -> bool {
        self.cri.status(&self.socket).is_ok_and(|status| status.runtime_ready)
    }

    /// Changes with every start of containerd.
    pub(crate) fn incarnation(&self) -> (u64, i64, i64) {
        let found = fs::metadata(&self.socket).unwrap();
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

    /// Its processes, by their numbers outside of it.
    pub(crate) fn all_processes(&self) -> Vec<String> {
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid")).ok();
        let own = namespace(&child(self.namespaces.id()));
        let names = fs::read_dir("/proc").unwrap();
        let names = names.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
        names.filter(|name| own.is_some() && namespace(name) == own).collect()
    }

    /// `systemctl`, which has to do what it is asked.
    pub(crate) fn systemctl(&self, arguments: &[&str]) -> String {
        let output = self.inside("/usr/bin/systemctl", arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Adds lines to the section `[Service]` of a unit, until the next boot.
    pub(crate) fn service(&self, unit: &str, lines: &str) {
        let folder = self.root.join(format!("run/systemd/system/{unit}.d"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("test.conf"), format!("[Service]\n{lines}\n")).unwrap();
        self.systemctl(&["daemon-reload"]);
    }

    /// The handlers that are offered now.
    pub(crate) fn handlers(&self) -> BTreeSet<String> {
        let status = self.cri.status(&self.socket).unwrap();
        kata_host::containerd::live(&status).handlers
    }

    /// The agent as a process that the node's systemd can see, as it sees those of containers, with the
    /// capabilities that its container has.
    pub(crate) fn agent(&self, arguments: &[&str]) -> Command {
        let words = arguments.iter().skip_while(|word| **word != "--task").nth(1);
        let task = words.and_then(|words| serde_json::from_str::<NodeTask>(words).ok());
        let looks = |task: &NodeTask| {
            arguments.first() == Some(&"run")
                && matches!(task.action, NodeAction::Preflight | NodeAction::Inspect)
        };
        let capabilities = match task {
            _ if arguments.first() == Some(&"sandbox") => "-all",
            Some(task) if looks(&task) => LOOKS,
            _ => CHANGES,
        };
        let mut agent = command("nsenter");
        agent.args(["-t", &child(self.namespaces.id()), "-p"]);
        if self.confined {
            agent.args(["setpriv", "--no-new-privs", "--inh-caps", "-all"]);
            agent.args(["--bounding-set", capabilities]);
        }
        if let Some(library) = kvm_stand_in() {
            agent.arg("env").arg(format!("LD_PRELOAD={}", library.display()));
        }
        agent.arg(env!("CARGO_BIN_EXE_kata-node-agent"));
        agent.arg("node-agent").args(arguments).arg("--host-root").arg(&self.root);
        agent
    }

    /// Runs a task, and gives the report.
    pub(crate) fn run(&self, action: NodeAction, image: &str, handlers: &[&str]) -> NodeReport {
        self.run_task(&node_task(action, image, handlers))
    }

    /// The same for any task.
    pub(crate) fn run_task(&self, task: &NodeTask) -> NodeReport {
        let words = serde_json::to_string(task).unwrap();
        report(&self.agent(&["run", "--task", &words]).output().unwrap())
    }

    /// Makes an image on the node that has a payload of this version.
    pub(crate) fn image(&self, version: &str) -> PathBuf {
        let images = self.root.join("tmp");
        fs::create_dir_all(&images).unwrap();
        payload::image(&images, version)
    }

    /// Stages a payload out of an image.
    pub(crate) fn stage(&self, image: &str, image_root: &Path) -> Output {
        self.stager(image, image_root).output().unwrap()
    }

    /// The process that does so.
    pub(crate) fn stager(&self, image: &str, image_root: &Path) -> Command {
        let task = task(NodeAction::Install, image, &["kata"]);
        let mut agent = self.agent(&["stage", "--task", &task]);
        agent.arg("--image-root").arg(image_root);
        agent
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

/// Removes a folder that a killed run left, and unmounts what is still mounted in it.
pub(crate) fn clear(folder: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let places = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
    for place in places.filter(|place| Path::new(place).starts_with(folder)) {
        assert!(command("umount").args(["--lazy", place]).status().unwrap().success(), "{place}");
    }
    if folder.exists() {
        fs::remove_dir_all(folder).unwrap();
    }
}

/// Starts the processes of a node.
fn namespaces(release: &str, root: &Path) -> Child {
    let log = fs::File::create(log(root)).unwrap();
    let mut node = command("sh");
    node.arg(workspace().join(".ci/node.sh")).args([root, &packages(release)]);
    node.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
}

/// What a node says while it runs, beside its root.
fn log(root: &Path) -> PathBuf {
    // Not another extension: a release has a dot in it.
    let mut name = root.as_os_str().to_owned();
    name.push(".log");
    PathBuf::from(name)
}

/// The report of an agent, whose exit code has to be that of the outcome.
pub(crate) fn report(output: &Output) -> NodeReport {
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

/// Ends the test if files are not as they were, and says which.
#[track_caller]
pub(crate) fn assert_same(now: &BTreeMap<String, String>, then: &BTreeMap<String, String>) {
    let paths: BTreeSet<&String> = now.keys().chain(then.keys()).collect();
    let differs = |path: &&String| now.get(*path) != then.get(*path);
    let differences: Vec<String> = paths
        .into_iter()
        .filter(differs)
        .map(|path| format!("{path}: {:?}, was {:?}", now.get(path), then.get(path)))
        .collect();
    assert_eq!(differences, Vec::<String>::new());
}

/// Ends the test if a change was not undone: what may be left of it is the release that it prepared, which
/// nothing leads to, until the next change takes it away.
#[track_caller]
pub(crate) fn assert_went_back(now: &BTreeMap<String, String>, then: &BTreeMap<String, String>) {
    const RELEASES: &str = "opt/kata-operator/releases/";
    let release = |path: &String| path.strip_prefix(RELEASES)?.split('/').next().map(str::to_owned);
    let old: BTreeSet<String> = then.keys().filter_map(release).collect();
    let new: BTreeSet<String> =
        now.keys().filter_map(release).filter(|it| !old.contains(it)).collect();
    assert!(new.len() <= 1, "{new:?}");
    let mut now = now.clone();
    now.retain(|path, _| release(path).is_none_or(|release| !new.contains(&release)));
    assert_same(&now, then);
    let leads = |name: &String| now.values().any(|text| text.contains(name.as_str()));
    assert!(!new.iter().any(leads), "{new:?}");
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
    serde_json::to_string(&node_task(action, image, handlers)).unwrap()
}

/// The same with what to do about changes of other programs.
pub(crate) fn task_with(
    action: NodeAction,
    image: &str,
    handlers: &[&str],
    foreign_changes: ForeignChanges,
) -> String {
    let task = NodeTask { foreign_changes, ..node_task(action, image, handlers) };
    serde_json::to_string(&task).unwrap()
}

/// The task of a Job, with the shim `qemu` for every handler.
pub(crate) fn node_task(action: NodeAction, image: &str, handlers: &[&str]) -> NodeTask {
    let removes = action == NodeAction::Remove;
    let handlers = handlers.iter().filter(|_| !removes);
    NodeTask {
        version: NODE_TASK_VERSION,
        node: "node".to_owned(),
        action,
        handlers: handlers
            .map(|name| TaskHandler {
                name: (*name).to_owned(),
                shim: "qemu".to_owned(),
                config: None,
            })
            .collect(),
        payload_image: (!removes).then(|| image.to_owned()),
        container_runtime: None,
        log_level: None,
        foreign_changes: ForeignChanges::Wait,
        take_over: false,
        verify: false,
    }
}
