//! The settings of the operator, resolved: no defaults, environment or files are left to look up.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use jiff::Timestamp;
use kata_api::platform::Platform;

use crate::clock::Clock;
use crate::lease::Timing;

/// Where health is served by default: only on the loopback interface.
pub const HEALTH_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);
/// Where metrics are served by default: only on the loopback interface.
pub const METRICS_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Settings of [`crate::run`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// The operator's own namespace, where its Lease is.
    pub namespace: String,
    /// The kind of cluster.
    pub platform: Platform,
    /// Leader election; `None` means that this is the only operator.
    pub election: Option<Election>,
    /// Where to serve health; `None` means nowhere.
    pub health_address: Option<SocketAddr>,
    /// Where to serve metrics; `None` means nowhere.
    pub metrics_address: Option<SocketAddr>,
    /// Log the planned steps, and write nothing.
    pub dry_run: bool,
    pub clock: Clock,
    /// Seed of the jitter; two operators should not share one.
    pub seed: u64,
    /// Identifies this process in Events.
    pub instance: String,
    /// The options of the decision.
    pub options: kata_plan::Options,
}

/// The settings of the leader election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// The candidate's name, unique to the process.
    pub identity: String,
    pub timing: Timing,
}

impl Settings {
    /// Settings of an operator inside a simulation or a test: a clock that shows `epoch` now and
    /// follows tokio's, no election, no servers.
    pub fn simulated(epoch: Timestamp) -> Self {
        Self {
            namespace: kata_api::names::NAMESPACE.to_owned(),
            platform: Platform::Auto,
            election: None,
            health_address: None,
            metrics_address: None,
            dry_run: false,
            clock: Clock::simulated(epoch),
            seed: 1,
            instance: "simulated".to_owned(),
            options: kata_plan::Options::default(),
        }
    }
}
