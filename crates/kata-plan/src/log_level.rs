//! The log levels that a KataConfig may set.

/// CRI-O's log levels.
pub(crate) const LOG_LEVELS: &[&str] =
    &["fatal", "panic", "error", "warn", "info", "debug", "trace"];
/// CRI-O's level without any configuration.
pub(crate) const DEFAULT_LOG_LEVEL: &str = "info";
