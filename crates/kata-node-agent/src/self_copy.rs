//! A copy of this binary, where something else can start it.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Why there is no copy, or no place for what is mounted beside it.
#[derive(Debug, thiserror::Error)]
pub enum SelfCopyError {
    /// The copy cannot be written.
    #[error("cannot copy this binary to {path}", path = path.display())]
    Copy {
        /// The copy.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A directory cannot be made.
    #[error("cannot make the directory {path}", path = path.display())]
    Make {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Copies this binary, so that a container of another image can start it.
///
/// # Errors
/// If it cannot be read or written.
pub fn self_copy(to: &Path) -> Result<(), SelfCopyError> {
    let fail = |source| SelfCopyError::Copy { path: to.to_owned(), source };
    let mut from = std::fs::File::open("/proc/self/exe").map_err(fail)?;
    let part = to.with_extension("part");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o755)
        .open(&part)
        .map_err(fail)?;
    std::io::copy(&mut from, &mut file).map_err(fail)?;
    file.sync_all().map_err(fail)?;
    std::fs::rename(&part, to).map_err(fail)
}

/// Makes directories, with those above them.
pub(crate) fn make(directories: &[PathBuf]) -> Result<(), SelfCopyError> {
    directories.iter().try_for_each(|path| {
        let made = std::fs::create_dir_all(path);
        made.map_err(|source| SelfCopyError::Make { path: path.clone(), source })
    })
}
