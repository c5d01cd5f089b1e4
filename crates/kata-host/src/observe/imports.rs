//! The files that containerd's main file imports, in the order in which containerd reads them.
//!
//! Both 1.x and 2.x read the imports of the main file, and then those of what was imported; each file once. An
//! import with a `*` is a glob, whose matches are sorted by name; any other one is a path. (`LoadConfig` in
//! `cmd/containerd/server/config/config.go`.)

use std::collections::{BTreeSet, VecDeque};

use crate::containerd;
use crate::durable;
use crate::host::{FileKind, Host, HostResult, Stat};
use crate::paths;

/// A configuration file that is not ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Other {
    pub(crate) path: String,
    pub(crate) text: String,
    /// Who may read it; of a link, its owner.
    pub(crate) mode: u32,
    /// Whether it is read after our drop-in.
    pub(crate) after_ours: bool,
    /// Whether another file than the main file imports it.
    pub(crate) nested: bool,
}

impl Other {
    /// Whether it has a section that containerd 1.x takes for that of CRI.
    pub(crate) fn has_section(&self) -> bool {
        containerd::has_section_of_1(&self.text)
    }
}

/// What a main file imports.
#[derive(Clone, Debug, Default)]
pub(super) struct Imported {
    pub(super) others: Vec<Other>,
    /// Imports without a glob whose file does not exist.
    pub(super) dangling: Vec<String>,
    /// The folders of imports with a glob.
    pub(super) folders: BTreeSet<String>,
    /// What may be there for the container runtime and is not seen here, a part of a sentence each.
    pub(super) unseen: Vec<String>,
}

/// Reads what a main file imports. Our drop-in `ours` counts as if it were there, and `skipped` paths as if they
/// were not.
pub(super) fn read(
    host: &mut dyn Host,
    main: &str,
    imports: &[String],
    ours: &str,
    skipped: impl Fn(&str) -> bool,
) -> HostResult<Imported> {
    let mut found = Imported::default();
    let mut read = BTreeSet::from([main.to_owned()]);
    let mut pending = VecDeque::new();
    expand(host, main, imports, ours, false, &mut pending, &mut found)?;
    let mut after_ours = false;
    while let Some((path, nested)) = pending.pop_front() {
        if skipped(&path) || !read.insert(path.clone()) {
            continue;
        }
        if path == ours {
            after_ours = true;
            continue;
        }
        match host.stat(&path)? {
            None => found.dangling.push(path),
            Some(Stat { kind: FileKind::Directory, .. }) => {}
            Some(stat) => {
                let text = durable::text(host, &path)?;
                if let (FileKind::Link { target }, None) = (&stat.kind, &text)
                    && !paths::is_seen(&paths::absolute(&path, target))
                {
                    found.unseen.push(format!("{path} is a link to {target}"));
                }
                let Some(text) = text else { continue };
                let is_link = matches!(stat.kind, FileKind::Link { .. });
                let mode = if is_link { 0o600 } else { stat.mode & 0o666 };
                let imports = containerd::drop_in_imports(&text);
                expand(host, &path, &imports, ours, true, &mut pending, &mut found)?;
                found.others.push(Other { path, text, mode, after_ours, nested });
            }
        }
    }
    Ok(found)
}

/// Adds the files that imports stand for.
fn expand(
    host: &mut dyn Host,
    parent: &str,
    imports: &[String],
    ours: &str,
    nested: bool,
    pending: &mut VecDeque<(String, bool)>,
    all: &mut Imported,
) -> HostResult<()> {
    for import in imports {
        let import = paths::absolute(parent, import);
        if !paths::is_seen(&import) {
            all.unseen.push(format!("{parent} imports {import}"));
            continue;
        }
        if !import.contains('*') {
            pending.push_back((import, nested));
            continue;
        }
        let mut found = vec![String::new()];
        for part in import.trim_start_matches('/').split('/') {
            if !is_glob(part) {
                found.iter_mut().for_each(|path| *path = format!("{path}/{part}"));
                continue;
            }
            let mut matches = Vec::new();
            for folder in found {
                let listed = host.list(&folder)?;
                if listed.is_some() {
                    all.folders.insert(folder.clone());
                }
                let mut names = listed.unwrap_or_default();
                if paths::parent(ours) == folder {
                    names.push(paths::name(ours).to_owned());
                }
                names.sort_unstable();
                names.dedup();
                let names = names.into_iter().filter(|name| matches_glob(part, name));
                matches.extend(names.map(|name| format!("{folder}/{name}")));
            }
            found = matches;
        }
        for path in found {
            // A match that is gone, or a link to nothing, is not read.
            if path == ours || host.stat(&path)?.is_some() {
                pending.push_back((path, nested));
            }
        }
    }
    Ok(())
}

/// Whether an import, as a path from the root, takes a path in.
pub(super) fn takes(import: &str, path: &str) -> bool {
    let (import, path): (Vec<&str>, Vec<&str>) =
        (import.split('/').collect(), path.split('/').collect());
    import.len() == path.len()
        && import.iter().zip(path).all(|(part, name)| *part == name || matches_glob(part, name))
}

/// The folder of an import that reads a drop-in of ours from one.
pub(crate) fn folder(import: &str) -> Option<&str> {
    let (folder, pattern) = import.rsplit_once('/')?;
    let is_ours = pattern.contains('*') && matches_glob(pattern, paths::CONTAINERD_DROP_IN);
    (is_ours && !folder.split('/').any(is_glob) && !folder.contains('$')).then_some(folder)
}

fn is_glob(part: &str) -> bool {
    part.contains(['*', '?', '['])
}

/// Whether a name matches a pattern. One that is not understood matches nothing.
fn matches_glob(pattern: &str, name: &str) -> bool {
    glob::Pattern::new(pattern).is_ok_and(|pattern| pattern.matches(name))
}
