//! The payload: which files it has, whether they are intact, and which shims it offers.
//!
//! A payload is named by the digest of its manifest. Its tree is never edited; what has to be different
//! on this node is rendered beside it, see [`crate::release`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::hex;
use crate::durable;
use crate::host::{FileKind, Host, HostError, HostErrorKind, HostResult, Stat};
use crate::paths;

/// Name of the tree in a payload's folder. It holds what upstream has below `/opt/kata`.
pub const TREE: &str = "tree";
/// Name of the manifest in a payload's folder.
pub const MANIFEST: &str = "manifest.json";
/// Name of [`Stage`] in a payload's folder.
pub const STAGE: &str = "stage.json";
/// Name of the seal in a payload's folder.
pub const SEAL: &str = "seal.json";

/// The largest manifest, [`Stage`] or seal that is read, in bytes. The largest payload that can be staged has a manifest
/// of a third of it.
const MAX_RECORD_BYTES: u64 = 16 << 20;

/// Every file, directory and link of a payload.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// By relative path.
    pub entries: BTreeMap<String, Entry>,
}

/// A file, directory or link of a payload.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Entry {
    /// A directory.
    Directory {
        /// Its permission bits.
        mode: u32,
    },
    /// A regular file.
    File {
        /// Its permission bits.
        mode: u32,
        /// Its size in bytes.
        size: u64,
        /// Its SHA-256 in hexadecimal.
        sha256: String,
    },
    /// A symbolic link.
    Link {
        /// Where it points to.
        target: String,
    },
}

impl Manifest {
    /// The bytes whose digest names the payload.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Maps of strings and integers always serialize.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// `sha256:…` of [`Manifest::to_bytes`].
    pub fn digest(&self) -> String {
        format!("sha256:{}", hex(&self.to_bytes()))
    }

    /// Understands a manifest.
    ///
    /// # Errors
    /// If it is not JSON of this form, if a path or a link in it leads out of the payload, or if the parent of a path is
    /// no directory of the payload, such as a link.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        for (path, entry) in &manifest.entries {
            let leads_out =
                matches!(entry, Entry::Link { target } if !link_is_inside(path, target));
            if !is_inside(path) || leads_out {
                return Err(format!("{path:?} leads out of the payload"));
            }
            let parent = path.rsplit_once('/').and_then(|(parent, _)| manifest.entries.get(parent));
            if path.contains('/') && !matches!(parent, Some(Entry::Directory { .. })) {
                return Err(format!("{path:?} is in no directory of the payload"));
            }
        }
        Ok(manifest)
    }

    /// The sum of all files' sizes in bytes.
    pub fn size(&self) -> u64 {
        self.entries
            .values()
            .map(|entry| match entry {
                Entry::File { size, .. } => *size,
                Entry::Directory { .. } | Entry::Link { .. } => 0,
            })
            .fold(0, u64::saturating_add)
    }

    /// Where the shim is and which configuration belongs to it, as relative paths; `None` if the payload
    /// does not have this shim.
    pub fn shim(&self, shim: &str) -> Option<Shim> {
        let defaults = "share/defaults/kata-containers";
        let places =
            [("runtime-rs/bin", format!("{defaults}/runtime-rs")), ("bin", defaults.to_owned())];
        let mut places = Vec::from(places);
        // Of the two that may have it, kata-deploy takes the Go shim for this one.
        if shim == "remote" {
            places.reverse();
        }
        places.into_iter().find_map(|(folder, configurations)| {
            let binary = format!("{folder}/containerd-shim-kata-v2");
            let configuration = format!("{configurations}/configuration-{shim}.toml");
            (is_inside(&configuration)
                && self.entries.contains_key(&binary)
                && self.entries.contains_key(&configuration))
            .then_some(Shim { binary, configuration })
        })
    }

    /// The names of all shims that the payload has.
    pub fn shims(&self) -> Vec<String> {
        let mut shims: Vec<String> = self
            .entries
            .keys()
            .filter_map(|path| {
                let name =
                    paths::name(path).strip_prefix("configuration-")?.strip_suffix(".toml")?;
                self.shim(name).map(|_| name.to_owned())
            })
            .collect();
        shims.sort_unstable();
        shims.dedup();
        shims
    }
}

/// The names of what there is, for a message: `none` if there is nothing.
pub fn has(shims: &[String]) -> String {
    if shims.is_empty() { "none".to_owned() } else { shims.join(", ") }
}

/// A shim in a payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shim {
    /// Relative path of the binary.
    pub binary: String,
    /// Relative path of its configuration as upstream ships it.
    pub configuration: String,
}

/// Where a payload came from.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Stage {
    /// The image.
    pub image: String,
    /// Digest of what was found in the image, so that the same is not unpacked twice.
    pub source: String,
    /// The shims that were asked for.
    pub shims: Vec<String>,
    /// Version of Kata, if the image names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kata_version: Option<String>,
    /// Digest of the manifest, `sha256:…`. Empty until [`seal_stage`] has filled it in.
    #[serde(default)]
    pub digest: String,
}

/// How the files looked when they were last known to be intact.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
struct Seal {
    /// Mode, size, time of modification, time of the inode's change and inode, by relative path.
    stamps: BTreeMap<String, (u32, u64, i64, i64, u64)>,
}

/// A payload on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// Its folder.
    pub folder: String,
    /// Where it came from.
    pub stage: Stage,
    /// Its files.
    pub manifest: Manifest,
}

impl Payload {
    /// Path of something in its tree.
    pub fn file(&self, relative: &str) -> String {
        format!("{}/{TREE}/{relative}", self.folder)
    }

    /// Name of its folder.
    pub fn id(&self) -> String {
        paths::id(&self.stage.digest)
    }
}

/// Whether a relative path stays inside, and is written in the one normal form.
pub fn is_inside(path: &str) -> bool {
    !path.is_empty()
        && !path.contains('\0')
        && path.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
}

/// Whether a link at a relative path points to something inside.
/// Links to absolute paths are for the files of the node, and are refused when the payload is unpacked.
pub fn link_is_inside(path: &str, target: &str) -> bool {
    if target.starts_with('/') || target.is_empty() {
        return false;
    }
    let mut depth: Vec<&str> = path.split('/').collect();
    depth.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if depth.pop().is_none() {
                    return false;
                }
            }
            part => depth.push(part),
        }
    }
    true
}

/// Reads the manifest of what was unpacked, and makes it a payload under [`paths::STAGING`]: writes
/// manifest, seal and `stage`, makes everything durable, and renames `folder` to the payload's id.
///
/// `folder` is a folder directly in [`paths::STAGING`] whose `tree` was just unpacked.
///
/// # Errors
/// If the node fails, or the tree has something that no payload may have.
pub fn seal_stage(host: &mut dyn Host, folder: &str, mut stage: Stage) -> HostResult<Payload> {
    let mut manifest = Manifest::default();
    collect(host, &format!("{folder}/{TREE}"), "", &mut manifest)?;
    stage.digest = manifest.digest();
    stage.shims.sort_unstable();
    host.write(&format!("{folder}/{MANIFEST}"), &manifest.to_bytes(), 0o644)?;
    let text = serde_json::to_vec(&stage).map_err(|error| corrupt(folder, &error.to_string()))?;
    host.write(&format!("{folder}/{STAGE}"), &text, 0o644)?;
    let seal = stamps(host, folder, &manifest)?;
    let text = serde_json::to_vec(&seal).map_err(|error| corrupt(folder, &error.to_string()))?;
    host.write(&format!("{folder}/{SEAL}"), &text, 0o644)?;
    host.sync_tree(folder)?;
    let target = format!("{}/{}", paths::STAGING, paths::id(&stage.digest));
    if folder != target {
        durable::remove_tree(host, &target)?;
        host.rename(folder, &target)?;
    }
    host.sync_dir(paths::STAGING)?;
    Ok(Payload { folder: target, stage, manifest })
}

fn collect(
    host: &mut dyn Host,
    root: &str,
    relative: &str,
    manifest: &mut Manifest,
) -> HostResult<()> {
    let folder = if relative.is_empty() { root.to_owned() } else { format!("{root}/{relative}") };
    for name in host.list(&folder)?.unwrap_or_default() {
        let relative = if relative.is_empty() { name } else { format!("{relative}/{name}") };
        let path = format!("{root}/{relative}");
        let Some(stat) = host.stat(&path)? else { continue };
        let entry = match stat.kind {
            FileKind::Directory => Entry::Directory { mode: stat.mode },
            FileKind::File => {
                Entry::File { mode: stat.mode, size: stat.size, sha256: host.sha256(&path)? }
            }
            FileKind::Link { target } => Entry::Link { target },
            FileKind::Other => return Err(corrupt(&path, "it is no file, directory or link")),
        };
        let directory = matches!(entry, Entry::Directory { .. });
        manifest.entries.insert(relative.clone(), entry);
        if directory {
            collect(host, root, &relative, manifest)?;
        }
    }
    Ok(())
}

fn corrupt(path: &str, reason: &str) -> HostError {
    HostError {
        action: format!("use {path}"),
        reason: reason.to_owned(),
        kind: HostErrorKind::Other,
    }
}

fn stamp(stat: &Stat) -> (u32, u64, i64, i64, u64) {
    (stat.mode, stat.size, stat.modified, stat.changed, stat.inode)
}

fn stamps(host: &mut dyn Host, folder: &str, manifest: &Manifest) -> HostResult<Seal> {
    let mut seal = Seal::default();
    for (path, entry) in &manifest.entries {
        if let Entry::File { .. } = entry
            && let Some(stat) = host.stat(&format!("{folder}/{TREE}/{path}"))?
        {
            seal.stamps.insert(path.clone(), stamp(&stat));
        }
    }
    Ok(seal)
}

/// Notes how the files of a payload look now. Call it only when they are known to be intact.
pub(crate) fn seal(host: &mut dyn Host, folder: &str) -> HostResult<()> {
    let Some(payload) = load(host, folder)? else { return Ok(()) };
    let seal = stamps(host, folder, &payload.manifest)?;
    let text = serde_json::to_vec(&seal).map_err(|error| corrupt(folder, &error.to_string()))?;
    durable::write(host, &format!("{folder}/{SEAL}"), &text, 0o644)
}

/// Reads the manifest, [`Stage`] or seal of a payload. `None` if it is no regular file, such as a pipe, whose reading
/// would block, or has more than [`MAX_RECORD_BYTES`].
fn read_record(host: &mut dyn Host, path: &str) -> HostResult<Option<Vec<u8>>> {
    match host.stat(path)? {
        Some(Stat { kind: FileKind::File, size, .. }) if size <= MAX_RECORD_BYTES => {
            host.read(path)
        }
        _ => Ok(None),
    }
}

/// The payload in a folder; `None` if there is none, or one that cannot be trusted. No link is followed, since a program
/// of the payload's image may have written to [`paths::STAGING`].
pub(crate) fn load(host: &mut dyn Host, folder: &str) -> HostResult<Option<Payload>> {
    for directory in [folder.to_owned(), format!("{folder}/{TREE}")] {
        if host.stat(&directory)?.is_none_or(|stat| stat.kind != FileKind::Directory) {
            return Ok(None);
        }
    }
    let Some(stage) = read_record(host, &format!("{folder}/{STAGE}"))? else { return Ok(None) };
    let Some(bytes) = read_record(host, &format!("{folder}/{MANIFEST}"))? else { return Ok(None) };
    let (Ok(stage), Ok(manifest)) =
        (serde_json::from_slice::<Stage>(&stage), Manifest::parse(&bytes))
    else {
        return Ok(None);
    };
    let intact =
        manifest.digest() == stage.digest && paths::name(folder) == paths::id(&stage.digest);
    Ok(intact.then(|| Payload { folder: folder.to_owned(), stage, manifest }))
}

/// How thoroughly files are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// A file whose size, times and inode have not changed since it was sealed is intact.
    Stamps,
    /// Every file is read.
    Content,
}

/// The entries of a payload that differ from its manifest.
pub(crate) fn damage(
    host: &mut dyn Host,
    payload: &Payload,
    depth: Depth,
) -> HostResult<Vec<String>> {
    let sealed = read_record(host, &format!("{}/{SEAL}", payload.folder))?.unwrap_or_default();
    let sealed: Seal = serde_json::from_slice(&sealed).unwrap_or_default();
    let mut damaged = Vec::new();
    for (path, entry) in &payload.manifest.entries {
        let file = payload.file(path);
        let stat = host.stat(&file)?;
        let intact = match (entry, stat) {
            (Entry::Directory { mode }, Some(stat)) => {
                stat.kind == FileKind::Directory && stat.mode == *mode
            }
            (Entry::Link { target }, Some(stat)) => {
                stat.kind == FileKind::Link { target: target.clone() }
            }
            (Entry::File { mode, size, sha256 }, Some(stat)) => {
                stat.kind == FileKind::File
                    && stat.mode == *mode
                    && stat.size == *size
                    && ((depth == Depth::Stamps && sealed.stamps.get(path) == Some(&stamp(&stat)))
                        || host.sha256(&file)? == *sha256)
            }
            (_, None) => false,
        };
        if !intact {
            damaged.push(path.clone());
        }
    }
    Ok(damaged)
}

/// The payloads in a folder of payloads.
///
/// # Errors
/// If the node fails.
pub fn all(host: &mut dyn Host, folder: &str) -> HostResult<Vec<Payload>> {
    let mut payloads = Vec::new();
    for name in host.list(folder)?.unwrap_or_default() {
        if !name.starts_with('.') {
            payloads.extend(load(host, &format!("{folder}/{name}"))?);
        }
    }
    Ok(payloads)
}

/// Whether a payload already on the node is what an image of this name and content would give.
/// With `verify` every file of it is read.
///
/// # Errors
/// If the node fails.
pub fn is_present(
    host: &mut dyn Host,
    image: &str,
    source: &str,
    shims: &[String],
    verify: bool,
) -> HostResult<bool> {
    let depth = if verify { Depth::Content } else { Depth::Stamps };
    for folder in [paths::STAGING, paths::VERSIONS] {
        for payload in all(host, folder)? {
            let stage = &payload.stage;
            if stage.image == image
                && stage.source == source
                && shims.iter().all(|shim| stage.shims.contains(shim))
                && damage(host, &payload, depth)?.is_empty()
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
