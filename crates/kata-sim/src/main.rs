//! `kata-sim`: try kata-operator on a simulated cluster.
//!
//! Arguments, exit codes and the choice of the runtime; the work is in the modules.

mod arguments;
mod bundle;
mod compose;
mod control;
mod data_directory;
mod programs;
mod script;
mod story;
mod up;
mod walkthrough;

use std::process::ExitCode;

use arguments::{Arguments, Command, ScriptArguments, WalkthroughArguments};
use clap::Parser as _;
use simcluster::world::Platform;

/// Exit codes, as design and README promise them to scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// All is well.
    Fine,
    /// Something that should hold does not.
    Findings,
    /// A script is wrong.
    Usage,
    /// The simulated cluster cannot be reached, or could not start.
    Unreachable,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(match outcome {
            Outcome::Fine => 0,
            Outcome::Findings => 1,
            Outcome::Usage => 2,
            Outcome::Unreachable => 3,
        })
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Walkthrough(options) => on_virtual_time(walk(options)),
        Command::Script(options) => on_virtual_time(script(options)),
        Command::Up(options) => on_real_time(up::run(options)),
        Command::Fault(options) => on_real_time(control::fault(options)),
        Command::Node(options) => on_real_time(control::node(options)),
        Command::KataDeploy(options) => on_real_time(control::kata_deploy(options)),
        Command::Speed(options) => on_real_time(control::speed(options)),
    };
    match result {
        Ok(outcome) => outcome.into(),
        // A reader of only the beginning, such as `head`, has seen enough.
        Err(error) if is_broken_pipe(&*error) => Outcome::Fine.into(),
        Err(error) => {
            complain(&*error);
            Outcome::Unreachable.into()
        }
    }
}

type Failure = Box<dyn std::error::Error>;

async fn walk(options: WalkthroughArguments) -> Result<Outcome, Failure> {
    let platform = options.platform.unwrap_or_default();
    let mut shape = compose::Shape::default();
    shape.layout.platform = platform;
    let cluster = compose::cluster(&shape, compose::virtual_clock())?;
    let client = compose::client(&cluster);
    let operator = compose::operator(&cluster);
    let out = std::io::stdout().lock();
    let held = match platform {
        Platform::OpenShift => walkthrough::run(&cluster, client, out).await?,
        Platform::Kubernetes => walkthrough::plain::run(&cluster, client, out).await?,
    };
    operator.abort();
    Ok(if held { Outcome::Fine } else { Outcome::Findings })
}

async fn script(options: ScriptArguments) -> Result<Outcome, Failure> {
    match script::run(&options.file, std::io::stdout().lock()).await {
        Ok(true) => Ok(Outcome::Fine),
        Ok(false) => Ok(Outcome::Findings),
        Err(error @ script::RunError::Script(_)) => {
            complain(&error);
            Ok(Outcome::Usage)
        }
        Err(error) => Err(error.into()),
    }
}

/// Runs on a clock that jumps to the next deadline whenever nothing else is to be done.
fn on_virtual_time(
    work: impl Future<Output = Result<Outcome, Failure>>,
) -> Result<Outcome, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()?
        .block_on(work)
}

fn on_real_time(work: impl Future<Output = Result<Outcome, Failure>>) -> Result<Outcome, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<std::io::Error>())
        .any(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Prints an error and its causes.
#[expect(clippy::print_stderr, reason = "the one place where an error reaches the user")]
fn complain(error: &(dyn std::error::Error + 'static)) {
    eprintln!("kata-sim: {}", kata_api::error_text::chain(error));
}
