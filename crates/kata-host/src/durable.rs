//! Writes that are there after a loss of power or not at all, built of the calls of [`Host`].

use crate::host::{FileKind, Host, HostError, HostErrorKind, HostResult, Stat};
use crate::paths;
use crate::plan::Content;

/// Writes a file: the old content or the new one is there, also after a crash.
pub(crate) fn write(host: &mut dyn Host, path: &str, content: &[u8], mode: u32) -> HostResult<()> {
    replace(host, path, content, mode, None)
}

/// The same; a file that takes the place of another one `keeps` that one's owner.
fn replace(
    host: &mut dyn Host,
    path: &str,
    content: &[u8],
    mode: u32,
    keeps: Option<&str>,
) -> HostResult<()> {
    let temporary = paths::temporary(path);
    let written = host
        .write(&temporary, content, mode)
        .and_then(|()| match keeps {
            Some(old) => host.take_owner(&temporary, old),
            None => Ok(()),
        })
        .and_then(|()| host.sync_file(&temporary))
        .and_then(|()| host.rename(&temporary, path));
    if let Err(error) = written {
        // A full disk must not be made fuller by what is left of the attempt.
        return match host.unlink(&temporary) {
            Ok(()) | Err(_) => Err(error),
        };
    }
    host.sync_dir(paths::parent(path))
}

/// Creates or replaces a symbolic link in the same way.
pub(crate) fn link(host: &mut dyn Host, path: &str, target: &str) -> HostResult<()> {
    let temporary = paths::temporary(path);
    host.unlink(&temporary)?;
    host.symlink(target, &temporary)?;
    host.rename(&temporary, path)?;
    host.sync_dir(paths::parent(path))
}

/// Creates a directory and those above it.
pub(crate) fn make_dirs(host: &mut dyn Host, path: &str) -> HostResult<()> {
    for directory in missing_dirs(host, path)? {
        // Copies of configurations pass through the journal's folder, and those may have secrets.
        let mode = if directory == paths::STATE_DIR { 0o700 } else { 0o755 };
        host.make_dir(&directory, mode)?;
        host.sync_dir(paths::parent(&directory))?;
    }
    Ok(())
}

/// The directories that a path lacks, the outermost first.
pub(crate) fn missing_dirs(host: &mut dyn Host, path: &str) -> HostResult<Vec<String>> {
    let mut missing = Vec::new();
    let mut directory = path;
    // The way to the root is finite: `parent` of `/` is `/`.
    while directory != "/" && host.stat(directory)?.is_none() {
        missing.insert(0, directory.to_owned());
        directory = paths::parent(directory);
    }
    Ok(missing)
}

/// A file's text; a link is followed, since administrators link configuration files.
pub(crate) fn text(host: &mut dyn Host, path: &str) -> HostResult<Option<String>> {
    match host.read(path)? {
        None => Ok(None),
        Some(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(HostError {
                action: format!("use {path}"),
                reason: "it is not UTF-8".to_owned(),
                kind: HostErrorKind::Other,
            }),
        },
    }
}

/// What is at a path. A file that is not UTF-8 is an error: it is no configuration of ours or anybody's.
pub(crate) fn content(host: &mut dyn Host, path: &str) -> HostResult<Content> {
    let other = |reason: &str| HostError {
        action: format!("use {path}"),
        reason: reason.to_owned(),
        kind: HostErrorKind::Other,
    };
    match host.stat(path)? {
        None => Ok(Content::Absent),
        Some(Stat { kind: FileKind::Directory, .. }) => Ok(Content::Directory),
        Some(Stat { kind: FileKind::Link { target }, .. }) => Ok(Content::Link { target }),
        Some(Stat { kind: FileKind::Other, .. }) => Err(other("it is no regular file")),
        Some(Stat { kind: FileKind::File, mode, .. }) => match host.read(path)? {
            None => Ok(Content::Absent),
            Some(bytes) => match String::from_utf8(bytes) {
                Ok(text) => Ok(Content::File { text, mode }),
                Err(_) => Err(other("it is not UTF-8")),
            },
        },
    }
}

/// Brings a path to a content, durably. Repeating it does no harm.
pub(crate) fn put(host: &mut dyn Host, path: &str, content: &Content) -> HostResult<()> {
    match content {
        Content::File { text, mode } => {
            // Our files get our owner. The owner of another's file decides who may read it.
            let theirs = !path.starts_with(paths::ROOT);
            replace(host, path, text.as_bytes(), *mode, theirs.then_some(path))
        }
        Content::Link { target } => link(host, path, target),
        Content::Directory => make_dirs(host, path),
        Content::Absent => {
            match host.stat(path)? {
                None => {}
                // Another program may have put something into it, which stays.
                Some(Stat { kind: FileKind::Directory, .. }) => {
                    host.remove_dir(path)?;
                }
                Some(_) => host.unlink(path)?,
            }
            if host.stat(paths::parent(path))?.is_some() {
                host.sync_dir(paths::parent(path))?;
            }
            Ok(())
        }
    }
}

/// Gives the room free that was reserved for a removal.
pub(crate) fn release_room(host: &mut dyn Host) -> HostResult<()> {
    if host.stat(paths::RESERVE)?.is_some() {
        host.unlink(paths::RESERVE)?;
    }
    Ok(())
}

/// Reserves room for the next removal, if the disk has it.
pub(crate) fn reserve_room(host: &mut dyn Host) {
    // What is smaller was begun by a run that was killed.
    let lacks = match host.stat(paths::RESERVE) {
        Ok(found) => found.is_none_or(|found| found.size < paths::RESERVE_BYTES),
        Err(_) => false,
    };
    if !lacks {
        return;
    }
    if host.reserve(paths::RESERVE, paths::RESERVE_BYTES).is_err() {
        // A part of it would be taken for the whole.
        match host.unlink(paths::RESERVE) {
            Ok(()) | Err(_) => {}
        }
    }
}

/// Removes a folder with everything in it, or a file.
pub(crate) fn remove_tree(host: &mut dyn Host, path: &str) -> HostResult<()> {
    match host.stat(path)? {
        None => Ok(()),
        Some(Stat { kind: FileKind::Directory, .. }) => {
            for name in host.list(path)?.unwrap_or_default() {
                remove_tree(host, &format!("{path}/{name}"))?;
            }
            host.remove_dir(path).map(|_| ())
        }
        Some(_) => host.unlink(path),
    }
}
