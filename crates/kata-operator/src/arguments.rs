//! The command line: what was typed ([`Arguments`]), and what it means ([`resolve`]).
//!
//! The one module that reads the environment.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::clock::Clock;
use crate::lease::Timing;
use crate::settings::{
    Connection, Election, HEALTH_ADDRESS, KubeconfigSource, LogFormat, METRICS_ADDRESS, Platform,
    Settings,
};
use crate::traces::OtelVars;

/// What is logged if nothing else is said. kube logs every failed request by itself, which we do with
/// its cause and only where it matters.
const DEFAULT_FILTER: &str = "info,kube_client=off";

/// Exit codes of all commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Fine,
    /// Something failed, or this process lost its lease.
    Failed,
    /// The command line is wrong.
    Usage,
    /// The API server cannot be reached, or does not accept the credentials.
    Unreachable,
    /// A precondition forbids it, and nothing was changed; or sandboxes are in the way of all or the rest of it.
    Refused,
}

impl Exit {
    /// The code.
    pub fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::Refused => 4,
        }
    }
}

/// Makes the Kata Containers runtime available on the nodes that a KataConfig selects.
#[derive(Debug, Parser)]
#[command(
    name = "kata-operator",
    version,
    after_help = "Exit codes: 0 fine, 1 failed or lease lost, 2 usage, 3 cannot reach or authenticate to the API server, 4 refused."
)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator until SIGINT or SIGTERM.
    Run(Box<RunArguments>),
    /// Print the CustomResourceDefinitions as YAML.
    Crd,
    /// Print everything that installs the operator in a cluster as YAML.
    Manifests(ManifestsArguments),
    /// Write the Helm chart.
    Helm(FolderArguments),
    /// Write the OLM bundle, a catalog fragment and samples.
    Bundle(FolderArguments),
    /// Print the alerts as a Prometheus rules file.
    Alerts(AlertsArguments),
    /// Print the Grafana dashboard as JSON.
    Dashboards,
    /// Tell whether the operator may be removed.
    Uninstall(UninstallArguments),
    /// Print the facts of the sandbox that this process runs in, as JSON.
    Probe(ProbeArguments),
    /// Change or look at the node that this runs on; what a node Job runs.
    #[command(subcommand)]
    NodeAgent(NodeAgentCommand),
    /// Print the version.
    Version,
}

/// Arguments of `probe`.
#[derive(Debug, Args)]
pub struct ProbeArguments {
    /// What another probe printed: end with 1 if this one runs on the same kernel.
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Stay for so long after printing, so that the sandbox can be looked at.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub hold: u64,
}

/// What the node agent is to do.
#[derive(Debug, Subcommand)]
pub enum NodeAgentCommand {
    /// Copy this binary, so that a container of another image can start it.
    SelfCopy {
        /// Where to.
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Take the payload out of the image that this runs in, and stage it on the node.
    Stage {
        /// What the Job asks for.
        #[arg(long, value_name = "JSON")]
        task: String,
        /// Where the node's root is.
        #[arg(long, value_name = "DIR", default_value = "/")]
        host_root: PathBuf,
        /// Where the image's root is.
        #[arg(long, value_name = "DIR", default_value = "/")]
        image_root: PathBuf,
    },
    /// Carry a task out, and report in one line of JSON.
    Run {
        /// What the Job asks for.
        #[arg(long, value_name = "JSON")]
        task: String,
        /// Where the node's root is.
        #[arg(long, value_name = "DIR", default_value = "/")]
        host_root: PathBuf,
        /// Print what would be done as a diff, and change nothing.
        #[arg(long)]
        plan: bool,
    },
    /// Say whether a device of this node can be used by sandboxes.
    #[command(hide = true)]
    Device {
        /// kvm, vhost-vsock or vhost-net.
        name: String,
    },
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Kubeconfig to use instead of KUBECONFIG, ~/.kube/config or the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The operator's namespace, where its Lease is [default: the pod's, or openshift-sandboxed-containers-operator].
    #[arg(long, short, value_name = "NS")]
    pub namespace: Option<String>,
    /// The kind of cluster.
    #[arg(long, value_enum, default_value_t = Platform::Auto)]
    pub platform: Platform,
    /// Work only while holding the Lease, so that several operators can run.
    #[arg(long)]
    pub leader_elect: bool,
    /// How long others respect the Lease if it is not renewed.
    #[arg(long, value_name = "SECONDS", default_value_t = 137)]
    pub lease_duration: u64,
    /// How long after the last renewal the leader works on; less than the lease duration.
    #[arg(long, value_name = "SECONDS", default_value_t = 107)]
    pub lease_renew_deadline: u64,
    /// How often the Lease is renewed or looked at; less than the renew deadline.
    #[arg(long, value_name = "SECONDS", default_value_t = 26)]
    pub lease_retry_period: u64,
    /// Where to serve /livez and /readyz.
    #[arg(long, value_name = "ADDR", default_value_t = HEALTH_ADDRESS)]
    pub health_addr: SocketAddr,
    /// Where to serve /metrics.
    #[arg(long, value_name = "ADDR", default_value_t = METRICS_ADDRESS)]
    pub metrics_addr: SocketAddr,
    /// Image of upstream's kata-monitor, which then runs on the nodes with Kata; an empty REF runs none [default: RELATED_IMAGE_KATA_MONITOR].
    #[arg(long, value_name = "REF")]
    pub monitor_image: Option<String>,
    /// The operator's own image, which the Jobs on nodes run where there is no Machine Config Operator [default: RELATED_IMAGE_NODE_AGENT].
    #[arg(long, value_name = "REF")]
    pub node_agent_image: Option<String>,
    /// Image that the runtime's files come from where there is no Machine Config Operator and the KataConfig names none [default: RELATED_IMAGE_KATA_PAYLOAD, or upstream's].
    #[arg(long, value_name = "REF")]
    pub payload_image: Option<String>,
    /// Log what would be done, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// How logs look: auto is text on a terminal, else JSON.
    #[arg(long, value_enum, default_value_t = LogFormat::Auto)]
    pub log_format: LogFormat,
    /// What is logged, as in RUST_LOG, such as info or kata_operator=debug [default: RUST_LOG, or info].
    #[arg(long, value_name = "FILTER")]
    pub log_filter: Option<String>,
}

/// Arguments of `manifests`.
#[derive(Debug, Args)]
pub struct ManifestsArguments {
    /// The namespace to install into.
    #[arg(long, short, value_name = "NS", default_value = kata_api::names::NAMESPACE)]
    pub namespace: String,
    /// The operator's image.
    #[arg(long, value_name = "REF", default_value = IMAGE)]
    pub image: String,
    /// The kind of cluster; openshift brings what Prometheus needs, auto leaves it out.
    #[arg(long, value_enum, default_value_t = Platform::Openshift)]
    pub platform: Platform,
    /// Image of upstream's kata-monitor; brings what it needs, and the operator runs it (OpenShift only).
    #[arg(long, value_name = "REF")]
    pub monitor_image: Option<String>,
}

/// Where to write files.
#[derive(Debug, Args)]
pub struct FolderArguments {
    /// The folder; it is made if need be, and must have no files but those that are written.
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}

/// Arguments of `alerts`.
#[derive(Debug, Args)]
pub struct AlertsArguments {
    /// The operator's namespace.
    #[arg(long, short, value_name = "NS", default_value = kata_api::names::NAMESPACE)]
    pub namespace: String,
}

/// Arguments of `uninstall`.
#[derive(Debug, Args)]
pub struct UninstallArguments {
    /// Fail if a KataConfig exists, which only the operator can remove; change nothing.
    #[arg(long, required = true)]
    pub check: bool,
    /// Kubeconfig to use instead of KUBECONFIG, ~/.kube/config or the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// The image of this version.
const IMAGE: &str = concat!("ghcr.io/kata-operator/kata-operator:v", env!("CARGO_PKG_VERSION"));

impl Default for ManifestsArguments {
    /// What no arguments mean.
    fn default() -> Self {
        Self {
            namespace: kata_api::names::NAMESPACE.to_owned(),
            image: IMAGE.to_owned(),
            platform: Platform::Openshift,
            monitor_image: None,
        }
    }
}

/// What we use of the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvVars {
    /// `KUBECONFIG`.
    pub kubeconfig: Option<std::ffi::OsString>,
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// `RUST_LOG`.
    pub rust_log: Option<String>,
    /// `POD_NAME`, from the downward API.
    pub pod_name: Option<String>,
    /// `POD_NAMESPACE`, from the downward API.
    pub pod_namespace: Option<String>,
    /// `HOSTNAME`.
    pub hostname: Option<String>,
    /// `RELATED_IMAGE_KATA_MONITOR`.
    pub monitor_image: Option<String>,
    /// `RELATED_IMAGE_NODE_AGENT`.
    pub node_agent_image: Option<String>,
    /// `RELATED_IMAGE_KATA_PAYLOAD`.
    pub payload_image: Option<String>,
    /// Where traces go.
    pub otel: OtelVars,
}

impl EnvVars {
    /// The environment of this process.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the environment"
    )]
    pub fn of_process() -> Self {
        let text = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        Self {
            kubeconfig: std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()),
            home: std::env::var_os("HOME").map(PathBuf::from),
            rust_log: text("RUST_LOG"),
            pod_name: text("POD_NAME"),
            pod_namespace: text("POD_NAMESPACE"),
            hostname: text("HOSTNAME"),
            monitor_image: text("RELATED_IMAGE_KATA_MONITOR"),
            node_agent_image: text("RELATED_IMAGE_NODE_AGENT"),
            payload_image: text("RELATED_IMAGE_KATA_PAYLOAD"),
            otel: OtelVars::read(text),
        }
    }
}

/// What distinguishes this process from every other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its process id.
    pub id: u32,
    /// When it started, in nanoseconds since 1970.
    pub started: u64,
}

/// The meaning of `run`'s arguments.
#[derive(Clone, Debug)]
pub struct Run {
    /// Which API server, and as whom.
    pub connection: Connection,
    /// The operator's settings.
    pub settings: Settings,
    /// How logs look.
    pub log_format: LogFormat,
    /// What is logged.
    pub log_filter: String,
}

/// Arguments that contradict each other.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// The election's times would allow two leaders.
    #[error(
        "the lease's times must satisfy 0 < --lease-retry-period < --lease-renew-deadline < --lease-duration, \
         not {retry} < {renew} < {duration}"
    )]
    LeaseTimes {
        /// `--lease-duration`.
        duration: u64,
        /// `--lease-renew-deadline`.
        renew: u64,
        /// `--lease-retry-period`.
        retry: u64,
    },
}

/// Which API server is meant, by what was typed and the environment. Pure.
pub fn connection(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    environment: &EnvVars,
) -> Connection {
    let source = match (kubeconfig, &environment.kubeconfig) {
        (Some(path), _) => KubeconfigSource::Flag(path.to_owned()),
        (None, Some(paths)) => KubeconfigSource::Environment(
            std::env::split_paths(paths).filter(|path| !path.as_os_str().is_empty()).collect(),
        ),
        (None, None) => KubeconfigSource::Home(
            environment.home.as_ref().map(|home| home.join(".kube").join("config")),
        ),
    };
    Connection { source, context: context.map(str::to_owned) }
}

/// From what was typed and the environment to settings. Pure.
///
/// # Errors
/// If arguments contradict each other.
pub fn resolve(
    arguments: &RunArguments,
    environment: &EnvVars,
    process: Process,
) -> Result<Run, UsageError> {
    let RunArguments {
        kubeconfig,
        context,
        namespace,
        platform,
        leader_elect,
        lease_duration,
        lease_renew_deadline,
        lease_retry_period,
        health_addr,
        metrics_addr,
        monitor_image,
        node_agent_image,
        payload_image,
        dry_run,
        log_format,
        log_filter,
    } = arguments;
    let (duration, renew, retry) = (*lease_duration, *lease_renew_deadline, *lease_retry_period);
    if !(0 < retry && retry < renew && renew < duration) {
        return Err(UsageError::LeaseTimes { duration, renew, retry });
    }
    let host = environment
        .pod_name
        .as_ref()
        .or(environment.hostname.as_ref())
        .map_or_else(|| "kata-operator".to_owned(), Clone::clone);
    let instance = format!("{host}-{}-{:x}", process.id, process.started);
    let election = leader_elect.then(|| Election {
        identity: instance.clone(),
        timing: Timing {
            duration: Duration::from_secs(duration),
            renew_deadline: Duration::from_secs(renew),
            retry: Duration::from_secs(retry),
        },
    });
    let namespace = namespace
        .as_ref()
        .or(environment.pod_namespace.as_ref())
        .map_or_else(|| kata_api::names::NAMESPACE.to_owned(), Clone::clone);
    let image = |given: &Option<String>, environment: &Option<String>| {
        let image = given.as_ref().or(environment.as_ref()).map(|image| image.trim().to_owned());
        image.filter(|image| !image.is_empty())
    };
    let monitor_image = image(monitor_image, &environment.monitor_image);
    let agent_image = image(node_agent_image, &environment.node_agent_image);
    let payload_image = image(payload_image, &environment.payload_image)
        .unwrap_or_else(|| kata_api::names::PAYLOAD_IMAGE.to_owned());
    Ok(Run {
        connection: connection(kubeconfig.as_deref(), context.as_deref(), environment),
        settings: Settings {
            namespace: namespace.clone(),
            platform: *platform,
            election,
            health_address: Some(*health_addr),
            metrics_address: Some(*metrics_addr),
            dry_run: *dry_run,
            clock: Clock::System,
            seed: process.started ^ u64::from(process.id).rotate_left(32),
            instance,
            options: kata_plan::Options {
                namespace,
                monitor_image,
                agent_image,
                payload_image,
                ..kata_plan::Options::default()
            },
        },
        log_format: *log_format,
        log_filter: log_filter
            .as_ref()
            .or(environment.rust_log.as_ref())
            .map_or_else(|| DEFAULT_FILTER.to_owned(), Clone::clone),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: Process = Process { id: 7, started: 255 };

    fn parse(line: &[&str]) -> RunArguments {
        let words = ["kata-operator", "run"].iter().chain(line);
        match Arguments::try_parse_from(words).unwrap().command {
            Command::Run(arguments) => *arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory as _;
        Arguments::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_the_contract() {
        let environment = EnvVars { home: Some("/home/a".into()), ..EnvVars::default() };
        let run = resolve(&parse(&[]), &environment, PROCESS).unwrap();
        assert_eq!(
            run.connection.source,
            KubeconfigSource::Home(Some("/home/a/.kube/config".into()))
        );
        assert_eq!(run.connection.context, None);
        assert_eq!(run.settings.namespace, "openshift-sandboxed-containers-operator");
        assert_eq!(run.settings.platform, Platform::Auto);
        assert_eq!(run.settings.election, None);
        assert!(run.settings.health_address.unwrap().ip().is_loopback());
        assert!(run.settings.metrics_address.unwrap().ip().is_loopback());
        assert!(!run.settings.dry_run);
        assert_eq!(run.log_filter, DEFAULT_FILTER);
    }

    #[test]
    fn a_flag_wins_over_the_environment() {
        let environment = EnvVars {
            kubeconfig: Some("/a:/b".into()),
            rust_log: Some("warn".to_owned()),
            pod_namespace: Some("from-pod".to_owned()),
            pod_name: Some("pod-1".to_owned()),
            ..EnvVars::default()
        };
        let run = resolve(&parse(&[]), &environment, PROCESS).unwrap();
        assert_eq!(
            run.connection.source,
            KubeconfigSource::Environment(vec!["/a".into(), "/b".into()])
        );
        assert_eq!(
            (run.settings.namespace.as_str(), run.log_filter.as_str()),
            ("from-pod", "warn")
        );

        let line = [
            "--kubeconfig",
            "/k",
            "--namespace",
            "ns",
            "--log-filter",
            "debug",
            "--leader-elect",
            "--context",
            "c",
        ];
        let run = resolve(&parse(&line), &environment, PROCESS).unwrap();
        assert_eq!(run.connection.source, KubeconfigSource::Flag("/k".into()));
        assert_eq!(run.connection.context.as_deref(), Some("c"));
        assert_eq!((run.settings.namespace.as_str(), run.log_filter.as_str()), ("ns", "debug"));
        let election = run.settings.election.unwrap();
        assert_eq!(election.identity, "pod-1-7-ff");
        assert_eq!(election.timing, Timing::default());
    }

    #[test]
    fn the_monitors_image_comes_from_the_flag_or_the_environment() {
        let image = |line: &[&str], environment: Option<&str>| {
            let monitor_image = environment.map(str::to_owned);
            let environment = EnvVars { monitor_image, ..EnvVars::default() };
            resolve(&parse(line), &environment, PROCESS).unwrap().settings.options.monitor_image
        };
        assert_eq!(image(&[], None), None);
        assert_eq!(image(&[], Some("a")).as_deref(), Some("a"));
        assert_eq!(image(&["--monitor-image", "b"], Some("a")).as_deref(), Some("b"));
        assert_eq!(image(&["--monitor-image", ""], Some("a")), None);
    }

    #[test]
    fn two_processes_differ_in_identity_and_seed() {
        let one = resolve(&parse(&[]), &EnvVars::default(), PROCESS).unwrap().settings;
        let other = Process { id: 8, ..PROCESS };
        let two = resolve(&parse(&[]), &EnvVars::default(), other).unwrap().settings;
        assert_ne!(one.instance, two.instance);
        assert_ne!(one.seed, two.seed);
    }

    #[test]
    fn times_that_would_allow_two_leaders_are_refused() {
        let arguments = parse(&["--lease-duration", "10"]);
        let error = resolve(&arguments, &EnvVars::default(), PROCESS).unwrap_err();
        assert_eq!(error, UsageError::LeaseTimes { duration: 10, renew: 107, retry: 26 });
    }
}
