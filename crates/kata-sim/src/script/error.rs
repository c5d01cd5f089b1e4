//! What stops a script.

/// What stops a script, as opposed to an expectation that does not hold.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScriptError {
    /// The script, or a file that it names, cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A line of the script is wrong.
    #[error("{file}:{line}: {problem}")]
    Line {
        /// The script.
        file: String,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong and what would be right.
        problem: String,
    },
}

/// Why a script could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// The script is wrong.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The output cannot be written.
    #[error("cannot print")]
    Print(#[from] std::io::Error),
    /// The cluster does not start.
    #[error("the simulated cluster does not start: {0}")]
    Cluster(String),
}
