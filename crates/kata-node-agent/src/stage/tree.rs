//! Reads a payload that an image has as a tree. No link is followed.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use super::limits::{self, ENTRIES, is_short};
use super::unpack::{Contents, Failure, UnpackError, Unpacker};
use crate::below::{Links, open_inside};

/// A tree in an image.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    /// The tree itself.
    pub(super) folder: &'a OwnedFd,
    /// Its path, for messages.
    pub(super) path: &'a Path,
}

impl Tree<'_> {
    /// Calls `each` with the path and the state of everything in the tree: a folder before what is in it, names in
    /// order.
    ///
    /// # Errors
    /// If the tree cannot be read, has a path that no payload may have, or more entries than one, and those of
    /// `each`.
    pub(super) fn walk(
        &self,
        each: &mut impl FnMut(&str, &Stat) -> Result<(), UnpackError>,
    ) -> Result<(), UnpackError> {
        let mut left = ENTRIES;
        self.walk_folder("", &mut left, each)
    }

    fn walk_folder(
        &self,
        folder: &str,
        left: &mut usize,
        each: &mut impl FnMut(&str, &Stat) -> Result<(), UnpackError>,
    ) -> Result<(), UnpackError> {
        let fail = |source| UnpackError::Read { path: self.path.join(folder), source };
        let (opened, mut names) = self.list(folder, *left).map_err(fail)?;
        for name in &mut names {
            let relative = self.join(folder, std::mem::take(name))?;
            let refuse = |reason| UnpackError::refused(self.path, &relative, reason);
            *left = left.checked_sub(1).ok_or_else(|| refuse(limits::too_many_entries()))?;
            // Before it is entered: this bounds the recursion as well.
            is_short(&relative).map_err(refuse)?;
            let name = relative.rsplit_once('/').map_or(relative.as_str(), |(_, name)| name);
            let stat = rustix::fs::statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW);
            let stat = stat.map_err(|source| fail(source.into()))?;
            each(&relative, &stat)?;
            if kind(&stat) == FileType::Directory {
                self.walk_folder(&relative, left, each)?;
            }
        }
        Ok(())
    }

    fn join(&self, folder: &str, name: OsString) -> Result<String, UnpackError> {
        let name = name.into_string().map_err(|name| {
            let reason = "its name is not UTF-8".to_owned();
            UnpackError::refused(self.path, &name.to_string_lossy(), reason)
        })?;
        Ok(if folder.is_empty() { name } else { format!("{folder}/{name}") })
    }

    /// A folder and the names in it, in order; of more names than may come, one more than that.
    fn list(&self, folder: &str, most: usize) -> io::Result<(OwnedFd, Vec<OsString>)> {
        let opened = self.open(folder, OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&opened)? {
            let name = entry?.file_name().to_bytes().to_owned();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
            if names.len() > most {
                break;
            }
        }
        names.sort_unstable();
        Ok((opened, names))
    }

    fn open(&self, relative: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let path = if relative.is_empty() { "." } else { relative };
        open_inside(self.folder, Path::new(path), OFlags::RDONLY | flags, Links::Refuse)
    }

    /// Copies all of it.
    ///
    /// # Errors
    /// If it cannot be read, or has something that is refused.
    pub(super) fn unpack(&self, unpacker: &mut Unpacker) -> Result<(), UnpackError> {
        unpacker.begin(self.path, "");
        self.walk(&mut |relative, stat| match self.copy(unpacker, relative, stat) {
            Ok(()) => Ok(()),
            Err(Failure::Refused(reason)) => Err(UnpackError::refused(self.path, relative, reason)),
            Err(Failure::Content(source)) => {
                Err(UnpackError::Read { path: self.path.join(relative), source })
            }
            Err(Failure::Node(error)) => Err(error),
        })
    }

    fn copy(&self, unpacker: &mut Unpacker, relative: &str, stat: &Stat) -> Result<(), Failure> {
        unpacker.count()?;
        let mode = Mode::from_raw_mode(stat.st_mode).as_raw_mode();
        match kind(stat) {
            FileType::Directory => unpacker.folder(relative, mode),
            FileType::Symlink => {
                let folder = relative.rsplit_once('/').map_or("", |(folder, _)| folder);
                let name = relative.rsplit_once('/').map_or(relative, |(_, name)| name);
                let opened = self.open(folder, OFlags::DIRECTORY)?;
                let target = rustix::fs::readlinkat(opened, name, Vec::new());
                let target = target.map_err(io::Error::from)?.into_string();
                match target {
                    Ok(target) => unpacker.link(relative, &target),
                    Err(_) => Err("its target is not UTF-8".to_owned().into()),
                }
            }
            FileType::RegularFile if mode & 0o6000 != 0 => {
                Err("it is setuid or setgid".to_owned().into())
            }
            FileType::RegularFile => {
                let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
                let mut file = File::from(self.open(relative, OFlags::empty())?);
                unpacker.file(relative, Contents { mode, size, from: &mut file })
            }
            _ => Err("it is no file, directory or link".to_owned().into()),
        }
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
