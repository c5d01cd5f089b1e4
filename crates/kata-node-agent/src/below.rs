//! Paths that must not lead out of a folder.
//!
//! [`below`] is for the files of the node, whose links the administrator made: an absolute target means the
//! node's root and not that of this container, and `..` never leads above it.
//! [`open_inside`] is for what an image brings, which is not trusted: a path or link that leads out is an error.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

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
        // What is no link, or is missing, stays in the path: the caller finds out which.
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

/// What a link in a path means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// `ELOOP`, also if the link is the last part of the path.
    Refuse,
    /// The link is followed. `EXDEV` if it leads out of the folder, if only in the middle of its target.
    FollowInside,
}

/// How often an open is repeated that the kernel gave up because a file was renamed or mounted meanwhile,
/// which can be any file of the node. libpathrs repeats it as often.
const ATTEMPTS: usize = 128;

/// Opens what is at a path in a folder. `..`, absolute paths and targets and the links of `/proc` do not lead
/// out of the folder. No file is created.
///
/// Linux 5.6 and later have a system call for this, `openat2`. On older kernels, and in a container whose seccomp
/// profile does not know that call, the path is walked here with one descriptor for each folder.
///
/// # Errors
/// `EXDEV` if the path leads out, `ELOOP` if a link is refused or there are too many, else as `open`.
pub(super) fn open_inside(
    folder: impl AsFd,
    path: &Path,
    flags: OFlags,
    links: Links,
) -> io::Result<OwnedFd> {
    let (folder, flags) = (folder.as_fd(), flags | OFlags::CLOEXEC);
    let opened = match open_by_kernel(folder, path, flags, links) {
        Err(Errno::NOSYS | Errno::PERM) => open_by_steps(folder, path, flags, links),
        opened => opened,
    };
    Ok(opened?)
}

fn open_by_kernel(
    folder: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    links: Links,
) -> rustix::io::Result<OwnedFd> {
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if links == Links::Refuse {
        resolve |= ResolveFlags::NO_SYMLINKS;
    }
    for _ in 0..ATTEMPTS {
        match rustix::fs::openat2(folder, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

/// The same for kernels without `openat2`. `..` goes back to the folder that the walk came from, by its
/// descriptor, so that it never passes the first one.
fn open_by_steps(
    folder: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    links: Links,
) -> rustix::io::Result<OwnedFd> {
    let no_link = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut way: Vec<(OsString, OwnedFd)> = Vec::new();
    let mut followed = 0;
    if path.is_absolute() {
        return Err(Errno::XDEV);
    }
    let mut left = parts(path);
    while let Some(part) = left.pop() {
        let Some(name) = part else {
            way.pop().ok_or(Errno::XDEV)?;
            continue;
        };
        let here = way.last().map_or(folder, |(_, here)| here.as_fd());
        let next = rustix::fs::openat(here, &name, OFlags::PATH | no_link, Mode::empty())?;
        let found = rustix::fs::fstat(&next)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
            way.push((name, next));
            continue;
        }
        followed += 1;
        if links == Links::Refuse || followed > LINKS {
            return Err(Errno::LOOP);
        }
        let target = rustix::fs::readlinkat(&next, "", Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        if target.is_absolute() {
            return Err(Errno::XDEV);
        }
        left.extend(parts(&target));
    }
    // The descriptors of the walk are good for no more than the next step.
    let Some((name, _)) = way.pop() else {
        return rustix::fs::openat(folder, ".", flags, Mode::empty());
    };
    let here = way.last().map_or(folder, |(_, here)| here.as_fd());
    rustix::fs::openat(here, &name, flags | no_link, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Both ways to open something must agree, or what is refused would depend on the node's kernel.
    #[test]
    fn the_walk_for_old_kernels_opens_and_refuses_the_same_as_the_kernel() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../target/nodes")
            .join(format!("inside-{}", std::process::id()));
        fs::create_dir_all(root.join("in/a/b/c/d")).unwrap();
        fs::write(root.join("secret"), "").unwrap();
        fs::write(root.join("in/file"), "").unwrap();
        for (target, link) in [
            ("../../../..", "a/b/c/d/up"),
            ("a/b/c/d/up/..", "escape"),
            ("../secret", "secret"),
            ("../in/file", "out-and-in"),
            ("/proc/self/root", "magic"),
            ("a/../file", "inside"),
            ("a/b", "folder"),
            ("missing/x", "dangling"),
            ("two", "one"),
            ("one", "two"),
            ("/", "absolute"),
        ] {
            symlink(target, root.join("in").join(link)).unwrap();
        }
        let folder = fs::File::open(root.join("in")).unwrap();
        let paths = [
            ("", None),
            (".", None),
            ("..", Some(Errno::XDEV)),
            ("a/..", None),
            ("a/../..", Some(Errno::XDEV)),
            ("/", Some(Errno::XDEV)),
            ("file", None),
            ("file/x", Some(Errno::NOTDIR)),
            ("missing", Some(Errno::NOENT)),
            ("escape", Some(Errno::XDEV)),
            ("escape/secret", Some(Errno::XDEV)),
            ("a/b/c/d/up", None),
            ("a/b/c/d/up/file", None),
            ("a/b/c/d/up/../secret", Some(Errno::XDEV)),
            ("secret", Some(Errno::XDEV)),
            ("out-and-in", Some(Errno::XDEV)),
            ("magic", Some(Errno::XDEV)),
            ("inside", None),
            ("folder/c", None),
            ("folder/../b/c", None),
            ("dangling", Some(Errno::NOENT)),
            ("one", Some(Errno::LOOP)),
            ("absolute", Some(Errno::XDEV)),
        ];
        let inode = |opened: rustix::io::Result<OwnedFd>| {
            opened.map(|file| rustix::fs::fstat(file).unwrap().st_ino)
        };
        for (path, error) in paths {
            for links in [Links::FollowInside, Links::Refuse] {
                let arguments = (folder.as_fd(), Path::new(path), OFlags::PATH, links);
                let (folder, path, flags, links) = arguments;
                let steps = inode(open_by_steps(folder, path, flags, links));
                let kernel = inode(open_by_kernel(folder, path, flags, links));
                if kernel != Err(Errno::NOSYS) && !path.as_os_str().is_empty() {
                    assert_eq!(steps, kernel, "{path:?} {links:?}");
                }
                if links == Links::FollowInside {
                    assert_eq!(steps.err(), error, "{path:?}");
                }
            }
        }
        fs::remove_dir_all(root).unwrap();
    }
}
