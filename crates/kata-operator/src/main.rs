//! The `kata-operator` binary: arguments in, exit code out. Nothing else is here.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser as _;
use kata_api::node_task::Outcome;
use kata_operator::arguments::{
    Arguments, Command, EnvVars, Exit, NodeAgentCommand, ProbeArguments, Process, Run,
    RunArguments, UninstallArguments, connection, resolve,
};
use kata_operator::client::connect::{ConnectError, check, connect};
use kata_operator::distribution::{
    self, DistributionError, Files, alerts, bundle, dashboard, helm,
};
use kata_operator::error::chain;
use kata_operator::manifests::ManifestError;
use kata_operator::settings::LogFormat;
use kata_operator::traces::{Target, TracesError};
use kata_operator::{RunError, manifests, node_agent, uninstall};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

fn main() -> ExitCode {
    let exit = match Arguments::parse().command {
        Command::Run(arguments) => run(&arguments),
        Command::Crd => print(manifests::crds()),
        Command::Manifests(arguments) => print(manifests::manifests(&arguments)),
        Command::Helm(arguments) => write(&arguments.to, helm::chart()),
        Command::Bundle(arguments) => write(&arguments.to, bundle::bundle()),
        Command::Alerts(arguments) => print(alerts::rules(&arguments.namespace)),
        Command::Dashboards => print(dashboard::dashboard()),
        Command::Uninstall(arguments) => may_go(&arguments),
        Command::Probe(arguments) => probe(arguments),
        Command::NodeAgent(command) => node_agent(command),
        Command::Version => {
            let version = concat!("kata-operator ", env!("CARGO_PKG_VERSION"), "\n");
            print(Ok::<_, ManifestError>(version.to_owned()))
        }
    };
    ExitCode::from(exit.code())
}

fn print(text: Result<String, impl std::error::Error + 'static>) -> Exit {
    let written = match text {
        Ok(text) => std::io::stdout().lock().write_all(text.as_bytes()),
        Err(error) => return complain(Exit::Failed, &error),
    };
    match written {
        Ok(()) => Exit::Fine,
        // Whoever read our output has had enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Fine,
        Err(error) => complain(Exit::Failed, &error),
    }
}

fn node_agent(command: NodeAgentCommand) -> Exit {
    use node_agent::AgentError;

    let done = match command {
        NodeAgentCommand::SelfCopy { to } => node_agent::self_copy(&to).map(|()| Exit::Fine),
        NodeAgentCommand::Stage { task, host_root, image_root } => node_agent::task(&task)
            .and_then(|task| node_agent::stage(&task, &host_root, &image_root))
            .map(|said| print(Ok::<_, AgentError>(said + "\n"))),
        NodeAgentCommand::Run { task, host_root, plan: true } => node_agent::task(&task)
            .and_then(|task| node_agent::plan(&task, &host_root))
            .map(|said| print(Ok::<_, AgentError>(said))),
        NodeAgentCommand::Run { task, host_root, plan: false } => node_agent::task(&task)
            .and_then(|task| node_agent::run(&task, &host_root))
            .map(|report| match report.outcome {
                Outcome::Done => Exit::Fine,
                Outcome::Refused | Outcome::Blocked => Exit::Refused,
                Outcome::Drifted | Outcome::RolledBack | Outcome::Unsafe | Outcome::Failed => {
                    Exit::Failed
                }
            }),
        NodeAgentCommand::Device { name } => node_agent::device(&name).map(|()| Exit::Fine),
    };
    match done {
        Ok(exit) => exit,
        Err(error @ AgentError::Task { .. }) => complain(Exit::Usage, &error),
        Err(error @ AgentError::NoPlan { .. }) => complain(Exit::Refused, &error),
        Err(AgentError::Stage(error)) if error.of_image().is_some() => {
            complain(Exit::Refused, &error)
        }
        Err(error) => complain(Exit::Failed, &error),
    }
}

fn write(folder: &Path, files: Result<Files, DistributionError>) -> Exit {
    match files.and_then(|files| distribution::write(folder, &files)) {
        Ok(()) => Exit::Fine,
        Err(error) => complain(Exit::Failed, &error),
    }
}

/// Tells whether the operator may be removed.
fn may_go(arguments: &UninstallArguments) -> Exit {
    let UninstallArguments { check: _, kubeconfig, context } = arguments;
    let environment = EnvVars::of_process();
    let connection = connection(kubeconfig.as_deref(), context.as_deref(), &environment);
    let looked = async {
        let (client, server) = match connect(&connection).await {
            Ok(connected) => connected,
            Err(error) => return complain(Exit::Unreachable, &error),
        };
        if let Err(error) = check(&client, &server).await {
            return complain(Exit::Unreachable, &error);
        }
        match uninstall::check(&client).await {
            Ok(found) => match found.message() {
                None => print(Ok::<_, ManifestError>(
                    "there is no KataConfig: the operator may be removed\n".to_owned(),
                )),
                Some(message) => {
                    // There is nobody left to tell if standard error is closed.
                    match writeln!(std::io::stderr().lock(), "{message}") {
                        Ok(()) | Err(_) => Exit::Failed,
                    }
                }
            },
            Err(error) => complain(Exit::Failed, &error),
        }
    };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(looked),
        Err(error) => complain(Exit::Failed, &error),
    }
}

fn probe(arguments: ProbeArguments) -> Exit {
    let line = match kata_operator::probe::line() {
        Ok(line) => line,
        Err(error) => return complain(Exit::Failed, &error),
    };
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
        return complain(Exit::Failed, &error);
    }
    let exit = match arguments.compare.map(kata_operator::probe::differs_from) {
        None | Some(Ok(true)) => Exit::Fine,
        Some(Ok(false)) => Exit::Failed,
        Some(Err(error)) => return complain(Exit::Failed, &error),
    };
    if arguments.hold > 0 {
        kata_operator::probe::hold(std::time::Duration::from_secs(arguments.hold));
    }
    exit
}

fn complain(exit: Exit, error: &(dyn std::error::Error + 'static)) -> Exit {
    // There is nobody left to tell if standard error is closed.
    match writeln!(std::io::stderr().lock(), "error: {}", chain(error)) {
        Ok(()) | Err(_) => exit,
    }
}

fn run(arguments: &RunArguments) -> Exit {
    let started = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    let process = Process { id: std::process::id(), started };
    let environment = EnvVars::of_process();
    let run = match resolve(arguments, &environment, process) {
        Ok(run) => run,
        Err(error) => return complain(Exit::Usage, &error),
    };
    let filter = match EnvFilter::try_new(&run.log_filter) {
        Ok(filter) => filter,
        Err(error) => return complain(Exit::Usage, &error),
    };
    let traces = traced(&environment, &run.settings.instance);
    let (traces, unsent) = match traces {
        Ok(traces) => (traces, None),
        Err(error) => (None, Some(error)),
    };
    start_logging(run.log_format, filter, traces.as_ref());
    if let Some(error) = unsent {
        tracing::warn!(error = chain(&error), "no traces are sent");
    }
    // One thread has enough to spare, and keeps one heap instead of several.
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let exit = runtime.block_on(operate(run));
            runtime.shutdown_background();
            end(traces);
            exit
        }
        Err(error) => complain(Exit::Failed, &error),
    }
}

#[cfg(feature = "otel")]
use kata_operator::traces::otlp::Traces;

/// What sends traces in this build: nothing.
#[cfg(not(feature = "otel"))]
#[derive(Debug)]
enum Traces {}

/// Makes what sends traces, if the environment names a collector.
fn traced(environment: &EnvVars, instance: &str) -> Result<Option<Traces>, TracesError> {
    let Some(target) = Target::of(environment)? else { return Ok(None) };
    #[cfg(feature = "otel")]
    return Traces::to(&target, instance).map(Some);
    #[cfg(not(feature = "otel"))]
    {
        let _not_for_anybody = (target, instance);
        Err(TracesError::NotBuilt)
    }
}

/// Sends the last traces.
fn end(traces: Option<Traces>) {
    #[cfg(feature = "otel")]
    if let Some(Err(error)) = traces.map(Traces::end) {
        tracing::warn!(error = chain(&error), "the last traces are not sent");
    }
    #[cfg(not(feature = "otel"))]
    let _there_are_none = traces;
}

fn start_logging(format: LogFormat, filter: EnvFilter, traces: Option<&Traces>) {
    let terminal = std::io::stderr().is_terminal();
    let json = match format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !terminal,
    };
    let log = fmt::layer().with_writer(std::io::stderr).with_ansi(terminal);
    let log = if json {
        log.json().flatten_event(true).with_span_list(false).with_filter(filter).boxed()
    } else {
        log.with_filter(filter).boxed()
    };
    #[cfg(feature = "otel")]
    tracing_subscriber::registry().with(log).with(traces.map(Traces::layer)).init();
    #[cfg(not(feature = "otel"))]
    {
        let _there_are_none = traces;
        tracing_subscriber::registry().with(log).init();
    }
}

async fn operate(run: Run) -> Exit {
    let Run { connection, settings, log_format: _, log_filter: _ } = run;
    let signals = signal(SignalKind::terminate())
        .and_then(|terminate| Ok((terminate, signal(SignalKind::interrupt())?)));
    let (mut terminate, mut interrupt) = match signals {
        Ok(signals) => signals,
        Err(error) => return complain(Exit::Failed, &error),
    };
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
    };
    let mut shutdown = std::pin::pin!(shutdown);
    let connected = async {
        let (client, server) = connect(&connection).await?;
        let version = check(&client, &server).await?;
        tracing::info!(
            server,
            kubernetes.version = version,
            version = env!("CARGO_PKG_VERSION"),
            "connected"
        );
        Ok::<_, ConnectError>(client)
    };
    let client = tokio::select! {
        biased;
        () = &mut shutdown => return Exit::Fine,
        connected = connected => match connected {
            Ok(client) => client,
            Err(error) => return complain(Exit::Unreachable, &error),
        },
    };
    match kata_operator::run(client, settings, shutdown).await {
        Ok(()) => Exit::Fine,
        Err(error @ (RunError::LeaseLost | RunError::Bind { .. })) => {
            complain(Exit::Failed, &error)
        }
    }
}
