//! Which pool installs Kata.

use kata_api::names;

/// How Kata gets onto the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Selected workers join the pool `kata-oc`.
    Pool,
    /// The control plane's nodes are the only workers: Kata is installed on the whole pool `master`,
    /// because a custom pool can inherit only from `worker`.
    Compact,
}

impl Mode {
    /// The name of the pool, which is also the role of the operator's MachineConfig.
    pub(crate) fn pool(self) -> &'static str {
        match self {
            Self::Pool => names::POOL,
            Self::Compact => names::MASTER_POOL,
        }
    }

    /// The role label of the nodes.
    pub(crate) fn node_label(self) -> &'static str {
        match self {
            Self::Pool => names::KATA_ROLE_LABEL,
            Self::Compact => names::MASTER_ROLE_LABEL,
        }
    }
}
