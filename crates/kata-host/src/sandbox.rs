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

/// A pod, as the kubelet names it to the container runtime.
#[derive(Clone, Copy, Debug)]
pub struct PodName<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid: an earlier pod of the same name may not be gone yet.
    pub uid: &'a str,
}

/// Finds the sandbox of a pod, and the file that configures its handler.
///
/// # Errors
/// If the container runtime cannot be asked, or has no such sandbox.
pub fn sandbox(host: &mut dyn Host, pod: &PodName<'_>) -> Result<SandboxFacts, SandboxError> {
    let site = site::find(host, None, None)?.ok_or(SandboxError::NoRuntime)?;
    let cri = Cri::read(host, &site.socket).map_err(SandboxError::Cri)?;
    let found = cri.sandboxes.iter().find(|sandbox| sandbox.ready && sandbox.uid == pod.uid);
    let found = found.ok_or_else(|| SandboxError::Absent {
        namespace: pod.namespace.to_owned(),
        pod: pod.name.to_owned(),
    })?;
    let files = files(host, &site, cri.numbers(), &State::default(), false, false)?;
    // In the order in which they are read: the last one that has the handler decides.
    let other = |after: bool| {
        let others = files.others.iter().filter(move |other| other.after_ours == after);
        others.map(|other| (&other.path, other.text.as_str()))
    };
    let main = files.main_text.iter().map(|text| (&site.main, text.as_str()));
    let stale = files.stale.iter().filter_map(|(path, content)| Some((path, content.ours()?)));
    let own = files.own_drop_in().map(|text| (&files.drop_in, text));
    let mut all = main.chain(other(false)).chain(stale).chain(own).chain(other(true));
    let file = all.rfind(|(_, text)| handlers(text).contains(&found.handler));
    Ok(SandboxFacts {
        sandbox_id: found.id.clone(),
        handler: found.handler.clone(),
        handler_file: file.map(|(path, _)| path.clone()),
        processes: Vec::new(),
    })
}
