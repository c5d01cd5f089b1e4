//! Exit codes, which scripts rely on. They are those of every command of this product.

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well; warnings are allowed.
    Fine,
    /// What was asked for does not hold: not Ready, a check or a verification failed.
    Findings,
    /// The command line is wrong.
    Usage,
    /// The API server cannot be reached, or does not accept the credentials.
    Unreachable,
    /// A precondition stands in the way, and nothing was changed.
    Refused,
    /// Not enough could be seen to judge, mostly for want of permissions.
    Inconclusive,
    /// `--timeout` ran out.
    TimedOut,
    /// Interrupted by a signal; what was created has been deleted.
    Interrupted,
}

impl Exit {
    /// The code.
    pub fn code(self) -> u8 {
        match self {
            Self::Fine => 0,
            Self::Findings => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::Refused => 4,
            Self::Inconclusive => 5,
            Self::TimedOut => 124,
            Self::Interrupted => 130,
        }
    }
}
