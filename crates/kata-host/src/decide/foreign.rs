//! What a restart of the container runtime would do that is not ours: it starts with the files of others as they are
//! then, and those may have been changed since it was started.

use kata_api::Code;
use kata_api::node_task::{ForeignChanges, NodeAction, NodeTask};

use crate::check::Check;
use crate::configuration::Configuration;
use crate::crio;
use crate::observe::Observed;
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
    let code = if !observed.foreign.changed.is_empty() && waits {
        Code::ForeignChangePending
    } else {
        Code::ForeignChangeActivated
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
        Some(reason) => format!("its next start would fail: {reason}"),
        None if observed.foreign.changed.is_empty() => return None,
        None => pending(observed, site)?,
    };
    Some(Check::new(Code::ForeignChangeActivated, message))
}

/// Why a runtime that does not serve CRI does not, if its files show it.
pub(super) fn of_dead(task: &NodeTask, observed: &Observed) -> Option<Check> {
    let site = observed.site.as_ref().ok()?.as_ref().filter(|_| observed.cri.is_err())?;
    let by_ours = observed.foreign.broken_by_ours.as_ref().map(|reason| {
        let path = &observed.files.drop_in;
        format!("{path}, without which it would start: {reason}; a removal takes the file away")
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
    let reason = match &foreign.printed {
        Some(Err(reason)) => reason.clone(),
        Some(Ok(_)) | None => foreign.on_disk.cannot_start()?,
    };
    let files = if foreign.changed.is_empty() { site.main.clone() } else { list(&foreign.changed) };
    Some(format!("{files}: {reason}"))
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
    let mut there = observed.on_disk()?;
    if task.action != NodeAction::Remove {
        there.extend(files.own_handlers());
    }
    let is_missing = !name.is_empty() && !there.contains(&name);
    is_missing.then(|| {
        format!("{path}: default_runtime is {name}, and no other file has a runtime of that name")
    })
}

/// Which changes of others a restart would bring into effect.
fn pending(observed: &Observed, site: &Site) -> Option<String> {
    let foreign = &observed.foreign;
    let keys = foreign.running.differences(&foreign.on_disk, &observed.ours());
    let unit = site.unit.as_deref().unwrap_or("the container runtime");
    let (changed, were) = (list(&foreign.changed), verb(&foreign.changed));
    if foreign.changed.is_empty() {
        return (!keys.is_empty())
            .then(|| format!("what runs differs from the files in {}", list(&keys)));
    }
    let is_known =
        foreign.running != Configuration::Unknown && foreign.on_disk != Configuration::Unknown;
    let what = if !keys.is_empty() {
        format!("what runs differs in {}", list(&keys))
    } else if is_known {
        "what CRI reports is the same, and the rest is not known".to_owned()
    } else {
        "what runs cannot be compared".to_owned()
    };
    Some(format!("{changed} {were} changed after {unit} started; {what}"))
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
