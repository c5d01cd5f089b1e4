//! The container runtime of a host, CRI-O: which handlers it offers, and how it fails.
//!
//! It is configured by files only, and reads them only when it starts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Host, NodeFault, Platform, containerd};
use crate::world::identity;

/// Where drop-ins lie.
pub const DROP_IN_DIRECTORY: &str = "/etc/crio/crio.conf.d/";

/// The unit.
pub const UNIT: &str = "crio.service";

/// The version that the kubelet reports.
pub const VERSION: &str = "1.34.1";

/// The drop-in that the package `kata-containers` of RHCOS brings.
pub const KATA_DROP_IN: &str = "\
[crio.runtime.runtimes.kata]
  runtime_path = \"/usr/bin/containerd-shim-kata-v2\"
  runtime_type = \"vm\"
  runtime_root = \"/run/vc\"
  privileged_without_host_devices = true
";

/// What the runtime knows of a handler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handler {
    /// The executable that starts containers.
    pub runtime_path: String,
    /// `oci` for containers, `vm` for virtual machines.
    pub runtime_type: String,
}

impl Handler {
    /// Whether pods of this handler run in virtual machines.
    pub fn is_vm(&self) -> bool {
        self.runtime_type == "vm"
    }
}

/// Starts the process: with the files as they are, and the faults as they are.
pub fn start(host: &mut Host) {
    host.handlers = handlers(host);
    if host.platform() == Platform::Kubernetes {
        let ours = host.handlers.values().any(Handler::is_vm);
        let fails = ours && host.faults.contains(&NodeFault::RuntimeFails);
        let lacks = lacks_default(host, &host.handlers);
        host.containerd = containerd::State {
            down: lacks.is_some(),
            dead: lacks.or_else(|| {
                fails.then(|| "simulated: the runtime service does not start".to_owned())
            }),
            starts: host.containerd.starts.saturating_add(1),
            started: host.disk.tick(),
            ..containerd::State::default()
        };
        if host.containerd.down {
            host.handlers.clear();
        }
    }
}

/// CRI-O's error if no handler has the name of the default runtime. Of several drop-ins that name one, the last counts.
fn lacks_default(host: &Host, handlers: &BTreeMap<String, Handler>) -> Option<String> {
    let lines = host.files_under(DROP_IN_DIRECTORY).flat_map(|(_, text)| text.lines());
    let name = lines.filter_map(|line| line.trim().strip_prefix("default_runtime")).last()?;
    let name = name.trim_matches([' ', '=', '"']);
    (!handlers.contains_key(name)).then(|| {
        format!(
            "validating runtime config: default_runtime set to \"{name}\", but no runtime entry table \
             [crio.runtime.runtimes.{name}] was found"
        )
    })
}

/// What CRI-O's program prints of its files.
///
/// # Errors
/// Why a start with them fails.
pub fn printed(host: &Host) -> Result<String, String> {
    let handlers = handlers(host);
    if let Some(reason) = lacks_default(host, &handlers) {
        return Err(reason);
    }
    let tables = handlers.iter().map(|(name, Handler { runtime_path, runtime_type })| {
        format!(
            "[crio.runtime.runtimes.{name}]\nruntime_path = \"{runtime_path}\"\n\
             runtime_type = \"{runtime_type}\"\n"
        )
    });
    Ok(tables.collect())
}

/// The handlers that the runtime offers when it starts with the host's files.
pub fn handlers(host: &Host) -> BTreeMap<String, Handler> {
    let oci = |path: &str| Handler { runtime_path: path.into(), runtime_type: "oci".into() };
    let mut handlers = BTreeMap::from([
        ("crun".to_owned(), oci("/usr/bin/crun")),
        ("runc".to_owned(), oci("/usr/bin/runc")),
    ]);
    if host.faults.contains(&NodeFault::HandlerMissing) {
        return handlers;
    }
    for text in host.files_under(DROP_IN_DIRECTORY).map(|(_, text)| text) {
        let mut current = None;
        for line in text.lines().map(str::trim) {
            if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                current = section.strip_prefix("crio.runtime.runtimes.").map(str::to_owned);
                if let Some(name) = &current {
                    handlers.entry(name.clone()).or_default();
                }
                continue;
            }
            let (Some(name), Some((key, value))) = (&current, line.split_once('=')) else {
                continue;
            };
            let value = value.trim().trim_matches('"').to_owned();
            let handler = handlers.entry(name.clone()).or_default();
            match key.trim() {
                "runtime_path" => handler.runtime_path = value,
                "runtime_type" => handler.runtime_type = value,
                _ => {}
            }
        }
    }
    handlers
}

/// Why a pod sandbox with this handler cannot be made, in CRI-O's words.
///
/// `None` means that it can.
pub fn refusal(host: &Host, handler: &str) -> Option<String> {
    if handler.is_empty() {
        return None;
    }
    let Some(found) = host.handlers.get(handler) else {
        let known: Vec<String> = host
            .handlers
            .keys()
            .map(|name| format!("{name}:0xc{:09x}", identity::digest(name) >> 28))
            .collect();
        return Some(format!(
            "failed to find runtime handler {handler} from runtime list map[{}]",
            known.join(" ")
        ));
    };
    if found.is_vm() && !host.has_kvm() {
        return Some(
            "CreateContainer failed: failed to launch qemu: exit status 1, error messages from \
             qemu log: Could not access KVM kernel module: No such file or directory\n\
             qemu-kvm: failed to initialize kvm: No such file or directory\n: unknown"
                .to_owned(),
        );
    }
    host.faults.iter().find_map(|fault| match fault {
        NodeFault::SandboxFails(reason) if found.is_vm() => Some(reason.clone()),
        _ => None,
    })
}
