//! Why a command that changes the cluster does not begin, and what to do first.

use kata_api::Code;

use crate::Context;
use crate::exit::Exit;
use crate::failure::Failure;

/// Why the command does not begin.
pub(crate) struct Refusal {
    text: String,
    fix: String,
}

impl Refusal {
    pub(crate) fn new(text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { text: text.into(), fix: fix.into() }
    }

    /// With the code of the problem.
    pub(crate) fn of(code: Code, text: impl std::fmt::Display, fix: impl Into<String>) -> Self {
        Self::new(format!("{} {text}", code.entry().code), fix)
    }

    /// What the refusal is, and the fix, as one sentence.
    pub(crate) fn sentence(&self) -> String {
        format!("{}; {}", self.text, self.fix)
    }

    pub(crate) fn print(&self, context: &mut Context<'_, '_>) -> Result<Exit, Failure> {
        context.printer.say(&format!("refused: {}", self.text))?;
        context.printer.say(&format!("    fix: {}", self.fix))?;
        Ok(Exit::Refused)
    }
}
