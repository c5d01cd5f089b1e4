//! The removal: our files out of the container runtime's, and then everything of ours.

use std::collections::BTreeSet;

use kata_api::Code;
use kata_api::node_task::NodeTask;

use super::foreign;
use crate::check::Check;
use crate::cri::Cri;
use crate::decision::Decision;
use crate::kata_deploy;
use crate::nodeadm;
use crate::observe::{Observed, handlers};
use crate::paths;
use crate::plan::{Change, Content, Expect, HostPlan, Step};
use crate::site::SiteError;
use crate::take_over;
use crate::verify::unsatisfied;

pub(super) fn remove(task: &NodeTask, observed: &Observed) -> Decision {
    let mut checks = Vec::new();
    let files = &observed.files;
    let installed = observed.state.installed.as_ref();
    let own = files.own();
    let mut ours: BTreeSet<String> =
        installed.map(|installed| installed.handlers.keys().cloned().collect()).unwrap_or_default();
    // Without a journal the drop-in shows it, and without that what is prepared: sandboxes may run of it.
    ours.extend(files.own_handlers());
    ours.extend(&observed.released - &files.foreign_handlers());
    let boot = observed.boot.as_ref().map(|boot| &boot.found);
    if installed.is_none() && own.is_empty() && !observed.leftovers && boot.is_none() {
        return Decision::default();
    }
    let nothing_configured = installed.is_none() && own.is_empty();
    let (site, cri) = match (&observed.site, &observed.cri) {
        (Ok(Some(site)), Ok(cri)) => (site.clone(), cri.clone()),
        // Nothing of ours is in its configuration: it need not be asked.
        (Ok(Some(site)), Err(_)) if nothing_configured => (site.clone(), Cri::none()),
        // It serves again once our files are gone. Which sandboxes run is asked then, before the payload goes.
        (Ok(Some(site)), Err(_)) if observed.foreign.broken_by_ours.is_some() => {
            (site.clone(), Cri::none())
        }
        (Err(error), _) => {
            let code = match error {
                SiteError::Systemd(_) => Code::SystemdUnreachable,
                SiteError::File(_) => Code::RuntimeConfigUnknown,
                SiteError::Several { .. } | SiteError::Elsewhere { .. } => {
                    Code::RuntimeNotConfirmed
                }
            };
            checks.push(Check::new(code, error.to_string()));
            return Decision { checks, ..Decision::default() };
        }
        (Ok(None), _) => {
            checks.push(Check::new(Code::RuntimeUnsupported, "no container runtime was found"));
            return Decision { checks, ..Decision::default() };
        }
        (Ok(Some(_)), Err(error)) => {
            checks.extend(foreign::of_dead(task, observed));
            checks.push(Check::new(Code::RuntimeUnreachable, error.clone()));
            return Decision { checks, ..Decision::default() };
        }
    };
    // Without its header it is not ours, and what it configures would stay.
    if let (None, Content::File { text, .. }) = (files.own_drop_in(), &files.ours)
        && let Some(name) = handlers(text).iter().find(|name| ours.contains(*name))
    {
        let message =
            format!("{} does not begin with our header and configures {name}", files.drop_in);
        checks.push(Check::new(Code::ForeignFile, message));
        return Decision { checks, ..Decision::default() };
    }
    if let Some(copy) = foreign::copy(observed, &site, &ours) {
        checks.push(copy);
        return Decision { checks, ..Decision::default() };
    }
    let kept = installed.and_then(|installed| Some((installed, installed.taken.as_ref()?)));
    // Where its drop-in is read, it is given back already, or kata-deploy is at work again.
    let there = kept.and_then(|_| take_over::handlers_there(files));
    let given_back = kept.filter(|_| task.take_over || there.is_some());
    if given_back.is_some()
        && there.is_none()
        && let Some(check) = take_over::not_to_give_back(observed)
    {
        checks.push(check);
        return Decision { checks, ..Decision::default() };
    }
    let mut in_the_way = cri.ready(|handler| ours.contains(handler));
    if let Some((_, taken)) = given_back {
        let waits_for_it = |id: &String| match &taken.still_ours {
            Some(waiting) => waiting.contains(id),
            None => !taken.sandboxes.contains(id),
        };
        in_the_way.retain(|sandbox| waits_for_it(&sandbox.id));
    }
    let theirs =
        there.or_else(|| given_back.map(|(_, taken)| taken.handlers.clone())).unwrap_or_default();
    let mut changes = Vec::new();
    let mut main = installed.and_then(|installed| installed.main.as_ref());
    if let Some((installed, taken)) = given_back {
        changes.extend(take_over::give_back(files, installed, taken));
        main = main.filter(|main| taken.main.as_ref().is_none_or(|its| its.path != main.path));
    }
    // First, so that no boot brings the import back that goes after it. Where others rely on an import of ours, both stay.
    let import = format!("{}/*.toml", paths::parent(&files.drop_in));
    let stays = files.is_relied_on(&import) && (installed.is_none() || main.is_some());
    let boot = boot.filter(|_| !stays);
    changes.extend(boot.map(|found| Change {
        path: nodeadm::FILE.to_owned(),
        before: found.clone(),
        after: Content::Absent,
    }));
    if files.own_drop_in().is_some() {
        changes.push(Change {
            path: files.drop_in.clone(),
            before: files.ours.clone(),
            after: Content::Absent,
        });
    }
    changes.extend(files.without_stale());
    changes.extend(main.and_then(|main| files.without_import(main)));
    let directories = installed.map(|installed| installed.directories.clone()).unwrap_or_default();
    for path in directories.into_iter().rev().filter(|path| !files.missing_dirs.contains(path)) {
        changes.push(Change { path, before: Content::Directory, after: Content::Absent });
    }
    let expect = Expect {
        // Of a CRI-O that is down it is not known which handlers it offered: it leaves out those whose program is gone.
        kept: match (&observed.cri, observed.foreign.on_disk.handlers()) {
            (Err(_), Some(on_disk)) if !nothing_configured => &on_disk - &ours,
            (Ok(_) | Err(_), _) => {
                cri.kept(observed.handlers_on_disk().as_ref(), ours.iter().chain(theirs.keys()))
            }
        },
        gone: ours.into_iter().filter(|name| !theirs.contains_key(name)).collect(),
        ours: theirs,
    };
    let restart = match &observed.cri {
        Ok(cri) => unsatisfied(cri, &expect).is_some(),
        Err(_) => !nothing_configured,
    };
    checks.extend(foreign::of_change(task, observed, &changes, restart));
    let mut cleanup = vec![Step::RemoveTree { path: paths::ROOT.to_owned() }];
    if kept.is_some() && given_back.is_none() && !take_over::names_tree(files) {
        cleanup.insert(0, Step::RemoveTree { path: kata_deploy::TREE.to_owned() });
    }
    let plan = HostPlan {
        // The log level of containerd comes back with its drop-in, and is all that may differ.
        baseline: if changes.is_empty() || given_back.is_some_and(|(_, it)| it.sets_log_level) {
            None
        } else {
            foreign::baseline(observed, &site)
        },
        changed_by_others: observed.foreign.changed.paths.clone(),
        site,
        prepare: needless(observed),
        changes,
        restart,
        rewritten: false,
        expect,
        added: BTreeSet::new(),
        replaced: given_back.map(|(it, _)| it.handlers.clone()).unwrap_or_default(),
        cleanup,
        next: None,
    };
    Decision { checks, in_the_way, plan: Some(plan), drift: Vec::new() }
}

/// What is not needed, not even on the way back. It goes first, since the disk may be full. No sandbox of ours
/// runs, so that of the payloads only the one is left that new sandboxes would be started from.
fn needless(observed: &Observed) -> Vec<Step> {
    let staged = (!observed.stagings.is_empty()).then(|| paths::STAGING.to_owned());
    let mut folders: Vec<String> = staged.into_iter().collect();
    if let Some(installed) = &observed.state.installed
        && let Content::Link { target } = &observed.current
        && *target == format!("releases/{}", installed.release)
    {
        let id = paths::id(&installed.digest);
        let others = |folder: &str, names: &[String], kept: &str| -> Vec<String> {
            let others = names.iter().filter(|name| *name != kept);
            others.map(|name| format!("{folder}/{name}")).collect()
        };
        folders.extend(others(paths::VERSIONS, &observed.versions, &id));
        folders.extend(others(paths::RELEASES, &observed.releases, &installed.release));
    }
    folders.into_iter().map(|path| Step::RemoveTree { path }).collect()
}
