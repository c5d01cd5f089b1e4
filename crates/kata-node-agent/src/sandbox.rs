//! `kata-operator node-agent sandbox`: what the node has of one pod's sandbox, as one line of JSON. It reads, asks the
//! container runtime for its sandboxes, and changes nothing.

use std::fs;
use std::io;

use kata_api::sandbox_facts::{SandboxFacts, SandboxProcess};
use kata_host::{Host, SandboxError};

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The sandbox cannot be found.
    #[error(transparent)]
    Find(#[from] SandboxError),
    /// The processes of the node cannot be listed.
    #[error("cannot list the processes of the node")]
    Processes(#[source] io::Error),
}

/// What the node has of the sandbox of a pod. The processes are those that this process sees.
///
/// # Errors
/// If the container runtime cannot be asked or has no such sandbox, or the processes cannot be listed.
pub(crate) fn sandbox(
    host: &mut dyn Host,
    namespace: &str,
    pod: &str,
) -> Result<SandboxFacts, LookError> {
    let mut facts = kata_host::sandbox(host, namespace, pod)?;
    facts.processes = processes(&facts.sandbox_id).map_err(LookError::Processes)?;
    Ok(facts)
}

fn processes(sandbox_id: &str) -> io::Result<Vec<SandboxProcess>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Ok(pid) = name.parse() else { continue };
        // One that ended meanwhile has none.
        let Ok(line) = fs::read(path.join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line);
        let arguments: Vec<String> = line.split_terminator('\0').map(str::to_owned).collect();
        found.extend(SandboxProcess::of(sandbox_id, pid, &arguments));
    }
    found.sort_by_key(|process| (process.role, process.pid));
    Ok(found)
}
