//! A simulated host as the node agent sees it: the [`kata_host::Host`] on which the very decision of the
//! node agent runs.
//!
//! Everything that it does to the host is real to the rest of the simulation: files, the container
//! runtime's start, what CRI says. Time is counted and not waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kata_api::node_task::{NodeReport, NodeTask};
use kata_api::sandbox_facts::{SandboxFacts, SandboxProcess};
use kata_host::host::{
    ConfigSource, CriStatus, CriVersion, Device, Exit, Facts, FileKind, Host as NodeHost,
    HostError, HostErrorKind, HostResult, Mount, Sandbox, Stat, Unit, UnitState,
};
use kata_host::{PodName, SandboxError};
use kata_host::{digest, paths};
use serde::{Deserialize, Serialize};

use super::{Host, NodeFault, Runtime, containerd, crio};

mod payload;

pub use payload::{stage, staging};

/// How long a restart of the container runtime takes.
const RESTART: Duration = Duration::from_millis(450);
/// How long the reading of a merged configuration takes.
const DUMP: Duration = Duration::from_millis(120);
/// How long it takes to see that a payload is there already.
const LOOK: Duration = Duration::from_secs(1);
/// How long it takes to unpack a payload.
const UNPACK: Duration = Duration::from_secs(12);
/// At which call a killed agent dies.
const DIES_AT: usize = 90;

/// What a file system has besides the content of files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    directories: BTreeSet<String>,
    links: BTreeMap<String, String>,
    /// By path: mode, and when it was written, as a count.
    marks: BTreeMap<String, (u32, i64)>,
    /// What files take without having it as content: a thousand hosts are in memory.
    #[serde(default)]
    reserved: BTreeMap<String, u64>,
    clock: i64,
}

impl Disk {
    /// The directories of a fresh host.
    pub fn fresh(runtime: Runtime) -> Self {
        let crio = ["/etc/crio", "/etc/crio/crio.conf.d", "/run/crio"];
        let crio = crio.into_iter().filter(|_| runtime == Runtime::Crio);
        let k3s = [
            "/run/k3s",
            "/run/k3s/containerd",
            "/var/lib/rancher",
            "/var/lib/rancher/k3s",
            "/var/lib/rancher/k3s/agent",
            "/var/lib/rancher/k3s/agent/etc",
            "/var/lib/rancher/k3s/agent/etc/containerd",
        ];
        let k3s = k3s.into_iter().filter(|_| runtime == Runtime::K3s);
        let directories = [
            "/etc",
            "/etc/containerd",
            "/opt",
            "/run",
            "/run/containerd",
            "/run/lock",
            "/usr",
            "/usr/bin",
            "/var",
            "/var/lib",
        ];
        let directories =
            directories.into_iter().chain(crio).chain(k3s).map(str::to_owned).collect();
        Self { directories, ..Self::default() }
    }

    /// Adds directories.
    pub(super) fn add_directories(&mut self, paths: &[&str]) {
        self.directories.extend(paths.iter().map(|path| (*path).to_owned()));
    }

    /// The next moment of the disk's clock.
    pub(super) fn tick(&mut self) -> i64 {
        self.clock += 1;
        self.clock
    }

    /// Resolves links in all parts of a path but the last, and in the last too if asked.
    fn resolve(&self, path: &str, last: bool) -> String {
        let mut resolved = String::new();
        let mut parts: Vec<String> =
            path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).rev().collect();
        let mut followed = 0;
        while let Some(part) = parts.pop() {
            if part == ".." {
                resolved = paths::parent(&resolved).trim_end_matches('/').to_owned();
                continue;
            }
            let next = format!("{resolved}/{part}");
            match self.links.get(&next) {
                Some(target) if (last || !parts.is_empty()) && followed < 8 => {
                    followed += 1;
                    if target.starts_with('/') {
                        resolved.clear();
                    }
                    let more = target.split('/').filter(|part| !part.is_empty());
                    parts.extend(more.map(str::to_owned).rev());
                }
                _ => resolved = next,
            }
        }
        if resolved.is_empty() { "/".to_owned() } else { resolved }
    }
}

/// A host, as one run of the node agent has it.
#[derive(Debug)]
struct Agent<'a> {
    host: &'a mut Host,
    elapsed: Duration,
    calls: usize,
    /// The process was killed: nothing that it calls has an effect any more.
    dead: bool,
}

/// How a run of the node agent ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    /// The report, unless the process was killed.
    pub report: Option<NodeReport>,
    /// How long it took.
    pub took: Duration,
}

/// Carries a task out on a host.
pub fn run(host: &mut Host, task: &NodeTask) -> Ran {
    if host.faults.remove(&NodeFault::PayloadDamaged) {
        rot(host);
    }
    let mut agent = Agent { host, elapsed: Duration::ZERO, calls: 0, dead: false };
    let report = kata_host::run(&mut agent, task);
    let (dead, took) = (agent.dead, agent.elapsed);
    if dead {
        // It happens once; the next run of the agent is another process.
        host.faults.remove(&NodeFault::AgentKilled);
    }
    Ran { report: (!dead).then_some(report), took }
}

/// The sandbox of a pod and its processes.
///
/// # Errors
/// As the node agent's.
pub fn sandbox(host: &mut Host, pod: &PodName<'_>) -> Result<SandboxFacts, SandboxError> {
    let mut agent = Agent { host, elapsed: Duration::ZERO, calls: 0, dead: false };
    let mut facts = kata_host::sandbox(&mut agent, pod)?;
    let all = host.processes.iter().map(|(pid, process)| (*pid, process.argv.clone()));
    facts.processes = SandboxProcess::all(&facts.sandbox_id, all);
    Ok(facts)
}

/// Turns a byte of the guest's kernel, as a bad disk does it: the file's size and times stay.
fn rot(host: &mut Host) {
    let kernel =
        |path: &str| path.starts_with(paths::VERSIONS) && path.ends_with("vmlinux.container");
    let found = host.files.iter_mut().find(|(path, _)| kernel(path));
    if let Some((_, text)) = found {
        text.replace_range(..1, "?");
    }
}

impl Agent<'_> {
    fn fails<T>(action: String, reason: &str, kind: HostErrorKind) -> HostResult<T> {
        Err(HostError { action, reason: reason.to_owned(), kind })
    }

    /// One call: it may be the last of a process that is killed.
    fn call<T>(
        &mut self,
        action: String,
        effect: impl FnOnce(&mut Host) -> Result<T, (String, HostErrorKind)>,
    ) -> HostResult<T> {
        self.calls += 1;
        self.dead |= self.calls >= DIES_AT && self.host.faults.contains(&NodeFault::AgentKilled);
        if self.dead {
            return Self::fails(action, "killed", HostErrorKind::Other);
        }
        effect(self.host).map_err(|(reason, kind)| HostError { action, reason, kind })
    }

    /// A call that takes space.
    fn writing<T>(
        &mut self,
        action: String,
        effect: impl FnOnce(&mut Host) -> Result<T, (String, HostErrorKind)>,
    ) -> HostResult<T> {
        if self.host.faults.contains(&NodeFault::DiskFull) {
            return Self::fails(action, "no space left on device", HostErrorKind::NoSpace);
        }
        self.call(action, effect)
    }

    fn cri<T>(&mut self, what: &str, answer: impl FnOnce(&Host) -> T) -> HostResult<T> {
        self.call(format!("ask CRI for {what}"), |host| {
            let state = &host.containerd;
            match &state.dead {
                _ if state.down => {
                    Err(("connection refused".to_owned(), HostErrorKind::Unreachable))
                }
                Some(reason) => Err((
                    format!("unknown service runtime.v1.RuntimeService: {reason}"),
                    HostErrorKind::Unimplemented,
                )),
                None => Ok(answer(host)),
            }
        })
    }
}

fn other(reason: impl Into<String>) -> (String, HostErrorKind) {
    (reason.into(), HostErrorKind::Other)
}

impl Host {
    /// Where a path leads to when links are followed.
    pub fn resolved(&self, path: &str) -> String {
        self.disk.resolve(path, true)
    }

    fn agent_stat(&self, path: &str) -> Option<Stat> {
        let path = self.disk.resolve(path, false);
        let (mode, written) = self.disk.marks.get(&path).copied().unwrap_or((0o755, 0));
        let (kind, size) = if path == "/" || self.disk.directories.contains(&path) {
            (FileKind::Directory, 0)
        } else if let Some(target) = self.disk.links.get(&path) {
            (FileKind::Link { target: target.clone() }, 0)
        } else {
            let content = self.files.get(&path)?.len() as u64;
            let reserved = self.disk.reserved.get(&path).copied().unwrap_or_default();
            (FileKind::File, content.max(reserved))
        };
        let inode = super::identity::digest(&path);
        Some(Stat { kind, mode, size, modified: written, changed: written, inode })
    }

    fn agent_mark(&mut self, path: &str, mode: u32) {
        let clock = self.disk.tick();
        self.disk.marks.insert(path.to_owned(), (mode, clock));
    }

    /// Writes a file as another program of the host does, which keeps its mode.
    pub(crate) fn put(&mut self, path: &str, text: String) {
        let above = paths::parent(path);
        if self.disk.directories.insert(above.to_owned()) {
            self.agent_mark(above, 0o755);
        }
        let mode = self.agent_stat(path).map_or(0o644, |found| found.mode);
        self.files.insert(path.to_owned(), text);
        self.agent_mark(path, mode);
    }

    /// Makes directories as another program of the host does.
    pub(crate) fn make_directories(&mut self, paths: &[&str]) {
        self.disk.add_directories(paths);
    }

    /// Removes a directory with all that is below it, as another program of the host does.
    pub(crate) fn remove_tree(&mut self, path: &str) {
        let is_below = |it: &str| it == path || it.starts_with(&format!("{path}/"));
        self.files.retain(|file, _| !is_below(file));
        let disk = &mut self.disk;
        disk.directories.retain(|it| !is_below(it));
        disk.links.retain(|link, _| !is_below(link));
        disk.marks.retain(|it, _| !is_below(it));
        disk.reserved.retain(|file, _| !is_below(file));
    }

    fn agent_write(&mut self, path: &str, content: &[u8], mode: u32) -> Result<(), String> {
        let path = self.disk.resolve(path, true);
        let above = paths::parent(&path);
        if above != "/" && !self.disk.directories.contains(above) {
            return Err(format!("there is no directory {above}"));
        }
        let text = String::from_utf8(content.to_vec()).map_err(|error| error.to_string())?;
        self.files.insert(path.clone(), text);
        self.agent_mark(&path, mode);
        Ok(())
    }

    fn agent_rename(&mut self, from: &str, to: &str) -> Result<(), String> {
        let (from, to) = (self.disk.resolve(from, false), self.disk.resolve(to, false));
        if self.agent_stat(&from).is_none() {
            return Err(format!("there is no {from}"));
        }
        let below = format!("{from}/");
        let moved = |path: &str| {
            (path == from || path.starts_with(&below))
                .then(|| format!("{to}{}", &path[from.len()..]))
        };
        self.files.remove(&to);
        self.disk.links.remove(&to);
        let rename = |path: String| moved(&path).unwrap_or(path);
        let files = std::mem::take(&mut self.files);
        self.files = files.into_iter().map(|(path, text)| (rename(path), text)).collect();
        let disk = &mut self.disk;
        disk.directories = std::mem::take(&mut disk.directories).into_iter().map(rename).collect();
        let links = std::mem::take(&mut disk.links);
        disk.links = links.into_iter().map(|(path, target)| (rename(path), target)).collect();
        let marks = std::mem::take(&mut disk.marks);
        disk.marks = marks.into_iter().map(|(path, mark)| (rename(path), mark)).collect();
        Ok(())
    }

    fn agent_list(&self, path: &str) -> Option<Vec<String>> {
        let path = self.disk.resolve(path, true);
        if path != "/" && !self.disk.directories.contains(&path) {
            return None;
        }
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let all = self.files.keys().chain(&self.disk.directories).chain(self.disk.links.keys());
        let names: BTreeSet<String> = all
            .filter_map(|found| found.strip_prefix(&prefix))
            .filter(|name| !name.is_empty() && !name.contains('/'))
            .map(str::to_owned)
            .collect();
        Some(names.into_iter().collect())
    }
}

impl NodeHost for Agent<'_> {
    fn read(&mut self, path: &str) -> HostResult<Option<Vec<u8>>> {
        self.call(format!("read {path}"), |host| {
            let path = host.disk.resolve(path, true);
            Ok(host.files.get(&path).map(|text| text.as_bytes().to_vec()))
        })
    }

    fn read_start(&mut self, path: &str) -> HostResult<Option<Vec<u8>>> {
        Ok(self.read(path)?.map(|bytes| bytes.into_iter().take(64).collect()))
    }

    fn stat(&mut self, path: &str) -> HostResult<Option<Stat>> {
        self.call(format!("stat {path}"), |host| Ok(host.agent_stat(path)))
    }

    fn list(&mut self, path: &str) -> HostResult<Option<Vec<String>>> {
        self.call(format!("list {path}"), |host| Ok(host.agent_list(path)))
    }

    fn sha256(&mut self, path: &str) -> HostResult<String> {
        let content = self.read(path)?;
        self.call(format!("hash {path}"), |_| {
            content.map(|bytes| digest::hex(&bytes)).ok_or_else(|| other("no such file"))
        })
    }

    fn write(&mut self, path: &str, content: &[u8], mode: u32) -> HostResult<()> {
        self.writing(format!("write {path}"), |host| {
            host.agent_write(path, content, mode).map_err(other)
        })
    }

    fn reserve(&mut self, path: &str, bytes: u64) -> HostResult<()> {
        self.writing(format!("reserve room in {path}"), |host| {
            host.agent_write(path, &[], 0o600).map_err(other)?;
            host.disk.reserved.insert(host.disk.resolve(path, true), bytes);
            Ok(())
        })
    }

    fn take_owner(&mut self, path: &str, of: &str) -> HostResult<()> {
        // Every file here belongs to root.
        self.call(format!("give {path} the owner of {of}"), |_| Ok(()))
    }

    fn sync_file(&mut self, path: &str) -> HostResult<()> {
        self.call(format!("sync {path}"), |_| Ok(()))
    }

    fn sync_dir(&mut self, path: &str) -> HostResult<()> {
        self.call(format!("sync directory {path}"), |_| Ok(()))
    }

    fn sync_tree(&mut self, path: &str) -> HostResult<()> {
        self.call(format!("sync tree {path}"), |_| Ok(()))
    }

    fn rename(&mut self, from: &str, to: &str) -> HostResult<()> {
        self.call(format!("rename {from} to {to}"), |host| {
            host.agent_rename(from, to).map_err(other)
        })
    }

    fn unlink(&mut self, path: &str) -> HostResult<()> {
        self.call(format!("unlink {path}"), |host| {
            let path = host.disk.resolve(path, false);
            host.files.remove(&path);
            host.disk.links.remove(&path);
            host.disk.marks.remove(&path);
            host.disk.reserved.remove(&path);
            Ok(())
        })
    }

    fn symlink(&mut self, target: &str, path: &str) -> HostResult<()> {
        self.writing(format!("link {path} to {target}"), |host| {
            if host.agent_stat(path).is_some() {
                return Err(other("it exists"));
            }
            let path = host.disk.resolve(path, false);
            host.agent_mark(&path, 0o777);
            host.disk.links.insert(path, target.to_owned());
            Ok(())
        })
    }

    fn make_dir(&mut self, path: &str, mode: u32) -> HostResult<()> {
        self.writing(format!("create directory {path}"), |host| {
            let path = host.disk.resolve(path, true);
            if host.disk.directories.insert(path.clone()) {
                host.agent_mark(&path, mode);
            }
            Ok(())
        })
    }

    fn remove_dir(&mut self, path: &str) -> HostResult<bool> {
        self.call(format!("remove directory {path}"), |host| {
            let path = host.disk.resolve(path, false);
            let empty = host.agent_list(&path).is_none_or(|names| names.is_empty());
            if empty {
                host.disk.directories.remove(&path);
                host.disk.marks.remove(&path);
            }
            Ok(empty)
        })
    }

    fn lock(&mut self, path: &str) -> HostResult<bool> {
        self.call(format!("lock {path}"), |_| Ok(true))
    }

    fn facts(&mut self) -> HostResult<Facts> {
        self.call("read the facts".to_owned(), |host| {
            let memory = host.spec.as_ref().map_or(0, |spec| spec.memory_kib) * 1024;
            Ok(Facts {
                architecture: "x86_64".to_owned(),
                memory_available: memory / 2,
                selinux_confined: false,
            })
        })
    }

    fn disk_free(&mut self, path: &str) -> HostResult<u64> {
        self.call(format!("ask for free space at {path}"), |host| {
            Ok(if host.faults.contains(&NodeFault::DiskFull) { 0 } else { 80 << 30 })
        })
    }

    fn mount(&mut self, path: &str) -> HostResult<Mount> {
        self.call(format!("ask how {path} is mounted"), |_| Ok(Mount::default()))
    }

    fn device(&mut self, device: Device) -> HostResult<Result<(), String>> {
        self.call(format!("open {device:?}"), |host| {
            Ok(match device {
                Device::Kvm if !host.has_kvm() => {
                    Err("/dev/kvm: no such file or directory".to_owned())
                }
                Device::Kvm | Device::VhostVsock | Device::VhostNet => Ok(()),
            })
        })
    }

    fn load_module(&mut self, name: &str) -> HostResult<()> {
        self.call(format!("load module {name}"), |_| Ok(()))
    }

    fn unit(&mut self, name: &str) -> HostResult<Option<Unit>> {
        self.call(format!("ask for unit {name}"), |host| {
            Ok((name == host.runtime_facts().2).then(|| Unit {
                active: !host.containerd.down,
                command: vec![host.runtime_program().to_owned()],
                started: (host.containerd.started > 0).then_some(host.containerd.started),
                ..Unit::default()
            }))
        })
    }

    fn services(&mut self) -> HostResult<Vec<(String, Unit)>> {
        self.call("ask for the services".to_owned(), |_| Ok(Vec::new()))
    }

    fn unit_state(&mut self, name: &str) -> HostResult<Option<UnitState>> {
        self.call(format!("ask for the state of unit {name}"), |host| {
            let down = host.containerd.down;
            let word = |up: &str, failed: &str| if down { failed } else { up }.to_owned();
            Ok((name == host.runtime_facts().2).then(|| UnitState {
                active: word("active", "failed"),
                sub: word("running", "failed"),
                result: word("success", "exit-code"),
                exit: down.then_some(Exit::Status(1)),
            }))
        })
    }

    fn restart_unit(&mut self, name: &str) -> HostResult<()> {
        self.elapsed += RESTART;
        self.call(format!("restart {name}"), |host| {
            host.restart_runtime();
            if host.containerd.down {
                return Err(("the unit failed".to_owned(), HostErrorKind::Failed));
            }
            Ok(())
        })
    }

    fn config_dump(&mut self, _program: &str, config: ConfigSource<'_>) -> HostResult<String> {
        self.elapsed += DUMP;
        self.call(format!("dump {config}"), |host| {
            let table = match config {
                ConfigSource::At(path) => containerd::load(host, path),
                ConfigSource::Text(text) => containerd::load_text(host, text),
            };
            let table = table.map_err(|reason| (reason, HostErrorKind::Failed))?;
            toml::to_string(&table).map_err(|error| other(error.to_string()))
        })
    }

    fn crio_config(&mut self, _unit: &Unit) -> HostResult<Result<String, String>> {
        self.elapsed += DUMP;
        self.call("print the configuration of CRI-O".to_owned(), |host| Ok(crio::printed(host)))
    }

    fn cri_version(&mut self, _socket: &str) -> HostResult<CriVersion> {
        self.cri("its version", |host| {
            let (name, version, _) = host.runtime_facts();
            CriVersion { name: name.to_owned(), version: version.to_owned() }
        })
    }

    fn cri_status(&mut self, _socket: &str) -> HostResult<CriStatus> {
        self.cri("its status", |host| CriStatus {
            runtime_ready: true,
            message: String::new(),
            handlers: containerd::listed(host).into_iter().collect(),
            config: containerd::verbose(host),
        })
    }

    fn cri_sandboxes(&mut self, _socket: &str) -> HostResult<Vec<Sandbox>> {
        self.cri("its sandboxes", |host| {
            host.sandboxes
                .iter()
                .map(|(uid, sandbox)| Sandbox {
                    id: sandbox.id.clone(),
                    namespace: sandbox.namespace.clone(),
                    pod: sandbox.name.clone(),
                    uid: uid.clone(),
                    handler: sandbox.handler.clone(),
                    ready: true,
                })
                .collect()
        })
    }

    fn now(&mut self) -> Duration {
        // A process that is killed does not wait for anything.
        if self.dead {
            self.elapsed += Duration::from_secs(3_600);
        }
        self.elapsed
    }

    fn wait(&mut self, duration: Duration) {
        self.elapsed += duration;
    }
}
