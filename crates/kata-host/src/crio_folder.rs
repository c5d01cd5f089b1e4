//! The folder of CRI-O's drop-ins. CRI-O reads every file below it in the order of names, also hidden ones and those in
//! folders of it, and does not start if a link in it leads to no file (`UpdateFromPath` in `pkg/config/config.go`, the
//! same in 1.30 and 1.36).

use std::collections::BTreeSet;

use crate::host::{FileKind, Host, HostResult, Stat};
use crate::paths;

/// What is in the folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folder {
    /// What CRI-O reads, in its order, with who may read it.
    pub(crate) files: Vec<(String, u32)>,
    /// Links that lead to no file.
    pub(crate) dangling: Vec<String>,
    /// What may be there for CRI-O and is not seen, a part of a sentence each.
    pub(crate) unseen: Vec<String>,
    /// The folder and those in it.
    pub(crate) folders: BTreeSet<String>,
}

/// Looks at a folder and everything below it.
pub(crate) fn read(host: &mut dyn Host, folder: &str) -> HostResult<Folder> {
    let mut found = Folder::default();
    enter(host, folder, &mut found)?;
    Ok(found)
}

fn enter(host: &mut dyn Host, folder: &str, found: &mut Folder) -> HostResult<()> {
    let Some(names) = host.list(folder)? else { return Ok(()) };
    found.folders.insert(folder.to_owned());
    for name in names {
        let path = format!("{folder}/{name}");
        match host.stat(&path)? {
            None => {}
            Some(Stat { kind: FileKind::Directory, .. }) => enter(host, &path, found)?,
            Some(Stat { kind: FileKind::Link { target }, .. }) => {
                if host.list(&path)?.is_none() && host.read_start(&path)?.is_some() {
                    found.files.push((path, 0o600));
                } else if !paths::is_seen(&paths::absolute(&path, &target)) {
                    found.unseen.push(format!("{path} is a link to {target}"));
                } else {
                    found.dangling.push(path);
                }
            }
            Some(stat) => found.files.push((path, stat.mode & 0o666)),
        }
    }
    Ok(())
}
