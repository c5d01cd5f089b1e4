//! Exit codes, which scripts rely on. They are those of every command of this product.

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All is well; warnings are allowed.
    Fine = 0,
    /// What was asked for does not hold: not Ready, a check or a verification failed.
    Findings = 1,
    /// The command line is wrong.
    Usage = 2,
    /// The API server cannot be reached, or does not accept the credentials.
    Unreachable = 3,
    /// A precondition stands in the way, and nothing was changed.
    Refused = 4,
    /// Not enough could be seen to judge, mostly for want of permissions.
    Inconclusive = 5,
    /// `--timeout` ran out.
    TimedOut = 124,
    /// Interrupted by a signal; what was created has been deleted.
    Interrupted = 130,
}

impl Exit {
    /// The code.
    pub fn code(self) -> u8 {
        self as u8
    }
}
