//! What was decided about a node.

use crate::check::Check;
use crate::host::Sandbox;
use crate::plan::HostPlan;

/// What was decided.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decision {
    /// Checks that did not pass.
    pub(crate) checks: Vec<Check>,
    /// Sandboxes in the way of the plan.
    pub(crate) in_the_way: Vec<Sandbox>,
    /// What to do; `None` if nothing is to be done, or nothing may be done.
    pub(crate) plan: Option<HostPlan>,
    /// How the node differs from what the task says.
    pub(crate) drift: Vec<Check>,
}
