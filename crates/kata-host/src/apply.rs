//! Carries out the steps of a plan, and takes its changes back. Each can be repeated.

use std::collections::BTreeMap;

use crate::containerd;
use crate::durable::{content, make_dirs, put, remove_tree};
use crate::host::{Host, HostError, HostResult};
use crate::paths;
use crate::payload;
use crate::plan::{Change, Content, HostPlan, Step};

/// What is not as it was after a plan's changes were undone.
#[derive(Clone, Debug, Default)]
pub(crate) struct NotUndone {
    /// The paths that another program has changed since, in a way that is kept.
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

/// Undoes one change; `false` if another program has changed it since.
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
            let next = plan.next.as_ref()?;
            let ours = next.main.as_ref().filter(|main| main.path == *path);
            let theirs = next
                .taken
                .as_ref()
                .filter(|taken| taken.main.as_ref().is_some_and(|main| main.path == *path));
            if ours.is_none() && theirs.is_none() {
                return None;
            }
            let back = theirs.map(|taken| taken.imports.as_slice()).unwrap_or_default();
            let ours = ours.map(|main| main.import.as_str());
            // If the file is no TOML, the program that broke it has to fix it.
            containerd::exchange_imports(text, ours, back).ok()?
        }
    };
    Some(Content::File { text, mode: *mode })
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
            // Renamed first, so that no program takes half of it for the whole.
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
