//! A node in memory: the [`kata_host::Host`] that can be killed, or lose its power, at any call.

use std::time::Duration;

use kata_api::node_task::{ForeignChanges, NODE_TASK_VERSION, NodeAction, NodeTask, TaskHandler};
use kata_host::host::{Device, Facts, HostError, HostErrorKind, HostResult, Mount, Sandbox, Unit};
use kata_host::paths;
use kata_host::payload::{Stage, TREE, seal_stage};

use crate::disk::{BLOCK, Disk};
use crate::runtime::{self, Kind, Runtime};

mod calls;
pub mod kata_deploy;
pub mod nodeadm;

/// What goes wrong at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process is killed before the call has an effect.
    KilledBefore,
    /// The process is killed after the call has had its effect.
    KilledAfter,
    /// The call fails, and the process goes on.
    Fails(HostErrorKind),
    /// From that call on the disk takes nothing more.
    DiskFull,
}

/// What a user or another program does to a node.
pub type Deed = fn(&mut Node);

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    pub disk: Disk,
    pub runtime: Runtime,
    pub facts: Facts,
    pub disk_free: u64,
    /// What the disk takes in all, if there is an end to it.
    pub capacity: Option<u64>,
    /// How folders are mounted.
    pub mounts: Vec<(String, Mount)>,
    pub broken_device: Option<Device>,
    pub systemd: bool,
    /// The locks that other programs have.
    pub locked: Vec<&'static str>,
    /// Calls so far, and how many of them wrote something.
    pub calls: usize,
    pub writes: usize,
    pub log: Vec<String>,
    /// What another program does at the first call whose name begins so.
    pub meanwhile: Option<(&'static str, Deed)>,
    /// What another program does at the call with this number.
    pub at_call: Option<(usize, Deed)>,
    fault: Option<(usize, Fault)>,
    /// A file or folder that cannot be read.
    pub unreadable: Option<String>,
    /// A unit that is there and does not run, beside the container runtime's.
    pub left_over: Option<String>,
    /// Other services that run.
    pub services: Vec<(String, Unit)>,
    /// A unit that is being started, beside the container runtime's.
    pub starting: Option<String>,
    /// For how long the container runtime does not answer after a restart.
    pub starts_for: Duration,
    /// What `nodeadm` writes to the main file at each boot, if it does, before it merges its folder into that.
    pub nodeadm: Option<String>,
    /// For how long systemd is starting the unit of the container runtime, and how often it was restarted meanwhile.
    pub activates_for: Duration,
    pub restarts_while_starting: usize,
    activates_until: Duration,
    answers_from: Duration,
    /// What the container runtime answers first after the next restart, the last one first.
    pub first_answers: Vec<HostErrorKind>,
    pending_answers: Vec<HostErrorKind>,
    dead: bool,
    now: Duration,
    /// How far ahead of the node a killed process believes to be, so that what it waits for ends.
    after_death: Duration,
}

pub const V2_MAIN: &str = "# by hand\nversion = 3\n\n[plugins.\"io.containerd.cri.v1.images\"]\n  snapshotter = \"overlayfs\" # ours\n";
pub const V1_MAIN: &str = "version = 2\n# by hand\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  sandbox_image = \"registry.local/pause:9\"\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n  runtime_type = \"io.containerd.runc.v2\"\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n  SystemdCgroup = true\n";
const QEMU: &str = "[hypervisor.qemu]\npath = \"/opt/kata/bin/qemu-system-x86_64\"\nkernel = \"/opt/kata/share/kata-containers/vmlinux.container\"\nvalid_hypervisor_paths = [\"/opt/kata/bin/qemu-system-x86_64\"]\n\n[agent.kata]\n#enable_debug = true\n\n[runtime]\n#enable_debug = true\n";

impl Node {
    /// A node whose container runtime runs, with nothing of ours on it.
    pub fn new(kind: Kind, main: Option<&str>) -> Self {
        let mut disk = Disk::default();
        for path in ["/etc", "/opt", "/var", "/var/lib", "/run", "/run/lock"] {
            disk.make_dir(path, 0o755).unwrap();
        }
        disk.write("/etc/os-release", b"ID=debian\n", 0o644).unwrap();
        let runtime = Runtime::new(kind);
        if kind == Kind::Crio {
            disk.make_dir("/etc/crio", 0o755).unwrap();
            disk.make_dir("/etc/crio/crio.conf.d", 0o755).unwrap();
        }
        if let Some(main) = main {
            let folder = paths::parent(&runtime.main).to_owned();
            disk.make_dir(&folder, 0o755).unwrap();
            disk.write(&runtime.main, main.as_bytes(), 0o640).unwrap();
        }
        let mut node = Self {
            disk,
            runtime,
            facts: Facts {
                architecture: "x86_64".to_owned(),
                memory_available: 8 << 30,
                selinux_confined: false,
            },
            disk_free: 100 << 30,
            capacity: None,
            mounts: Vec::new(),
            broken_device: None,
            systemd: true,
            locked: Vec::new(),
            calls: 0,
            writes: 0,
            log: Vec::new(),
            meanwhile: None,
            at_call: None,
            fault: None,
            unreadable: None,
            left_over: None,
            services: Vec::new(),
            starting: None,
            starts_for: Duration::ZERO,
            nodeadm: None,
            activates_for: Duration::ZERO,
            restarts_while_starting: 0,
            activates_until: Duration::ZERO,
            answers_from: Duration::ZERO,
            first_answers: Vec::new(),
            pending_answers: Vec::new(),
            dead: false,
            after_death: Duration::ZERO,
            now: Duration::ZERO,
        };
        node.boot();
        node.runtime.restarts = 0;
        node.disk.settle();
        node
    }

    /// A node of a distribution that keeps containerd's files elsewhere.
    pub fn of(unit: &str, main: &str, text: &str, template: Option<&str>) -> Self {
        let mut node = Self::new(Kind::Containerd(2, 1), None);
        let mut folder = String::new();
        for part in paths::parent(main).split('/').filter(|part| !part.is_empty()) {
            folder = format!("{folder}/{part}");
            node.disk.make_dir(&folder, 0o755).unwrap();
        }
        node.disk.write(main, text.as_bytes(), 0o644).unwrap();
        if let Some(template) = template {
            node.disk.write(template, text.as_bytes(), 0o644).unwrap();
        }
        node.runtime.unit = unit.to_owned();
        node.runtime.main = main.to_owned();
        node.runtime.template = template.map(str::to_owned);
        node.boot();
        node.runtime.restarts = 0;
        node.disk.settle();
        node
    }

    fn boot(&mut self) {
        if let Some(template) = &self.nodeadm {
            let text = nodeadm::of_disk(template, &self.disk);
            self.disk.write(&self.runtime.main, text.as_bytes(), 0o644).unwrap();
        }
        self.runtime.start(&mut self.disk);
    }

    /// A node of Amazon EKS, where `nodeadm` writes this text to the main file at each boot.
    pub fn eks(kind: Kind, template: &str) -> Self {
        let mut node = Self::new(kind, Some(template));
        for folder in ["/etc/eks", nodeadm::FOLDER, "/etc/systemd", "/etc/systemd/system"] {
            node.disk.make_dir(folder, 0o755).unwrap();
        }
        node.disk.make_dir(paths::parent(nodeadm::ENABLED), 0o755).unwrap();
        node.disk.symlink("../nodeadm-run.service", nodeadm::ENABLED).unwrap();
        node.nodeadm = Some(template.to_owned());
        node.boot();
        node.runtime.restarts = 0;
        node.disk.settle();
        node
    }

    /// What a stage container leaves.
    pub fn stage(&mut self, image: &str) {
        self.stage_with(image, QEMU);
    }

    /// The same for these shims, of an image that has `qemu` and `clh`, which share most of their files.
    pub fn stage_for(&mut self, image: &str, shims: &[&str]) {
        self.stage_shims(image, QEMU, shims);
    }

    /// The same with this configuration of the shim `qemu`.
    pub fn stage_with(&mut self, image: &str, qemu: &str) {
        self.stage_shims(image, qemu, &["qemu", "clh"]);
    }

    fn stage_shims(&mut self, image: &str, qemu: &str, shims: &[&str]) {
        let folder = format!("{}/.unpacking", paths::STAGING);
        for path in [paths::ROOT, paths::STAGING, &folder] {
            self.disk.make_dir(path, 0o755).unwrap();
        }
        self.disk.settle();
        let tree = format!("{folder}/{TREE}");
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(64, 0);
        elf[18] = 62;
        elf.extend(image.bytes());
        for directory in [
            "",
            "/bin",
            "/share",
            "/share/kata-qemu",
            "/share/kata-qemu/qemu",
            "/share/kata-qemu-snp-experimental",
            "/share/kata-qemu-snp-experimental/qemu",
            "/share/defaults",
            "/share/defaults/kata-containers",
            "/share/kata-containers",
        ] {
            self.disk.make_dir(&format!("{tree}{directory}"), 0o755).unwrap();
        }
        let mut file = |name: &str, content: &[u8], mode| {
            self.disk.write(&format!("{tree}/{name}"), content, mode).unwrap();
        };
        file("bin/containerd-shim-kata-v2", &elf, 0o755);
        file("bin/qemu-system-x86_64", image.as_bytes(), 0o755);
        if !shims.contains(&"clh") {
            file("share/kata-containers/of-qemu", b"", 0o644);
        }
        file("share/kata-containers/vmlinux-6.12", image.as_bytes(), 0o644);
        file("share/defaults/kata-containers/configuration-qemu.toml", qemu.as_bytes(), 0o644);
        file(
            "share/defaults/kata-containers/configuration-clh.toml",
            QEMU.replace("qemu", "clh").as_bytes(),
            0o644,
        );
        self.disk
            .symlink("vmlinux-6.12", &format!("{tree}/share/kata-containers/vmlinux.container"))
            .unwrap();
        let stage = Stage {
            image: image.to_owned(),
            source: image.to_owned(),
            shims: shims.iter().map(|shim| (*shim).to_owned()).collect(),
            kata_version: Some("3.24.0".to_owned()),
            digest: String::new(),
        };
        seal_stage(self, &folder, stage).unwrap();
    }

    /// Arms a fault at a call, counted from now.
    pub fn arm(&mut self, call: usize, fault: Fault) {
        self.calls = 0;
        self.writes = 0;
        self.log.clear();
        self.fault = Some((call, fault));
    }

    /// Whether the armed fault was met.
    pub fn was_hit(&self) -> bool {
        self.fault.is_some_and(|(call, _)| self.calls > call)
    }

    /// The next process starts. With a loss of power, the node boots before that.
    pub fn revive(&mut self, power_lost: bool) {
        self.dead = false;
        self.after_death = Duration::ZERO;
        self.fault = None;
        self.calls = 0;
        self.writes = 0;
        self.log.clear();
        if power_lost {
            self.disk.lose_power();
            self.runtime.sandboxes.clear();
            self.boot();
        }
    }

    pub fn sandbox(&mut self, id: &str, handler: &str) {
        self.runtime.sandboxes.push(Sandbox {
            id: id.to_owned(),
            namespace: "shop".to_owned(),
            pod: format!("web-{id}"),
            uid: format!("uid-{id}"),
            handler: handler.to_owned(),
            ready: true,
        });
    }

    /// Whether the container runtime serves and offers a handler.
    pub fn offers(&self, handler: &str) -> bool {
        matches!(&self.runtime.running, Some(Ok(live)) if runtime::handlers(live).contains(handler))
    }

    pub fn etc(&self) -> Vec<(String, String)> {
        self.disk.all().into_iter().filter(|(path, _)| path.starts_with("/etc")).collect()
    }

    pub fn text(&self, path: &str) -> String {
        String::from_utf8(self.disk.read(path).unwrap_or_default()).unwrap()
    }

    /// Whether systemd is still starting the container runtime's unit.
    fn is_activating(&self) -> bool {
        self.now < self.activates_until
    }

    /// The container runtime's, and others.
    fn running_services(&self) -> Vec<(String, Unit)> {
        let runtime = &self.runtime;
        let unit = Unit {
            active: runtime.running.is_some() && !self.is_activating(),
            changing: self.is_activating(),
            command: runtime.command.clone(),
            environment: runtime.environment.clone(),
            environment_files: runtime.environment_files.clone(),
            started: runtime.running.is_some().then_some(runtime.started),
        };
        let all = std::iter::once((runtime.unit.clone(), unit));
        all.chain(self.services.iter().cloned()).collect()
    }

    fn call<T>(
        &mut self,
        writes: bool,
        action: String,
        effect: impl FnOnce(&mut Self) -> Result<T, (String, HostErrorKind)>,
    ) -> HostResult<T> {
        let error = |action: String, reason: &str, kind| {
            Err(HostError { action, reason: reason.to_owned(), kind })
        };
        if self.dead {
            return error(action, "killed", HostErrorKind::Other);
        }
        let call = self.calls;
        self.calls += 1;
        self.log.push(action.clone());
        let fault = self.fault.filter(|(at, _)| *at == call).map(|(_, fault)| fault);
        match fault {
            Some(Fault::KilledBefore) => {
                self.dead = true;
                return error(action, "killed", HostErrorKind::Other);
            }
            Some(Fault::Fails(kind)) => return error(action, "injected", kind),
            Some(Fault::KilledAfter | Fault::DiskFull) | None => {}
        }
        if let Some((at, what)) = self.meanwhile
            && action.starts_with(at)
        {
            self.meanwhile = None;
            what(self);
        }
        if let Some((at, what)) = self.at_call
            && at == call
        {
            self.at_call = None;
            what(self);
        }
        if writes {
            self.writes += 1;
        }
        let result = effect(self);
        if fault == Some(Fault::KilledAfter) {
            self.dead = true;
            return error(action, "killed", HostErrorKind::Other);
        }
        result.map_err(|(reason, kind)| HostError { action, reason, kind })
    }

    /// Whether nothing keeps a file or folder from being read.
    fn readable(&self, path: &str) -> Result<(), (String, HostErrorKind)> {
        if self.unreadable.as_deref() == Some(path) {
            return Err(("Input/output error".to_owned(), HostErrorKind::Other));
        }
        Ok(())
    }

    /// Whether so many bytes more fit on the disk.
    fn room(&self, bytes: u64) -> Result<(), (String, HostErrorKind)> {
        let full = || Err(("no space left on device".to_owned(), HostErrorKind::NoSpace));
        match self.fault {
            Some((at, Fault::DiskFull)) if self.calls > at => return full(),
            _ => {}
        }
        match self.capacity {
            Some(capacity) if self.disk.used() + bytes > capacity => full(),
            _ => Ok(()),
        }
    }

    /// Whether the content of a file fits in the place of what it is.
    fn room_for(&self, path: &str, bytes: u64) -> Result<(), (String, HostErrorKind)> {
        if is_in_memory(path) {
            return Ok(());
        }
        let bytes = bytes.next_multiple_of(BLOCK);
        self.room(bytes.saturating_sub(self.disk.used_by(path)))
    }

    fn cri<T>(
        &mut self,
        what: &str,
        socket: &str,
        answer: impl FnOnce(&Runtime, &toml::Table) -> T,
    ) -> HostResult<T> {
        let answer_kind = self.pending_answers.pop();
        self.call(false, format!("ask CRI for {what}"), |node| match &node.runtime.running {
            _ if let Some(kind) = answer_kind => Err(("it is starting".to_owned(), kind)),
            _ if node.runtime.socket.as_ref().is_some_and(|place| place != socket) => {
                Err((format!("{socket}: no such socket"), HostErrorKind::Unreachable))
            }
            _ if node.is_activating() || node.now < node.answers_from => {
                Err(("connection refused".to_owned(), HostErrorKind::Unreachable))
            }
            None => Err(("connection refused".to_owned(), HostErrorKind::Unreachable)),
            Some(Err(reason)) => {
                Err((format!("unknown service: {reason}"), HostErrorKind::Unimplemented))
            }
            Some(Ok(table)) => Ok(answer(&node.runtime, table)),
        })
    }
}

/// Whether a path does not take anything of the disk.
fn is_in_memory(path: &str) -> bool {
    path.starts_with("/run/")
}

/// A task for the handler `kata` with the shim `qemu`.
pub fn task(action: NodeAction, image: &str) -> NodeTask {
    let installs = action != NodeAction::Remove;
    NodeTask {
        version: NODE_TASK_VERSION,
        node: "worker-0".to_owned(),
        action,
        handlers: if installs {
            vec![TaskHandler { name: "kata".to_owned(), shim: "qemu".to_owned(), config: None }]
        } else {
            Vec::new()
        },
        payload_image: installs.then(|| image.to_owned()),
        container_runtime: None,
        log_level: None,
        foreign_changes: ForeignChanges::default(),
        take_over: false,
        verify: false,
    }
}
