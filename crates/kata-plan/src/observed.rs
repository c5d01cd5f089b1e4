//! A read that may have failed.
//!
//! There is no default on purpose: a read that failed is not an empty list, and whoever decides on it
//! has to say what "unknown" leads to.

/// The outcome of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed<T> {
    /// The answer.
    Known(T),
    /// The read failed, so nothing is known.
    Unknown {
        /// What was to be read, such as `nodes` or `MachineConfig rendered-worker-1`.
        what: String,
        /// Why it failed.
        error: String,
    },
}

impl<T> Observed<T> {
    /// A failed read.
    pub fn unknown(what: impl Into<String>, error: impl std::fmt::Display) -> Self {
        Self::Unknown { what: what.into(), error: error.to_string() }
    }

    /// The answer, if there is one.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown { .. } => None,
        }
    }

    /// Whether the read succeeded.
    pub fn is_known(&self) -> bool {
        matches!(self, Self::Known(_))
    }

    /// The same with another answer.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Observed<U> {
        match self {
            Self::Known(value) => Observed::Known(f(value)),
            Self::Unknown { what, error } => Observed::Unknown { what, error },
        }
    }
}
