//! Takes the payload out of the image that this process runs in, verified, into the node's staging folder.
//!
//! Understood are the component archives of kata-deploy 4 (`shim-components.json` with
//! `kata-static-COMPONENT.tar.zst`), of which only those of the wanted shims are unpacked, and images with
//! the tree itself. Nothing that the container runtime reads is touched.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kata_api::Code;
use kata_api::node_task::NodeTask;
use kata_host::digest;
use kata_host::host::{Host as _, HostError};
use kata_host::paths;
use kata_host::payload::{Stage, TREE, has, is_present, seal_stage};

use super::linux::Linux;

mod behind;
mod unpack;

pub use unpack::UnpackError;
use unpack::Unpacker;

/// Where kata-deploy's images have their archives.
const ARTIFACTS: &str = "opt/kata-artifacts";
/// Where images have the tree itself, the first one wins.
const TREES: [&str; 2] = ["opt/kata-artifacts/opt/kata", "opt/kata"];
/// How long to wait for another agent on the node.
const LOCK_LIMIT: Duration = Duration::from_secs(60);
/// What must stay free on the node's disk.
const SPARE: u64 = 1 << 30;

/// Why a payload was not staged.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The node failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The image cannot be read.
    #[error("cannot read {path} of the image", path = path.display())]
    Image {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The image is none with Kata.
    #[error("the image has no payload: there is neither /opt/kata-artifacts nor /opt/kata in it")]
    NoPayload,
    /// The list of components is not as known.
    #[error("cannot understand shim-components.json of the image: {reason}")]
    Components {
        /// Why.
        reason: String,
    },
    /// The image has the shim not, or not for this architecture.
    #[error("the image has no shim {shim} for {architecture}; it has: {}", has(known))]
    NoShim {
        /// The shim.
        shim: String,
        /// The node's architecture.
        architecture: String,
        /// The shims that it has.
        known: Vec<String>,
    },
    /// Something cannot be unpacked.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// Another agent is at work.
    #[error("another node agent has worked on the node for 60 s")]
    Busy,
}

impl StageError {
    /// What is wrong with the image, or with what is wanted of it, so that it is wrong on every node like this
    /// one; `None` if it is the node that failed.
    pub fn of_image(&self) -> Option<Code> {
        match self {
            Self::NoShim { .. } => Some(Code::ShimMissing),
            Self::NoPayload
            | Self::Components { .. }
            | Self::Unpack(UnpackError::Refused { .. }) => Some(Code::PayloadUnusable),
            Self::Host(_) | Self::Image { .. } | Self::Unpack(_) | Self::Busy => None,
        }
    }
}

/// What to unpack.
enum Source {
    Archives(Vec<PathBuf>),
    Tree(PathBuf),
}

/// Stages the payload of a task, unless it is on the node already. Says what was done.
///
/// # Errors
/// If the image has no such payload, or the node fails. Nothing half unpacked is ever taken for a payload.
pub fn stage(host: &mut Linux, task: &NodeTask, image: &Path) -> Result<String, StageError> {
    let shims: BTreeSet<&String> = task.handlers.iter().map(|handler| &handler.shim).collect();
    let shims: Vec<String> = shims.into_iter().cloned().collect();
    let architecture = host.facts()?.architecture;
    let source = find(image, &shims, &architecture)?;
    let fingerprint = fingerprint(&source)?;
    let name = task.payload_image.clone().unwrap_or_default();
    lock(host)?;
    if is_present(host, &name, &fingerprint, &shims, task.verify)? {
        return Ok(format!("the payload of {name} is on the node already"));
    }
    for directory in [paths::ROOT, paths::STAGING] {
        host.make_dir(directory, 0o755)?;
    }
    let folder = format!("{}/.unpacking", paths::STAGING);
    let place = host.at(&folder)?;
    remove(&place)?;
    host.make_dir(&folder, 0o755)?;
    let tree = format!("{folder}/{TREE}");
    host.make_dir(&tree, 0o755)?;
    let room = host.disk_free(&tree)?.saturating_sub(SPARE);
    let root = host.at(&tree)?;
    let unpacked = unpack(host, &source, root.clone(), room);
    if let Err(error) = unpacked {
        // A disk that is full must not stay full.
        remove(&place)?;
        return Err(error.into());
    }
    let stage = Stage {
        image: name.clone(),
        source: fingerprint,
        shims,
        kata_version: version(&root, image).or_else(|| tag(&name)),
        digest: String::new(),
    };
    let payload = seal_stage(host, &folder, stage)?;
    // A tree has no list of its shims to look at before it is unpacked.
    let shims = payload.manifest.shims();
    let lacks = |shim: &&String| !shims.contains(shim);
    if let Source::Tree(_) = source
        && let Some(shim) = payload.stage.shims.iter().find(lacks)
    {
        let error = StageError::NoShim { shim: shim.clone(), architecture, known: shims };
        remove(&host.at(&payload.folder)?)?;
        return Err(error);
    }
    Ok(format!(
        "staged {name}: {} files, {} MiB, {}",
        payload.manifest.entries.len(),
        payload.manifest.size() >> 20,
        payload.stage.digest
    ))
}

fn unpack(host: &mut Linux, source: &Source, root: PathBuf, room: u64) -> Result<(), UnpackError> {
    let mut unpacker = Unpacker::new(root, room);
    match source {
        Source::Archives(archives) => {
            archives.iter().try_for_each(|archive| unpacker.archive(archive))?;
        }
        Source::Tree(folder) => unpacker.tree(folder)?,
    }
    for (path, sha256) in unpacker.finish()? {
        host.know(path, sha256);
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), StageError> {
    match fs::remove_dir_all(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(StageError::Image { path: path.to_owned(), source })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn lock(host: &mut Linux) -> Result<(), StageError> {
    let end = host.now() + LOCK_LIMIT;
    while !host.lock(paths::LOCK)? {
        if host.now() >= end {
            return Err(StageError::Busy);
        }
        host.wait(Duration::from_millis(250));
    }
    Ok(())
}

fn read(path: PathBuf) -> Result<Option<String>, StageError> {
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StageError::Image { path, source }),
    }
}

fn find(image: &Path, shims: &[String], architecture: &str) -> Result<Source, StageError> {
    let artifacts = image.join(ARTIFACTS);
    if let Some(text) = read(artifacts.join("shim-components.json"))? {
        let names = components(&text, shims, architecture)?;
        let file =
            |name: &String| artifacts.join("tarballs").join(format!("kata-static-{name}.tar.zst"));
        return Ok(Source::Archives(names.iter().map(file).collect()));
    }
    let tree = TREES.iter().map(|tree| image.join(tree)).find(|tree| tree.is_dir());
    tree.map(Source::Tree).ok_or(StageError::NoPayload)
}

/// The components of the wanted shims: `{"shims": {shim: {architecture: [component]}}}`, and those that every
/// shim needs, of which later releases have a list `requiredComponents: {architecture: [component]}`.
///
/// Source: `tools/packaging/kata-deploy/shim-components.json` of Kata Containers 4.
///
/// # Errors
/// If the text is not of this form, or a shim is not in it.
pub fn components(
    text: &str,
    shims: &[String],
    architecture: &str,
) -> Result<BTreeSet<String>, StageError> {
    let odd = |reason: &str| StageError::Components { reason: reason.to_owned() };
    let all: serde_json::Value =
        serde_json::from_str(text).map_err(|error| odd(&error.to_string()))?;
    let known = all
        .get("shims")
        .and_then(serde_json::Value::as_object)
        .ok_or_else(|| odd("it has no object shims"))?;
    let of = |by_architecture: Option<&'_ serde_json::Value>| {
        by_architecture?.get(architecture)?.as_array().cloned()
    };
    let mut names = of(all.get("requiredComponents")).unwrap_or_default();
    for shim in shims {
        let more = of(known.get(shim)).ok_or_else(|| StageError::NoShim {
            shim: shim.clone(),
            architecture: architecture.to_owned(),
            known: known
                .iter()
                .filter(|(_, by_architecture)| of(Some(by_architecture)).is_some())
                .map(|(name, _)| name.clone())
                .collect(),
        })?;
        names.extend(more);
    }
    let mut components = BTreeSet::new();
    for name in names {
        let name = name.as_str().ok_or_else(|| odd("a component is no string"))?;
        if name.is_empty() || name.contains(['/', '\0']) {
            return Err(odd("a component has a name that is no file name"));
        }
        components.insert(name.to_owned());
    }
    Ok(components)
}

/// Tells one state of the image from another without reading it all: names, sizes and times of what would
/// be unpacked.
fn fingerprint(source: &Source) -> Result<String, StageError> {
    fn add(path: &Path, text: &mut String) -> Result<(), StageError> {
        use std::os::unix::fs::MetadataExt as _;
        let fail = |source| StageError::Image { path: path.to_owned(), source };
        let found = fs::symlink_metadata(path).map_err(fail)?;
        let time = (found.mtime(), found.mtime_nsec());
        text.push_str(&format!("{} {} {time:?}\n", path.display(), found.len()));
        if found.is_dir() {
            let mut names: Vec<PathBuf> = fs::read_dir(path)
                .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
                .map_err(fail)?;
            names.sort_unstable();
            names.iter().try_for_each(|name| add(name, text))?;
        }
        Ok(())
    }
    let mut text = String::new();
    match source {
        Source::Archives(archives) => {
            archives.iter().try_for_each(|archive| add(archive, &mut text))?;
        }
        Source::Tree(tree) => add(tree, &mut text)?,
    }
    Ok(digest::hex(text.as_bytes()))
}

/// Version of Kata: the file VERSION of the tree or the image.
fn version(tree: &Path, image: &Path) -> Option<String> {
    let places = [
        tree.join("VERSION"),
        image.join("opt/kata/VERSION"),
        image.join(ARTIFACTS).join("VERSION"),
    ];
    places.iter().find_map(|place| {
        let text = fs::read_to_string(place).ok()?;
        let line = text.lines().next()?.trim();
        (!line.is_empty() && line.len() < 64).then(|| line.to_owned())
    })
}

/// The tag of an image, if it is a version: kata-deploy's images of 3.32 and later tell it nowhere else.
fn tag(image: &str) -> Option<String> {
    let (name, _digest) = image.split_once('@').unwrap_or((image, ""));
    let (_, tag) = name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'))?;
    let numbers: Vec<&str> = tag.split(['-', '+']).next()?.split('.').collect();
    let number = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (numbers.len() == 3 && numbers.iter().all(number)).then(|| tag.to_owned())
}

/// Opens a file of the image.
fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_that_is_a_version_tells_it() {
        for (image, version) in [
            ("quay.io/kata-containers/kata-deploy:4.1.0", Some("4.1.0")),
            ("localhost:5000/kata:3.32.0-rc0@sha256:00", Some("3.32.0-rc0")),
            ("localhost:5000/kata", None),
            ("quay.io/kata-containers/kata-deploy:latest", None),
            ("quay.io/kata@sha256:00", None),
            ("kata:4.1", None),
            ("kata:4..0", None),
            ("", None),
        ] {
            assert_eq!(tag(image).as_deref(), version, "{image}");
        }
    }
}
