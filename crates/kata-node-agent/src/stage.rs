//! Takes the payload out of the image that this process runs in, verified, into the node's staging folder.
//!
//! Understood are the component archives of kata-deploy 4 (`shim-components.json` with
//! `kata-static-COMPONENT.tar.zst`), of which only those of the wanted shims are unpacked, and images with
//! the tree itself. Nothing that the container runtime reads is touched.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kata_api::Code;
use kata_api::node_task::NodeTask;
use kata_host::digest;
use kata_host::host::{Host as _, HostError};
use kata_host::paths;
use kata_host::payload::{self, Stage, TREE, has, is_present, seal_stage};

use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::below::{Links, open_inside};
use crate::linux::Linux;

mod archive;
mod behind;
mod limits;
mod tree;
mod unpack;

use limits::COMPONENTS;
use tree::Tree;
pub use unpack::UnpackError;
use unpack::{SPARE, Unpacker};

/// Where kata-deploy's images have their archives.
const ARTIFACTS: &str = "opt/kata-artifacts";
/// Where images have the tree itself, the first one wins.
const TREES: [&str; 2] = ["opt/kata-artifacts/opt/kata", "opt/kata"];
/// How long to wait for another agent on the node.
const LOCK_LIMIT: Duration = Duration::from_secs(60);
/// Bytes of a file VERSION that are read.
const VERSION: u64 = 1 << 10;
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
    /// A path in the image has a link in it.
    #[error("{path} of the image is a link or behind one, which is not followed", path = path.display())]
    ImageLink {
        /// Which.
        path: PathBuf,
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
            Self::NoPayload | Self::Components { .. } | Self::ImageLink { .. } => {
                Some(Code::PayloadUnusable)
            }
            Self::Unpack(error) => error.is_of_image().then_some(Code::PayloadUnusable),
            Self::Host(_) | Self::Image { .. } | Self::Busy => None,
        }
    }
}

/// What to unpack, by path in the image.
enum Source {
    Archives(Vec<String>),
    Tree(&'static str),
}

/// The image that this process runs in. Its root is that of the container, in which folders of the node are as
/// well, so no link of it is followed.
struct Image<'a> {
    path: &'a Path,
    root: OwnedFd,
}

impl<'a> Image<'a> {
    fn new(path: &'a Path) -> Result<Self, StageError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty());
        let fail =
            |source: Errno| StageError::Image { path: path.to_owned(), source: source.into() };
        Ok(Self { path, root: root.map_err(fail)? })
    }

    fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, StageError> {
        let opened = open_inside(&self.root, Path::new(path), flags, Links::Refuse);
        opened.map_err(|source| {
            let path = self.path.join(path);
            if Errno::from_io_error(&source) == Some(Errno::LOOP) {
                return StageError::ImageLink { path };
            }
            StageError::Image { path, source }
        })
    }

    /// The same, if there is such a thing.
    fn open_if_there(&self, path: &str, flags: OFlags) -> Result<Option<OwnedFd>, StageError> {
        match self.open(path, flags) {
            Ok(opened) => Ok(Some(opened)),
            Err(StageError::Image { source, .. })
                if matches!(
                    source.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Stages the payload of a task, unless it is on the node already. Says what was done.
///
/// # Errors
/// If the image has no such payload, or the node fails. Nothing half unpacked is ever taken for a payload.
pub fn stage(host: &mut Linux, task: &NodeTask, image: &Path) -> Result<String, StageError> {
    let shims: BTreeSet<&String> = task.handlers.iter().map(|handler| &handler.shim).collect();
    let shims: Vec<String> = shims.into_iter().cloned().collect();
    let architecture = host.facts()?.architecture;
    let image = Image::new(image)?;
    let source = find(&image, &shims, &architecture)?;
    let fingerprint = fingerprint(&image, &source)?;
    let name = task.payload_image.clone().unwrap_or_default();
    lock(host)?;
    // What the image held before would be taken for what it holds now.
    for payload in payload::all(host, paths::STAGING)? {
        if payload.stage.image == name && payload.stage.source != fingerprint {
            remove(&host.at(&payload.folder)?)?;
        }
    }
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
    let unpacked = unpack(host, &image, &source, root.clone(), room);
    if let Err(error) = unpacked {
        // A disk that is full must not stay full.
        remove(&place)?;
        return Err(error);
    }
    let stage = Stage {
        image: name.clone(),
        source: fingerprint,
        shims,
        kata_version: version(&root, &image).or_else(|| tag(&name)),
        digest: String::new(),
    };
    let payload = seal_stage(host, &folder, stage)?;
    // A tree has no list of its shims to look at before it is unpacked.
    let shims = payload.manifest.shims();
    if let Source::Tree(_) = source
        && let Some(shim) = payload.stage.shims.first()
        && !payload.stage.shims.iter().any(|shim| shims.contains(shim))
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

fn unpack(
    host: &mut Linux,
    image: &Image<'_>,
    source: &Source,
    root: PathBuf,
    room: u64,
) -> Result<(), StageError> {
    let mut unpacker = Unpacker::new(root, room)?;
    match source {
        Source::Archives(archives) => {
            for path in archives {
                let file = File::from(image.open(path, OFlags::RDONLY)?);
                archive::unpack(&mut unpacker, &image.path.join(path), file)?;
            }
        }
        Source::Tree(path) => {
            let folder = image.open(path, OFlags::PATH | OFlags::DIRECTORY)?;
            Tree { folder: &folder, path: &image.path.join(path) }.unpack(&mut unpacker)?;
        }
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

fn find(image: &Image<'_>, shims: &[String], architecture: &str) -> Result<Source, StageError> {
    let list = format!("{ARTIFACTS}/shim-components.json");
    if let Some(file) = image.open_if_there(&list, OFlags::RDONLY)? {
        let mut text = Vec::new();
        let read = File::from(file).take(COMPONENTS + 1).read_to_end(&mut text);
        let path = image.path.join(&list);
        let length = read.map_err(|source| StageError::Image { path, source })?;
        let odd = |reason: String| StageError::Components { reason };
        if u64::try_from(length).is_ok_and(|length| length > COMPONENTS) {
            return Err(odd(format!("it has more than {} KiB", COMPONENTS >> 10)));
        }
        let text = String::from_utf8(text).map_err(|error| odd(error.to_string()))?;
        let names = components(&text, shims, architecture)?;
        let file = |name: &String| format!("{ARTIFACTS}/tarballs/kata-static-{name}.tar.zst");
        return Ok(Source::Archives(names.iter().map(file).collect()));
    }
    for tree in TREES {
        if image.open_if_there(tree, OFlags::PATH | OFlags::DIRECTORY)?.is_some() {
            return Ok(Source::Tree(tree));
        }
    }
    Err(StageError::NoPayload)
}

/// The components of those of the wanted shims that there are: `{"shims": {shim: {architecture: [component]}}}`, and those that every
/// shim needs, of which later releases have a list `requiredComponents: {architecture: [component]}`.
///
/// Source: `tools/packaging/kata-deploy/shim-components.json` of Kata Containers 4.
///
/// # Errors
/// If the text is not of this form, or none of the shims is in it.
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
    let found: Vec<_> = shims.iter().filter_map(|shim| of(known.get(shim))).collect();
    if let (true, Some(shim)) = (found.is_empty(), shims.first()) {
        return Err(StageError::NoShim {
            shim: shim.clone(),
            architecture: architecture.to_owned(),
            known: known
                .iter()
                .filter(|(_, by_architecture)| of(Some(by_architecture)).is_some())
                .map(|(name, _)| name.clone())
                .collect(),
        });
    }
    names.extend(found.into_iter().flatten());
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

/// Distinguishes one state of the image from another without reading it all: names, sizes and times of what would
/// be unpacked.
fn fingerprint(image: &Image<'_>, source: &Source) -> Result<String, StageError> {
    let mut hash = Sha256::new();
    let mut add = |path: &Path, found: &Stat| {
        let time = (found.st_mtime, found.st_mtime_nsec);
        hash.update(format!("{} {} {time:?}\n", path.display(), found.st_size));
    };
    let stat = |path: &str| -> Result<(OwnedFd, PathBuf, Stat), StageError> {
        let opened = image.open(path, OFlags::PATH)?;
        let path = image.path.join(path);
        match rustix::fs::fstat(&opened) {
            Ok(found) => Ok((opened, path, found)),
            Err(source) => Err(StageError::Image { path, source: source.into() }),
        }
    };
    match source {
        Source::Archives(archives) => {
            for archive in archives {
                let (_, path, found) = stat(archive)?;
                add(&path, &found);
            }
        }
        Source::Tree(tree) => {
            let (folder, path, found) = stat(tree)?;
            add(&path, &found);
            Tree { folder: &folder, path: &path }.walk(&mut |relative, found| {
                add(&path.join(relative), found);
                Ok(())
            })?;
        }
    }
    Ok(digest::text(&hash.finalize()))
}

/// Version of Kata: the file VERSION of the tree or the image.
fn version(tree: &Path, image: &Image<'_>) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK;
    let folder = File::open(tree).ok()?;
    let in_tree = || open_inside(&folder, Path::new("VERSION"), flags, Links::FollowInside).ok();
    let artifacts = format!("{ARTIFACTS}/VERSION");
    let in_image = |path: &str| image.open(path, flags).ok();
    let line = |file: OwnedFd| {
        let mut text = String::new();
        File::from(file).take(VERSION).read_to_string(&mut text).ok()?;
        let line = text.lines().next()?.trim();
        let printable = line.bytes().all(|byte| byte.is_ascii_graphic());
        (printable && !line.is_empty() && line.len() < 64).then(|| line.to_owned())
    };
    in_tree()
        .and_then(line)
        .or_else(|| in_image("opt/kata/VERSION").and_then(line))
        .or_else(|| in_image(&artifacts).and_then(line))
}

/// The tag of an image, if it is a version: kata-deploy's images of 3.32 and later have it nowhere else.
fn tag(image: &str) -> Option<String> {
    let (name, _digest) = image.split_once('@').unwrap_or((image, ""));
    let (_, tag) = name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/'))?;
    let numbers: Vec<&str> = tag.split(['-', '+']).next()?.split('.').collect();
    let number = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (numbers.len() == 3 && numbers.iter().all(number)).then(|| tag.to_owned())
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
