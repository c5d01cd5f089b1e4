//! Finishes or undoes a change that an earlier run began, by what the journal says of it.
//!
//! It decides nothing about the node's desired state: the run goes on with that afterwards.

use kata_api::Code;

use crate::check::Check;
use crate::containerd;
use crate::cri::Cri;
use crate::durable;
use crate::execute::{End, commit, compare, restart, roll_back, undo, undone};
use crate::host::Host;
use crate::journal::{Because, Phase, State, Transaction};
use crate::observe::is_newer;
use crate::paths;
use crate::plan::{Change, Content, HostPlan};
use crate::trace::Trace;
use crate::verify::{await_start, unsatisfied};
use crate::written;

/// A change that an earlier run began, with which the container runtime was not as it should be.
#[derive(Clone, Debug)]
pub(crate) struct WentBack {
    /// What was to be done.
    plan: HostPlan,
    /// Why it was undone.
    pub(crate) check: Check,
}

impl WentBack {
    /// Whether a plan would do the same again, beside the same files of others.
    pub(crate) fn is_again(&self, plan: &HostPlan) -> bool {
        let release = |plan: &HostPlan| plan.next.as_ref().map(|next| next.release.clone());
        self.plan.changes == plan.changes
            && self.plan.baseline == plan.baseline
            && release(&self.plan) == release(plan)
    }
}

/// Whether the container runtime offers what it did before the change, and no more.
fn serves(host: &mut dyn Host, plan: &HostPlan) -> bool {
    Cri::read(host, &plan.site.socket)
        .is_ok_and(|cri| cri.status.runtime_ready && unsatisfied(&cri, &plan.before()).is_none())
}

/// Whether files of a plan are as they were before it: a way back was begun that could not be noted.
fn is_taken_back(host: &mut dyn Host, plan: &HostPlan) -> bool {
    plan.changes.iter().any(|Change { path, before, after }| {
        // A directory may stay because of what another program has put into it.
        ![before, after].contains(&&Content::Directory)
            && durable::content(host, path).is_ok_and(|now| now == *before)
    })
}

/// Whether all files of a plan are as they were before it, and the container runtime was started since.
fn is_started_without_ours(host: &mut dyn Host, plan: &HostPlan) -> bool {
    written::load(host).is_ok_and(|written| written.is_empty())
        && plan.changes.iter().all(|Change { path, before, .. }| {
            *before == Content::Directory
                || durable::content(host, path).is_ok_and(|now| now == *before)
        })
}

/// Whether CRI-O may have taken a drop-in of the plan in without a restart, which is not enough.
fn is_reloaded(host: &mut dyn Host, plan: &HostPlan) -> bool {
    let Some(unit) = &plan.site.unit else { return false };
    let started = host.unit(unit).ok().flatten().and_then(|unit| unit.started);
    plan.changes.iter().any(|Change { path, .. }| {
        paths::name(path) == paths::CRIO_NAME
            && is_newer(host, &plan.site, started, path).unwrap_or(true)
    })
}

/// Why a change is taken back: what the run found that began with that. If it was nothing that is wrong with
/// the change, it may be tried again.
fn why(because: Option<&Because>) -> Check {
    match because.map(Because::check) {
        Some(check) if matches!(undone(check.clone()), End::RolledBack(_)) => check,
        Some(check) => Check::new(Code::ChangeInterrupted, check.message),
        None => Check::new(Code::ChangeInterrupted, "the change was interrupted"),
    }
}

/// Goes on with a change that was interrupted, and says if it was found not to work; then the node is as
/// before, and the run can go on. `installs` says whether an installation follows.
///
/// # Errors
/// How it ended, if the run cannot go on.
pub(crate) fn recover(
    host: &mut dyn Host,
    state: &mut State,
    installs: bool,
    trace: &mut Trace,
) -> Result<Option<WentBack>, Box<End>> {
    let Some(Transaction { mut phase, mut plan, because }) = state.transaction.clone() else {
        return Ok(None);
    };
    if installs {
        // What was just staged may be what the interrupted change would clear away, such as the release before an
        // upgrade on the way back; the installation prunes what is not needed.
        plan.cleanup.clear();
    }
    // The run before may have been stopped while the unit was starting.
    await_start(host, &plan.site);
    if phase == Phase::Restarting && is_taken_back(host, &plan) {
        phase = Phase::Undoing;
    }
    let interrupted = || why(because.as_ref());
    trace.changed = true;
    let end = match phase {
        Phase::Writing | Phase::Undoing if serves(host, &plan) => {
            undo(host, state, &plan, interrupted())
        }
        // It was started from the files of before, and has come up since. With the same handlers before and after, what
        // is offered now does not show that.
        Phase::RollingBack
            if !plan.rewritten
                && !is_reloaded(host, &plan)
                && is_started_without_ours(host, &plan)
                && serves(host, &plan) =>
        {
            undo(host, state, &plan, interrupted())
        }
        // A boot may have started the container runtime from our files.
        Phase::Writing | Phase::Undoing => roll_back(host, state, &plan, interrupted(), trace),
        Phase::RollingBack => roll_back(host, state, &plan, interrupted(), trace),
        Phase::Restarting => {
            // The restart may have been done, or a boot may have done it. If our handlers were offered
            // before, with another content of the drop-in, what is offered now does not show it.
            match Cri::read(host, &plan.site.socket) {
                Ok(cri)
                    if !plan.rewritten
                        && !is_reloaded(host, &plan)
                        && cri.status.runtime_ready
                        && unsatisfied(&cri, &plan.expect).is_none() =>
                {
                    commit(host, state, plan.clone(), Some(cri), trace)
                }
                // Files of others may have been changed since they were compared.
                Ok(_) | Err(_) => match compare(host, &plan, containerd::compare_others) {
                    Ok(()) => restart(host, state, plan.clone(), trace),
                    Err(check) if serves(host, &plan) => undo(host, state, &plan, check),
                    Err(check) => roll_back(host, state, &plan, check, trace),
                },
            }
        }
    };
    match (end, phase) {
        // Sandboxes that are in the way are so for each later step, which checks again. A change that did not
        // come to its restart is not known to be a bad one.
        (End::Committed(_) | End::Blocked(_), _)
        | (End::RolledBack(_), Phase::Writing | Phase::Undoing) => Ok(None),
        (End::RolledBack(check), _) if check.code == Code::ChangeInterrupted => Ok(None),
        (End::RolledBack(check), _) => Ok(Some(WentBack { plan, check })),
        (end, _) => Err(Box::new(end)),
    }
}
