//! How much of everything a payload may have.
//!
//! An image is not trusted before it is unpacked: a payload that is too large must not take the node's memory,
//! inodes or disk. The largest trees of Kata Containers 4 have some hundred entries and some GiB. Each limit is a
//! multiple of that, and low enough for the process to need less than 64 MiB, see docs/developers/node-agent.md.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use kata_host::payload::is_inside;

/// Entries of all archives together, or of the tree: twenty times those of the largest tree. An entry that
/// makes nothing, such as a folder that is there already, counts as well, so that reading comes to an end.
pub(super) const ENTRIES: usize = 10_000;
/// Files, folders and links on the disk, with the folders that only a path names. Each takes an inode of the
/// node's disk and some hundred bytes of memory.
pub(super) const INODES: usize = 10_000;
/// Folders that are in each other. The deepest of upstream's files are in ten.
pub(super) const DEPTH: usize = 32;
/// Bytes of one part of a path, as Linux has it (`NAME_MAX`).
pub(super) const NAME: usize = 255;
/// Bytes of a path or of the target of a link. Linux allows four times as many, the place of the payload on the
/// node included.
pub(super) const PATH: usize = 1_024;
/// Bytes of all paths together. They are in memory several times: here, with their digests, and in the manifest.
/// Twenty times those of the largest tree.
pub(super) const PATHS: usize = 2 << 20;
/// Bytes of all files together, with the holes of sparse ones, which are written out: four times those of the
/// largest tree. The room on the node's disk is a limit as well.
pub(super) const FILES: u64 = 16 << 30;
/// Bytes of the headers of one entry: long names, extensions of pax, and the map of a sparse file. `tar` keeps
/// them in memory. A map of 40,000 pieces fits in.
pub(super) const HEADER: u64 = 1 << 20;
/// The largest window of zstd, as a power of two, which is what a decoder keeps in memory: 32 MiB. Upstream
/// compresses with level 10, and level 19 has a window of 8 MiB.
pub(super) const WINDOW_LOG: u32 = 25;
/// Bytes of kata-deploy's list of components, of which upstream's has some thousand.
pub(super) const COMPONENTS: u64 = 256 << 10;

/// Characters of a name that are in a message, from its beginning and from its end: a finding is cut, and the
/// reason comes after the name.
const SHOWN: (usize, usize) = (40, 20);

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    File,
    Link,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::File => "file",
            Self::Link => "link",
        }
    }
}

#[derive(Debug)]
struct Known {
    /// The path as it is written, if that is not the lower case by which it is known.
    written: Option<String>,
    kind: Kind,
    /// The archive that it is of.
    source: usize,
}

/// What adding an entry takes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Added {
    /// Folders that have to be made first, the outer ones before the inner ones.
    pub(super) folders: Vec<String>,
    /// Whether a file or link of an earlier archive is there, which goes.
    pub(super) replaces: bool,
}

/// All that was unpacked, and what of the limits is left.
#[derive(Debug, Default)]
pub(super) struct Inventory {
    entries: usize,
    path_bytes: usize,
    file_bytes: u64,
    /// By path in lower case.
    known: BTreeMap<String, Known>,
}

impl Inventory {
    /// Counts an entry of any kind.
    ///
    /// # Errors
    /// If there are too many of them.
    pub(super) fn count(&mut self) -> Result<(), String> {
        self.entries += 1;
        if self.entries > ENTRIES {
            return Err(too_many_entries());
        }
        Ok(())
    }

    /// Counts the bytes of a file.
    ///
    /// # Errors
    /// If there are too many of them.
    pub(super) fn count_bytes(&mut self, bytes: u64) -> Result<(), String> {
        self.file_bytes = self.file_bytes.saturating_add(bytes);
        if self.file_bytes > FILES {
            return Err(format!("with it, the payload's files have more than {} GiB", FILES >> 30));
        }
        Ok(())
    }

    /// Adds an entry of an archive.
    ///
    /// # Errors
    /// If its path is none for a payload, another entry has it, or there are too many entries.
    pub(super) fn add(&mut self, path: &str, kind: Kind, source: usize) -> Result<Added, String> {
        if !is_inside(path) {
            return Err("its path leads out".to_owned());
        }
        is_short(path)?;
        let mut added = Added::default();
        for (end, _) in path.match_indices('/') {
            let folder = path.get(..end).unwrap_or_default();
            if let Some(there) = self.find(folder)? {
                if there.kind != Kind::Folder {
                    let kind = there.kind.name();
                    return Err(format!("{:?} on the way to it is a {kind}", shorten(folder)));
                }
            } else {
                self.insert(folder, Kind::Folder, source)?;
                added.folders.push(folder.to_owned());
            }
        }
        let Some(there) = self.find(path)? else {
            self.insert(path, kind, source)?;
            return Ok(added);
        };
        match (kind, there.kind) {
            (Kind::Folder, Kind::Folder) => return Ok(added),
            (Kind::Folder, other) | (_, other @ Kind::Folder) => {
                return Err(format!("a {} is there already", other.name()));
            }
            _ if there.source == source => return Err("it is there twice".to_owned()),
            _ => {}
        }
        if let Some(there) = self.known.get_mut(&path.to_lowercase()) {
            (there.kind, there.source) = (kind, source);
        }
        added.replaces = true;
        Ok(added)
    }

    /// What is at a path.
    ///
    /// # Errors
    /// If something else is at a path that differs only in case, so that it depends on the file system which of
    /// them is read.
    fn find(&self, path: &str) -> Result<Option<&Known>, String> {
        let lower = path.to_lowercase();
        let Some(there) = self.known.get(&lower) else { return Ok(None) };
        let written = there.written.as_deref().unwrap_or(&lower);
        if written != path {
            let (path, written) = (shorten(path), shorten(written));
            return Err(format!("{path:?} differs only in case from {written:?}"));
        }
        Ok(Some(there))
    }

    fn insert(&mut self, path: &str, kind: Kind, source: usize) -> Result<(), String> {
        self.path_bytes += path.len();
        if self.path_bytes > PATHS {
            return Err(format!("the payload's names have more than {} MiB", PATHS >> 20));
        }
        if self.known.len() >= INODES {
            return Err(format!("the payload has more than {INODES} files, folders and links"));
        }
        let lower = path.to_lowercase();
        let written = (lower != path).then(|| path.to_owned());
        if let Entry::Vacant(place) = self.known.entry(lower) {
            place.insert(Known { written, kind, source });
        }
        Ok(())
    }

    /// Whether a file is at a path.
    pub(super) fn has_file(&self, path: &str) -> bool {
        matches!(self.find(path), Ok(Some(Known { kind: Kind::File, .. })))
    }

    /// The paths of all links, with the archives that they are of.
    pub(super) fn links(&self) -> impl Iterator<Item = (&Path, usize)> {
        let links = self.known.iter().filter(|(_, known)| known.kind == Kind::Link);
        links.map(|(lower, known)| {
            (Path::new(known.written.as_ref().unwrap_or(lower)), known.source)
        })
    }
}

/// Why an entry beyond [`ENTRIES`] is refused.
pub(super) fn too_many_entries() -> String {
    format!("the payload has more than {ENTRIES} entries")
}

/// Whether a path or target is short enough.
///
/// # Errors
/// If it is not, and what of it.
pub(super) fn is_short(path: &str) -> Result<(), String> {
    if path.len() > PATH {
        return Err(format!("a path of it has more than {PATH} bytes"));
    }
    if path.split('/').any(|part| part.len() > NAME) {
        return Err(format!("a name in its path has more than {NAME} bytes"));
    }
    if path.split('/').count() > DEPTH {
        return Err(format!("it is more than {DEPTH} folders deep"));
    }
    Ok(())
}

/// A name that may be long or have control characters, for a message.
pub(super) fn shorten(name: &str) -> String {
    let shown = |character: char| if character.is_control() { '?' } else { character };
    let length = name.chars().count();
    if length <= SHOWN.0 + SHOWN.1 {
        return name.chars().map(shown).collect();
    }
    let start: String = name.chars().map(shown).take(SHOWN.0).collect();
    let end: String = name.chars().map(shown).skip(length - SHOWN.1).collect();
    format!("{start}…{end}")
}
