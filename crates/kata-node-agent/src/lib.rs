//! The node agent: what the containers of a node Job run.
//!
//! `self-copy` puts this binary where the payload's image can start it, `stage` takes the payload out of
//! that image, and `run` carries a task out. What is done and in which order is decided in [`kata_host`]; here are only
//! its hands. `sandbox` shows people the sandbox of a pod. There is no access to the API server.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use kata_api::node_task::{NodeAction, NodeReport, NodeTask};
use kata_host::PodName;
use serde::Serialize;

mod attributes;
mod below;
pub mod command;
pub mod cri;
mod device;
pub mod linux;
mod mounts;
pub mod probe;
pub mod sandbox;
mod self_copy;
pub mod stage;
pub mod systemd;

pub use self_copy::{SelfCopyError, self_copy};

use linux::Linux;

/// Where the kubelet reads a container's termination message.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Why the node agent could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// `--task` is no task.
    #[error("--task cannot be understood")]
    Task {
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A handler or a shim of the task would be a path or more than one word in a file.
    #[error("--task names {name:?}, which is no name of a handler or a shim")]
    Name {
        /// The name.
        name: String,
    },
    /// The binary cannot be copied.
    #[error(transparent)]
    SelfCopy(#[from] SelfCopyError),
    /// The payload could not be staged.
    #[error(transparent)]
    Stage(#[from] stage::StageError),
    /// There is no plan to show, and why.
    #[error("{}", reasons.join("; "))]
    NoPlan {
        /// The reasons.
        reasons: Vec<String>,
    },
    /// The Linux side cannot be set up.
    #[error("cannot start the CRI client")]
    Start {
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The sandbox of a pod cannot be shown.
    #[error(transparent)]
    Sandbox(#[from] sandbox::ReadError),
    /// A device cannot be used.
    #[error("cannot use the device {name}")]
    Device {
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The report cannot be written.
    #[error("cannot write the report")]
    Report {
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Understands `--task`.
///
/// # Errors
/// If it is no JSON of a task, or names what no KataConfig can name: paths are made of these names.
pub fn task(text: &str) -> Result<NodeTask, AgentError> {
    let task: NodeTask =
        serde_json::from_str(text).map_err(|source| AgentError::Task { source })?;
    for handler in &task.handlers {
        if let Some(name) = [&handler.name, &handler.shim].into_iter().find(|name| !is_name(name)) {
            return Err(AgentError::Name { name: name.clone() });
        }
    }
    Ok(task)
}

/// Whether it is a label of DNS (RFC 1123), as the KataConfig's schema wants the names of handlers and shims.
fn is_name(name: &str) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=63).contains(&name.len())
        && name.bytes().all(|byte| is_letter(&byte) || byte == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// Takes the payload out of the image at `image_root` and stages it on the node. Says what it did.
///
/// # Errors
/// If the image has no payload with the shims that the task names, which the termination message has as a
/// report, or the node fails.
pub fn stage(task: &NodeTask, host_root: &Path, image_root: &Path) -> Result<String, AgentError> {
    let mut host = Linux::new(host_root).map_err(|source| AgentError::Start { source })?;
    let staged = stage::stage(&mut host, task, image_root);
    if let Err(error) = &staged
        && let Some(code) = error.of_image()
    {
        leave(&kata_host::refused(task, code, &error.to_string()))?;
    }
    Ok(staged?)
}

/// Carries the task out, and writes the report to standard output and to the termination message.
///
/// # Errors
/// If nothing could be tried, or the report cannot be written.
pub fn run(task: &NodeTask, host_root: &Path) -> Result<NodeReport, AgentError> {
    let mut host = Linux::new(host_root).map_err(|source| AgentError::Start { source })?;
    if task.action == NodeAction::Remove {
        // Jobs for a node come one after the other, so no other Job is at work there.
        if let Ok(place) = host.at(device::PLACE) {
            device::clear(&place, Duration::ZERO);
        }
    }
    let report = kata_host::run(&mut host, task);
    print_report(&report)?;
    Ok(report)
}

/// What [`run`] would do, for people. Changes nothing.
///
/// # Errors
/// If the task would be refused or blocked; the error says why.
pub fn plan(task: &NodeTask, host_root: &Path) -> Result<String, AgentError> {
    let mut host = Linux::new(host_root).map_err(|source| AgentError::Start { source })?;
    match kata_host::plan(&mut host, task) {
        Ok(None) => Ok("nothing to do\n".to_owned()),
        Ok(Some(plan)) => Ok(plan.to_string()),
        Err(reasons) => Err(AgentError::NoPlan { reasons }),
    }
}

/// Uses a device of this node as a sandbox would.
///
/// # Errors
/// If it cannot be used, and why.
pub fn device(name: &str) -> Result<(), AgentError> {
    let fail = |source| AgentError::Device { name: name.to_owned(), source };
    let known = device::named(name)
        .ok_or_else(|| fail(std::io::Error::other("there is no such device to look at")))?;
    device::probe(Path::new(device::path(known)), known).map_err(fail)
}

/// Writes the sandbox of a pod and its processes to standard output and to the termination message.
///
/// # Errors
/// If they cannot be read, or not be written.
pub fn show_sandbox(pod: &PodName<'_>, host_root: &Path) -> Result<(), AgentError> {
    let mut host = Linux::new(host_root).map_err(|source| AgentError::Start { source })?;
    print_report(&sandbox::sandbox(&mut host, pod)?)
}

fn print_report(report: &impl Serialize) -> Result<(), AgentError> {
    let mut line = leave(report)?;
    line.push(b'\n');
    let written = std::io::stdout().lock().write_all(&line);
    written.map_err(|source| AgentError::Report { source })
}

/// Writes the report to the termination message alone.
fn leave(report: &impl Serialize) -> Result<Vec<u8>, AgentError> {
    let fail = |source| AgentError::Report { source };
    let line = serde_json::to_vec(report).map_err(std::io::Error::other).map_err(fail)?;
    // The kubelet makes the file; outside a pod there is none, and none is made.
    if Path::new(TERMINATION_LOG).exists() {
        std::fs::write(TERMINATION_LOG, &line).map_err(fail)?;
    }
    Ok(line)
}
