//! The pools, with what `mco::assess` derived for this back end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kata_api::MachineConfigPool;

use super::desired::Desired;
use super::mode::Mode;
use crate::snapshot::Snapshot;

/// The pools, with the state of this back end.
#[derive(Debug)]
pub(super) struct Pools<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) mode: Mode,
    pub(super) pools: BTreeMap<&'a str, &'a MachineConfigPool>,
    /// The desired content of the nodes' configuration.
    pub(super) desired: Desired,
    /// The RuntimeClasses that kata-operator has or should have.
    pub(super) classes: Arc<BTreeSet<String>>,
    /// The rendered MachineConfigs that contain Kata and differ from the desired content.
    pub(super) behind: BTreeSet<&'a str>,
    /// Whether the pool's target configuration contains the operator's MachineConfig.
    pub(super) targeted: bool,
}

impl Pools<'_> {
    /// Whether a rendered MachineConfig contains Kata and differs from the desired content.
    pub(super) fn is_behind(&self, rendered: &str) -> bool {
        self.behind.contains(rendered)
    }
}
