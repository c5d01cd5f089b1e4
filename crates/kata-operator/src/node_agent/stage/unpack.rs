//! Unpacks archives and copies trees into a folder, and lets nothing out of it.
//!
//! Refused are paths and links that lead out, devices, sockets and pipes, setuid and setgid files, the same
//! file twice in one archive, and more bytes than there is room for. Files are hashed as they are written.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use kata_host::payload::{is_inside, link_is_inside};
use tar::EntryType;

use super::behind::{BLOCK, Behind, Digests};

/// What upstream's archives have before every path.
const PREFIX: &str = "opt/kata";

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
    #[error("refused {entry:?} of {archive}: {reason}", archive = archive.display())]
    Refused {
        /// The archive or tree.
        archive: PathBuf,
        /// The entry.
        entry: String,
        /// Why.
        reason: &'static str,
    },
    /// The node's disk is too small.
    #[error(
        "the payload needs more than the {} MiB that are free below /opt of the node besides the {} MiB that \
         stay free",
        room >> 20,
        super::SPARE >> 20
    )]
    NoRoom {
        /// How much room there was, in bytes.
        room: u64,
    },
}

/// Unpacks into a folder.
#[derive(Debug)]
pub(super) struct Unpacker {
    root: PathBuf,
    room: u64,
    left: u64,
    behind: Behind,
}

impl Unpacker {
    /// Unpacks into `root`, at most `room` bytes.
    pub(super) fn new(root: PathBuf, room: u64) -> Self {
        Self { root, room, left: room, behind: Behind::start() }
    }

    /// The SHA-256 of every file that was written.
    ///
    /// # Errors
    /// If the disk did not take one.
    pub(super) fn finish(self) -> Result<Digests, UnpackError> {
        self.behind.finish().map_err(|(path, source)| UnpackError::Write { path, source })
    }

    /// Unpacks a `.tar.zst`.
    ///
    /// # Errors
    /// If it cannot be read, has something that is refused, or the disk is full.
    pub(super) fn archive(&mut self, path: &Path) -> Result<(), UnpackError> {
        let fail = |source| UnpackError::Read { path: path.to_owned(), source };
        let file = super::open(path).map_err(fail)?;
        let decoder = zstd::stream::read::Decoder::new(file).map_err(fail)?;
        let mut archive = tar::Archive::new(decoder);
        let mut seen = BTreeSet::new();
        for entry in archive.entries().map_err(fail)? {
            let mut entry = entry.map_err(fail)?;
            let name = entry.path().map_err(fail)?.to_string_lossy().into_owned();
            let refuse = |reason| UnpackError::Refused {
                archive: path.to_owned(),
                entry: name.clone(),
                reason,
            };
            let kind = entry.header().entry_type();
            let Some(relative) = inside(&name) else {
                // The folders above.
                if kind == EntryType::Directory && ["", "opt"].contains(&plain(&name).as_str()) {
                    continue;
                }
                return Err(refuse("it is not below opt/kata"));
            };
            if relative.is_empty() {
                continue;
            }
            if !is_inside(&relative) {
                return Err(refuse("its path leads out"));
            }
            if kind != EntryType::Directory && !seen.insert(relative.clone()) {
                return Err(refuse("it is there twice"));
            }
            let mode = entry.header().mode().map_err(fail)?;
            if mode & 0o6000 != 0 && kind != EntryType::Directory {
                return Err(refuse("it is setuid or setgid"));
            }
            let target = entry.link_name().map_err(fail)?;
            let target = target.map(|target| target.to_string_lossy().into_owned());
            match (kind, target) {
                (EntryType::Directory, _) => self.directory(&relative, mode)?,
                (EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse, _) => {
                    self.file(&relative, mode, path, &mut entry)?;
                }
                (EntryType::Symlink, Some(target)) => {
                    let target = self.target(&relative, &target).map_err(refuse)?;
                    self.link(&relative, &target)?;
                }
                (EntryType::Link, Some(target)) => {
                    let target = inside(&target)
                        .filter(|target| is_inside(target))
                        .ok_or_else(|| refuse("its hard link leads out"))?;
                    self.hard_link(&relative, &target)?;
                }
                _ => return Err(refuse("it is no file, directory or link")),
            }
        }
        Ok(())
    }

    /// Copies a tree.
    ///
    /// # Errors
    /// As for [`Unpacker::archive`].
    pub(super) fn tree(&mut self, folder: &Path) -> Result<(), UnpackError> {
        self.copy(folder, "")
    }

    fn copy(&mut self, folder: &Path, relative: &str) -> Result<(), UnpackError> {
        let from = folder.join(relative);
        let fail = |path: &Path| {
            let path = path.to_owned();
            move |source| UnpackError::Read { path, source }
        };
        let mut names = fs::read_dir(&from)
            .and_then(|entries| {
                entries
                    .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                    .collect::<io::Result<Vec<String>>>()
            })
            .map_err(fail(&from))?;
        names.sort_unstable();
        for name in names {
            let relative = if relative.is_empty() { name } else { format!("{relative}/{name}") };
            let path = folder.join(&relative);
            let refuse = |reason| UnpackError::Refused {
                archive: folder.to_owned(),
                entry: relative.clone(),
                reason,
            };
            let found = fs::symlink_metadata(&path).map_err(fail(&path))?;
            let mode = found.permissions().mode() & 0o7777;
            if found.is_dir() {
                self.directory(&relative, mode)?;
                self.copy(folder, &relative)?;
            } else if found.file_type().is_symlink() {
                let target = fs::read_link(&path).map_err(fail(&path))?;
                let target = self.target(&relative, &target.to_string_lossy()).map_err(refuse)?;
                self.link(&relative, &target)?;
            } else if found.is_file() {
                if mode & 0o6000 != 0 {
                    return Err(refuse("it is setuid or setgid"));
                }
                let mut file = super::open(&path).map_err(fail(&path))?;
                self.file(&relative, mode, &path, &mut file)?;
            } else {
                return Err(refuse("it is no file, directory or link"));
            }
        }
        Ok(())
    }

    /// Where a link shall point to: upstream's absolute targets become relative ones.
    fn target(&self, relative: &str, target: &str) -> Result<String, &'static str> {
        let target = match target.strip_prefix("/opt/kata/") {
            None => target.to_owned(),
            Some(rest) => {
                let up = relative.split('/').count().saturating_sub(1);
                format!("{}{rest}", "../".repeat(up))
            }
        };
        if link_is_inside(relative, &target) { Ok(target) } else { Err("its link leads out") }
    }

    fn directory(&mut self, relative: &str, mode: u32) -> Result<(), UnpackError> {
        let path = self.root.join(relative);
        let fail = |source| UnpackError::Write { path: path.clone(), source };
        self.above(relative)?;
        match fs::create_dir(&path) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => Err(fail(source)),
            // Another component may have it, too. A link in its place would lead elsewhere.
            Err(_) if !fs::symlink_metadata(&path).map_err(fail)?.is_dir() => {
                Err(fail(io::Error::other("another component has something else there")))
            }
            Ok(()) | Err(_) => {
                // Nothing in a payload may be written by others.
                let mode = fs::Permissions::from_mode(mode & 0o755 | 0o700);
                fs::set_permissions(&path, mode).map_err(fail)
            }
        }
    }

    /// Makes the folders above an entry, and refuses to go through a link.
    fn above(&mut self, relative: &str) -> Result<(), UnpackError> {
        let mut path = self.root.clone();
        let mut parts: Vec<&str> = relative.split('/').collect();
        parts.pop();
        for part in parts {
            path.push(part);
            let fail = |source| UnpackError::Write { path: path.clone(), source };
            match fs::symlink_metadata(&path) {
                Ok(found) if found.is_dir() => {}
                Ok(_) => {
                    return Err(fail(io::Error::other("a folder on the way is a link or file")));
                }
                Err(_) => {
                    fs::create_dir(&path).map_err(fail)?;
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(fail)?;
                }
            }
        }
        Ok(())
    }

    /// A place for a file or link: what an earlier component had there goes.
    fn place(&mut self, relative: &str) -> Result<PathBuf, UnpackError> {
        self.above(relative)?;
        let path = self.root.join(relative);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(UnpackError::Write { path, source });
            }
            Ok(()) => self.behind.gone(path.clone()),
            Err(_) => {}
        }
        Ok(path)
    }

    fn file(
        &mut self,
        relative: &str,
        mode: u32,
        from: &Path,
        content: &mut impl Read,
    ) -> Result<(), UnpackError> {
        let path = self.place(relative)?;
        let write = |source| UnpackError::Write { path: path.clone(), source };
        let mut file: File = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode & 0o755)
            .open(&path)
            .map_err(write)?;
        let mut bytes = 0;
        loop {
            let mut block = self.behind.block();
            let read = |source| UnpackError::Read { path: from.to_owned(), source };
            let length = fill(content, &mut block).map_err(read)?;
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
        file.set_permissions(fs::Permissions::from_mode(mode & 0o755)).map_err(write)?;
        self.behind.complete(path, file, bytes);
        Ok(())
    }

    fn link(&mut self, relative: &str, target: &str) -> Result<(), UnpackError> {
        let path = self.place(relative)?;
        symlink(target, &path).map_err(|source| UnpackError::Write { path, source })
    }

    fn hard_link(&mut self, relative: &str, target: &str) -> Result<(), UnpackError> {
        let from = self.root.join(target);
        let path = self.place(relative)?;
        fs::hard_link(&from, &path)
            .map_err(|source| UnpackError::Write { path: path.clone(), source })?;
        self.behind.linked(from, path);
        Ok(())
    }
}

/// Reads until a block is full or there is no more; tells how many bytes there are.
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

/// A path without `./` and a slash at the end.
fn plain(name: &str) -> String {
    name.trim_start_matches("./").trim_end_matches('/').trim_end_matches('.').to_owned()
}

/// The path below `opt/kata`.
fn inside(name: &str) -> Option<String> {
    let plain = name.trim_start_matches("./").trim_end_matches('/');
    let rest = plain.strip_prefix(PREFIX)?;
    if rest.is_empty() { Some(String::new()) } else { rest.strip_prefix('/').map(str::to_owned) }
}
