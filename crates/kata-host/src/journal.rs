//! What we remember on the node: what is installed, and the change that is under way.
//!
//! The journal is written whole, to a temporary file that is made durable and renamed, before each step
//! that it describes. A reader finds either the old one or the new one.

use std::collections::BTreeSet;

use kata_api::Code;
use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::durable;
use crate::host::{Host, HostError, HostErrorKind};
use crate::paths;
use crate::plan::{HostPlan, Installed};

/// The version of the journal that this build writes; it reads no newer one.
pub const STATE_VERSION: u32 = 1;

/// The journal.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// [`STATE_VERSION`] of the writer.
    pub version: u32,
    /// What is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed: Option<Installed>,
    /// The change that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transaction: Option<Transaction>,
    /// The sandboxes that are known to run from the payload of kata-deploy, after a take-over that was undone.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub of_kata_deploy: BTreeSet<String>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            version: STATE_VERSION,
            installed: None,
            transaction: None,
            of_kata_deploy: BTreeSet::new(),
        }
    }
}

/// A change that is under way.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// How far it is.
    pub phase: Phase,
    /// What is being done.
    pub plan: HostPlan,
    /// Why it is being taken back, if it is: the next run, which goes on with that, did not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<Because>,
}

/// The check for which a change is being taken back.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Because {
    /// Its code, such as `KATA3033`.
    pub code: String,
    /// What was found.
    pub message: String,
}

impl Because {
    pub(crate) fn of(check: &Check) -> Self {
        Self { code: check.code.to_string(), message: check.message.clone() }
    }

    /// The check. Of a code that this build does not know it is only known that the change was interrupted.
    pub(crate) fn check(&self) -> Check {
        let code = Code::parse(&self.code);
        Check::new(code.unwrap_or(Code::ChangeInterrupted), &self.message)
    }
}

/// How far a change is. It is written before what it names is begun.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Files are being changed; the runtime has not been restarted by us.
    Writing,
    /// All files are changed and checked; the runtime is being restarted and verified.
    Restarting,
    /// The files are being changed back; the runtime has not been restarted by us.
    Undoing,
    /// The files are being changed back and the runtime restarted once more.
    RollingBack,
}

/// Why the journal cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// It cannot be read or written.
    #[error(transparent)]
    Host(#[from] HostError),
    /// It is not one of ours.
    #[error("the journal {path} cannot be understood: {reason}", path = paths::STATE)]
    Unreadable {
        /// Why.
        reason: String,
    },
}

/// Understands a journal.
///
/// # Errors
/// If it is not JSON of a version that we know.
pub fn parse(bytes: &[u8]) -> Result<State, String> {
    let state: State = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if state.version > STATE_VERSION {
        return Err(format!(
            "it has version {}, and this agent knows {STATE_VERSION}",
            state.version
        ));
    }
    Ok(state)
}

/// Reads the journal; a node without one has never seen us.
///
/// # Errors
/// If it is there and cannot be read or understood.
pub fn load(host: &mut dyn Host) -> Result<State, JournalError> {
    match host.read(paths::STATE)? {
        None => Ok(State::default()),
        Some(bytes) => parse(&bytes).map_err(|reason| JournalError::Unreadable { reason }),
    }
}

/// Writes the journal durably.
///
/// # Errors
/// If it cannot be written; then the old one is still there.
pub fn save(host: &mut dyn Host, state: &State) -> Result<(), JournalError> {
    let text = serde_json::to_vec(state)
        .map_err(|error| JournalError::Unreadable { reason: error.to_string() })?;
    durable::make_dirs(host, paths::STATE_DIR)?;
    match durable::write(host, paths::STATE, &text, 0o600) {
        // A journal that says nothing is as good as none, for which there is always room.
        Err(error) if error.kind == HostErrorKind::NoSpace && *state == State::default() => {
            host.unlink(paths::STATE)?;
            Ok(host.sync_dir(paths::STATE_DIR)?)
        }
        written => Ok(written?),
    }
}
