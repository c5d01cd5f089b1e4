//! The Machine Config Operator: render, node, drain and ContainerRuntimeConfig controllers, and one
//! machine-config daemon per node.
//!
//! It behaves as the timelines recorded from the real controllers show, staleness included.
//! It must not know what its users install: an extension is a name.

mod backoff;
mod bootstrap;
mod container_runtime;
mod daemon;
mod drain;
mod event;
mod merge;
mod names;
mod node;
mod pool;
mod reconcile;
mod render;
mod status;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Simulation;
use crate::api::ApiError;

pub use bootstrap::{OS_IMAGE_CONFIG_MAP, set_os_image};
pub use names::{
    CURRENT_CONFIG, DESIRED_CONFIG, DESIRED_DRAIN, FIRST_PIVOT_CONFIG, LAST_APPLIED_DRAIN,
    NAMESPACE, POST_CONFIG_ACTION, REASON, ROLE, STATE,
};

/// From a change of a pool or a MachineConfig to the sync of the render controller.
pub const RENDER_DELAY: Duration = Duration::from_secs(5);
/// From a change of a pool or a node to the sync of the node controller.
pub const NODE_DELAY: Duration = Duration::from_secs(5);
/// From a drain or uncordon request to the drain controller's work.
pub const DRAIN_DELAY: Duration = Duration::from_secs(5);
/// How often a daemon looks whether its drain or uncordon request has been done.
pub const DAEMON_POLL: Duration = Duration::from_secs(10);

/// How long things take, in cluster time (before the cluster's speed shortens them).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// See [`RENDER_DELAY`].
    pub render_delay: Duration,
    /// See [`NODE_DELAY`].
    pub node_delay: Duration,
    /// See [`DRAIN_DELAY`].
    pub drain_delay: Duration,
    /// See [`DAEMON_POLL`].
    pub daemon_poll: Duration,
    /// Each short step of a daemon: noticing a change, checking it, starting after a boot.
    pub daemon_step: Duration,
    /// Changing files and the operating system, up to the reboot.
    pub install: Duration,
    /// From the reboot's start until the host is up again.
    pub reboot: Duration,
}

impl Default for Timing {
    /// The controllers' real delays, three minutes to install and four to reboot: at speed 60 a node
    /// takes about eight seconds.
    fn default() -> Self {
        Self {
            render_delay: RENDER_DELAY,
            node_delay: NODE_DELAY,
            drain_delay: DRAIN_DELAY,
            daemon_poll: DAEMON_POLL,
            daemon_step: Duration::from_secs(1),
            install: Duration::from_secs(180),
            reboot: Duration::from_secs(240),
        }
    }
}

impl Timing {
    /// The real controllers' delays with the short install and reboot of the recorded timelines.
    pub fn recorded() -> Self {
        Self { install: Duration::from_secs(2), reboot: Duration::from_secs(3), ..Self::default() }
    }
}

/// Adds the CRDs, the base configuration of the roles `master` and `worker`, their pools, and the
/// controllers.
///
/// Hosts and nodes are not made here; a node that registers gets its first configuration from the
/// pool of its role once that is rendered.
///
/// # Errors
/// If the API server refuses one of the objects.
pub fn install(simulation: &mut Simulation, timing: Timing) -> Result<(), ApiError> {
    add_controllers(simulation, timing);
    bootstrap::create_objects(simulation)
}

/// Adds only the controllers, to a cluster whose objects exist.
pub fn add_controllers(simulation: &mut Simulation, timing: Timing) {
    // Of work that is due at the same time, that of the first controller is done first; this order
    // gives what the recordings show most often.
    simulation.add_controller(Box::new(drain::DrainController::new(timing)));
    simulation.add_controller(Box::new(node::NodeController::new(timing)));
    simulation.add_controller(Box::new(render::RenderController::new(timing)));
    simulation.add_controller(Box::new(daemon::DaemonController::new(timing)));
    simulation.add_controller(Box::new(container_runtime::ContainerRuntimeController::default()));
}
