//! A copy of this binary, where something else can start it.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// This binary cannot be copied.
#[derive(Debug, thiserror::Error)]
#[error("cannot copy this binary to {path}", path = path.display())]
pub struct SelfCopyError {
    /// The copy.
    path: PathBuf,
    source: std::io::Error,
}

/// Copies this binary, so that a container of another image can start it.
///
/// # Errors
/// If it cannot be read or written.
pub fn self_copy(to: &Path) -> Result<(), SelfCopyError> {
    let fail = |source| SelfCopyError { path: to.to_owned(), source };
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
