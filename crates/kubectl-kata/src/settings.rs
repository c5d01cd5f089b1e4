//! What was typed, resolved: no defaults, environment or files are left to look up.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kata_connect::Connection;

use crate::style::Style;

/// A source of the current time.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The form of the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// For people, with more columns.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// Names only, as KIND/NAME.
    Name,
    /// Only what is not as it should be.
    Short,
    /// Markdown (codes only).
    Markdown,
}

/// Settings that all commands share.
#[derive(Clone)]
pub struct Settings {
    /// Which API server, and as whom.
    pub connection: Connection,
    /// `--namespace`.
    pub namespace: Option<String>,
    /// `--all-namespaces`.
    pub all_namespaces: bool,
    /// The form of the result.
    pub output: Output,
    /// Whether tables have titles.
    pub titles: bool,
    /// Whether warnings count as findings.
    pub fail_on_warning: bool,
    /// How long one request may take.
    pub request_timeout: Duration,
    /// How standard output looks.
    pub style: Style,
    /// The time.
    pub now: Now,
    /// The operator's image that was published with this program; `None` in a build of one's own.
    pub published: Option<String>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The connection may hold a token.
        f.debug_struct("Settings").field("output", &self.output).finish_non_exhaustive()
    }
}

impl Settings {
    /// Whether the result is for people.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.output, Output::Table | Output::Wide | Output::Short)
    }

    /// Whether more columns are wanted.
    pub(crate) fn is_wide(&self) -> bool {
        self.output == Output::Wide
    }

    /// The current time, which is the API server's after its first answer. Before that, it is this machine's.
    pub(crate) fn now(&self) -> Timestamp {
        (self.now)()
    }
}
