//! Where our files are on a node.

/// Everything of the payload.
pub const ROOT: &str = "/opt/kata-operator";
/// Payloads that were taken out of an image and are not in use yet: `staging/ID/…` as in [`VERSIONS`].
pub const STAGING: &str = kata_api::names::node_job::STAGING;
/// Payloads: `versions/ID/{tree,manifest.json,seal.json,stage.json}`, where ID begins the manifest's digest.
pub const VERSIONS: &str = "/opt/kata-operator/versions";
/// What a handler needs beside a payload: `releases/ID/{payload,etc/HANDLER/configuration.toml}`.
pub const RELEASES: &str = "/opt/kata-operator/releases";
/// Link to the release in use. Paths in the container runtime's configuration go through it, so that
/// an upgrade is one rename and needs no restart.
pub const CURRENT: &str = "/opt/kata-operator/current";
/// Where the journal is.
pub const STATE_DIR: &str = "/var/lib/kata-operator";
/// The journal.
pub const STATE: &str = "/var/lib/kata-operator/state.json";
/// Room that a removal gives free before it begins, so that it can be journalled on a full disk.
pub const RESERVE: &str = "/var/lib/kata-operator/reserve";
/// How large that is in bytes: the journal twice is seldom a tenth of it.
pub const RESERVE_BYTES: u64 = 1 << 20;
/// What a boot forgets. Inputs and outputs of programs are there while these run.
pub const RUN_DIR: &str = "/run/kata-operator";
/// What we wrote without a restart since.
pub const WRITTEN: &str = "/run/kata-operator/written.json";
/// The lock; two agents on one node wait for each other.
pub const LOCK: &str = "/run/lock/kata-operator.lock";
/// Name of the drop-in without its folder, for containerd.
pub const CONTAINERD_DROP_IN: &str = "60-kata-operator.toml";
/// Name of the folder for it, beside the usual one, if that has files that are not read yet.
pub const OWN_FOLDER: &str = "kata-operator.d";
/// Name of the drop-in without its folder, for CRI-O.
pub const CRIO_NAME: &str = "60-kata-operator.conf";
/// The drop-in for CRI-O where its folder is the usual one.
pub const CRIO_DROP_IN: &str = "/etc/crio/crio.conf.d/60-kata-operator.conf";

/// The folders of a node that the node agent's pod has, besides those of the kernel.
const SEEN: [&str; 4] = ["/etc/", "/opt/", "/run/", "/var/"];
/// How that is said.
pub const SEEN_ONLY: &str = "of the node only /etc, /opt, /run and /var are seen";

/// Whether a path is in a folder that the node agent's pod has.
pub fn is_seen(path: &str) -> bool {
    SEEN.iter().any(|folder| path.starts_with(folder))
}

/// Whether a path is one of the release in use.
pub fn is_current(path: &str) -> bool {
    path.strip_prefix(CURRENT).is_some_and(|rest| rest.starts_with('/'))
}

/// The configuration of a handler, by the link to the release in use.
pub fn configuration(handler: &str) -> String {
    format!("{CURRENT}/etc/{handler}/configuration.toml")
}

/// The folder that a path is in.
pub fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    }
}

/// A path that a file names, relative to its folder, as one from the root without `.` and `..`.
pub(crate) fn absolute(file: &str, named: &str) -> String {
    let whole =
        if named.starts_with('/') { named.to_owned() } else { format!("{}/{named}", parent(file)) };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The last part of a path.
pub fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The temporary file beside a file. No glob for `*.toml` matches it, and since CRI-O reads all that is in
/// its folder, that of its drop-in is in the folder above.
pub fn temporary(path: &str) -> String {
    let mut folder = parent(path);
    if name(path) == CRIO_NAME {
        folder = parent(folder);
    }
    format!("{}/.{}.kata-operator-tmp", folder.trim_end_matches('/'), name(path))
}

/// A payload's id: the beginning of its digest.
pub fn id(digest: &str) -> String {
    digest.trim_start_matches("sha256:").chars().take(12).collect()
}
