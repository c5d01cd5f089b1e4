//! What a restart of the container runtime would do that is not ours: it starts with the files of others as they are
//! then, and those may have been changed since it was started.

use std::collections::BTreeSet;

use kata_api::Code;
use kata_api::node_task::{ForeignChanges, NodeAction, NodeTask};

use crate::check::Check;
use crate::configuration::Configuration;
use crate::crio;
use crate::observe::{Foreign, Observed};
use crate::paths;
use crate::plan::{Baseline, Change};
use crate::site::{Distribution, Site};

/// The keys and files that a message names.
const NAMED: usize = 3;

/// What the container runtime prints of its files without ours.
pub(super) fn baseline(observed: &Observed, site: &Site) -> Option<Baseline> {
    let (program, printed) =
        (site.program.clone()?, observed.foreign.printed.as_ref()?.clone().ok()?);
    Some(Baseline { program, printed })
}

/// What speaks against a restart, or has to be said about it.
pub(super) fn of_restart(task: &NodeTask, observed: &Observed) -> Option<Check> {
    let site = observed.site.as_ref().ok()?.as_ref()?;
    if let Some(reason) = cannot_start(task, observed, site) {
        return Some(Check::new(Code::RuntimeConfigBroken, reason));
    }
    let message = pending(observed, site)?;
    let waits = task.foreign_changes == ForeignChanges::Wait;
    let code = if waits && is_grave(observed, site) {
        Code::ForeignChangePending
    } else {
        Code::ForeignChangeOnRestart
    };
    Some(Check::new(code, message))
}

/// The same of a change: also without a restart no file is written beside some that nothing can start with.
pub(super) fn of_change(
    task: &NodeTask,
    observed: &Observed,
    changes: &[Change],
    restart: bool,
) -> Option<Check> {
    let is_read = changes.iter().any(|change| change.path != paths::CURRENT);
    let matters = |check: &Check| restart || (is_read && check.code == Code::RuntimeConfigBroken);
    of_restart(task, observed).filter(matters)
}

/// The same for a node that is only looked at: nothing restarts its runtime now.
pub(super) fn of_any_restart(task: &NodeTask, observed: &Observed) -> Option<Check> {
    let site = observed.site.as_ref().ok()?.as_ref()?;
    let message = match cannot_start(task, observed, site) {
        Some(reason) => format!("{} would not start again: {reason}", unit(site)),
        None if observed.foreign.changed.paths.is_empty() => return None,
        None => pending(observed, site)?,
    };
    Some(Check::new(Code::ForeignChangeOnRestart, message))
}

/// Whether a restart brings something of others into effect, and not only perhaps. When CRI-O starts, it fills in values
/// and leaves out handlers, so a difference between its process and its files does not show that another program changed
/// something.
fn is_grave(observed: &Observed, site: &Site) -> bool {
    let changed = &observed.foreign.changed;
    let differs = || site.distribution != Distribution::Crio && !differences(observed).is_empty();
    changed.is_sure || (!changed.paths.is_empty() && differs())
}

fn is_comparable(observed: &Observed) -> bool {
    let Foreign { running, on_disk, .. } = &observed.foreign;
    *running != Configuration::Unknown && *on_disk != Configuration::Unknown
}

fn differences(observed: &Observed) -> Vec<String> {
    observed.foreign.running.differences(&observed.foreign.on_disk, &observed.ours())
}

fn unit(site: &Site) -> &str {
    site.unit.as_deref().unwrap_or("the container runtime")
}

/// Why a runtime that does not serve CRI does not, if its files show it.
pub(super) fn of_dead(task: &NodeTask, observed: &Observed) -> Option<Check> {
    let site = observed.site.as_ref().ok()?.as_ref().filter(|_| observed.cri.is_err())?;
    let by_ours = observed.foreign.broken_by_ours.as_ref().map(|reason| {
        let path = &observed.files.drop_in;
        format!(
            "{path}, a file of Kata, keeps {} from serving CRI: {reason}; a removal takes it away",
            unit(site)
        )
    });
    by_ours
        .or_else(|| cannot_start(task, observed, site))
        .map(|reason| Check::new(Code::RuntimeConfigBroken, reason))
}

/// Why the runtime would not start, or not serve CRI, with the files as they are.
fn cannot_start(task: &NodeTask, observed: &Observed, site: &Site) -> Option<String> {
    let foreign = &observed.foreign;
    if let Some(reason) =
        observed.files.missing(site).or_else(|| crio_default(task, observed, site))
    {
        return Some(reason);
    }
    // CRI-O serves with these files already, so a complaint of its program about them does not count.
    let is_proven = site.distribution == Distribution::Crio
        && observed.cri.is_ok()
        && foreign.changed.paths.is_empty();
    let reason = match &foreign.printed {
        Some(Err(_)) if is_proven => return None,
        Some(Err(reason)) => reason.clone(),
        Some(Ok(_)) | None => foreign.on_disk.cannot_start(&remaining(task, observed))?,
    };
    let files = if foreign.changed.paths.is_empty() {
        site.main.clone()
    } else {
        list(&foreign.changed.paths)
    };
    Some(format!("{files}: {reason}"))
}

/// The file of another program that copies the table of a handler that is being removed: the container runtime would keep
/// offering it, without a payload.
pub(super) fn copy(observed: &Observed, site: &Site, gone: &BTreeSet<String>) -> Option<Check> {
    let (path, name) = observed.files.copy_of(site, gone)?;
    let message = format!(
        "{path}, which another program wrote, has a copy of the table of the runtime {name}: delete that table from the \
         file; the operator then removes the handler and continues"
    );
    Some(Check::new(Code::ForeignHandler, message))
}

/// Our handlers that are there at the next start.
fn remaining(task: &NodeTask, observed: &Observed) -> BTreeSet<String> {
    if task.action == NodeAction::Remove { BTreeSet::new() } else { observed.ours() }
}

/// Why CRI-O would not start: its default handler has no table, or none but ours, which a removal takes away.
fn crio_default(task: &NodeTask, observed: &Observed, site: &Site) -> Option<String> {
    if site.distribution != Distribution::Crio {
        return None;
    }
    let files = &observed.files;
    let defaults = files
        .crio(site)
        .filter_map(|(path, text)| crio::default_runtime(text).map(|name| (path, name)));
    let (path, name) = defaults.last()?;
    let mut there = observed.handlers_on_disk()?;
    there.extend(remaining(task, observed));
    // A flag may name another default, or bring its table: what CRI-O was started with is good.
    let is_new = observed.cri.is_err()
        || !observed.foreign.changed.paths.is_empty()
        || (task.action == NodeAction::Remove && observed.ours().contains(&name));
    let is_missing = is_new && !name.is_empty() && !there.contains(&name);
    is_missing.then(|| {
        format!("{path}: default_runtime is {name}, and no other file has a runtime of that name")
    })
}

/// Which changes of others a restart would bring into effect.
fn pending(observed: &Observed, site: &Site) -> Option<String> {
    let foreign = &observed.foreign;
    if site.distribution == Distribution::Crio && foreign.changed.paths.is_empty() {
        return None;
    }
    let keys = differences(observed);
    let differ = format!("the process and the files differ in {}", list(&keys));
    if foreign.changed.paths.is_empty() {
        return (!keys.is_empty()).then_some(differ);
    }
    let what = if !keys.is_empty() {
        differ
    } else if is_comparable(observed) {
        "CRI reports no difference, and does not report every setting".to_owned()
    } else {
        "what the process runs with is not known".to_owned()
    };
    let (changed, were) = (list(&foreign.changed.paths), verb(&foreign.changed.paths));
    Some(format!("{changed} {were} changed after {} started; {what}", unit(site)))
}

fn verb(all: &[String]) -> &'static str {
    if all.len() == 1 { "was" } else { "were" }
}

fn list(all: &[String]) -> String {
    let named = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
