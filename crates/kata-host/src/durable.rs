//! Writes that are there after a loss of power or not at all, built of the calls of [`Host`].

use std::collections::BTreeMap;

use crate::containerd;
use crate::host::{FileKind, Host, HostError, HostErrorKind, HostResult, Stat};
use crate::paths;
use crate::payload;
use crate::plan::{Change, Content, HostPlan, Step};

/// Writes a file: the old content or the new one is there, whatever happens.
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
            // What is ours belongs to us, whoever has it now. Who may read a file of others is their business.
            let theirs = !path.starts_with(paths::ROOT);
            replace(host, path, text.as_bytes(), *mode, theirs.then_some(path))
        }
        Content::Link { target } => link(host, path, target),
        Content::Directory => make_dirs(host, path),
        Content::Absent => {
            match host.stat(path)? {
                None => {}
                // Somebody else may have put something into it, which stays.
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

/// What is not as it was after a plan's changes were undone.
#[derive(Clone, Debug, Default)]
pub(crate) struct NotUndone {
    /// The paths that somebody else has changed since in a way that is left to them.
    pub(crate) kept: Vec<String>,
    /// Why other paths could not be changed back.
    pub(crate) errors: Vec<HostError>,
}

/// Undoes a plan's changes, the last one first, and removes what an interrupted write left.
///
/// It goes on past what fails: the container runtime may come back with the rest.
pub(crate) fn undo(host: &mut dyn Host, plan: &HostPlan) -> NotUndone {
    let mut left = NotUndone::default();
    for change in plan.changes.iter().rev() {
        match take_back(host, plan, change) {
            Ok(true) => {}
            Ok(false) => left.kept.push(change.path.clone()),
            Err(error) => left.errors.push(error),
        }
    }
    left
}

/// Undoes one change; `false` if what is there now is somebody else's.
fn take_back(host: &mut dyn Host, plan: &HostPlan, change: &Change) -> HostResult<bool> {
    let Change { path, before, after: _ } = change;
    let temporary = paths::temporary(path);
    if host.stat(&temporary)?.is_some() {
        host.unlink(&temporary)?;
    }
    let now = content(host, path)?;
    if now == *before {
        return Ok(true);
    }
    let Some(back) = earlier(plan, change, &now) else { return Ok(false) };
    if back == now {
        return Ok(true);
    }
    if let Err(error) = put(host, path, &back) {
        if now.ours().is_some() {
            // On a full disk the old drop-in cannot be written. None at all is better than one that the
            // container runtime may not start with.
            match host.unlink(path) {
                Ok(()) | Err(_) => {}
            }
        }
        return Err(error);
    }
    Ok(true)
}

/// What a path goes back to; `None` if what is there now is not what we wrote, and is left alone.
fn earlier(plan: &HostPlan, change: &Change, now: &Content) -> Option<Content> {
    let Change { path, before, after } = change;
    // A full disk may have kept ours from coming back.
    let missing = *now == Content::Absent && before.ours().is_some();
    if now == after || now.ours().is_some() || missing || path.starts_with(paths::ROOT) {
        return Some(before.clone());
    }
    let Content::File { text, mode } = now else { return None };
    let text = match (before, after) {
        (Content::File { text: old, .. }, Content::File { text: written, .. })
            if text == written =>
        {
            old.clone()
        }
        _ => {
            let main = plan.next.as_ref()?.main.as_ref().filter(|main| main.path == *path)?;
            // A file that is no TOML was broken by whoever changed it, who has yet to mend it.
            containerd::remove_import(text, &main.import).ok()?
        }
    };
    Some(Content::File { text, mode: *mode })
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

/// Carries out a step that the container runtime does not see.
pub(crate) fn step(host: &mut dyn Host, step: &Step) -> HostResult<()> {
    match step {
        Step::MakeDir { path } => make_dirs(host, path),
        Step::Move { from, to } => {
            if host.stat(from)?.is_none() {
                return Ok(());
            }
            make_dirs(host, paths::parent(to))?;
            host.rename(from, to)?;
            host.sync_dir(paths::parent(to))?;
            host.sync_dir(paths::parent(from))
        }
        Step::Repair { from, to } => {
            if host.stat(from)?.is_none() {
                return Ok(());
            }
            make_dirs(host, paths::parent(to))?;
            host.rename(from, to)?;
            host.sync_dir(paths::parent(to))
        }
        Step::Put { path, content } => {
            make_dirs(host, paths::parent(path))?;
            put(host, path, content)
        }
        Step::Seal { path } => payload::seal(host, path),
        Step::Build { path, content } => build(host, path, content),
        Step::RemoveTree { path } => {
            // Renamed first, so that nobody takes half of it for the whole.
            let temporary = paths::temporary(path);
            remove_tree(host, &temporary)?;
            if host.stat(path)?.is_some() {
                host.rename(path, &temporary)?;
                host.sync_dir(paths::parent(path))?;
                remove_tree(host, &temporary)?;
            }
            Ok(())
        }
        Step::RemoveDir { path } => {
            if host.stat(path)?.is_some() && host.remove_dir(path)? {
                host.sync_dir(paths::parent(path))?;
            }
            Ok(())
        }
    }
}

fn build(host: &mut dyn Host, path: &str, content: &BTreeMap<String, Content>) -> HostResult<()> {
    if host.stat(path)?.is_some() {
        return Ok(());
    }
    let temporary = paths::temporary(path);
    remove_tree(host, &temporary)?;
    make_dirs(host, &temporary)?;
    for (name, content) in content {
        let file = format!("{temporary}/{name}");
        make_dirs(host, paths::parent(&file))?;
        put(host, &file, content)?;
    }
    host.rename(&temporary, path)?;
    host.sync_dir(paths::parent(path))
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
