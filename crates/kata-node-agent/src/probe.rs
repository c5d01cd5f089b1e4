//! `kata-operator probe`: the facts of the sandbox that it runs in, as one line of JSON. It reads files of
//! `/proc`, needs no permission, and changes nothing.

use std::path::PathBuf;
use std::time::Duration;

use kata_api::probe::{FILES, ProbeFacts};

/// Why there are no facts.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The files of `/proc` are not those of a Linux kernel.
    #[error("the files of /proc are not what a Linux kernel shows")]
    Proc,
    /// A file does not hold what a probe printed.
    #[error("{} does not hold what a probe printed", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The facts cannot be printed.
    #[error("cannot print the facts")]
    Print(#[source] serde_json::Error),
}

/// What the kernel shows.
///
/// # Errors
/// If a file cannot be read.
pub fn facts() -> Result<ProbeFacts, ProbeError> {
    let mut text = String::new();
    for path in FILES {
        let part = std::fs::read_to_string(path)
            .map_err(|source| ProbeError::Read { path: path.into(), source })?;
        text.push_str(part.trim_end());
        text.push('\n');
    }
    ProbeFacts::from_lines(&text).ok_or(ProbeError::Proc)
}

/// The facts as one line of JSON.
///
/// # Errors
/// If they cannot be read.
pub fn line() -> Result<String, ProbeError> {
    let facts = facts()?;
    let text = serde_json::to_string(&facts).map_err(ProbeError::Print)?;
    Ok(format!("{text}\n"))
}

/// Whether this process runs on another kernel than the probe that printed the file.
///
/// # Errors
/// If one of both cannot be read.
pub fn differs_from(path: PathBuf) -> Result<bool, ProbeError> {
    let text = std::fs::read_to_string(&path)
        .map_err(|source| ProbeError::Read { path: path.clone(), source })?;
    let other: ProbeFacts =
        serde_json::from_str(text.trim()).map_err(|source| ProbeError::Other { path, source })?;
    Ok(facts()?.boot_id != other.boot_id)
}

/// Stays, so that the sandbox can be looked at from outside. A signal ends it as usual.
pub fn hold(time: Duration) {
    std::thread::sleep(time);
}
