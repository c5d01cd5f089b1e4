//! A host: files, packages, power, processes, as far as nodes and admins look at them.
//!
//! It changes only when it is told to; nothing here asks for the time or writes to the API.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::crio::{self, Handler};
use super::fault::NodeFault;
use super::sandbox::Sandbox;
use super::system::{self, System};
use super::{Platform, Runtime, agent, containerd, identity};

/// Whether a host runs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Power {
    /// It runs.
    #[default]
    On,
    /// It is down until the given time of the cluster, then it starts.
    Rebooting {
        /// When it is up again; [`Timestamp::MAX`] means never.
        until: Timestamp,
    },
    /// It is down and stays down.
    Off,
}

/// A process of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its parent.
    pub parent: u32,
    /// When it started.
    pub started: Timestamp,
    /// Its arguments, the executable first.
    pub argv: Vec<String>,
}

/// A running container of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// The uid of its pod.
    pub pod_uid: String,
    /// Its name in the pod.
    pub name: String,
}

/// The container runtime that hosts of a platform have if nothing is said of it.
fn usual(platform: Platform) -> Runtime {
    match platform {
        Platform::OpenShift => Runtime::Crio,
        Platform::Kubernetes => Runtime::Containerd2,
    }
}

impl HostSpec {
    fn runtime(&self) -> Runtime {
        self.runtime.unwrap_or_else(|| usual(self.platform))
    }
}

/// What a new host is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSpec {
    /// Its name, also the node's.
    pub name: String,
    /// The kind of cluster that it is for.
    pub platform: Platform,
    /// Whether it belongs to the control plane.
    pub control_plane: bool,
    /// Whether it runs ordinary workloads.
    pub worker: bool,
    /// Logical CPUs.
    pub cpus: u32,
    /// Memory in KiB.
    pub memory_kib: u64,
    /// A number that no other host of the cluster has; addresses derive from it.
    pub index: u32,
    /// How many images its kubelet reports.
    #[serde(default)]
    pub images: u32,
    /// Its container runtime; `None` for that of its kind of cluster.
    #[serde(default)]
    pub runtime: Option<Runtime>,
    /// Its operating system, if that brings a sandboxing runtime; `None` for that of its kind of cluster.
    #[serde(default)]
    pub system: Option<System>,
    /// Handlers that its container runtime has from the beginning.
    #[serde(default)]
    pub handlers: Vec<String>,
    /// Labels with which it becomes a node, besides those of its kind.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Keys and effects of the taints with which it becomes a node.
    #[serde(default)]
    pub taints: Vec<(String, String)>,
}

/// A host: what a node's operating system has, in memory.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Host {
    /// What it is made of; `None` for a host that only exists in a test.
    pub spec: Option<HostSpec>,
    /// Files by absolute path.
    pub files: BTreeMap<String, String>,
    /// Changes with every boot; what `/proc/sys/kernel/random/boot_id` shows.
    pub boot_id: String,
    /// How often it booted.
    pub boots: u32,
    /// When it booted last.
    pub booted: Timestamp,
    /// Whether the host runs.
    pub power: Power,
    /// The operating system's extensions that are installed and booted.
    pub extensions: BTreeSet<String>,
    /// The extensions that the next boot brings, if it changes them.
    pub staged_extensions: Option<BTreeSet<String>>,
    /// What goes wrong.
    pub faults: BTreeSet<NodeFault>,
    /// The MachineConfigPool whose configuration it first boots; that of its role if `None`.
    pub ignition_pool: Option<String>,
    /// The last failure that the machine-config daemon recorded, until it succeeds.
    pub daemon_failure: Option<String>,
    /// The configuration that the machine-config daemon last rebooted it into, until its node says so:
    /// what the real daemon writes to the disk before the reboot.
    pub config_on_disk: Option<String>,
    /// The kernel's version, as `uname -r` shows it.
    pub kernel: String,
    /// The kernel's command line.
    pub cmdline: String,
    /// The handlers that the container runtime read from its files when it started.
    pub handlers: BTreeMap<String, Handler>,
    /// Processes by id.
    pub processes: BTreeMap<u32, Process>,
    /// Pod sandboxes by the pod's uid.
    pub sandboxes: BTreeMap<String, Sandbox>,
    /// Running containers by id.
    pub containers: BTreeMap<String, Container>,
    /// How often its kubelet was restarted without a boot.
    #[serde(default)]
    pub kubelet_restarts: u32,
    /// How its container runtime stands, where Jobs change nodes.
    #[serde(default)]
    pub containerd: containerd::State,
    /// What its file system has besides files, as far as the node agent changes it.
    #[serde(default)]
    pub disk: agent::Disk,
    next_pid: u32,
}

/// The kernel of the simulated hosts.
const KERNEL: &str = "5.14.0-570.62.1.el9_6.x86_64";

/// The files that an extension of the operating system brings, with their contents.
///
/// Executables and images are there by name; their contents only say that they are simulated.
fn extension_files(extension: &str) -> &'static [(&'static str, &'static str)] {
    const BINARY: &str = "simulated\n";
    match extension {
        "sandboxed-containers" => &[
            ("/etc/crio/crio.conf.d/50-kata", crio::KATA_DROP_IN),
            ("/usr/bin/containerd-shim-kata-v2", BINARY),
            ("/usr/bin/kata-monitor", BINARY),
            ("/usr/bin/kata-runtime", BINARY),
            ("/usr/libexec/kata-containers/osbuilder/kata-osbuilder.sh", BINARY),
            ("/usr/libexec/qemu-kiwi", BINARY),
            ("/usr/libexec/virtiofsd", BINARY),
            ("/usr/share/kata-containers/defaults/configuration.toml", KATA_CONFIGURATION),
            ("/var/cache/kata-containers/kata-containers-initrd.img", BINARY),
            ("/var/cache/kata-containers/vmlinuz.container", BINARY),
        ],
        _ => &[],
    }
}

/// The defaults of Kata that the simulated virtual machines follow.
const KATA_CONFIGURATION: &str = "\
[hypervisor.qemu]
path = \"/usr/libexec/qemu-kiwi\"
kernel = \"/var/cache/kata-containers/vmlinuz.container\"
initrd = \"/var/cache/kata-containers/kata-containers-initrd.img\"
machine_type = \"q35\"
default_vcpus = 1
default_memory = 2048
shared_fs = \"virtio-fs\"
virtio_fs_daemon = \"/usr/libexec/virtiofsd\"
";

impl Host {
    /// A host that was booted before the cluster's time `now`.
    pub fn new(spec: HostSpec, now: Timestamp) -> Self {
        let tree = identity::hex_id(&format!("tree/{:?}", spec.platform));
        let root = identity::uuid(&format!("root/{}", spec.name));
        let cmdline = match spec.platform {
            Platform::OpenShift => format!(
                "BOOT_IMAGE=(hd0,gpt3)/boot/ostree/rhcos-{tree}/vmlinuz-{KERNEL} \
                 ignition.platform.id=metal ostree=/ostree/boot.1/rhcos/{tree}/0 root=UUID={root} \
                 rw rootflags=prjquota boot=UUID={} systemd.unified_cgroup_hierarchy=1",
                identity::uuid(&format!("boot/{}", spec.name)),
            ),
            Platform::Kubernetes => {
                format!("BOOT_IMAGE=/vmlinuz-{KERNEL} root=UUID={root} ro console=ttyS0")
            }
        };
        // Hosts are older than the cluster, and not all of the same age.
        let age = SignedDuration::from_secs(4 * 3600 - i64::from(spec.index % 60) * 97);
        let mut host = Self {
            cmdline,
            kernel: KERNEL.to_owned(),
            files: BTreeMap::from([
                ("/etc/hostname".to_owned(), format!("{}\n", spec.name)),
                ("/etc/os-release".to_owned(), os_release(spec.platform)),
            ]),
            disk: agent::Disk::fresh(spec.runtime()),
            spec: Some(spec),
            ..Self::default()
        };
        host.files.extend(match host.runtime() {
            Runtime::Crio => vec![
                ("/etc/crio/crio.conf".to_owned(), "[crio.runtime]\n".to_owned()),
                (
                    format!("{}00-default", crio::DROP_IN_DIRECTORY),
                    "[crio.runtime]\ndefault_runtime = \"crun\"\n".to_owned(),
                ),
            ],
            Runtime::Containerd1 => vec![(containerd::MAIN.to_owned(), containerd::OLD.to_owned())],
            Runtime::Containerd2 => {
                vec![(containerd::MAIN.to_owned(), containerd::FRESH.to_owned())]
            }
            Runtime::K3s => {
                let text = format!("{}{}", containerd::K3S_IMPORTS, containerd::FRESH);
                vec![(containerd::K3S_MAIN.to_owned(), text)]
            }
        });
        let handlers = host.spec.as_ref().map(|spec| spec.handlers.clone()).unwrap_or_default();
        let main =
            if host.runtime() == Runtime::K3s { containerd::K3S_MAIN } else { containerd::MAIN };
        system::provide(&mut host, main, &handlers);
        system::add_nodeadm(&mut host);
        host.boot(now.checked_sub(age).unwrap_or(now));
        host
    }

    /// Stages the installation of an extension for the next boot.
    pub fn install_extension(&mut self, name: &str) {
        self.staged_extensions
            .get_or_insert_with(|| self.extensions.clone())
            .insert(name.to_owned());
    }

    /// Stages the removal of an extension for the next boot.
    pub fn uninstall_extension(&mut self, name: &str) {
        self.staged_extensions.get_or_insert_with(|| self.extensions.clone()).remove(name);
    }

    /// Stages exactly these extensions for the next boot.
    pub fn stage_extensions(&mut self, extensions: BTreeSet<String>) {
        self.staged_extensions = Some(extensions);
    }

    /// Takes the host down until `until`; a faulty host stays down.
    ///
    /// Controllers call [`crate::Context::reboot_host`], which also tells the kubelet.
    pub fn reboot(&mut self, until: Timestamp) {
        let until =
            if self.faults.contains(&NodeFault::RebootHang) { Timestamp::MAX } else { until };
        self.power = Power::Rebooting { until };
        self.processes.clear();
        self.sandboxes.clear();
        self.containers.clear();
    }

    /// Starts the host: what was staged is installed now, and the container runtime reads its
    /// files.
    ///
    /// The kubelet does this when a reboot is over.
    pub fn boot(&mut self, now: Timestamp) {
        if let Some(staged) = self.staged_extensions.take() {
            for gone in self.extensions.difference(&staged) {
                for (path, _) in extension_files(gone) {
                    self.files.remove(*path);
                }
            }
            for new in staged.difference(&self.extensions) {
                for (path, text) in extension_files(new) {
                    self.files.insert((*path).to_owned(), (*text).to_owned());
                }
            }
            self.extensions = staged;
        }
        system::render_main_file(self);
        self.boots += 1;
        let name = self.name().to_owned();
        self.boot_id = identity::uuid(&format!("boot/{name}/{}", self.boots));
        self.booted = now;
        self.power = Power::On;
        self.sandboxes.clear();
        self.containers.clear();
        self.processes.clear();
        self.next_pid = 0;
        self.spawn_as(1, 0, now, &["/usr/lib/systemd/systemd"]);
        self.next_pid = 1_800 + u32::try_from(identity::digest(&self.boot_id) % 700).unwrap_or(0);
        self.spawn(1, now, &[self.runtime_program()]);
        let node_ip = format!("--node-ip={}", self.address());
        self.spawn(
            1,
            now,
            &["/usr/bin/kubelet", "--config=/etc/kubernetes/kubelet.conf", &node_ip],
        );
        self.restart_runtime();
    }

    /// Restarts the kubelet: it admits its pods again. Sandboxes survive.
    ///
    /// Callers outside of [`Host`] also call [`super::World::touch`], which tells the kubelet.
    pub fn restart_kubelet(&mut self) {
        self.kubelet_restarts = self.kubelet_restarts.saturating_add(1);
    }

    /// Restarts the container runtime: it reads its files again; sandboxes survive.
    pub fn restart_runtime(&mut self) {
        match self.runtime() {
            Runtime::Crio => crio::start(self),
            Runtime::Containerd1 | Runtime::Containerd2 => containerd::start(self),
            Runtime::K3s => {
                containerd::start(self);
                self.restart_kubelet();
            }
        }
    }

    /// The kind of cluster that it is for.
    pub fn platform(&self) -> Platform {
        self.spec.as_ref().map_or_else(Platform::default, |spec| spec.platform)
    }

    /// Its container runtime.
    pub fn runtime(&self) -> Runtime {
        self.spec.as_ref().map_or_else(|| usual(Platform::default()), HostSpec::runtime)
    }

    /// Name, version and unit of its container runtime.
    pub fn runtime_facts(&self) -> (&'static str, &'static str, &'static str) {
        match self.runtime() {
            Runtime::Crio => ("cri-o", crio::VERSION, crio::UNIT),
            Runtime::Containerd1 => ("containerd", containerd::OLD_VERSION, containerd::UNIT),
            Runtime::Containerd2 => ("containerd", containerd::VERSION, containerd::UNIT),
            Runtime::K3s => ("containerd", containerd::K3S_VERSION, containerd::K3S_UNIT),
        }
    }

    /// The program of its container runtime.
    pub fn runtime_program(&self) -> &'static str {
        match self.runtime() {
            Runtime::Crio => "/usr/bin/crio",
            Runtime::Containerd1 | Runtime::Containerd2 => "/usr/bin/containerd",
            Runtime::K3s => "/usr/local/bin/k3s",
        }
    }

    /// The host's name.
    pub fn name(&self) -> &str {
        self.spec.as_ref().map_or("", |spec| spec.name.as_str())
    }

    /// The host's address.
    pub fn address(&self) -> String {
        let index = self.spec.as_ref().map_or(0, |spec| spec.index) + 10;
        format!("192.168.{}.{}", 126 + index / 250, index % 250 + 1)
    }

    /// Whether virtual machines can run on it.
    pub fn has_kvm(&self) -> bool {
        !self.faults.contains(&NodeFault::NoKvm)
    }

    /// Whether the host runs.
    pub fn is_up(&self) -> bool {
        self.power == Power::On
    }

    /// How many times longer than usual its reboots take.
    pub fn slowness(&self) -> u32 {
        self.faults
            .iter()
            .find_map(|fault| match fault {
                NodeFault::SlowBoot(factor) => Some(*factor),
                _ => None,
            })
            .unwrap_or(1)
    }

    /// The files below a directory (which ends with a slash), by path.
    pub fn files_under<'a>(
        &'a self,
        directory: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files
            .range(directory.to_owned()..)
            .take_while(move |(path, _)| path.starts_with(directory))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Starts a process; returns its id.
    pub fn spawn(&mut self, parent: u32, now: Timestamp, argv: &[&str]) -> u32 {
        // Real hosts skip ids, for they start many more processes than are shown.
        self.next_pid +=
            7 + u32::try_from(identity::digest(argv.concat().as_str()) % 23).unwrap_or(0);
        self.spawn_as(self.next_pid, parent, now, argv);
        self.next_pid
    }

    fn spawn_as(&mut self, pid: u32, parent: u32, now: Timestamp, argv: &[&str]) {
        let argv = argv.iter().map(|arg| (*arg).to_owned()).collect();
        self.processes.insert(pid, Process { parent, started: now, argv });
    }
}

fn os_release(platform: Platform) -> String {
    match platform {
        Platform::OpenShift => "NAME=\"Red Hat Enterprise Linux CoreOS\"\nID=\"rhcos\"\n\
             ID_LIKE=\"rhel fedora\"\nVERSION_ID=\"9.6\"\nOPENSHIFT_VERSION=\"4.21\"\n\
             PRETTY_NAME=\"Red Hat Enterprise Linux CoreOS 9.6.20251023-0\"\n"
            .to_owned(),
        Platform::Kubernetes => "NAME=\"Red Hat Enterprise Linux\"\nID=\"rhel\"\n\
             VERSION_ID=\"9.6\"\nPRETTY_NAME=\"Red Hat Enterprise Linux 9.6 (Plow)\"\n"
            .to_owned(),
    }
}
