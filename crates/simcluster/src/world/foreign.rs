//! Another program on a host, which changes the container runtime's configuration and restarts nothing.
//!
//! It must not restart the container runtime: the caller does so after the change was taken back.

use super::{Host, NodeFault, Runtime, containerd, crio};

/// The folder of the drop-ins that the main file of k3s imports.
const K3S_DROP_INS: &str = "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d";
/// The handler that another program brings.
pub const HANDLER: &str = "more";
/// The default runtime of a CRI-O that does not start.
const GONE: &str = "gone";

/// Makes the change that belongs to a fault. Other faults change nothing.
pub(crate) fn change(host: &mut Host, fault: &NodeFault) {
    let Some((path, text)) = changed(host, fault) else { return };
    let before = host.files.get(&path).cloned().unwrap_or_default();
    // In TOML a key without a table must stand before the first table.
    let is_top_level = !text.starts_with('[');
    let after = if is_top_level { format!("{text}{before}") } else { format!("{before}{text}") };
    host.put(&path, after);
}

/// Takes the change back. Returns whether there was one.
pub(crate) fn take_back(host: &mut Host, fault: &NodeFault) -> bool {
    let Some((path, text)) = changed(host, fault) else { return false };
    let Some(before) = host.files.get(&path) else { return false };
    let after = before.replacen(&text, "", 1);
    if after.is_empty() {
        host.files.remove(&path);
    } else {
        host.put(&path, after);
    }
    true
}

/// The file that is changed, and what comes into it.
fn changed(host: &Host, fault: &NodeFault) -> Option<(String, String)> {
    let breaks = match fault {
        NodeFault::ForeignChange => false,
        NodeFault::ForeignBreak => true,
        _ => return None,
    };
    let (path, plugin) = match host.runtime() {
        Runtime::Crio => {
            let text = if breaks {
                format!("[crio.runtime]\ndefault_runtime = \"{GONE}\"\n")
            } else {
                format!("[crio.runtime.runtimes.{HANDLER}]\nruntime_path = \"/usr/bin/runc\"\n")
            };
            return Some((format!("{}99-other.conf", crio::DROP_IN_DIRECTORY), text));
        }
        Runtime::Containerd1 => (containerd::MAIN.to_owned(), containerd::OLD_PLUGIN),
        Runtime::Containerd2 => (containerd::MAIN.to_owned(), containerd::PLUGIN),
        Runtime::K3s => (format!("{K3S_DROP_INS}/99-other.toml"), containerd::PLUGIN),
    };
    let text = if breaks {
        format!("disabled_plugins = [\"{plugin}\"]\n")
    } else {
        format!(
            "[plugins.\"{plugin}\".containerd.runtimes.{HANDLER}]\nruntime_type = \"io.containerd.runc.v2\"\n"
        )
    };
    Some((path, text))
}
