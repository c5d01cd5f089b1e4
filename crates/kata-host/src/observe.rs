//! Reads everything that a decision needs, and changes nothing but the modules of the kernel, if it may.

use std::collections::{BTreeMap, BTreeSet};

use kata_api::node_task::{NodeAction, NodeTask};

use crate::cri::Cri;
use crate::durable;
use crate::host::{Device, Facts, FileKind, Host, HostResult, Mount, Stat};
use crate::journal::State;
use crate::kata_deploy::KataDeploy;
use crate::paths;
use crate::payload::{self, Depth, Payload};
use crate::plan::Content;
use crate::release::{Release, ReleaseError, release};
use crate::site::{self, Distribution, Site, SiteError};
use crate::verify::of_unit;

mod boot;
mod files;
mod foreign;
mod imports;

pub(crate) use boot::BootFile;
pub(crate) use files::{Files, copies, files, handlers};
pub(crate) use foreign::{Foreign, is_newer};
pub(crate) use imports::folder;

/// What was found on the node.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) state: State,
    pub(crate) facts: Facts,
    /// `ID` of os-release.
    pub(crate) system: String,
    /// Whether the Machine Config Operator manages the node.
    pub(crate) machine_config: bool,
    pub(crate) devices: BTreeMap<Device, Result<(), String>>,
    pub(crate) disk_free: u64,
    /// Why the mounts of the folders for Kata and its record do not allow a change, or a sandbox.
    pub(crate) mounts: Vec<String>,
    /// The container runtime, or why systemd cannot be asked.
    pub(crate) site: Result<Option<Site>, SiteError>,
    pub(crate) cri: Result<Cri, String>,
    pub(crate) files: Files,
    /// What keeps our import over a boot, if something writes the main file anew.
    pub(crate) boot: Option<BootFile>,
    /// What of its configuration is not ours.
    pub(crate) foreign: Foreign,
    /// The payload that the task asks for.
    pub(crate) payload: Option<Found>,
    /// What the task asks for, if there is a payload, and an intact copy of it.
    pub(crate) release: Option<Result<Release, ReleaseError>>,
    /// Files of the release that are not as they should be, if it is there.
    pub(crate) release_damaged: Option<Vec<String>>,
    /// Shims of the payload that are for another architecture.
    pub(crate) wrong_architecture: Vec<String>,
    /// Where [`paths::CURRENT`] points to.
    pub(crate) current: Content,
    /// Names in the folders of ours.
    pub(crate) stagings: Vec<String>,
    pub(crate) versions: Vec<String>,
    pub(crate) releases: Vec<String>,
    /// The handlers that those releases are for.
    pub(crate) released: BTreeSet<String>,
    /// Releases that no journal names, since the first installation was undone or the journal is lost.
    pub(crate) unnamed: Vec<Unnamed>,
    /// Whether anything of ours is on the node.
    pub(crate) leftovers: bool,
    /// Whether a change of ours was begun on the node.
    pub(crate) has_journal: bool,
    /// The shims of kata-deploy that are to be given back, and are not there.
    pub(crate) lost_shims: Vec<String>,
}

/// Handlers that containerd or CRI-O may have without any configuration.
pub(crate) const BUILT_IN: [&str; 2] = ["runc", "crun"];

/// A release that no journal names. Sandboxes may have been started from it nevertheless.
#[derive(Clone, Debug)]
pub(crate) struct Unnamed {
    pub(crate) release: String,
    /// The folder of its payload.
    pub(crate) payload: String,
    pub(crate) handlers: BTreeSet<String>,
}

/// A payload, and its damaged files.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) payload: Payload,
    pub(crate) damaged: Vec<String>,
    /// Whether an intact copy of it is in [`paths::STAGING`].
    pub(crate) staged: bool,
    /// Whether it is in [`paths::VERSIONS`].
    pub(crate) promoted: bool,
}

impl Observed {
    /// The handlers that are on disk without us, if that is known.
    pub(crate) fn handlers_on_disk(&self) -> Option<BTreeSet<String>> {
        match &self.site {
            Ok(Some(site)) if site.distribution == Distribution::Crio => {
                let mut all = self.files.foreign_handlers();
                all.extend(BUILT_IN.map(str::to_owned));
                Some(all)
            }
            Ok(_) | Err(_) => self.foreign.on_disk.handlers(),
        }
    }

    /// The handlers that we installed, or that our files configure, and those of kata-deploy that are to be ours.
    pub(crate) fn ours(&self) -> BTreeSet<String> {
        let installed = self.state.installed.iter().flat_map(|it| it.handlers.keys().cloned());
        let taken = self.files.kata_deploy.iter().flat_map(KataDeploy::handlers);
        let ours = installed.chain(self.files.own_handlers()).chain(self.released.iter().cloned());
        ours.chain(taken.map(|(name, _)| name.clone())).collect()
    }
}

impl Found {
    /// An intact copy, from which something may be concluded about the payload; `None` if there is none.
    fn intact(&self) -> Option<Payload> {
        if self.damaged.is_empty() {
            return Some(self.payload.clone());
        }
        let folder = format!("{}/{}", paths::STAGING, self.payload.id());
        self.staged.then(|| Payload { folder, ..self.payload.clone() })
    }
}

/// What to do about a device whose module the kernel may have to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Modules {
    /// Ask the kernel for it.
    Load,
    /// Say which one it is.
    Name,
}

/// Why a change cannot write to, or a sandbox start programs from, the folders that it uses, with the remedy.
fn obstacles(
    host: &mut dyn Host,
    action: NodeAction,
    root: Mount,
    site: Option<&Site>,
) -> HostResult<Vec<String>> {
    let mut found = Vec::new();
    if root.no_programs {
        found.push(
            "/opt is mounted with noexec, and the programs of the payload are started there: mount it without, \
             or bind-mount a folder without noexec there"
                .to_owned(),
        );
    }
    if matches!(action, NodeAction::Inspect | NodeAction::Remove) {
        // Writes nothing below, and what else it finds must not be hidden.
        return Ok(found);
    }
    if root.read_only {
        found.push(
            "/opt is mounted read-only, and the payload belongs there: mount a file system at /opt that can be \
             written, or bind-mount a folder of one there"
                .to_owned(),
        );
    }
    let drop_ins = site.map(|site| site.drop_ins.as_str()).filter(|path| paths::is_seen(path));
    let folders = [
        Some((paths::STATE_DIR, "the record of what is installed belongs there")),
        drop_ins.map(|path| (path, "the configuration of the handlers belongs there")),
    ];
    for (path, what) in folders.into_iter().flatten() {
        let mount = host.mount(path)?;
        // A Job that checks mounts these read-only itself.
        let is_read_only = if action == NodeAction::Install {
            mount.read_only
        } else {
            mount.file_system_read_only
        };
        if is_read_only {
            found.push(format!(
                "the file system of {path} is mounted read-only, and {what}: mount one there that can be written"
            ));
        }
    }
    Ok(found)
}

pub(crate) fn observe(
    host: &mut dyn Host,
    task: &NodeTask,
    state: State,
    modules: Modules,
) -> HostResult<Observed> {
    let depth = match task.action {
        NodeAction::Inspect => Depth::Content,
        NodeAction::Install if task.verify => Depth::Content,
        NodeAction::Preflight | NodeAction::Install | NodeAction::Remove => Depth::Stamps,
    };
    let facts = host.facts()?;
    let mut devices = BTreeMap::new();
    let root = match task.action {
        NodeAction::Remove => Mount::default(),
        NodeAction::Preflight | NodeAction::Install | NodeAction::Inspect => {
            host.mount(paths::ROOT)?
        }
    };
    // Devices are tried by a program there.
    if task.action != NodeAction::Remove && !root.no_programs {
        for (device, module) in [
            (Device::Kvm, None),
            (Device::VhostVsock, Some("vhost_vsock")),
            (Device::VhostNet, Some("vhost_net")),
        ] {
            let mut usable = host.device(device)?;
            // The kernel loads these when a program opens them, but only if their nodes are there. The one
            // that sandboxes can do without is asked for once and not in every run.
            let wanted = task.action != NodeAction::Inspect
                && (device == Device::VhostVsock || state.installed.is_none());
            if let (Err(reason), true, Some(module)) = (&usable, wanted, module) {
                usable = match modules {
                    // Whether that helped shows at once.
                    Modules::Load => match host.load_module(module) {
                        Ok(()) | Err(_) => host.device(device)?,
                    },
                    Modules::Name => {
                        Err(format!("{reason}; a run first asks the kernel for {module}"))
                    }
                };
            }
            devices.insert(device, usable);
        }
    }
    let installed = state.installed.as_ref().filter(|_| task.action == NodeAction::Remove);
    let drop_in = installed.map(|installed| installed.drop_in.as_str());
    let site = site::find(host, task.container_runtime.as_deref(), drop_in);
    let cri = match &site {
        Ok(Some(site)) => Cri::read(host, &site.socket).map_err(|reason| {
            let reason = of_unit(host, site, &reason);
            if paths::is_seen(&site.socket) {
                return reason;
            }
            format!("{reason}; {}, so let its socket be below /run", paths::SEEN_ONLY)
        }),
        Ok(None) => Err("no container runtime was found".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let version = cri.as_ref().map_or((2, 0), Cri::numbers);
    let renders = matches!(task.action, NodeAction::Install | NodeAction::Inspect);
    // A removal gives it back.
    let takes_over = task.take_over && task.action != NodeAction::Remove;
    let files = match &site {
        Ok(Some(site)) => files(host, site, version, &state, renders, takes_over)?,
        Ok(None) | Err(_) => Files::none(),
    };
    let boot = match &site {
        Ok(Some(site)) => boot::read(host, site, task.action == NodeAction::Remove)?,
        Ok(None) | Err(_) => None,
    };
    let foreign = match &site {
        Ok(Some(site)) if task.action != NodeAction::Remove || files.is_changed_by(&state) => {
            Foreign::read(host, site, cri.as_ref().ok(), &files, &state)?
        }
        Ok(_) | Err(_) => Foreign::unknown(),
    };
    let payload = match task.action {
        NodeAction::Remove => None,
        NodeAction::Preflight | NodeAction::Install | NodeAction::Inspect => {
            payload(host, task, &state, depth)?
        }
    };
    let mut release_found = None;
    let mut release_damaged = None;
    let mut wrong_architecture = Vec::new();
    if let Some(intact) = payload.as_ref().and_then(Found::intact) {
        let configurations = configurations(host, task, &intact)?;
        let distribution = site.as_ref().ok().and_then(Option::as_ref).map(|it| it.distribution);
        let has = state.installed.as_ref().map(|installed| &installed.handlers);
        let wanted =
            release(task, &intact, &configurations, distribution, has.unwrap_or(&BTreeMap::new()));
        if let Ok(wanted) = &wanted {
            release_damaged = damaged_release(host, wanted)?;
        }
        wrong_architecture = foreign_shims(host, task, &intact, &facts.architecture)?;
        release_found = Some(wanted);
    }
    let mounts = obstacles(host, task.action, root, site.as_ref().ok().and_then(Option::as_ref))?;
    let leftovers = host.stat(paths::ROOT)?.is_some()
        || host.stat(&paths::temporary(paths::ROOT))?.is_some()
        || host.stat(paths::STATE_DIR)?.is_some();
    let releases = host.list(paths::RELEASES)?.unwrap_or_default();
    let mut released = BTreeSet::new();
    let mut unnamed = Vec::new();
    for release in &releases {
        let folder = format!("{}/{release}", paths::RELEASES);
        let handlers: BTreeSet<String> =
            host.list(&format!("{folder}/etc"))?.into_iter().flatten().collect();
        if state.installed.is_none()
            && let Some(Stat { kind: FileKind::Link { target }, .. }) =
                host.stat(&format!("{folder}/payload"))?
        {
            let payload = paths::name(paths::parent(&target)).to_owned();
            unnamed.push(Unnamed { release: release.clone(), payload, handlers: handlers.clone() });
        }
        released.extend(handlers);
    }
    let mut lost_shims = Vec::new();
    let taken = state.installed.as_ref().and_then(|installed| installed.taken.as_ref());
    if task.take_over && task.action == NodeAction::Remove {
        for handler in taken.iter().flat_map(|taken| taken.handlers.values()) {
            if host.stat(&handler.runtime_path)?.is_none() {
                lost_shims.push(handler.runtime_path.clone());
            }
        }
    }
    Ok(Observed {
        system: system(host)?,
        machine_config: host.stat("/etc/machine-config-daemon/currentconfig")?.is_some(),
        disk_free: host.disk_free(paths::ROOT)?,
        mounts,
        current: durable::content(host, paths::CURRENT)?,
        stagings: host.list(paths::STAGING)?.unwrap_or_default(),
        versions: host.list(paths::VERSIONS)?.unwrap_or_default(),
        releases,
        released,
        unnamed,
        state,
        facts,
        devices,
        site,
        cri,
        files,
        boot,
        foreign,
        payload,
        release: release_found,
        release_damaged,
        wrong_architecture,
        leftovers,
        has_journal: host.stat(paths::STATE)?.is_some(),
        lost_shims,
    })
}

fn system(host: &mut dyn Host) -> HostResult<String> {
    let text = host.read("/etc/os-release")?.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let id = text.lines().find_map(|line| line.strip_prefix("ID="));
    Ok(id.unwrap_or_default().trim_matches(['"', '\'']).to_owned())
}

fn payload(
    host: &mut dyn Host,
    task: &NodeTask,
    state: &State,
    depth: Depth,
) -> HostResult<Option<Found>> {
    let staged = payload::all(host, paths::STAGING)?;
    let versions = payload::all(host, paths::VERSIONS)?;
    let serves = |payload: &Payload| {
        task.payload_image.as_ref().is_none_or(|image| *image == payload.stage.image)
            && task.handlers.iter().all(|handler| payload.manifest.shim(&handler.shim).is_some())
    };
    // Shims of an image share most of their files, so that one whose hypervisor was not unpacked may seem to
    // be there.
    let unpacked = |payload: &Payload| {
        serves(payload)
            && task.handlers.iter().all(|handler| payload.stage.shims.contains(&handler.shim))
    };
    let current = state.installed.as_ref().map(|installed| &installed.digest);
    let image = |payload: &Payload| {
        task.payload_image.as_ref().is_none_or(|image| *image == payload.stage.image)
    };
    // What was just staged is what the image holds now; else what is in use; else anything that serves.
    // A payload of the right image without the right shims is still named, so that this can be said.
    let chosen = staged
        .iter()
        .find(|payload| unpacked(payload))
        .or_else(|| versions.iter().find(|p| unpacked(p) && Some(&p.stage.digest) == current))
        .or_else(|| versions.iter().find(|payload| unpacked(payload)))
        .or_else(|| staged.iter().chain(&versions).find(|payload| serves(payload)))
        .or_else(|| staged.iter().chain(&versions).find(|payload| image(payload)))
        .cloned();
    let Some(mut chosen) = chosen else { return Ok(None) };
    let digest = &chosen.stage.digest;
    let staged = staged.iter().find(|payload| payload.stage.digest == *digest);
    let version = versions.iter().find(|payload| payload.stage.digest == *digest);
    let promoted = version.is_some();
    if let Some(version) = version {
        chosen.folder.clone_from(&version.folder);
    }
    let damaged = payload::damage(host, &chosen, depth)?;
    let staged = match staged {
        None => false,
        Some(copy) if promoted => payload::damage(host, copy, depth)?.is_empty(),
        Some(_) => damaged.is_empty(),
    };
    Ok(Some(Found { payload: chosen, damaged, staged, promoted }))
}

fn configurations(
    host: &mut dyn Host,
    task: &NodeTask,
    payload: &Payload,
) -> HostResult<BTreeMap<String, String>> {
    let mut configurations = BTreeMap::new();
    for handler in &task.handlers {
        if let Some(shim) = payload.manifest.shim(&handler.shim) {
            let found = durable::text(host, &payload.file(&shim.configuration))?;
            configurations.extend(found.map(|text| (handler.shim.clone(), text)));
        }
    }
    Ok(configurations)
}

/// The files of a release that are not as they should be; `None` if the release is not there. A folder `config.d`
/// beside a configuration is never as it should be: shims merge its files into the configuration.
fn damaged_release(host: &mut dyn Host, release: &Release) -> HostResult<Option<Vec<String>>> {
    if host.stat(&release.folder())?.is_none() {
        return Ok(None);
    }
    let mut damaged = Vec::new();
    for (name, wanted) in &release.content {
        if durable::content(host, &format!("{}/{name}", release.folder()))? != *wanted {
            damaged.push(name.clone());
        }
    }
    for handler in release.handlers.keys() {
        let name = format!("etc/{handler}/config.d");
        if host.stat(&format!("{}/{name}", release.folder()))?.is_some() {
            damaged.push(name);
        }
    }
    Ok(Some(damaged))
}

/// The machine that an ELF file is for, as `uname -m` calls it.
pub(crate) fn elf_machine(start: &[u8]) -> Option<&'static str> {
    let machine = [*start.get(18)?, *start.get(19)?];
    if start.get(..4)? != b"\x7fELF" {
        return None;
    }
    let little = *start.get(5)? == 1;
    match if little { u16::from_le_bytes(machine) } else { u16::from_be_bytes(machine) } {
        62 => Some("x86_64"),
        183 => Some("aarch64"),
        22 => Some("s390x"),
        21 => Some("ppc64le"),
        243 => Some("riscv64"),
        _ => None,
    }
}

fn foreign_shims(
    host: &mut dyn Host,
    task: &NodeTask,
    payload: &Payload,
    architecture: &str,
) -> HostResult<Vec<String>> {
    let mut foreign = Vec::new();
    for handler in &task.handlers {
        let Some(shim) = payload.manifest.shim(&handler.shim) else { continue };
        let start = host.read_start(&payload.file(&shim.binary))?.unwrap_or_default();
        if let Some(machine) = elf_machine(&start)
            && machine != architecture
        {
            foreign.push(format!("{} is for {machine}", handler.shim));
        }
    }
    Ok(foreign)
}
