//! Why a command cannot go on, and which exit code that is.
//!
//! A message names the object, the cause and the fix. Nobody ever sees Debug text.

use std::path::PathBuf;
use std::time::Duration;

use crate::exit::Exit;

/// Why a command cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// It is not known where the API server is.
    #[error(transparent)]
    Target(#[from] kata_connect::TargetError),
    /// There is nothing to show to the API server.
    #[error("cannot get the credentials of {user}: {cause}")]
    Credentials {
        /// Whose.
        user: String,
        /// Why.
        cause: String,
    },
    /// The client cannot be built, mostly because of certificates.
    #[error("cannot prepare the connection to {server}: {cause}")]
    Client {
        /// The API server's URL.
        server: String,
        /// Why.
        cause: String,
    },
    /// The API server does not answer, or not in a way that can be read.
    #[error("cannot {what}: {cause}")]
    Unreachable {
        /// What was to be done.
        what: String,
        /// Why.
        cause: String,
    },
    /// The API server does not answer in time.
    #[error("cannot {what}: no answer within {} (--request-timeout)", limit(*waited))]
    Silent {
        /// What was to be done.
        what: String,
        /// How long we waited.
        waited: Duration,
    },
    /// The API server does not accept the credentials.
    #[error(
        "cannot {what}: the API server does not accept the credentials: {message}; log in again"
    )]
    Unauthorized {
        /// What was to be done.
        what: String,
        /// What it says.
        message: String,
    },
    /// A permission without which the command is of no use.
    #[error("{0}; ask for it, or use another --context or --as")]
    Forbidden(String),
    /// The API server refused the request.
    #[error("cannot {what}: {message}")]
    Refused {
        /// What was to be done.
        what: String,
        /// What the API server said.
        message: String,
    },
    /// There is no such object.
    #[error("{0}")]
    NotFound(String),
    /// The answer is not what it must be.
    #[error("cannot {what}: the answer cannot be read")]
    Answer {
        /// What was to be done.
        what: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A file cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The output cannot be written.
    #[error("cannot write the output")]
    Output(#[from] std::io::Error),
    /// The output cannot be put into this format.
    #[error("cannot print the result as {format}: {message}")]
    Format {
        /// The format.
        format: &'static str,
        /// Why.
        message: String,
    },
}

/// `30 s`, or `1 ms` of what is shorter than a second.
fn limit(waited: Duration) -> String {
    match waited.as_secs() {
        0 => format!("{} ms", waited.as_millis()),
        seconds => format!("{seconds} s"),
    }
}

impl Failure {
    /// The exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) | Self::Target(kata_connect::TargetError::Flags(_)) => Exit::Usage,
            Self::Target(_)
            | Self::Credentials { .. }
            | Self::Client { .. }
            | Self::Unreachable { .. }
            | Self::Silent { .. }
            | Self::Unauthorized { .. } => Exit::Unreachable,
            Self::Forbidden(_) => Exit::Inconclusive,
            // Whoever read our output has had enough.
            Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Fine,
            Self::Refused { .. }
            | Self::NotFound(_)
            | Self::Answer { .. }
            | Self::File { .. }
            | Self::Output(_)
            | Self::Format { .. } => Exit::Findings,
        }
    }

    /// The message with its causes, each once.
    pub fn chain(&self) -> String {
        kata_api::error_text::chain(self)
    }
}
