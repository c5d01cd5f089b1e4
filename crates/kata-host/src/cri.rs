//! What CRI says of the container runtime.

use std::collections::BTreeSet;

use crate::containerd::live;
use crate::host::{CriStatus, CriVersion, Host, HostResult, Sandbox};

/// What CRI says.
#[derive(Clone, Debug)]
pub(crate) struct Cri {
    pub(crate) version: CriVersion,
    pub(crate) status: CriStatus,
    pub(crate) sandboxes: Vec<Sandbox>,
}

impl Cri {
    /// The value before CRI is asked.
    pub(crate) fn none() -> Self {
        Self {
            version: CriVersion { name: String::new(), version: String::new() },
            status: CriStatus::default(),
            sandboxes: Vec::new(),
        }
    }

    /// Major and minor version; zeros if it reports none.
    pub(crate) fn numbers(&self) -> (u32, u32) {
        let mut parts = self.version.version.trim_start_matches('v').split(['.', '-', '~', '+']);
        let mut next = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
        (next(), next())
    }

    /// Asks the container runtime.
    pub(crate) fn read(host: &mut dyn Host, socket: &str) -> Result<Self, String> {
        let mut read = || -> HostResult<Self> {
            Ok(Self {
                version: host.cri_version(socket)?,
                status: host.cri_status(socket)?,
                sandboxes: host.cri_sandboxes(socket)?,
            })
        };
        read().map_err(|error| error.to_string())
    }

    /// The READY sandboxes of these handlers.
    pub(crate) fn ready(&self, ours: impl Fn(&str) -> bool) -> Vec<Sandbox> {
        self.sandboxes
            .iter()
            .filter(|sandbox| sandbox.ready && ours(&sandbox.handler))
            .cloned()
            .collect()
    }

    /// The handlers that are not ours, run, and are on disk, if it is known what is: those that a restart must not
    /// cost.
    pub(crate) fn kept<'a>(
        &self,
        on_disk: Option<&BTreeSet<String>>,
        ours: impl Iterator<Item = &'a String>,
    ) -> BTreeSet<String> {
        let ours: BTreeSet<&String> = ours.collect();
        let mut kept = live(&self.status).handlers;
        kept.retain(|name| !ours.contains(name));
        if let Some(on_disk) = on_disk {
            kept.retain(|name| on_disk.contains(name));
        }
        kept
    }
}
