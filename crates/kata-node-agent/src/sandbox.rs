//! `kata-operator node-agent sandbox`: the sandbox of one pod and its processes, as one line of JSON. It reads, asks the
//! container runtime for its sandboxes, and changes nothing.

use std::fs;
use std::io;

use kata_api::sandbox_facts::{SandboxFacts, SandboxProcess};
use kata_host::{Host, PodName, SandboxError};

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The sandbox cannot be found.
    #[error(transparent)]
    Find(#[from] SandboxError),
    /// The processes of the node cannot be listed.
    #[error("cannot list the processes of the node")]
    Processes(#[source] io::Error),
}

/// The sandbox of a pod and its processes: those that this process sees.
///
/// # Errors
/// If the container runtime cannot be asked or has no such sandbox, or the processes cannot be listed.
pub(crate) fn sandbox(host: &mut dyn Host, pod: &PodName<'_>) -> Result<SandboxFacts, ReadError> {
    let mut facts = kata_host::sandbox(host, pod)?;
    let all = command_lines().map_err(ReadError::Processes)?;
    facts.processes = SandboxProcess::all(&facts.sandbox_id, all);
    Ok(facts)
}

/// The command lines of all processes, with their IDs.
fn command_lines() -> io::Result<Vec<(u32, Vec<String>)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Ok(pid) = name.parse() else { continue };
        // One that ended meanwhile has none.
        let Ok(line) = fs::read(path.join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line);
        found.push((pid, line.split_terminator('\0').map(str::to_owned).collect()));
    }
    Ok(found)
}
