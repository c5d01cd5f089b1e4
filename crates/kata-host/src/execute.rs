//! Carries a plan out as a transaction, and finishes or undoes one that was interrupted.
//!
//! ```text
//! prepare ─▶ Writing: change files ─▶ check ─▶ Restarting: restart, verify ─▶ commit ─▶ clean up
//!               │ differs                │           │ fails
//!               ▼                        ▼           ▼
//!            Undoing: files back, no restart      RollingBack: files back, restart, verify
//! ```
//! The journal names a phase before it begins. Whoever finds a phase in it takes the same way on.

use kata_api::Code;

use crate::containerd;
use crate::durable;
use crate::host::{Host, HostError, HostResult};
use crate::journal::{self, JournalError, Phase, State, Transaction};
use crate::observe::{Cri, cri};
use crate::paths;
use crate::plan::{Baseline, Change, Expect, HostPlan};
use crate::preflight::{Check, unsatisfied};
use crate::verify::verify;

/// How a plan ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// It is carried out, and this is what the container runtime says now, if it was asked.
    Committed(Option<Cri>),
    /// Nothing was changed.
    Refused(Check),
    /// The change was undone, and the container runtime is as before.
    RolledBack(Check),
    /// The change could not be undone; the next run goes on with that.
    Unsafe(Check),
    /// It stopped on the way; the next run finishes or undoes it.
    Failed(Check),
}

/// What happened on the way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trace {
    /// Something was written besides the journal.
    pub(crate) changed: bool,
    /// The container runtime was restarted.
    pub(crate) restarted: bool,
}

fn failed(error: &HostError) -> Check {
    Check::new(Code::HostCallFailed, error.to_string())
}

fn journal_failed(error: &JournalError) -> Check {
    match error {
        JournalError::Host(error) => failed(error),
        JournalError::Unreadable { .. } => Check::new(Code::JournalUnreadable, error.to_string()),
    }
}

/// Carries a plan out.
pub(crate) fn execute(
    host: &mut dyn Host,
    state: &mut State,
    plan: HostPlan,
    trace: &mut Trace,
) -> End {
    let merged = match &plan.baseline {
        Some(baseline) if plan.changes.iter().any(|change| change.path != paths::CURRENT) => {
            match dump_without_us(host, baseline) {
                Ok(merged) => Some(merged),
                Err(error) => return End::Refused(broken(&plan, &error)),
            }
        }
        Some(_) | None => None,
    };
    trace.changed |= !plan.prepare.is_empty();
    for step in &plan.prepare {
        if let Err(error) = durable::step(host, step) {
            return End::Failed(failed(&error));
        }
    }
    if plan.changes.is_empty() && !plan.restart {
        return commit(host, state, plan, None, trace);
    }
    state.transaction = Some(Transaction { phase: Phase::Writing, plan: plan.clone() });
    if let Err(error) = journal::save(host, state) {
        state.transaction = None;
        return End::Failed(journal_failed(&error));
    }
    trace.changed |= !plan.changes.is_empty();
    let written = plan.changes.iter().try_for_each(|change| apply(host, change));
    if let Err(check) = written {
        return undo(host, state, plan, check);
    }
    if let (Some(merged), Some(baseline)) = (merged, &plan.baseline) {
        let after = match host.config_dump(&baseline.program, &plan.site.main) {
            Ok(after) => after,
            Err(error) => {
                let check = Check::new(Code::ChangeRefusedByCheck, error.to_string());
                return undo(host, state, plan, check);
            }
        };
        let Expect { ours, gone, .. } = &plan.expect;
        if let Err(reason) = containerd::compare(&merged, &after, ours, gone) {
            return undo(host, state, plan, Check::new(Code::ChangeRefusedByCheck, reason));
        }
    }
    if !plan.restart {
        return commit(host, state, plan, None, trace);
    }
    restart(host, state, plan, trace)
}

fn broken(plan: &HostPlan, error: &HostError) -> Check {
    let site = &plan.site;
    Check::new(Code::RuntimeConfigBroken, format!("{}: {error}", site.main))
}

fn dump_without_us(host: &mut dyn Host, baseline: &Baseline) -> HostResult<String> {
    let path = format!("{}/check.toml", paths::STATE_DIR);
    durable::make_dirs(host, paths::STATE_DIR)?;
    host.write(&path, baseline.text.as_bytes(), 0o600)?;
    let dump = host.config_dump(&baseline.program, &path);
    host.unlink(&path)?;
    if dump.is_err() {
        // Nothing will be changed, so nothing of ours shall stay, unless the journal is there.
        host.remove_dir(paths::STATE_DIR)?;
    }
    dump
}

fn apply(host: &mut dyn Host, change: &Change) -> Result<(), Check> {
    let Change { path, before, after } = change;
    let now = durable::content(host, path).map_err(|error| failed(&error))?;
    if now == *after {
        return Ok(());
    }
    if now != *before {
        return Err(Check::new(
            Code::HostCallFailed,
            format!("{path} was changed by somebody else at the same moment"),
        ));
    }
    durable::put(host, path, after).map_err(|error| failed(&error))
}

/// Files back; the container runtime has not seen them.
fn undo(host: &mut dyn Host, state: &mut State, plan: HostPlan, check: Check) -> End {
    let changes = plan.changes.clone();
    state.transaction = Some(Transaction { phase: Phase::Undoing, plan });
    let undone = journal::save(host, state)
        .map_err(|error| journal_failed(&error))
        .and_then(|()| durable::undo(host, &changes).map_err(|error| failed(&error)))
        .and_then(|()| {
            state.transaction = None;
            journal::save(host, state).map_err(|error| journal_failed(&error))
        });
    match undone {
        Ok(()) => End::RolledBack(check),
        Err(_) => End::Failed(check),
    }
}

/// Restarts the container runtime and looks whether it is as it should be.
fn restart(host: &mut dyn Host, state: &mut State, plan: HostPlan, trace: &mut Trace) -> End {
    state.transaction = Some(Transaction { phase: Phase::Restarting, plan: plan.clone() });
    if let Err(error) = journal::save(host, state) {
        return undo(host, state, plan, journal_failed(&error));
    }
    if let Some(unit) = &plan.site.unit {
        trace.restarted = true;
        if let Err(error) = host.restart_unit(unit) {
            let check = Check::new(Code::RestartFailed, error.to_string());
            return roll_back(host, state, &plan, check, trace);
        }
    }
    match verify(host, &plan.site, &plan.expect) {
        Ok(cri) => commit(host, state, plan, Some(cri), trace),
        Err(reason) => {
            let check = Check::new(Code::VerificationFailed, reason);
            roll_back(host, state, &plan, check, trace)
        }
    }
}

/// Files back, a restart, and a look whether the container runtime is as it was.
fn roll_back(
    host: &mut dyn Host,
    state: &mut State,
    plan: &HostPlan,
    check: Check,
    trace: &mut Trace,
) -> End {
    state.transaction = Some(Transaction { phase: Phase::RollingBack, plan: plan.clone() });
    let back = journal::save(host, state)
        .map_err(|error| journal_failed(&error))
        .and_then(|()| durable::undo(host, &plan.changes).map_err(|error| failed(&error)));
    if let Err(error) = back {
        return End::Unsafe(Check::new(
            Code::NodeUnsafe,
            format!("{}; going back: {}", check.message, error.message),
        ));
    }
    if let Some(unit) = &plan.site.unit {
        trace.restarted = true;
        // A unit that restarts by itself may come back although the job failed: CRI tells.
        match host.restart_unit(unit) {
            Ok(()) | Err(_) => {}
        }
    }
    let expect = Expect { kept: plan.expect.kept.clone(), ..Expect::default() };
    match verify(host, &plan.site, &expect) {
        Ok(_) => {
            state.transaction = None;
            match journal::save(host, state) {
                Ok(()) => End::RolledBack(check),
                Err(error) => End::Failed(journal_failed(&error)),
            }
        }
        Err(reason) => End::Unsafe(Check::new(
            Code::NodeUnsafe,
            format!("{}; after going back: {reason}", check.message),
        )),
    }
}

fn commit(
    host: &mut dyn Host,
    state: &mut State,
    plan: HostPlan,
    cri: Option<Cri>,
    trace: &mut Trace,
) -> End {
    let HostPlan { cleanup, next, .. } = plan;
    let removed = next.is_none();
    let before = (state.transaction.take().is_some(), state.installed.take());
    state.installed = next;
    if (before.0 || before.1 != state.installed)
        && let Err(error) = journal::save(host, state)
    {
        return End::Failed(journal_failed(&error));
    }
    // Nobody needs what is cleaned up, and the next run does what this one does not.
    let cleaned = cleanup
        .iter()
        .try_for_each(|step| durable::step(host, step))
        .and_then(|()| if removed { forget(host) } else { Ok(()) });
    trace.changed |= !cleanup.is_empty();
    match cleaned {
        Ok(()) => End::Committed(cri),
        Err(error) => End::Failed(failed(&error)),
    }
}

/// Removes the journal, the last thing of ours.
fn forget(host: &mut dyn Host) -> HostResult<()> {
    durable::remove_tree(host, paths::STATE_DIR)?;
    host.sync_dir(paths::parent(paths::STATE_DIR))
}

/// Whether the container runtime offers what it did before the change.
fn serves(host: &mut dyn Host, plan: &HostPlan) -> bool {
    let before = Expect { kept: plan.expect.kept.clone(), ..Expect::default() };
    cri(host, &plan.site.socket)
        .is_ok_and(|cri| cri.status.runtime_ready && unsatisfied(&cri, &before).is_none())
}

/// Goes on with a change that was interrupted. `None` if there is none, or it is undone or finished
/// without anything to say. `installs` says whether an installation follows.
pub(crate) fn recover(
    host: &mut dyn Host,
    state: &mut State,
    installs: bool,
    trace: &mut Trace,
) -> Option<End> {
    let Transaction { phase, mut plan } = state.transaction.clone()?;
    if installs && plan.next.is_none() {
        // What was just staged is in the folder that the removal would clear; the installation prunes it.
        plan.cleanup.clear();
    }
    let interrupted =
        || Check::new(Code::ChangeInterrupted, "the change was interrupted and has been undone");
    trace.changed = true;
    let end = match phase {
        Phase::Writing | Phase::Undoing if serves(host, &plan) => {
            undo(host, state, plan, interrupted())
        }
        // A boot may have started the container runtime from our files, and it does not take them.
        Phase::Writing | Phase::Undoing => roll_back(host, state, &plan, interrupted(), trace),
        Phase::RollingBack => roll_back(host, state, &plan, interrupted(), trace),
        Phase::Restarting => {
            // The restart may have been done, or a boot may have done it.
            match cri(host, &plan.site.socket) {
                Ok(cri)
                    if cri.status.runtime_ready && unsatisfied(&cri, &plan.expect).is_none() =>
                {
                    commit(host, state, plan, Some(cri), trace)
                }
                Ok(_) | Err(_) => restart(host, state, plan, trace),
            }
        }
    };
    match (end, phase) {
        (End::Committed(_), _) | (End::RolledBack(_), Phase::Writing | Phase::Undoing) => None,
        (end, _) => Some(end),
    }
}
