//! The document of `doctor`.

use schemars::JsonSchema;
use serde::Serialize;

use super::Head;
use crate::api::Gap;

/// Whether a check passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum CheckResult {
    /// As it should be.
    Ok,
    /// Not as it should be; Kata works all the same.
    Warning,
    /// Kata does not work, or will not.
    Error,
    /// It could not be checked.
    Skipped,
}

/// A check.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Check {
    /// The code of the catalogue.
    pub(crate) id: String,
    /// What was checked.
    pub(crate) description: String,
    /// The outcome.
    pub(crate) result: CheckResult,
    /// What it is about.
    pub(crate) subjects: Vec<String>,
    /// What was found.
    pub(crate) message: String,
    /// What to do; empty if there is nothing.
    pub(crate) fix: String,
    /// The page with more.
    pub(crate) hint: String,
}

/// Checks that belong together.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Category {
    /// Its name.
    pub(crate) name: String,
    /// Its checks.
    pub(crate) checks: Vec<Check>,
}

/// How many checks ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CheckSummary {
    pub(crate) passed: usize,
    pub(crate) warnings: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

/// The result of `doctor`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CheckReport {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// Whether no check failed.
    pub(crate) success: bool,
    /// How many checks ended how.
    pub(crate) summary: CheckSummary,
    /// The checks.
    pub(crate) categories: Vec<Category>,
    /// What could not be seen.
    pub(crate) gaps: Vec<Gap>,
}
