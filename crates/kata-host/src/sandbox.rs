//! What the container runtime has of one pod's sandbox, for people who look at it. Changes nothing, and knows nothing
//! of processes.

use kata_api::sandbox_facts::SandboxFacts;

use crate::cri::Cri;
use crate::host::{Host, HostError};
use crate::journal::State;
use crate::observe::{files, handlers};
use crate::site::{self, SiteError};

/// Why there is nothing to show.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SandboxError {
    /// The container runtime cannot be found.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// There is none that we know.
    #[error("no container runtime was found")]
    NoRuntime,
    /// It does not answer.
    #[error("{0}")]
    Cri(String),
    /// Its configuration cannot be read.
    #[error(transparent)]
    Files(#[from] HostError),
    /// It has no such sandbox.
    #[error("the container runtime has no READY sandbox of pod {namespace}/{pod}")]
    Absent {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        pod: String,
    },
}

/// Finds the sandbox of a pod, and the file that configures its handler.
///
/// # Errors
/// If the container runtime cannot be asked, or has no such sandbox.
pub fn sandbox(
    host: &mut dyn Host,
    namespace: &str,
    pod: &str,
) -> Result<SandboxFacts, SandboxError> {
    let site = site::find(host, None, None)?.ok_or(SandboxError::NoRuntime)?;
    let cri = Cri::read(host, &site.socket).map_err(SandboxError::Cri)?;
    let is_wanted = |namespace_of: &str, name: &str| namespace_of == namespace && name == pod;
    let found = cri.sandboxes.iter().find(|it| it.ready && is_wanted(&it.namespace, &it.pod));
    let found = found.ok_or_else(|| SandboxError::Absent {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
    })?;
    let files = files(host, &site, cri.numbers(), &State::default(), false)?;
    // The last file that has it decides.
    let main = files.main_text.as_ref().map(|text| (&site.main, text.as_str()));
    let others = files.others.iter().map(|other| (&other.path, other.text.as_str()));
    let own = files.own_drop_in().map(|text| (&files.drop_in, text));
    let all: Vec<(&String, &str)> = main.into_iter().chain(others).chain(own).collect();
    let file = all.iter().rev().find(|(_, text)| handlers(text).contains(&found.handler));
    Ok(SandboxFacts {
        sandbox_id: found.id.clone(),
        handler: found.handler.clone(),
        handler_file: file.map(|(path, _)| (*path).clone()),
        processes: Vec::new(),
    })
}
