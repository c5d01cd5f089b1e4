//! A check that did not pass: a code of the catalogue, and a sentence of its own.

use kata_api::Code;
use kata_api::catalogue::Severity;

/// A check that did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// Its code.
    pub(crate) code: Code,
    /// What was found, in a sentence.
    pub(crate) message: String,
}

impl Check {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Whether the node cannot be used because of it.
    pub(crate) fn fatal(&self) -> bool {
        self.code.entry().severity == Severity::Error
    }
}
