//! What happens on the way of a run, for its report: what was changed, and which sandboxes a restart cost.
//!
//! It decides nothing. A sandbox that is lost is lost, and another restart does not bring it back.

use std::collections::BTreeSet;

use kata_api::Code;

use crate::check::Check;
use crate::cri::Cri;
use crate::host::{Host, Sandbox};

/// The lost sandboxes that a check names.
const NAMED: usize = 3;

/// What happened on the way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    /// Something was written besides the journal.
    pub(crate) changed: bool,
    /// The container runtime was restarted.
    pub(crate) restarted: bool,
    /// The sandboxes that were READY before the container runtime was restarted, if it reported them.
    ready: Option<Vec<Sandbox>>,
    /// Those of them that are not READY any more.
    lost: Vec<Sandbox>,
}

fn ready(sandboxes: &[Sandbox]) -> Vec<Sandbox> {
    sandboxes.iter().filter(|sandbox| sandbox.ready).cloned().collect()
}

impl Trace {
    /// Notes the sandboxes that are READY.
    pub(crate) fn note(&mut self, sandboxes: &[Sandbox]) {
        self.ready = Some(ready(sandboxes));
    }

    /// Notes the sandboxes that are READY right before a restart, since some may have ended by themselves
    /// since the node was looked at. What was noted before stays if the container runtime does not answer.
    pub(crate) fn ask(&mut self, host: &mut dyn Host, socket: &str) {
        if let Ok(sandboxes) = host.cri_sandboxes(socket) {
            self.note(&sandboxes);
        }
    }

    /// The same before the restart of a way back, which must not forget what the one before it has cost.
    pub(crate) fn ask_once(&mut self, host: &mut dyn Host, socket: &str) {
        if self.ready.is_none() {
            self.ask(host, socket);
        }
    }

    /// Compares what was noted with what the container runtime reports after its restart.
    pub(crate) fn compare(&mut self, cri: &Cri) {
        let alive: BTreeSet<&String> =
            cri.sandboxes.iter().filter(|it| it.ready).map(|it| &it.id).collect();
        let before = self.ready.take().unwrap_or_default();
        self.lost.extend(before.into_iter().filter(|sandbox| !alive.contains(&sandbox.id)));
        self.note(&cri.sandboxes);
    }

    /// The sandboxes that did not outlive a restart, if there are any.
    pub(crate) fn lost(&self) -> Option<Check> {
        if self.lost.is_empty() {
            return None;
        }
        let name = |sandbox: &Sandbox| format!("{}/{}", sandbox.namespace, sandbox.pod);
        let mut message = self.lost.iter().take(NAMED).map(name).collect::<Vec<_>>().join(", ");
        if self.lost.len() > NAMED {
            message = format!("{message} and {} more", self.lost.len() - NAMED);
        }
        Some(Check::new(Code::SandboxesLost, message))
    }
}
