//! Reads a `.tar.zst` that is not trusted, with bounded memory.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

use tar::{Entry, EntryType};

use super::limits::{HEADER, WINDOW_LOG, shorten};
use super::unpack::{Contents, Failure, PREFIX, UnpackError, Unpacker};

/// The bytes of an entry's headers that are kept, so that an entry can be named that is not read to its end:
/// two blocks, of which the second has the name if it is a long one.
const KEPT: usize = 2 * BLOCK;
/// Bytes of a block of tar.
const BLOCK: usize = 512;
/// The longest name that a header has room for.
const SHORT_NAME: usize = 100;

/// How much more may be read, and what was, since that was last set.
#[derive(Debug, Default)]
struct Meter {
    left: Cell<u64>,
    exceeded: Cell<bool>,
    start: RefCell<Vec<u8>>,
    /// Whether the file itself could not be read, which is no fault of the archive.
    file_failed: Cell<bool>,
}

impl Meter {
    fn allow(&self, bytes: u64) {
        self.left.set(bytes);
        self.start.borrow_mut().clear();
    }

    /// The name of the entry whose headers were read last, as far as it was kept.
    fn name(&self) -> String {
        let start = self.start.borrow();
        let text = |from: usize| {
            let bytes = start.get(from..).unwrap_or_default();
            let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            let bytes = bytes.get(..SHORT_NAME).unwrap_or(bytes);
            String::from_utf8_lossy(bytes).into_owned()
        };
        let kind = start.get(156).copied().map(EntryType::new);
        let long = if kind == Some(EntryType::GNULongName) { text(BLOCK) } else { String::new() };
        if long.is_empty() { text(0) } else { long }
    }
}

/// The file of the archive, so that its errors are known from those of its content.
struct Disk {
    file: File,
    meter: Rc<Meter>,
}

impl Read for Disk {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into);
        if read.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            self.meter.file_failed.set(true);
        }
        read
    }
}

/// What was decompressed, no more of it than the meter allows.
struct Metered<R> {
    inner: R,
    meter: Rc<Meter>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.meter.left.get()).unwrap_or(usize::MAX);
        let allowed = into.len().min(left);
        let Some(into) = into.get_mut(..allowed).filter(|into| !into.is_empty()) else {
            self.meter.exceeded.set(true);
            return Err(io::Error::other("an entry has more than it may have"));
        };
        let length = self.inner.read(into)?;
        self.meter.left.set(self.meter.left.get().saturating_sub(length as u64));
        let mut start = self.meter.start.borrow_mut();
        let room = KEPT.saturating_sub(start.len()).min(length);
        start.extend_from_slice(into.get(..room).unwrap_or_default());
        Ok(length)
    }
}

/// Unpacks all entries of an archive.
///
/// # Errors
/// If it cannot be read, or has something that is refused.
pub(super) fn unpack(unpacker: &mut Unpacker, path: &Path, file: File) -> Result<(), UnpackError> {
    let meter = Rc::new(Meter::default());
    let disk = Disk { file, meter: Rc::clone(&meter) };
    let fail = |source| UnpackError::Read { path: path.to_owned(), source };
    let mut decoder = zstd::stream::read::Decoder::new(disk).map_err(fail)?;
    decoder.window_log_max(WINDOW_LOG).map_err(fail)?;
    let mut archive = tar::Archive::new(Metered { inner: decoder, meter: Rc::clone(&meter) });
    let mut last = None;
    // What the archive has after its last good entry cannot be read.
    let broken = |source: io::Error, last: &Option<String>| {
        if meter.file_failed.get() {
            return fail(source);
        }
        if meter.exceeded.get() {
            let reason = format!("its header has more than {} KiB", HEADER >> 10);
            return UnpackError::refused(path, &meter.name(), reason);
        }
        UnpackError::Damaged {
            archive: path.to_owned(),
            after: last.as_deref().map_or_else(String::new, after),
            reason: reason(&source),
        }
    };
    unpacker.begin(path, PREFIX);
    let mut entries = archive.entries().map_err(fail)?;
    loop {
        meter.allow(HEADER);
        let Some(entry) = entries.next() else { return Ok(()) };
        let mut entry = entry.map_err(|source| broken(source, &last))?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        // Of a sparse file less than its size is in the archive.
        meter.allow(entry.size());
        match unpack_entry(unpacker, &mut entry) {
            Ok(()) => last = Some(name),
            Err(Failure::Refused(reason)) => {
                return Err(UnpackError::refused(path, &name, reason));
            }
            Err(Failure::Content(source)) => return Err(broken(source, &Some(name))),
            Err(Failure::Node(error)) => return Err(error),
        }
    }
}

fn unpack_entry(unpacker: &mut Unpacker, entry: &mut Entry<'_, impl Read>) -> Result<(), Failure> {
    unpacker.count()?;
    let refuse = |reason: &str| Err(Failure::Refused(reason.to_owned()));
    let Ok(name) = String::from_utf8(entry.path_bytes().into_owned()) else {
        return refuse("its name is not UTF-8");
    };
    let kind = entry.header().entry_type();
    let Some(relative) = inside(&name) else {
        let plain = name.trim_start_matches("./").trim_end_matches(['/', '.']);
        if kind == EntryType::Directory && ["", "opt"].contains(&plain) {
            return Ok(());
        }
        return refuse("it is not below opt/kata");
    };
    if relative.is_empty() && kind == EntryType::Directory {
        return Ok(());
    }
    let mode = entry.header().mode()?;
    if mode & 0o6000 != 0 && kind != EntryType::Directory {
        return refuse("it is setuid or setgid");
    }
    for extension in entry.pax_extensions()?.into_iter().flatten() {
        if extension?.key_bytes().starts_with(b"GNU.sparse.") {
            return refuse("it is a sparse file in the form of pax, which is not known here");
        }
    }
    let target = match entry.link_name_bytes().map(|target| String::from_utf8(target.into_owned()))
    {
        Some(Err(_)) => return refuse("its target is not UTF-8"),
        Some(Ok(target)) => Some(target),
        None => None,
    };
    let size = entry.size();
    match (kind, target) {
        (EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse, _) => {
            unpacker.file(&relative, Contents { mode, size, from: entry })
        }
        (EntryType::Directory | EntryType::Symlink | EntryType::Link, _) if size > 0 => {
            refuse("it has content, and is no file")
        }
        (EntryType::Directory, _) => unpacker.folder(&relative, mode),
        (EntryType::Symlink, Some(target)) => unpacker.link(&relative, &target),
        (EntryType::Link, Some(target)) => match inside(&target) {
            Some(target) => unpacker.hard_link(&relative, &target),
            None => refuse("its hard link leads out"),
        },
        _ => refuse("it is no file, directory or link"),
    }
}

/// The path below `opt/kata`.
fn inside(name: &str) -> Option<String> {
    let plain = name.trim_start_matches("./").trim_end_matches('/');
    let rest = plain.strip_prefix(PREFIX)?;
    if rest.is_empty() { Some(String::new()) } else { rest.strip_prefix('/').map(str::to_owned) }
}

fn after(name: &str) -> String {
    format!(" after {:?}", shorten(name))
}

/// What a decoder says. That a window is too large it says without the limit.
fn reason(source: &io::Error) -> String {
    let said = source.to_string();
    if said.contains("too much memory") {
        return format!("{said} (its window is larger than {} MiB)", (1 << WINDOW_LOG) >> 20);
    }
    said
}
