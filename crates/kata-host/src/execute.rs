//! Carries a plan out as a transaction.
//!
//! ```text
//! prepare ─▶ Writing: change files ─▶ check ─▶ Restarting: restart, verify ─▶ commit ─▶ clean up
//!               │ differs                │           │ fails
//!               ▼                        ▼           ▼
//!            Undoing: files back, no restart      RollingBack: files back, restart, verify
//! ```
//! The journal names a phase before it begins. A later run that finds a phase in it continues with it.
//! The two ways back do not wait for the journal: what it says if it cannot be written leads back as well.

use std::collections::{BTreeMap, BTreeSet};

use kata_api::Code;

use crate::apply::{self, NotUndone};
use crate::check::Check;
use crate::configuration::Configuration;
use crate::containerd;
use crate::cri::Cri;
use crate::durable;
use crate::host::{ConfigSource, Host, HostError, HostErrorKind, HostResult, Sandbox};
use crate::journal::{self, Because, JournalError, Phase, State, Transaction};
use crate::paths;
use crate::plan::{
    Baseline, Change, Expect, Handler, HostPlan, Installed, Retained, Step, TakenOver,
};
use crate::trace::Trace;
use crate::verify::{of_unit, still_starting, verify};
use crate::written;

/// How a plan ended.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// It is carried out, and this is what the container runtime says now, if it was asked.
    Committed(Option<Cri>),
    /// The change was undone, and the container runtime is as before.
    RolledBack(Check),
    /// The change could not be undone; the next run goes on with that.
    Unsafe(Check),
    /// It stopped on the way, or the node did not let it be done: it is undone, or the next run finishes or
    /// undoes it.
    Failed(Check),
    /// A removal is carried out but for the payload, since these sandboxes were started meanwhile.
    Blocked(Vec<Sandbox>),
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

/// How a change ends that was undone. What is wrong with a plan is wrong the next time as well; what the
/// node did not let us do may be possible then.
pub(crate) fn undone(check: Check) -> End {
    match check.code {
        Code::HostCallFailed | Code::JournalUnreadable => End::Failed(check),
        _ => End::RolledBack(check),
    }
}

/// What went wrong, and what went wrong on the way back.
fn and(check: &Check, more: &str) -> Check {
    Check::new(check.code, format!("{}; {more}", check.message))
}

/// Which files another program has changed meanwhile.
fn others(kept: &[String]) -> String {
    format!("another program changed {} (left unchanged)", kept.join(", "))
}

/// What is not as it was, a part of a sentence each.
fn remains(left: &NotUndone) -> Vec<String> {
    let errors = left.errors.iter().map(|error| format!("going back: {error}"));
    let kept = (!left.kept.is_empty()).then(|| others(&left.kept));
    errors.chain(kept).collect()
}

/// What went wrong, and what is not as it was after going back.
fn and_kept(check: Check, left: &NotUndone) -> Check {
    let more = remains(left);
    if more.is_empty() { check } else { and(&check, &more.join("; ")) }
}

/// A way back that did not bring the node to where it was. How it is now comes first, since of a long message
/// the end is cut.
fn unsafe_now(left: &NotUndone, runtime: String, check: &Check) -> End {
    let mut now = remains(left);
    now.push(runtime);
    let message = format!("{}; before that: {}", now.join("; "), check.message);
    End::Unsafe(Check::new(Code::NodeUnsafe, message))
}

/// Enters a phase. A way back that is gone on with keeps why it was begun.
fn begin(state: &mut State, phase: Phase, plan: &HostPlan, check: Option<&Check>) {
    let earlier = state.transaction.take().and_then(|transaction| transaction.because);
    let because = check.map(|check| earlier.unwrap_or_else(|| Because::of(check)));
    state.transaction = Some(Transaction { phase, plan: plan.clone(), because });
}

/// Notes the phase of a way back, if the disk takes it.
fn note(host: &mut dyn Host, state: &State) {
    match journal::save(host, state) {
        Ok(()) | Err(_) => {}
    }
}

/// Carries a plan out.
pub(crate) fn execute(
    host: &mut dyn Host,
    state: &mut State,
    plan: HostPlan,
    trace: &mut Trace,
) -> End {
    let removes = plan.next.is_none();
    if removes && let Err(error) = make_room(host, &plan, trace) {
        keep_room(host, state);
        return End::Failed(failed(&error));
    }
    if !removes && let Err(error) = prepare(host, &plan, trace) {
        return End::Failed(failed(&error));
    }
    if plan.changes.is_empty() && !plan.restart {
        return commit(host, state, plan, None, trace);
    }
    begin(state, Phase::Writing, &plan, None);
    if let Err(error) = journal::save(host, state) {
        state.transaction = None;
        keep_room(host, state);
        return End::Failed(journal_failed(&error));
    }
    if !removes {
        durable::reserve_room(host);
    }
    trace.changed |= !plan.changes.is_empty();
    let written = plan.changes.iter().try_for_each(|change| apply(host, change));
    if let Err(check) = written {
        return undo(host, state, &plan, check);
    }
    if let Err(check) = compare(host, &plan, containerd::compare) {
        return undo(host, state, &plan, check);
    }
    if !plan.restart {
        written::note(host, &plan);
        return commit(host, state, plan, None, trace);
    }
    restart(host, state, plan, trace)
}

fn prepare(host: &mut dyn Host, plan: &HostPlan, trace: &mut Trace) -> HostResult<()> {
    trace.changed |= !plan.prepare.is_empty();
    plan.prepare.iter().try_for_each(|step| apply::step(host, step))
}

/// What a removal begins with: it frees the disk, so it must not fail because that is full.
fn make_room(host: &mut dyn Host, plan: &HostPlan, trace: &mut Trace) -> HostResult<()> {
    durable::release_room(host)?;
    prepare(host, plan, trace)
}

/// Room for the next removal, as long as something is installed.
pub(crate) fn keep_room(host: &mut dyn Host, state: &State) {
    if state.installed.is_some() {
        durable::reserve_room(host);
        return;
    }
    // A removal takes what is left.
    match durable::release_room(host) {
        Ok(()) | Err(_) => {}
    }
}

/// How what the program prints of the files with ours compares with what it printed without.
type Comparison =
    fn(&str, &str, &BTreeMap<String, Handler>, &BTreeSet<String>) -> Result<(), String>;

/// Compares what the program prints of the files with ours with what it printed without.
pub(crate) fn compare(host: &mut dyn Host, plan: &HostPlan, how: Comparison) -> Result<(), Check> {
    let is_read = |change: &Change| change.path != paths::CURRENT;
    let Some(baseline) = plan.baseline.as_ref().filter(|_| plan.changes.iter().any(is_read)) else {
        return Ok(());
    };
    if baseline.printed.is_empty() {
        // The journal is that of an earlier version of the agent.
        return Ok(());
    }
    let after = print(host, plan, baseline).map_err(|error| match error.kind {
        // Only if the program itself says no it is about our drop-in.
        HostErrorKind::Failed => Check::new(Code::ChangeRefusedByCheck, error.to_string()),
        _ => failed(&error),
    })?;
    let Expect { ours, gone, .. } = &plan.expect;
    how(&baseline.printed, &after, ours, gone)
        .map_err(|reason| Check::new(Code::ChangeRefusedByCheck, reason))
}

/// What the program prints of the files as they are.
fn print(host: &mut dyn Host, plan: &HostPlan, baseline: &Baseline) -> HostResult<String> {
    // Without a main file containerd starts with what it has by itself; 1.x does not print that of a path where
    // nothing is.
    let main = &plan.site.main;
    let file = if host.stat(main)?.is_some() { main } else { containerd::EMPTY_FILE };
    host.config_dump(&baseline.program, ConfigSource::At(file))
}

/// Why a runtime that serves CRI must not be restarted: with the files as they are by now, it would not any more.
fn serves_only_now(host: &mut dyn Host, plan: &HostPlan) -> Option<String> {
    let baseline = plan.baseline.as_ref()?;
    Cri::read(host, &plan.site.socket).ok().filter(|cri| cri.status.runtime_ready)?;
    match print(host, plan, baseline) {
        Ok(text) => Configuration::printed(&text)
            .map_or_else(Some, |found| found.cannot_start(&BTreeSet::new())),
        Err(error) => (error.kind == HostErrorKind::Failed).then_some(error.reason),
    }
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
            format!("another program changed {path} at the same moment"),
        ));
    }
    durable::put(host, path, after).map_err(|error| failed(&error))
}

/// Files back; the container runtime has not seen them.
pub(crate) fn undo(host: &mut dyn Host, state: &mut State, plan: &HostPlan, check: Check) -> End {
    begin(state, Phase::Undoing, plan, Some(&check));
    note(host, state);
    let left = apply::undo(host, plan);
    let check = and_kept(check, &left);
    if !left.errors.is_empty() {
        return End::Failed(check);
    }
    if replaces(state, plan).is_some() {
        match host.cri_sandboxes(&plan.site.socket) {
            Ok(sandboxes) => keep_undone(state, plan, &sandboxes),
            Err(error) => return End::Failed(and(&check, &format!("going back: {error}"))),
        }
    }
    keep_known(state, plan);
    state.transaction = None;
    written::note(host, plan);
    match journal::save(host, state) {
        Ok(()) => {
            keep_room(host, state);
            undone(check)
        }
        Err(error) => End::Failed(and(&check, &error.to_string())),
    }
}

/// Restarts the container runtime and looks whether it is as it should be.
pub(crate) fn restart(
    host: &mut dyn Host,
    state: &mut State,
    plan: HostPlan,
    trace: &mut Trace,
) -> End {
    let noted = state.transaction.as_ref().is_some_and(|found| found.phase == Phase::Restarting);
    begin(state, Phase::Restarting, &plan, None);
    if !noted && let Err(error) = journal::save(host, state) {
        return undo(host, state, &plan, journal_failed(&error));
    }
    if let Some(unit) = &plan.site.unit {
        trace.ask(host, &plan.site.socket);
        trace.restarted = true;
        if let Err(error) = host.restart_unit(unit) {
            let check = match error.kind {
                // systemd was away, which says nothing about the plan.
                HostErrorKind::Unreachable => failed(&error),
                kind => {
                    let reason = match kind {
                        HostErrorKind::TimedOut => still_starting(),
                        _ => error.reason,
                    };
                    Check::new(Code::RestartFailed, of_unit(host, &plan.site, &reason))
                }
            };
            return roll_back(host, state, &plan, check, trace);
        }
    }
    match verify(host, &plan.site, &plan.expect) {
        Ok(cri) => {
            trace.compare(&cri);
            commit(host, state, plan, Some(cri), trace)
        }
        Err(reason) => {
            let reason = of_unit(host, &plan.site, &reason);
            let check = Check::new(Code::VerificationFailed, reason);
            roll_back(host, state, &plan, check, trace)
        }
    }
}

/// Files back, a restart, and a look whether the container runtime is as it was.
/// A node whose container runtime is down starts no next agent, so nothing but files of others with which a runtime
/// that serves would go down keeps the restart from being tried.
pub(crate) fn roll_back(
    host: &mut dyn Host,
    state: &mut State,
    plan: &HostPlan,
    check: Check,
    trace: &mut Trace,
) -> End {
    begin(state, Phase::RollingBack, plan, Some(&check));
    note(host, state);
    // A file that is newer than the start of the unit shows that no restart followed, also after a kill in between.
    written::note(host, plan);
    let left = apply::undo(host, plan);
    written::note(host, plan);
    if let Some(unit) = &plan.site.unit {
        if let Some(reason) = serves_only_now(host, plan) {
            let main = &plan.site.main;
            let now = format!(
                "{unit} serves and was not restarted, since it would not start: {main}: {reason}"
            );
            return unsafe_now(&left, now, &check);
        }
        trace.ask_once(host, &plan.site.socket);
        trace.restarted = true;
        // A unit that restarts by itself may come back although the job failed: CRI shows it.
        if host.restart_unit(unit).is_ok() {
            written::forget(host);
        }
    }
    let verified = verify(host, &plan.site, &plan.before());
    let check = match verified {
        Ok(cri) if left.errors.is_empty() => {
            trace.compare(&cri);
            keep_undone(state, plan, &cri.sandboxes);
            and_kept(check, &left)
        }
        Ok(cri) => {
            trace.compare(&cri);
            return unsafe_now(&left, "the container runtime serves as before".to_owned(), &check);
        }
        Err(reason) => {
            let reason = of_unit(host, &plan.site, &reason);
            return unsafe_now(&left, reason, &check);
        }
    };
    keep_known(state, plan);
    state.transaction = None;
    match journal::save(host, state) {
        Ok(()) => {
            keep_room(host, state);
            undone(check)
        }
        Err(error) => End::Failed(and(&check, &error.to_string())),
    }
}

/// The sandboxes of our handlers that are READY, if the plan takes away what they may use. After the look
/// at the node, and until the change, some may have been started that it did not see.
fn started(
    host: &mut dyn Host,
    state: &State,
    plan: &HostPlan,
    cri: Option<&Cri>,
) -> HostResult<Vec<Sandbox>> {
    let mut names = plan.expect.gone.clone();
    if let Some(installed) = &state.installed
        && plan.next.as_ref().is_none_or(|next| next.release != installed.release)
    {
        names.extend(installed.handlers.keys().cloned());
    }
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut sandboxes = match cri {
        Some(cri) => cri.sandboxes.clone(),
        None => host.cri_sandboxes(&plan.site.socket)?,
    };
    sandboxes.retain(|sandbox| sandbox.ready && names.contains(&sandbox.handler));
    if let Some(taken) = state.installed.as_ref().and_then(|installed| installed.taken.as_ref())
        && gives_back(plan)
    {
        sandboxes.retain(|sandbox| match &taken.still_ours {
            Some(waiting) => waiting.contains(&sandbox.id),
            None => !taken.sandboxes.contains(&sandbox.id),
        });
    }
    Ok(sandboxes)
}

/// Keeps what is known of the sandboxes of kata-deploy while a take-over is taken back.
fn keep_known(state: &mut State, plan: &HostPlan) {
    if let Some(taken) = plan.next.as_ref().and_then(|next| next.taken.as_ref()) {
        state.of_kata_deploy.extend(taken.sandboxes.iter().cloned());
    }
}

/// Whether a plan brings the files of kata-deploy back.
fn gives_back(plan: &HostPlan) -> bool {
    plan.next.is_none() && !plan.replaced.is_empty()
}

/// What was taken over, if a plan gives it back.
fn given_back<'a>(state: &'a mut State, plan: &HostPlan) -> Option<&'a mut TakenOver> {
    state.installed.as_mut()?.taken.as_mut().filter(|_| gives_back(plan))
}

/// Notes the sandboxes of which it is not known whether they were started before the restart, from the payload of
/// kata-deploy, or after it.
fn note_unknown(plan: &mut HostPlan, cri: Option<&Cri>) {
    let is_take_over = !plan.replaced.is_empty();
    let taken = plan.next.as_mut().and_then(|next| next.taken.as_mut()).filter(|_| is_take_over);
    let (Some(taken), Some(cri)) = (taken, cri) else { return };
    let its = cri.ready(|handler| taken.handlers.contains_key(handler)).into_iter();
    let new = its.map(|sandbox| sandbox.id).filter(|id| !taken.sandboxes.contains(id));
    taken.of_unknown_payload.extend(new.collect::<Vec<_>>());
}

/// The installed release, and the other one that a plan puts into its place.
fn replaces<'a>(
    state: &'a mut State,
    plan: &'a HostPlan,
) -> Option<(&'a mut Installed, &'a Installed)> {
    let (installed, next) = (state.installed.as_mut()?, plan.next.as_ref()?);
    (installed.release != next.release).then_some((installed, next))
}

/// Keeps the release that was in use until a change was undone, for the sandboxes that may have been
/// started from it: those that were not there before.
fn keep_undone(state: &mut State, plan: &HostPlan, sandboxes: &[Sandbox]) {
    let Some((installed, next)) = replaces(state, plan) else { return };
    let old: BTreeSet<&String> = next.retained.iter().flat_map(|kept| &kept.sandboxes).collect();
    let ours =
        |handler| installed.handlers.contains_key(handler) || next.handlers.contains_key(handler);
    let new = sandboxes.iter().filter(|it| it.ready && ours(&it.handler) && !old.contains(&it.id));
    let ids: BTreeSet<String> = new.map(|sandbox| sandbox.id.clone()).collect();
    retain(&mut installed.retained, next, ids);
}

/// Notes that sandboxes need a release that is not current.
fn retain(retained: &mut Vec<Retained>, of: &Installed, sandboxes: BTreeSet<String>) {
    if sandboxes.is_empty() {
        return;
    }
    match retained.iter_mut().find(|kept| kept.release == of.release) {
        Some(kept) => kept.sandboxes.extend(sandboxes),
        None => retained.push(Retained {
            release: of.release.clone(),
            digest: of.digest.clone(),
            kata_version: of.kata_version.clone(),
            sandboxes,
        }),
    }
}

/// Keeps the release that a plan replaces for these sandboxes.
fn keep_for(plan: &mut HostPlan, old: &Installed, sandboxes: &[Sandbox]) {
    let Some(next) = plan.next.as_mut().filter(|next| next.release != old.release) else { return };
    if sandboxes.is_empty() {
        return;
    }
    let ids = sandboxes.iter().map(|sandbox| sandbox.id.clone()).collect();
    retain(&mut next.retained, old, ids);
    let used = [
        format!("{}/{}", paths::VERSIONS, paths::id(&old.digest)),
        format!("{}/{}", paths::RELEASES, old.release),
    ];
    plan.cleanup.retain(|step| !matches!(step, Step::RemoveTree { path } if used.contains(path)));
}

pub(crate) fn commit(
    host: &mut dyn Host,
    state: &mut State,
    mut plan: HostPlan,
    cri: Option<Cri>,
    trace: &mut Trace,
) -> End {
    let sandboxes = match started(host, state, &plan, cri.as_ref()) {
        Ok(sandboxes) => sandboxes,
        Err(error) => return End::Failed(failed(&error)),
    };
    if plan.next.is_none() && !sandboxes.is_empty() {
        // They cannot do without the payload: it is still installed, and the next removal waits for them.
        state.transaction = None;
        if let Some(taken) = given_back(state, &plan) {
            taken.still_ours = Some(sandboxes.iter().map(|sandbox| sandbox.id.clone()).collect());
        }
        return match journal::save(host, state) {
            Ok(()) => {
                keep_room(host, state);
                End::Blocked(sandboxes)
            }
            Err(error) => End::Failed(journal_failed(&error)),
        };
    }
    if let Some(old) = &state.installed {
        keep_for(&mut plan, old, &sandboxes);
    }
    note_unknown(&mut plan, cri.as_ref());
    let HostPlan { cleanup, next, .. } = plan;
    let removed = next.is_none();
    let before = (state.transaction.take().is_some(), state.installed.take());
    state.installed = next;
    state.of_kata_deploy.clear();
    if (before.0 || before.1 != state.installed)
        && let Err(error) = journal::save(host, state)
    {
        return End::Failed(journal_failed(&error));
    }
    keep_room(host, state);
    if cri.is_some() {
        written::forget(host);
    }
    // What is cleaned up is not needed, and the next run does what this one does not.
    let cleaned = cleanup
        .iter()
        .try_for_each(|step| apply::step(host, step))
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
