//! Writes what an image brings into a folder: no link is followed, nothing is written outside, and every link is
//! judged by where it leads once all is there.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use kata_host::payload::{is_inside, link_is_inside};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::behind::{BLOCK, Behind, Digests};
use super::limits::{Inventory, Kind, is_short, shorten};
use crate::below::{Links, open_inside};

/// What must stay free on the node's disk.
pub(super) const SPARE: u64 = 1 << 30;
/// What upstream's archives have before every path.
pub(super) const PREFIX: &str = "opt/kata";

/// Why something was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// An archive or file cannot be read.
    #[error("cannot read {path}", path = path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written on the node.
    #[error("cannot write {path}", path = path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Something that no payload may have.
    #[error("refused {entry:?}: {reason} (of {archive})", archive = archive.display())]
    Refused {
        /// The archive or tree.
        archive: PathBuf,
        /// The entry.
        entry: String,
        /// Why.
        reason: String,
    },
    /// What is no archive, or ends in the middle of one.
    #[error("cannot unpack {archive}{after}: {reason}", archive = archive.display())]
    Damaged {
        /// The archive.
        archive: PathBuf,
        /// After which entry, if there is one.
        after: String,
        /// Why.
        reason: String,
    },
    /// The node's disk is too small.
    #[error(
        "the payload needs more than the {} MiB that are free below /opt of the node besides the {} MiB that \
         stay free",
        room >> 20,
        SPARE >> 20
    )]
    NoRoom {
        /// How much room there was, in bytes.
        room: u64,
    },
}

impl UnpackError {
    /// An entry that is refused.
    pub(super) fn refused(archive: &Path, entry: &str, reason: String) -> Self {
        Self::Refused { archive: archive.to_owned(), entry: shorten(entry), reason }
    }

    /// Whether it is the image that is wrong, and not the node.
    pub(super) fn is_of_image(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::Damaged { .. })
    }
}

/// Why an entry was not unpacked.
pub(super) enum Failure {
    /// No payload may have it.
    Refused(String),
    /// Its content cannot be read.
    Content(io::Error),
    /// It cannot be written.
    Node(UnpackError),
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self::Refused(reason)
    }
}

impl From<io::Error> for Failure {
    fn from(source: io::Error) -> Self {
        Self::Content(source)
    }
}

impl From<UnpackError> for Failure {
    fn from(error: UnpackError) -> Self {
        Self::Node(error)
    }
}

/// The content of a file.
pub(super) struct Contents<'a, R> {
    /// Its permission bits.
    pub(super) mode: u32,
    /// Its size, as it was promised.
    pub(super) size: u64,
    /// Where it is read from.
    pub(super) from: &'a mut R,
}

/// Unpacks into a folder.
#[derive(Debug)]
pub(super) struct Unpacker {
    path: PathBuf,
    folder: OwnedFd,
    room: u64,
    left: u64,
    behind: Behind,
    inventory: Inventory,
    /// The archives, or the tree, and what is before the paths in them.
    sources: Vec<(PathBuf, &'static str)>,
}

impl Unpacker {
    /// Unpacks into the folder at `path`, at most `room` bytes.
    ///
    /// # Errors
    /// If there is no such folder.
    pub(super) fn new(path: PathBuf, room: u64) -> Result<Self, UnpackError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&path, flags, Mode::empty());
        let folder = folder.map_err(|source| fail(&path, source))?;
        Ok(Self {
            path,
            folder,
            room,
            left: room,
            behind: Behind::start(),
            inventory: Inventory::default(),
            sources: Vec::new(),
        })
    }

    /// What comes now is of this archive or tree, which has `prefix` before every path.
    pub(super) fn begin(&mut self, source: &Path, prefix: &'static str) {
        self.sources.push((source.to_owned(), prefix));
    }

    /// Judges all links. The result is the SHA-256 of every file that was written.
    ///
    /// # Errors
    /// If a link leads out, or the disk did not take a file.
    pub(super) fn finish(self) -> Result<Digests, UnpackError> {
        for (link, source) in self.inventory.links() {
            let opened = open_inside(&self.folder, link, OFlags::PATH, Links::FollowInside);
            let reason = match opened.err().and_then(|error| Errno::from_io_error(&error)) {
                // A link to a component that was not asked for leads nowhere.
                None | Some(Errno::NOENT | Errno::NOTDIR) => continue,
                Some(Errno::XDEV) => "its link leads out by way of others".to_owned(),
                Some(Errno::LOOP) => "its link leads in a circle".to_owned(),
                Some(error) => return Err(fail(&self.path.join(link), error)),
            };
            let (archive, prefix) = self.sources.get(source).cloned().unwrap_or_default();
            let entry = Path::new(prefix).join(link);
            return Err(UnpackError::refused(&archive, &entry.to_string_lossy(), reason));
        }
        self.behind.finish().map_err(|(path, source)| UnpackError::Write { path, source })
    }

    /// Counts an entry.
    ///
    /// # Errors
    /// If there are too many of them.
    pub(super) fn count(&mut self) -> Result<(), String> {
        self.inventory.count()
    }

    /// Makes a folder, or sets the mode of the one that is there.
    pub(super) fn folder(&mut self, relative: &str, mode: u32) -> Result<(), Failure> {
        let _above = self.add(relative, Kind::Folder)?;
        // Nothing in a payload may be written by others.
        Ok(self.make_folder(relative, mode & 0o755 | 0o700)?)
    }

    /// Writes a file.
    pub(super) fn file(
        &mut self,
        relative: &str,
        contents: Contents<'_, impl Read>,
    ) -> Result<(), Failure> {
        let Contents { mode, size, from } = contents;
        // Before anything of it is written: a file that is too large must not fill the disk first.
        self.inventory.count_bytes(size)?;
        if size > self.left {
            return Err(UnpackError::NoRoom { room: self.room }.into());
        }
        let (above, name) = self.add(relative, Kind::File)?;
        let path = self.path.join(relative);
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode & 0o755);
        let file = rustix::fs::openat(above, name, flags, mode);
        let mut file = File::from(file.map_err(|source| fail(&path, source))?);
        let write = |source| UnpackError::Write { path: path.clone(), source };
        let mut bytes = 0;
        loop {
            let mut block = self.behind.block();
            let length = fill(from, &mut block)?;
            let more = u64::try_from(length).unwrap_or(u64::MAX);
            let room = self.room;
            self.left = self.left.checked_sub(more).ok_or(UnpackError::NoRoom { room })?;
            bytes += more;
            file.write_all(block.get(..length).unwrap_or_default()).map_err(write)?;
            self.behind.wrote(block, length);
            if length < BLOCK {
                break;
            }
        }
        // The process's umask must not decide.
        rustix::fs::fchmod(&file, mode).map_err(|source| fail(&path, source))?;
        self.behind.complete(path, file, bytes);
        Ok(())
    }

    /// Makes a link. Upstream's absolute targets become relative ones.
    pub(super) fn link(&mut self, relative: &str, target: &str) -> Result<(), Failure> {
        is_short(target)?;
        let target = match target.strip_prefix("/opt/kata/") {
            None => target.to_owned(),
            Some(rest) => {
                let up = relative.split('/').count().saturating_sub(1);
                format!("{}{rest}", "../".repeat(up))
            }
        };
        // As it is written. Where it leads by way of other links, only all of them together show.
        if !link_is_inside(relative, &target) || target.contains('\0') {
            return Err("its link leads out".to_owned().into());
        }
        let (above, name) = self.add(relative, Kind::Link)?;
        let made = rustix::fs::symlinkat(&target, above, name);
        Ok(made.map_err(|source| fail(&self.path.join(relative), source))?)
    }

    /// Gives a file of the payload a second name.
    pub(super) fn hard_link(&mut self, relative: &str, target: &str) -> Result<(), Failure> {
        if !is_inside(target) {
            return Err("its hard link leads out".to_owned().into());
        }
        if target == relative || !self.inventory.has_file(target) {
            return Err("its hard link is to no file that came before it".to_owned().into());
        }
        let (above, name) = self.add(relative, Kind::File)?;
        let path = self.path.join(relative);
        let (folder, file) = self.parent(target)?;
        rustix::fs::linkat(folder, file, above, name, AtFlags::empty())
            .map_err(|source| fail(&path, source))?;
        self.behind.linked(self.path.join(target), path);
        Ok(())
    }

    /// Adds an entry to the inventory, and makes a place for it: the folders above it are made, and what an
    /// earlier component had there goes. The result is where it belongs.
    fn add<'a>(&mut self, relative: &'a str, kind: Kind) -> Result<(OwnedFd, &'a str), Failure> {
        let source = self.sources.len().saturating_sub(1);
        let added = self.inventory.add(relative, kind, source)?;
        for folder in &added.folders {
            self.make_folder(folder, 0o755)?;
        }
        let (above, name) = self.parent(relative)?;
        if added.replaces {
            let path = self.path.join(relative);
            rustix::fs::unlinkat(&above, name, AtFlags::empty())
                .map_err(|source| fail(&path, source))?;
            self.behind.gone(path);
        }
        Ok((above, name))
    }

    fn make_folder(&self, relative: &str, mode: u32) -> Result<(), UnpackError> {
        let (above, name) = self.parent(relative)?;
        let mode = Mode::from_raw_mode(mode);
        let make = || -> rustix::io::Result<()> {
            match rustix::fs::mkdirat(&above, name, mode) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::fchmod(rustix::fs::openat(&above, name, flags, Mode::empty())?, mode)
        };
        make().map_err(|source| fail(&self.path.join(relative), source))
    }

    /// The folder that an entry is in, and its name there.
    fn parent<'a>(&self, relative: &'a str) -> Result<(OwnedFd, &'a str), UnpackError> {
        let (folder, name) = relative.rsplit_once('/').unwrap_or((".", relative));
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let opened = open_inside(&self.folder, Path::new(folder), flags, Links::Refuse);
        let path = || self.path.join(folder);
        Ok((opened.map_err(|source| UnpackError::Write { path: path(), source })?, name))
    }
}

fn fail(path: &Path, source: Errno) -> UnpackError {
    UnpackError::Write { path: path.to_owned(), source: source.into() }
}

/// Reads until a block is full or there is no more; returns how many bytes there are.
fn fill(content: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match content.read(rest) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
