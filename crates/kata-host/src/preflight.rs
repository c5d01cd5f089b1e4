//! Whether a node can run Kata, and whether its container runtime can be changed safely.
//!
//! Every check that does not pass has a code of the catalogue and a sentence of its own.

use std::collections::BTreeSet;

use kata_api::node_task::{NodeAction, NodeTask, TaskHandler};
use kata_api::{Code, names};

use crate::boot;
use crate::check::Check;
use crate::containerd::{self, Schema, live};
use crate::cri::Cri;
use crate::crio;
use crate::host::Device;
use crate::kata_deploy::KataDeploy;
use crate::observe::{BUILT_IN, Found, Observed, copies};
use crate::paths;
use crate::payload::has;
use crate::plan::Content;
use crate::release::ReleaseError;
use crate::settings::UnknownSetting;
use crate::site::{self, Distribution, Site, SiteError};
use crate::take_over;

/// Memory of the guest that upstream's configurations ask for, and of what is around it.
const SANDBOX_MEMORY: u64 = (2048 + 350) << 20;
/// What must stay free besides the payload.
const SPARE_DISK: u64 = 1 << 30;

/// What must be free as long as it is unknown how large the payload is: room for a small one, with one
/// shim and the image of its guest, twice.
const LEAST_DISK: u64 = 2 << 30;

/// Everything that speaks against the node, in the order in which it matters.
pub(crate) fn checks(task: &NodeTask, observed: &Observed) -> Vec<Check> {
    let mut checks = Vec::new();
    system(observed, &mut checks);
    if checks.iter().any(Check::fatal) {
        // What follows would only repeat that this system is another one.
        return checks;
    }
    machine(task, observed, &mut checks);
    match &observed.site {
        // The unit that was asked for first has nothing to do with it.
        Err(SiteError::Systemd(error)) => {
            let message = format!("systemd does not answer: {}", error.reason);
            checks.push(Check::new(Code::SystemdUnreachable, message));
        }
        Err(error @ SiteError::File(_)) => {
            checks.push(Check::new(Code::RuntimeConfigUnknown, error.to_string()));
        }
        Err(error @ (SiteError::Several { .. } | SiteError::Elsewhere { .. })) => {
            checks.push(Check::new(Code::RuntimeNotConfirmed, error.to_string()));
        }
        Ok(None) => checks.push(Check::new(
            Code::RuntimeUnsupported,
            "no unit of containerd, CRI-O, k3s, RKE2, k0s or MicroK8s is there",
        )),
        Ok(Some(site)) if let Some(word) = variable(site) => checks.push(Check::new(
            Code::RuntimeConfigUnknown,
            format!(
                "{} is started with {word}, whose value cannot be known: write the path itself into \
                 ExecStart, or set the variable by Environment=, in a drop-in of the unit",
                site.unit.as_deref().unwrap_or("the unit")
            ),
        )),
        // Of the others it is the folder of their data that is elsewhere.
        Ok(Some(site))
            if matches!(site.distribution, Distribution::Containerd | Distribution::Crio)
                && !paths::is_seen(&site.main) => checks.push(Check::new(
            Code::RuntimeConfigUnknown,
            format!(
                "{} is started with the configuration {}, and {}: copy it below /etc, and have the unit \
                 started with the copy, by a drop-in of the unit",
                site.unit.as_deref().unwrap_or("the container runtime"),
                site.main,
                paths::SEEN_ONLY
            ),
        )),
        Ok(Some(site)) => match &observed.cri {
            Err(error) => checks.push(Check::new(Code::RuntimeUnreachable, error.clone())),
            Ok(cri) if let Some(other) = another(task, site, cri) => {
                checks.push(Check::new(Code::RuntimeNotConfirmed, other));
            }
            Ok(cri) => {
                runtime(task, observed, site, cri, &mut checks);
                checks.extend(observed.boot.iter().filter_map(|boot| boot::check(observed, boot, site)));
            }
        },
    }
    payload(task, observed, &mut checks);
    checks
}

/// Which container runtime the kubelet reports, if it is another one than the one that was found.
fn another(task: &NodeTask, site: &Site, cri: &Cri) -> Option<String> {
    let reported = task.container_runtime.as_deref()?;
    let found = format!("{}://{}", cri.version.name, cri.version.version);
    let plain = |version: &str| version.replace("://v", "://");
    (plain(reported) != plain(&found)).then(|| {
        format!(
            "the kubelet reports {reported}, and the container runtime at {} ({}) is {found}",
            site.socket,
            site.unit.as_deref().unwrap_or("of the distribution"),
        )
    })
}

/// A word of the unit's command with a variable in it.
fn variable(site: &Site) -> Option<&str> {
    let words = [Some(&site.main), Some(&site.socket), Some(&site.drop_ins), site.program.as_ref()];
    words.into_iter().flatten().map(String::as_str).find(|word| word.contains('$'))
}

fn system(observed: &Observed, checks: &mut Vec<Check>) {
    let other = match observed.system.as_str() {
        "talos" => Some(
            "Talos Linux takes Kata as the system extension siderolabs/kata-containers in the machine's image",
        ),
        "bottlerocket" => Some(
            "Bottlerocket has a read-only root and no drop-ins for its containerd; use nodes with another system",
        ),
        _ => None,
    };
    checks.extend(other.map(|message| Check::new(Code::SystemUnsupported, message)));
    if observed.machine_config {
        checks.push(Check::new(
            Code::ManagedByMachineConfig,
            "/etc/machine-config-daemon/currentconfig is there",
        ));
    }
}

fn machine(task: &NodeTask, observed: &Observed, checks: &mut Vec<Check>) {
    let facts = &observed.facts;
    let hypervisor = task.handlers.is_empty()
        || task.handlers.iter().any(|handler| !handler.shim.starts_with("remote"));
    if hypervisor {
        // The others talk to their agent through a socket of their hypervisor.
        let vsock = task.handlers.is_empty()
            || task.handlers.iter().any(|handler| {
                ["qemu", "stratovirt"].iter().any(|name| handler.shim.starts_with(name))
            });
        for (device, code) in [
            (Device::Kvm, Code::KvmUnusable),
            (Device::VhostVsock, Code::VsockMissing),
            (Device::VhostNet, Code::VhostNetMissing),
        ] {
            if device == Device::VhostVsock && !vsock {
                continue;
            }
            if let Some(Err(reason)) = observed.devices.get(&device) {
                checks.push(Check::new(code, reason.clone()));
            }
        }
        if facts.memory_available < SANDBOX_MEMORY {
            checks.push(Check::new(
                Code::MemoryLow,
                format!(
                    "{} MiB are free, and a sandbox takes {} MiB",
                    facts.memory_available >> 20,
                    SANDBOX_MEMORY >> 20
                ),
            ));
        }
    }
    if facts.selinux_confined {
        checks.push(Check::new(
            Code::SelinuxConfined,
            "SELinux is enforcing, and this process has another type than spc_t",
        ));
    }
    if !observed.wrong_architecture.is_empty() {
        checks.push(Check::new(
            Code::ArchitectureMismatch,
            format!(
                "the node is {}, and the shim {}",
                facts.architecture,
                observed.wrong_architecture.join(", ")
            ),
        ));
    }
}

fn runtime(task: &NodeTask, observed: &Observed, site: &Site, cri: &Cri, checks: &mut Vec<Check>) {
    let numbers = cri.numbers();
    let name = format!("{} {}", cri.version.name, cri.version.version);
    let (oldest, good) = match site.distribution {
        // Before 1.30 it does not report its handlers, so that nothing could be verified.
        Distribution::Crio => ((1, 30), (1, 30)),
        _ => ((1, 6), (1, 7)),
    };
    if numbers < oldest {
        checks.push(Check::new(Code::RuntimeUnsupported, format!("it is {name}")));
    } else if numbers < good {
        checks.push(Check::new(Code::RuntimeOld, format!("it is {name}")));
    }
    if !cri.status.runtime_ready {
        checks.push(Check::new(Code::RuntimeNotReady, cri.status.message.clone()));
    }
    match site.distribution {
        Distribution::Crio => crio_files(task, observed, site, checks),
        _ => containerd_files(task, observed, site, cri, checks),
    }
    for unseen in observed.files.unseen.iter().filter(|_| paths::is_seen(&site.main)) {
        checks.push(Check::new(
            Code::RuntimeConfigUnknown,
            format!("{unseen}, and {}: put a copy below /etc in its place", paths::SEEN_ONLY),
        ));
    }
    let is_edited = !observed.files.is_imported && site.editable.is_some();
    if is_edited && let Content::Link { target } = &observed.files.editable {
        checks.push(Check::new(
            Code::RuntimeConfigUnknown,
            format!(
                "{} is a link to {target}, which others may use as well, so no import is added to it: put a \
                 copy in its place, or add the import {}/*.toml yourself",
                site.editable.as_deref().unwrap_or_default(),
                paths::parent(&observed.files.drop_in)
            ),
        ));
    }
    if !matches!(observed.files.ours, Content::Absent) && observed.files.own_drop_in().is_none() {
        checks.push(Check::new(
            Code::ForeignFile,
            format!("{} does not begin with our header", observed.files.drop_in),
        ));
    }
    take_over::checks(task, observed, site, cri, checks);
    taken(task, observed, cri, checks);
    let snapshotter = snapshotter(observed, cri);
    for handler in &task.handlers {
        if is_confidential(&handler.shim) {
            let message = format!(
                "the handler {} has the shim {}, which takes its images in the guest; this operator does not set that \
                 up",
                handler.name, handler.shim
            );
            checks.push(Check::new(Code::GuestPullMissing, message));
        }
        if site.distribution != Distribution::Crio
            && handler.shim.starts_with("fc")
            && !["devmapper", "blockfile"].contains(&snapshotter.as_str())
        {
            checks.push(Check::new(
                Code::SnapshotterMissing,
                format!("{} is to run on the snapshotter {snapshotter}", handler.shim),
            ));
        }
    }
}

/// Whether sandboxes of a shim get their images in the guest: kata-deploy gives these the snapshotter nydus in
/// containerd, or `guest_pull` in CRI-O (`shims.*.containerd.snapshotter` and `shims.*.crio.guestPull` of its
/// chart 4.1).
fn is_confidential(shim: &str) -> bool {
    ["coco-dev", "se", "snp", "tdx"].iter().any(|part| {
        shim.strip_prefix("qemu-").is_some_and(|rest| {
            let rest = rest.strip_prefix("nvidia-gpu-").unwrap_or(rest);
            rest.strip_prefix(part).is_some_and(|end| end.is_empty() || end.starts_with('-'))
        })
    })
}

/// The snapshotter of containerd for all that name none. Since 2.0 CRI does not report it, but the files name it; where
/// they do not, it is overlayfs.
fn snapshotter(observed: &Observed, cri: &Cri) -> String {
    let reported = cri
        .status
        .config
        .as_deref()
        .and_then(|text| serde_json::from_str::<serde_json::Value>(text).ok())
        .and_then(|config| {
            config.get("containerd")?.get("snapshotter")?.as_str().map(str::to_owned)
        });
    let files = &observed.files;
    let texts = files.main_text.iter().chain(files.others.iter().map(|other| &other.text));
    reported
        .or_else(|| texts.filter_map(|text| containerd::snapshotter(text)).next_back())
        .unwrap_or_else(|| "overlayfs".to_owned())
}

/// Handlers that the container runtime has by itself, such as `runc`, are in no file: a file that configures one of
/// that name changes what ordinary pods run on.
fn taken(task: &NodeTask, observed: &Observed, cri: &Cri, checks: &mut Vec<Check>) {
    let installed = observed.state.installed.iter().flat_map(|found| found.handlers.keys());
    let mut ours: BTreeSet<String> = installed.cloned().collect();
    ours.extend(observed.files.own_handlers());
    ours.extend(observed.released.iter().cloned());
    let of_kata_deploy = observed.files.kata_deploy.iter().flat_map(KataDeploy::handlers);
    ours.extend(of_kata_deploy.map(|(name, _)| name.clone()));
    ours.retain(|name| !BUILT_IN.contains(&name.as_str()));
    let offered = live(&cri.status).handlers;
    let mut foreign = observed.files.foreign_handlers();
    foreign.extend(observed.files.copied_handlers());
    for handler in &task.handlers {
        let name = &handler.name;
        let built_in = BUILT_IN.contains(&name.as_str());
        if (built_in || offered.contains(name)) && !ours.contains(name) && !foreign.contains(name) {
            let message = format!("the container runtime offers the handler {name} already");
            checks.push(Check::new(Code::ForeignHandler, message));
        }
    }
}

fn foreign_handler(task: &NodeTask, name: &str, path: &str, checks: &mut Vec<Check>) {
    if task.handlers.iter().any(|handler| handler.name == name) {
        checks.push(Check::new(
            Code::ForeignHandler,
            format!("{path} configures the handler {name}"),
        ));
    }
}

fn crio_files(task: &NodeTask, observed: &Observed, site: &Site, checks: &mut Vec<Check>) {
    let files = &observed.files;
    checks.extend(files.missing(site).map(|it| Check::new(Code::RuntimeConfigBroken, it)));
    for (path, text) in files.crio(site) {
        match crio::handlers(text) {
            Err(reason) => checks.push(Check::new(
                Code::RuntimeConfigBroken,
                format!("{path} is no TOML: {reason}"),
            )),
            Ok(names) => {
                let copied = copies(text);
                let foreign = names.difference(&copied);
                foreign.for_each(|name| foreign_handler(task, name, path, checks));
            }
        }
    }
}

fn containerd_files(
    task: &NodeTask,
    observed: &Observed,
    site: &Site,
    cri: &Cri,
    checks: &mut Vec<Check>,
) {
    let numbers = cri.numbers();
    let files = &observed.files;
    // Both write it at each start.
    if matches!(site.distribution, Distribution::K3s | Distribution::Rke2)
        && files.main_text.is_none()
    {
        let data = site.main.strip_suffix(site::RANCHER_MAIN).unwrap_or(&site.main);
        let unit = site.unit.as_deref().unwrap_or("the distribution");
        let main = &site.main;
        let message = match &files.config {
            Err(reason) => format!("{main} cannot be used: {reason}"),
            // It serves CRI, so it has written one.
            Ok(_) if paths::is_seen(data) => format!(
                "{unit} serves CRI, and {main} is not there, so its data-dir must be another one: name it in \
                 its config.yaml or in ExecStart, not in an environment file"
            ),
            Ok(_) => format!(
                "{unit} keeps its data in {data}, and {main} is not there; {}, so let its data-dir be \
                 below /var",
                paths::SEEN_ONLY
            ),
        };
        checks.push(Check::new(Code::RuntimeConfigUnknown, message));
        return;
    }
    let config = match &files.config {
        Ok(config) => config,
        Err(reason) => {
            checks.push(Check::new(
                Code::RuntimeConfigUnknown,
                format!("{} cannot be used: {reason}", site.main),
            ));
            return;
        }
    };
    checks.extend(files.missing(site).map(|it| Check::new(Code::RuntimeConfigBroken, it)));
    let copied = files.main_text.as_deref().map(copies).unwrap_or_default();
    for name in config.handlers.difference(&copied) {
        // A stub of Kata that was of use with its first version.
        let stub = site.distribution == Distribution::Microk8s && name == names::RUNTIME_CLASS;
        if stub && task.handlers.iter().any(|handler| handler.name == *name) {
            let message = format!(
                "{} configures the handler {name}, as MicroK8s does by itself: set spec.runtimes to \
                 [{{name: {name}, handler: kata-qemu}}]",
                site.main
            );
            checks.push(Check::new(Code::ForeignHandler, message));
            continue;
        }
        foreign_handler(task, name, &site.main, checks);
    }
    let replaces = site.replaces_sections(numbers);
    let last = files.others.iter().rfind(|other| other.has_section() && !other.after_ours);
    if let (true, Some(other), Some(configured)) = (replaces, last, files.base.handlers())
        && let Some(lost) = live(&cri.status).handlers.iter().find(|name| {
            !configured.contains(*name)
                && !task.handlers.iter().any(|ours| ours.name == **name)
                && !files.own_handlers().contains(*name)
        })
    {
        let path = &other.path;
        checks.push(Check::new(
            Code::ForeignSection,
            format!(
                "{path} replaces the CRI section by one without the handler {lost}, which is lost as soon as \
                 the container runtime is restarted"
            ),
        ));
    }
    for other in &files.others {
        let path = &other.path;
        match containerd::drop_in_handlers(&other.text) {
            Err(reason) => checks.push(Check::new(
                Code::RuntimeConfigBroken,
                format!("{path} is no TOML: {reason}"),
            )),
            Ok(names) => {
                let copied = copies(&other.text);
                let foreign = names.difference(&copied);
                foreign.for_each(|name| foreign_handler(task, name, path, checks));
            }
        }
        if replaces && other.after_ours && other.has_section() {
            let ours = &files.drop_in;
            checks.push(Check::new(
                Code::ForeignSection,
                format!(
                    "{path} is read after {ours} and has a CRI section of its own, which would replace the one \
                     with the handlers"
                ),
            ));
        }
    }
    match site.distribution {
        Distribution::K3s | Distribution::Rke2 if !files.is_imported => {
            let (template, folder) = match config.schema {
                Schema::V3 | Schema::V4 => ("config-v3.toml.tmpl", "config-v3.toml.d"),
                Schema::V1 | Schema::V2 => ("config.toml.tmpl", "config.toml.d"),
            };
            let etc = paths::parent(&site.main);
            checks.push(Check::new(
                Code::ImportMissing,
                format!(
                    "begin {etc}/{template} with `imports = [\"{etc}/{folder}/*.toml\"]`; if there is no such \
                     file, make one of that line and `{{{{ template \"base\" . }}}}`"
                ),
            ));
        }
        Distribution::K0s => {
            let managed = files
                .main_text
                .as_ref()
                .and_then(|text| text.lines().next())
                .is_some_and(|line| line == "# k0s_managed=true");
            if !managed {
                checks.push(Check::new(
                    Code::ImportMissing,
                    format!(
                        "{} is not kept by k0s, so that k0s adds no drop-ins to it: move what is yours in it to \
                         a file in {}, and after that begin it with the line `# k0s_managed=true`; k0s writes \
                         it anew, and what is in it is lost",
                        site.main, site.drop_ins
                    ),
                ));
            }
        }
        Distribution::K3s
        | Distribution::Rke2
        | Distribution::Containerd
        | Distribution::Microk8s
        | Distribution::Crio => {}
    }
}

fn payload(task: &NodeTask, observed: &Observed, checks: &mut Vec<Check>) {
    let needed = match &observed.payload {
        None => LEAST_DISK,
        Some(found) if found.promoted || found.staged => SPARE_DISK,
        Some(found) => 2 * found.payload.manifest.size() + SPARE_DISK,
    };
    let mounts = observed.mounts.iter();
    checks.extend(mounts.map(|reason| Check::new(Code::SystemUnsupported, reason.clone())));
    if observed.mounts.is_empty()
        && observed.disk_free < needed
        && task.action != NodeAction::Inspect
    {
        checks.push(Check::new(
            Code::DiskLow,
            format!(
                "{} MiB are free below /opt, and {} MiB are needed",
                observed.disk_free >> 20,
                needed >> 20
            ),
        ));
    }
    let Some(found) = &observed.payload else { return };
    // An inspection calls it drift, and an installation brings a copy.
    if let Some(first) = found.damaged.first()
        && !found.staged
        && task.action == NodeAction::Install
    {
        checks.push(Check::new(
            Code::PayloadDamaged,
            format!(
                "{} of {} files differ, the first is {first}",
                found.damaged.len(),
                found.payload.manifest.entries.len()
            ),
        ));
    }
    match &observed.release {
        // What is on the node already has the shims of an earlier task; those of this one are staged after a
        // preflight, which says by itself what the image has.
        Some(Err(ReleaseError::Shim(shim)))
            if task.action == NodeAction::Preflight
                && !found.payload.stage.shims.contains(shim) => {}
        Some(Err(ReleaseError::Shim(shim))) => {
            checks.push(Check::new(Code::ShimMissing, no_shim(task, found, shim)));
        }
        Some(Ok(release)) => {
            for (handler, UnknownSetting { key, similar }) in &release.unknown_settings {
                let meant = similar
                    .as_ref()
                    .map(|key| format!("; did you mean {key}?"))
                    .unwrap_or_default();
                let message = format!(
                    "spec.runtimes[].config of the handler {handler} sets {key}, which the payload's configuration neither sets nor shows{meant}"
                );
                checks.push(Check::new(Code::SettingUnknown, message));
            }
            for TaskHandler { name, shim, .. } in &release.left_out {
                let message =
                    format!("{}; the handler {name} is left out", no_shim(task, found, shim));
                checks.push(Check::new(Code::ShimLeftOut, message));
            }
        }
        Some(Err(ReleaseError::Configuration(shim, reason))) => checks.push(Check::new(
            Code::ShimConfigurationInvalid,
            format!("configuration-{shim}.toml: {reason}"),
        )),
        Some(Err(ReleaseError::Settings(handler, reason))) => {
            checks.push(Check::new(
                Code::SettingsMisfit,
                format!("for the handler {handler} it {reason}"),
            ));
        }
        None => {}
    }
}

fn no_shim(task: &NodeTask, found: &Found, shim: &str) -> String {
    let mut there = found.payload.manifest.shims();
    there.retain(|shim| found.payload.stage.shims.contains(shim));
    format!(
        "the payload of {} has no shim {shim}; of those that were asked for it has: {}",
        task.payload_image.as_deref().unwrap_or("the node"),
        has(&there)
    )
}
