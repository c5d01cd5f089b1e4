//! What the operator was told, resolved: no defaults, environment or files are left to look up.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::Clock;
use crate::lease::Timing;

/// Where health is served if nothing else is said: only to the machine itself.
pub const HEALTH_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);
/// Where metrics are served if nothing else is said: only to the machine itself.
pub const METRICS_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// The kind of cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Platform {
    /// Whatever the API server serves.
    Auto,
    /// The Machine Config Operator changes nodes.
    Openshift,
    /// There is no Machine Config Operator.
    Kubernetes,
}

impl Platform {
    /// The name as on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Openshift => "openshift",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// How logs look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Text on a terminal, else JSON.
    Auto,
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

/// Where the kubeconfig is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeconfigSource {
    /// `--kubeconfig`: must exist.
    Flag(PathBuf),
    /// `KUBECONFIG`: files to merge, of which some may not exist.
    Environment(Vec<PathBuf>),
    /// `~/.kube/config`, if it exists; else the pod's service account.
    Home(Option<PathBuf>),
}

/// Which API server, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Where the kubeconfig is.
    pub source: KubeconfigSource,
    /// The context; `None` means the current one.
    pub context: Option<String>,
}

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
    /// Log what would be done, and write nothing.
    pub dry_run: bool,
    /// The clock.
    pub clock: Clock,
    /// Seed of the jitter; two operators should not share one.
    pub seed: u64,
    /// Which of several instances this is, in Events.
    pub instance: String,
    /// Thresholds of the decision.
    pub options: kata_plan::Options,
}

/// Leader election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// The candidate's name, unique to the process.
    pub identity: String,
    /// Its times.
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

/// How long the loop waits at most before it looks at everything again.
pub const RESYNC: Duration = Duration::from_mins(5);
/// How long a burst of changes is gathered before the loop looks.
pub const DEBOUNCE: Duration = Duration::from_millis(75);
