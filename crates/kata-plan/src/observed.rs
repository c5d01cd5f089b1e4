//! A read that may have failed.
//!
//! [`Observed`] has no default on purpose: a failed read is not an empty list, and the code that uses it must
//! handle the unknown case.

/// The outcome of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed<T> {
    /// The read succeeded.
    Known(T),
    /// The read failed.
    Unknown {
        /// The object or list, such as `nodes` or `MachineConfig rendered-worker-1`.
        what: String,
        error: String,
    },
}

impl<T> Observed<T> {
    /// A failed read.
    pub fn unknown(what: impl Into<String>, error: impl std::fmt::Display) -> Self {
        Self::Unknown { what: what.into(), error: error.to_string() }
    }

    /// The value; `None` if the read failed.
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

    /// Converts the value of a read that succeeded.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Observed<U> {
        match self {
            Self::Known(value) => Observed::Known(f(value)),
            Self::Unknown { what, error } => Observed::Unknown { what, error },
        }
    }
}
