//! Where a path of the node is for this process: below the node's root, wherever links lead.
//!
//! An absolute target means the node's root and not that of this container, and `..` never leads above it.
//! Nothing is opened here.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The links on one way, as many as Linux follows.
const LINKS: usize = 40;

/// The place of a path, also if a link is at its end. What does not exist has a place as well, so that it can
/// be made there.
///
/// # Errors
/// If links lead in a circle.
pub(super) fn below(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut place = root.to_owned();
    let mut depth = 0_usize;
    let mut links = 0;
    let mut left = parts(path);
    while let Some(part) = left.pop() {
        let Some(part) = part else {
            if depth > 0 {
                depth -= 1;
                place.pop();
            }
            continue;
        };
        place.push(part);
        depth += 1;
        // What is no link, or not there, is for whoever uses it.
        let Ok(target) = fs::read_link(&place) else { continue };
        links += 1;
        if links > LINKS {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        if target.is_absolute() {
            depth = 0;
            place = root.to_owned();
        } else {
            depth -= 1;
            place.pop();
        }
        left.extend(parts(&target));
    }
    Ok(place)
}

/// The parts of a path, the last one first; `None` is the folder above.
fn parts(path: &Path) -> Vec<Option<OsString>> {
    path.components()
        .rev()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(Some(name.to_owned())),
            Component::ParentDir => Some(None),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
        })
        .collect()
}
