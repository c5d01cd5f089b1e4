//! `kubectl kata`: one command for each thing that people do by hand on a cluster with Kata Containers.
//!
//! Arguments become settings, settings a command, and a command's result goes to a printer. Commands
//! read the API server and ask [`kata_plan`] where there is something to decide; they keep nothing.
//! [`run`] is everything but the process, so that tests run the same commands.

mod advice;
mod api;
pub mod arguments;
mod changes;
mod cluster;
mod commands;
mod connect;
mod disruption;
mod document;
pub mod environment;
mod estimate;
mod exit;
mod failure;
pub mod help;
mod human;
mod journal;
mod node_labels;
mod owners;
mod pod;
mod printer;
mod problem;
mod refusal;
mod resource;
pub mod settings;
mod snapshot;
mod style;
mod table;

use std::sync::Arc;

pub use connect::{Connected, connect};
pub use exit::Exit;
pub use failure::Failure;
pub use printer::Printer;
pub use style::Style;

use api::Api;
use arguments::Command;
use kata_connect::Connection;
use settings::Settings;
use tokio::sync::watch;

/// The version of this program.
pub const VERSION: &str = kata_api::names::VERSION;

/// What a command works with.
pub(crate) struct Context<'a, 'p> {
    pub(crate) api: Arc<Api>,
    /// Where the cluster is, in words.
    pub(crate) place: String,
    pub(crate) settings: &'a Settings,
    pub(crate) printer: &'a mut Printer<'p>,
    interrupt: watch::Receiver<bool>,
}

impl Context<'_, '_> {
    /// Resolves when the user wants the command to end.
    pub(crate) fn interrupted(&self) -> impl Future<Output = ()> + use<> {
        let mut interrupt = self.interrupt.clone();
        async move {
            if interrupt.wait_for(|interrupted| *interrupted).await.is_err() {
                // Nobody is left who could interrupt.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Whether the user wants the command to end.
    pub(crate) fn is_interrupted(&self) -> bool {
        *self.interrupt.borrow()
    }

    /// Text of which nothing was measured if the cluster is known to be simulated, with the word for that.
    pub(crate) fn marked(&self, text: &str) -> String {
        commands::marked(text, self.api.known_simulated() == Some(true))
    }

    /// The namespace to work in.
    pub(crate) fn namespace(&self) -> String {
        self.settings
            .namespace
            .clone()
            .unwrap_or_else(|| self.api.client.default_namespace().to_owned())
    }

    /// The namespace of lists; `None` for all.
    pub(crate) fn list_namespace(&self) -> Option<String> {
        (!self.settings.all_namespaces).then(|| self.namespace())
    }
}

/// Runs a command to its end. `connect` is only called if the command needs the cluster; `interrupt`
/// becomes true when the user wants it to end.
pub async fn run<F>(
    command: &Command,
    settings: &Settings,
    printer: &mut Printer<'_>,
    interrupt: watch::Receiver<bool>,
    connect: F,
) -> Exit
where
    F: AsyncFnOnce(&Connection) -> Result<Connected, Failure>,
{
    let mut asked = None;
    let result = match commands::offline(command, settings, printer) {
        Some(result) => result,
        None => match connect(&settings.connection).await {
            Ok(Connected { client, place }) => {
                let api = Arc::new(Api::new(client, settings.request_timeout));
                asked = Some(Arc::clone(&api));
                let context = Context { api, place, settings, printer, interrupt };
                Box::pin(commands::online(command, context)).await
            }
            Err(failure) => Err(failure),
        },
    };
    let exit = match result {
        Ok(exit) => exit,
        Err(failure) => {
            let exit = failure.exit();
            if exit == Exit::Unreachable && matches!(command, Command::Version(_)) {
                // An error here means that the output is closed.
                drop(commands::version::client(settings, printer));
            }
            if exit != Exit::Fine {
                // There is nobody left to tell if standard error is closed.
                drop(printer.say(&format!("error: {}", failure.chain())));
            }
            exit
        }
    };
    // Nothing that a simulated cluster made may be taken for real, whatever command wrote it and however it
    // ended. Candidates of a command line are for the shell, which shows them beside the real ones of others.
    if let Some(api) = asked
        && !matches!(command, Command::Complete(_))
        && printer.is_unmarked()
        && is_simulated(&api, exit).await
    {
        // There is nobody left to tell if standard error is closed.
        drop(printer.say("(simulated)"));
    }
    match printer.flush() {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Exit::Findings,
        Ok(()) | Err(_) => exit,
    }
}

/// Whether the cluster says that it is simulated. Whoever interrupts a command wants no further request, and an
/// API server that cannot be reached answers none.
async fn is_simulated(api: &Api, exit: Exit) -> bool {
    match api.known_simulated() {
        Some(known) => known,
        None if matches!(exit, Exit::Interrupted | Exit::Unreachable) => false,
        None => cluster::version(api).await.is_ok_and(|version| version.is_simulated()),
    }
}
