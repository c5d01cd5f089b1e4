//! The signals by which the user or the system ends the program: SIGINT and SIGTERM, on Windows Ctrl-C and Ctrl-Break.
//! Belongs to the binary: the library gets an interrupt from its caller.

use std::io;

#[cfg(unix)]
mod system {
    use std::io;

    use tokio::signal::unix::{SignalKind, signal};

    pub(super) type User = tokio::signal::unix::Signal;
    pub(super) type System = tokio::signal::unix::Signal;

    pub(super) fn listen() -> io::Result<(User, System)> {
        Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
    }
}

#[cfg(windows)]
mod system {
    use std::io;

    use tokio::signal::windows;

    pub(super) type User = windows::CtrlC;
    pub(super) type System = windows::CtrlBreak;

    pub(super) fn listen() -> io::Result<(User, System)> {
        Ok((windows::ctrl_c()?, windows::ctrl_break()?))
    }
}

/// The signals from now on, which do not end the process any more.
#[derive(Debug)]
pub(crate) struct Signals(system::User, system::System);

impl Signals {
    /// # Errors
    /// If the system does not tell of signals.
    pub(crate) fn listen() -> io::Result<Self> {
        system::listen().map(|(user, system)| Self(user, system))
    }

    /// Completes with the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}
