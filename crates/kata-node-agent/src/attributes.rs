//! Extended attributes of a file that is replaced: its ACL, its SELinux label, and what users set.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{XattrFlags, fremovexattr, fsetxattr, getxattr, listxattr};
use rustix::io::Errno;

const ACL: &[u8] = b"system.posix_acl_access";
/// The most bytes that Linux permits for a value and for a list of names (`linux/limits.h`).
const MOST: usize = 1 << 16;

/// Gives `to` the ACL, the SELinux label and the attributes of users that the file at `from` has. One that the file
/// system does not have, or that this process may not set, is left out. Others are about the content of a file, such
/// as its signature.
///
/// # Errors
/// If they cannot be read or written.
pub(crate) fn copy(from: &Path, to: &File) -> io::Result<()> {
    let is_copied =
        |name: &Vec<u8>| name == ACL || name == b"security.selinux" || name.starts_with(b"user.");
    let names: Vec<Vec<u8>> = names(from)?.into_iter().filter(is_copied).collect();
    if !names.iter().any(|name| name == ACL) {
        // The folder may have given it one, which would open the file to others than the old one was open to.
        match fremovexattr(to, ACL) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    for name in names {
        let Some(value) = whole(|buffer| getxattr(from, &*name, buffer))? else { continue };
        match fsetxattr(to, &*name, &value, XattrFlags::empty()) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn names(of: &Path) -> io::Result<Vec<Vec<u8>>> {
    let list = whole(|buffer| listxattr(of, buffer))?.unwrap_or_default();
    let names = list.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(<[u8]>::to_vec).collect())
}

/// What a call writes; `None` if there is nothing of the kind.
fn whole(call: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>) -> io::Result<Option<Vec<u8>>> {
    let mut buffer = vec![0; MOST];
    match call(&mut buffer) {
        Ok(length) => {
            buffer.truncate(length);
            Ok(Some(buffer))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
