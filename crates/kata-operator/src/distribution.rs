//! How the operator reaches a cluster other than by `kubectl apply` of its manifests: as a Helm chart,
//! as an OLM bundle, and with what a monitoring stack wants besides.
//!
//! Everything is derived from [`crate::manifests`], so that no way of installing knows of a permission or
//! a flag that another does not. Values in, files as text out; the same input gives the same bytes.
//! Only [`write`] touches the disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::manifests::ManifestError;

pub mod alerts;
pub mod bundle;
pub mod dashboard;
pub mod helm;

/// Files by their path in the folder that they are written to.
pub type Files = BTreeMap<PathBuf, String>;

/// Why there are no files.
#[derive(Debug, thiserror::Error)]
pub enum DistributionError {
    /// A manifest cannot be rendered, which would be a bug.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A value is not YAML, which would be a bug.
    #[error("cannot render YAML")]
    Yaml(#[source] serde_saphyr::ser::Error),
    /// A value is not JSON, which would be a bug.
    #[error("cannot render JSON")]
    Json(#[source] serde_json::Error),
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The folder has files that are not ours to remove.
    #[error(
        "{} has {} that this command did not write; give an empty folder, or one that it wrote before",
        folder.display(),
        file.display()
    )]
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// A file in it.
        file: PathBuf,
    },
}

/// Writes the files into a folder, which is made if need be.
///
/// # Errors
/// If the folder has a file that is not among them, before anything is written; or if a file cannot be
/// written.
pub fn write(folder: &Path, files: &Files) -> Result<(), DistributionError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |source| DistributionError::Write { path, source }
    };
    if folder.exists() {
        for file in present(folder).map_err(failed(folder))? {
            if !files.contains_key(&file) {
                return Err(DistributionError::Foreign { folder: folder.to_owned(), file });
            }
        }
    }
    for (name, text) in files {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed(parent))?;
        }
        std::fs::write(&path, text).map_err(failed(&path))?;
    }
    Ok(())
}

/// The files in a folder and those below it, relative to it.
fn present(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        for entry in std::fs::read_dir(folder.join(&below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
