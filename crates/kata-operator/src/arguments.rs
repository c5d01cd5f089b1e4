//! The command line: the arguments ([`Arguments`]), and the settings that follow from them ([`resolve`]).
//!
//! Only this module reads the environment.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use jiff::Timestamp;
use kata_api::platform::Platform;
use kata_connect::{Connection, Proxies, Source};
use kata_manifests::manifests::{self, Options};
use kata_node_agent::command::{NodeAgentCommand, ProbeArguments};
use kata_operator::clock::Clock;
use kata_operator::lease::Timing;
use kata_operator::lease::holder::PodProcess;
use kata_operator::settings::{Election, HEALTH_ADDRESS, METRICS_ADDRESS, Settings};
use kata_plan::JobLimits;

/// The default log filter. It turns kube's own logs off, which report every failed request: the operator logs
/// the failures that matter, with their cause.
const DEFAULT_FILTER: &str = "info,kube_client=off,kube_runtime=off";

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Text on a terminal, else JSON.
    Auto,
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

/// Exit codes of all commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Fine,
    /// Something failed.
    Failed,
    /// The command line is wrong.
    Usage,
    /// The API server cannot be reached, or does not accept the credentials.
    Unreachable,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
        }
    }
}

/// Makes the Kata Containers runtime available on the nodes that a KataConfig selects.
#[derive(Debug, Parser)]
#[command(
    name = "kata-operator",
    version,
    after_help = "Exit codes: 0 fine, 1 failed, 2 usage, 3 cannot reach or authenticate to the API server, 4 refused."
)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the operator until SIGINT or SIGTERM.
    Run(Box<RunArguments>),
    /// Print the CustomResourceDefinitions as YAML.
    Crd,
    /// Print all manifests that install the operator, as YAML.
    Manifests(ManifestsArguments),
    /// Print the alerts as a Prometheus rules file.
    Alerts(AlertsArguments),
    /// Print the Grafana dashboard as JSON.
    Dashboards,
    /// Check whether the operator can be removed.
    Uninstall(UninstallArguments),
    /// Print the facts of the sandbox that this process runs in, as JSON.
    Probe(ProbeArguments),
    /// Inspect or change the node that this process runs on; the Jobs on nodes run it.
    #[command(subcommand)]
    NodeAgent(NodeAgentCommand),
    /// Print the version.
    Version,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Kubeconfig to use instead of KUBECONFIG, ~/.kube/config or the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace of the operator and of its Lease [default: the pod's, or that of the kind of cluster: kata-operator, or
    /// openshift-sandboxed-containers-operator on OpenShift].
    #[arg(long, short, value_name = "NS")]
    pub(crate) namespace: Option<String>,
    /// Kind of cluster: openshift, kubernetes, or auto to detect it.
    #[arg(long, default_value = Platform::Auto.as_str())]
    pub(crate) platform: Platform,
    /// Work only while holding the Lease, so that several replicas can run.
    #[arg(long)]
    pub(crate) leader_elect: bool,
    /// How long other replicas respect a Lease that is not renewed.
    #[arg(long, value_name = "SECONDS", default_value_t = 55)]
    pub(crate) lease_duration: u64,
    /// How long the leader works after its last renewal; less than the lease duration.
    #[arg(long, value_name = "SECONDS", default_value_t = 42)]
    pub(crate) lease_renew_deadline: u64,
    /// The longest wait between two renewals of the Lease, and before a failed renewal is repeated; the shortest is half of
    /// it. Less than the renew deadline.
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub(crate) lease_retry_period: u64,
    /// Where to serve /livez and /readyz.
    #[arg(long, value_name = "ADDR", default_value_t = HEALTH_ADDRESS)]
    pub(crate) health_addr: SocketAddr,
    /// Where to serve /metrics.
    #[arg(long, value_name = "ADDR", default_value_t = METRICS_ADDRESS)]
    pub(crate) metrics_addr: SocketAddr,
    /// Image of upstream's kata-monitor, which then runs on the nodes with Kata; an empty REF runs none [default: RELATED_IMAGE_KATA_MONITOR].
    #[arg(long, value_name = "REF")]
    pub(crate) monitor_image: Option<String>,
    /// The operator's own image, which the Jobs on nodes run where there is no Machine Config Operator [default: RELATED_IMAGE_NODE_AGENT].
    #[arg(long, value_name = "REF")]
    pub(crate) node_agent_image: Option<String>,
    /// Image with the runtime's files, where there is no Machine Config Operator and the KataConfig names no image [default: RELATED_IMAGE_KATA_PAYLOAD, or upstream's].
    #[arg(long, value_name = "REF")]
    pub(crate) payload_image: Option<String>,
    /// Most CPU that a container of a Job on a node may use; empty: no limit.
    #[arg(long, value_name = "QUANTITY", default_value = JobLimits::CPU)]
    pub(crate) job_cpu_limit: String,
    /// Most memory that a container of a Job on a node may use; empty: no limit.
    #[arg(long, value_name = "QUANTITY", default_value = JobLimits::MEMORY)]
    pub(crate) job_memory_limit: String,
    /// Name of the operating system's extension with Kata, on OpenShift and OKD [default: SANDBOXED_CONTAINERS_EXTENSION, or by the operating system].
    #[arg(long, value_name = "NAME")]
    pub(crate) extension: Option<String>,
    /// Log the planned steps, and write nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Format of the log: auto is text on a terminal, else JSON.
    #[arg(long, value_enum, default_value_t = LogFormat::Auto)]
    pub(crate) log_format: LogFormat,
    /// Log filter in the syntax of RUST_LOG, such as info or kata_operator=debug [default: RUST_LOG, or info].
    #[arg(long, value_name = "FILTER")]
    pub(crate) log_filter: Option<String>,
}

/// Arguments of `manifests`.
#[derive(Debug, Args)]
pub(crate) struct ManifestsArguments {
    /// The namespace to install into [default: kata-operator, or openshift-sandboxed-containers-operator on OpenShift].
    #[arg(long, short, value_name = "NS")]
    pub(crate) namespace: Option<String>,
    /// The operator's image [default: the one published with this program, if one was].
    #[arg(long, value_name = "REF")]
    pub(crate) image: Option<String>,
    /// Kind of cluster; openshift adds the objects for Prometheus, auto does not.
    #[arg(long, default_value = Platform::Openshift.as_str())]
    pub(crate) platform: Platform,
    /// Image of upstream's kata-monitor, which the operator then runs; adds the objects that it needs (OpenShift only).
    #[arg(long, value_name = "REF")]
    pub(crate) monitor_image: Option<String>,
}

/// Arguments of `alerts`.
#[derive(Debug, Args)]
pub(crate) struct AlertsArguments {
    /// The operator's namespace [default: that of the kind of cluster].
    #[arg(long, short, value_name = "NS")]
    namespace: Option<String>,
    /// Kind of cluster.
    #[arg(long, default_value = Platform::Openshift.as_str())]
    platform: Platform,
}

impl AlertsArguments {
    /// The operator's namespace.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_else(|| self.platform.namespace())
    }
}

/// Arguments of `uninstall`.
#[derive(Debug, Args)]
pub(crate) struct UninstallArguments {
    /// Fail if a KataConfig still exists, since only the operator can remove it; change nothing.
    #[arg(long, required = true)]
    pub(crate) check: bool,
    /// Kubeconfig to use instead of KUBECONFIG, ~/.kube/config or the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

impl TryFrom<ManifestsArguments> for Options {
    type Error = UsageError;

    fn try_from(arguments: ManifestsArguments) -> Result<Self, Self::Error> {
        let ManifestsArguments { namespace, image, platform, monitor_image } = arguments;
        let image = image.or_else(|| manifests::IMAGE.map(str::to_owned));
        let image = image.ok_or(UsageError::NoImage)?;
        let namespace = namespace.unwrap_or_else(|| platform.namespace().to_owned());
        Ok(Self { namespace, image, platform, monitor_image })
    }
}

/// The environment variables that the operator reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EnvVars {
    /// `KUBECONFIG`.
    pub(crate) kubeconfig: Option<std::ffi::OsString>,
    /// `HOME`.
    pub(crate) home: Option<PathBuf>,
    /// `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, or the same in small letters.
    pub(crate) proxies: Proxies,
    /// `RUST_LOG`.
    pub(crate) rust_log: Option<String>,
    /// `POD_NAME`, from the downward API.
    pub(crate) pod_name: Option<String>,
    /// `POD_UID`, from the downward API.
    pub(crate) pod_uid: Option<String>,
    /// `POD_NAMESPACE`, from the downward API.
    pub(crate) pod_namespace: Option<String>,
    /// `HOSTNAME`.
    pub(crate) hostname: Option<String>,
    /// `RELATED_IMAGE_KATA_MONITOR`.
    pub(crate) monitor_image: Option<String>,
    /// `RELATED_IMAGE_NODE_AGENT`.
    pub(crate) node_agent_image: Option<String>,
    /// `RELATED_IMAGE_KATA_PAYLOAD`.
    pub(crate) payload_image: Option<String>,
    /// `SANDBOXED_CONTAINERS_EXTENSION`.
    pub(crate) extension: Option<String>,
}

impl EnvVars {
    /// The environment of this process.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place that reads the environment"
    )]
    pub(crate) fn of_process() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        Self {
            kubeconfig: std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()),
            home: std::env::var_os("HOME").map(PathBuf::from),
            proxies: Proxies::new(text),
            rust_log: text("RUST_LOG"),
            pod_name: text("POD_NAME"),
            pod_uid: text("POD_UID"),
            pod_namespace: text("POD_NAMESPACE"),
            hostname: text("HOSTNAME"),
            monitor_image: text("RELATED_IMAGE_KATA_MONITOR"),
            node_agent_image: text("RELATED_IMAGE_NODE_AGENT"),
            payload_image: text("RELATED_IMAGE_KATA_PAYLOAD"),
            extension: text("SANDBOXED_CONTAINERS_EXTENSION"),
        }
    }
}

/// Distinguishes this process from every other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its process id.
    pub(crate) id: u32,
    /// When it started, in nanoseconds since 1970.
    pub(crate) started: u64,
}

/// The meaning of `run`'s arguments.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// How to connect to the API server.
    pub(crate) connection: Connection,
    pub(crate) settings: Settings,
    /// Whether the namespace in the settings is the right one: else it depends on the kind of cluster, which is not known yet.
    pub(crate) has_namespace: bool,
    /// The format of the log.
    pub(crate) log_format: LogFormat,
    pub(crate) log_filter: String,
}

/// Arguments that contradict each other.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UsageError {
    /// The election's times would allow two leaders.
    #[error(
        "the lease's times must satisfy 0 < --lease-retry-period < --lease-renew-deadline < --lease-duration, \
         not {retry} < {renew} < {duration}: set all three flags, or none of them for the defaults"
    )]
    LeaseTimes {
        /// `--lease-duration`.
        duration: u64,
        /// `--lease-renew-deadline`.
        renew: u64,
        /// `--lease-retry-period`.
        retry: u64,
    },
    /// With which no Job would work.
    #[error(
        "{given:?} cannot be the limit of a Job: give --job-cpu-limit and --job-memory-limit as a quantity, such as 500m or \
         256Mi, that is not less than {least}, or empty"
    )]
    JobLimit {
        /// What was given.
        given: String,
        /// The least that will do.
        least: &'static str,
    },
    /// Of the manifests.
    #[error(
        "no image was published with this kata-operator: give --image REF; `cargo xtask image --push REF` builds it and \
         pushes it to your registry"
    )]
    NoImage,
}

/// This process in its Pod, if the environment names the Pod.
fn pod_process(environment: &EnvVars, process: Process) -> Option<PodProcess> {
    let started = Timestamp::from_nanosecond(i128::from(process.started)).ok()?;
    Some(PodProcess {
        pod: environment.pod_name.clone()?,
        uid: environment.pod_uid.clone()?,
        started,
    })
}

/// How to connect to the API server, by the arguments and the environment. Pure.
pub(crate) fn connection(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    environment: &EnvVars,
) -> Connection {
    let source =
        Source::new(kubeconfig, environment.kubeconfig.as_deref(), environment.home.as_deref());
    let context = context.map(str::to_owned);
    Connection { context, ..Connection::new(source, environment.proxies.clone()) }
}

/// The settings, by the arguments and the environment. Pure.
///
/// # Errors
/// If arguments contradict each other.
pub(crate) fn resolve(
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
        extension,
        job_cpu_limit,
        job_memory_limit,
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
        identity: pod_process(environment, process)
            .map_or_else(|| instance.clone(), |process| process.identity()),
        timing: Timing {
            duration: Duration::from_secs(duration),
            renew_deadline: Duration::from_secs(renew),
            retry: Duration::from_secs(retry),
        },
    });
    let given = namespace.as_ref().or(environment.pod_namespace.as_ref());
    let has_namespace = given.is_some() || *platform != Platform::Auto;
    let namespace = given.map_or_else(|| platform.namespace().to_owned(), Clone::clone);
    let value = |given: &Option<String>, environment: &Option<String>| {
        let value = given.as_ref().or(environment.as_ref()).map(|value| value.trim().to_owned());
        value.filter(|value| !value.is_empty())
    };
    let monitor_image = value(monitor_image, &environment.monitor_image);
    let job_limits = JobLimits::new(job_cpu_limit.trim(), job_memory_limit.trim())
        .map_err(|(given, least)| UsageError::JobLimit { given: given.to_owned(), least })?;
    let extension = value(extension, &environment.extension);
    let agent_image = value(node_agent_image, &environment.node_agent_image);
    let payload_image = value(payload_image, &environment.payload_image)
        .unwrap_or_else(|| kata_api::names::PAYLOAD_IMAGE.to_owned());
    Ok(Run {
        connection: connection(kubeconfig.as_deref(), context.as_deref(), environment),
        settings: Settings {
            namespace,
            platform: *platform,
            election,
            health_address: Some(*health_addr),
            metrics_address: Some(*metrics_addr),
            dry_run: *dry_run,
            clock: Clock::system(),
            seed: process.started ^ u64::from(process.id).rotate_left(32),
            instance,
            options: kata_plan::Options {
                monitor_image,
                agent_image,
                payload_image,
                extension,
                job_limits,
                ..kata_plan::Options::default()
            },
        },
        has_namespace,
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
        assert_eq!(run.connection.source, Source::Home(Some("/home/a/.kube/config".into())));
        assert_eq!(run.connection.context, None);
        assert!(!run.has_namespace);
        assert_eq!(run.settings.platform, Platform::Auto);
        let on = |platform| {
            let run = resolve(&parse(&["--platform", platform]), &environment, PROCESS).unwrap();
            assert!(run.has_namespace);
            run.settings.namespace
        };
        assert_eq!(on("openshift"), "openshift-sandboxed-containers-operator");
        assert_eq!(on("kubernetes"), "kata-operator");
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
        assert_eq!(run.connection.source, Source::Environment(vec!["/a".into(), "/b".into()]));
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
        assert_eq!(run.connection.source, Source::Flag("/k".into()));
        assert_eq!(run.connection.context.as_deref(), Some("c"));
        assert_eq!((run.settings.namespace.as_str(), run.log_filter.as_str()), ("ns", "debug"));
        let election = run.settings.election.unwrap();
        assert_eq!(election.identity, "pod-1-7-ff");

        let in_pod = EnvVars { pod_uid: Some("u".to_owned()), ..environment };
        let started = Process { started: 1_700_000_000_123_456_789, ..PROCESS };
        let run = resolve(&parse(&line), &in_pod, started).unwrap();
        assert_eq!(run.settings.election.unwrap().identity, "pod-1_u_1700000000123");
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
    fn limits_of_jobs_with_which_none_would_work_are_refused() {
        let limits = |cpu: &str, memory: &str| {
            let line = ["--job-cpu-limit", cpu, "--job-memory-limit", memory];
            resolve(&parse(&line), &EnvVars::default(), PROCESS)
                .map(|run| run.settings.options.job_limits)
                .map_err(|error| error.to_string())
        };
        let given = JobLimits { cpu: Some("500m".to_owned()), memory: None };
        assert_eq!(limits("500m", ""), Ok(given));
        for (cpu, memory, part) in
            [("50m", "256Mi", "\"50m\""), ("2", "64Mi", "128Mi"), ("2", "much", "\"much\"")]
        {
            let error = limits(cpu, memory).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn times_that_would_allow_two_leaders_are_refused() {
        let arguments = parse(&["--lease-duration", "10"]);
        let error = resolve(&arguments, &EnvVars::default(), PROCESS).unwrap_err();
        assert_eq!(error, UsageError::LeaseTimes { duration: 10, renew: 42, retry: 20 });
    }
}
