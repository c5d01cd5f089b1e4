//! The `kata-operator` binary: arguments in, exit code out. The library is the controller; only this program
//! also uses the crates of the node agent and of the generators.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser as _;
use kata_manifests::{RenderError, alerts, dashboard, manifests};
use kata_operator::client::connect::{ConnectError, check, connect};
use kata_operator::error::chain;
use kata_operator::{RunError, uninstall};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

mod arguments;

use arguments::{
    Arguments, Command, EnvVars, Exit, LogFormat, Process, Run, RunArguments, UninstallArguments,
    connection, resolve,
};

fn main() -> ExitCode {
    let exit = match Arguments::parse().command {
        Command::Run(arguments) => run(&arguments),
        Command::Crd => print(manifests::crds()),
        Command::Manifests(arguments) => match arguments.try_into() {
            Ok(options) => print(manifests::manifests(&options)),
            Err(error) => print_error(Exit::Usage, &error),
        },
        Command::Alerts(arguments) => print(alerts::rules(arguments.namespace())),
        Command::Dashboards => print(dashboard::dashboard()),
        Command::Uninstall(arguments) => check_uninstall(&arguments),
        Command::Probe(arguments) => return arguments.execute(),
        Command::NodeAgent(command) => return command.execute(),
        Command::Version => {
            print(Ok::<_, RenderError>(format!("kata-operator {}\n", kata_api::names::VERSION)))
        }
    };
    ExitCode::from(exit.code())
}

fn print(text: Result<String, impl std::error::Error + 'static>) -> Exit {
    let written = match text {
        Ok(text) => std::io::stdout().lock().write_all(text.as_bytes()),
        Err(error) => return print_error(Exit::Failed, &error),
    };
    match written {
        Ok(()) => Exit::Fine,
        // The reader closed the pipe: it needs no more output.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Fine,
        Err(error) => print_error(Exit::Failed, &error),
    }
}

/// Checks whether the operator can be removed.
fn check_uninstall(arguments: &UninstallArguments) -> Exit {
    let UninstallArguments { check: _, kubeconfig, context } = arguments;
    let environment = EnvVars::of_process();
    let connection = connection(kubeconfig.as_deref(), context.as_deref(), &environment);
    let checked = async {
        let (client, server) = match connect(&connection) {
            Ok(connected) => connected,
            Err(error) => return print_error(Exit::Unreachable, &error),
        };
        if let Err(error) = check(&client, &server).await {
            return print_error(Exit::Unreachable, &error);
        }
        match uninstall::check(&client).await {
            Ok(found) => match found.message() {
                None => print(Ok::<_, RenderError>(
                    "no KataConfig exists: the operator can be removed\n".to_owned(),
                )),
                Some(message) => {
                    // If standard error is closed, the message cannot be shown.
                    match writeln!(std::io::stderr().lock(), "{message}") {
                        Ok(()) | Err(_) => Exit::Failed,
                    }
                }
            },
            Err(error) => print_error(Exit::Failed, &error),
        }
    };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(checked),
        Err(error) => print_error(Exit::Failed, &error),
    }
}

fn print_error(exit: Exit, error: &(dyn std::error::Error + 'static)) -> Exit {
    // If standard error is closed, the message cannot be shown.
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
        Err(error) => return print_error(Exit::Usage, &error),
    };
    let filter = match EnvFilter::try_new(&run.log_filter) {
        Ok(filter) => filter,
        Err(error) => return print_error(Exit::Usage, &error),
    };
    start_logging(run.log_format, filter);
    // One thread is fast enough, and needs one heap instead of several.
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let exit = runtime.block_on(run_operator(run));
            runtime.shutdown_background();
            exit
        }
        Err(error) => print_error(Exit::Failed, &error),
    }
}

fn start_logging(format: LogFormat, filter: EnvFilter) {
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
    tracing_subscriber::registry().with(log).init();
}

async fn run_operator(run: Run) -> Exit {
    let Run { connection, mut settings, has_namespace, log_format: _, log_filter: _ } = run;
    let signals = signal(SignalKind::terminate())
        .and_then(|terminate| Ok((terminate, signal(SignalKind::interrupt())?)));
    let (mut terminate, mut interrupt) = match signals {
        Ok(signals) => signals,
        Err(error) => return print_error(Exit::Failed, &error),
    };
    let shutdown = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
    };
    let mut shutdown = std::pin::pin!(shutdown);
    let is_replica = settings.election.is_some();
    let connected = async {
        let (client, server) = connect(&connection)?;
        match check(&client, &server).await {
            Ok(version) => tracing::info!(
                server,
                kubernetes.version = version,
                version = kata_api::names::VERSION,
                "connected"
            ),
            // A replica that ended would be restarted with ever longer pauses, and stay away after the outage.
            Err(error) if is_replica && error.is_outage() => {
                tracing::warn!(error = chain(&error), "waiting for the API server");
            }
            Err(error) => return Err(error),
        }
        Ok::<_, ConnectError>(client)
    };
    let client = tokio::select! {
        biased;
        () = &mut shutdown => return Exit::Fine,
        connected = connected => match connected {
            Ok(client) => client,
            Err(error) => return print_error(Exit::Unreachable, &error),
        },
    };
    if !has_namespace {
        match kata_operator::usual_namespace(client.clone(), &settings).await {
            Ok(namespace) => namespace.clone_into(&mut settings.namespace),
            Err(error) => return print_error(Exit::Unreachable, &error),
        }
    }
    match kata_operator::run(client, settings, shutdown).await {
        Ok(()) => Exit::Fine,
        Err(error @ RunError::Bind { .. }) => print_error(Exit::Failed, &error),
    }
}
