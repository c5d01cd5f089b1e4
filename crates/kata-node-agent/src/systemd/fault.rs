//! Why systemd did not do something.

use kata_host::host::{HostError, HostErrorKind};

/// Why systemd did not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub(super) kind: HostErrorKind,
    pub(super) reason: String,
    /// Name of D-Bus's error, if it was one.
    pub(super) name: String,
}

impl Fault {
    pub(crate) fn new(kind: HostErrorKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into(), name: String::new() }
    }

    /// What it was.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The error of an action.
    pub fn at(self, action: String) -> HostError {
        HostError { action, reason: self.reason, kind: self.kind }
    }
}

pub(super) fn odd() -> Fault {
    Fault::new(HostErrorKind::Other, "systemd's answer cannot be understood")
}
