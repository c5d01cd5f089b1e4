//! From a task and what was found to a plan. Pure, total and deterministic.

use std::collections::{BTreeMap, BTreeSet};

use kata_api::Code;
use kata_api::node_task::{NodeAction, NodeTask};

use crate::boot;
use crate::check::Check;
use crate::containerd::{self, Base, live};
use crate::cri::Cri;
use crate::crio;
use crate::decision::Decision;
use crate::header;
use crate::kata_deploy::{self, KataDeploy};
use crate::observe::{Files, Found, Observed};
use crate::paths;
use crate::payload::{Entry, TREE};
use crate::plan::{
    Change, Content, Expect, Handler, HostPlan, Installed, MainFile, Retained, Step,
};
use crate::preflight::checks as checks_of;
use crate::release::Release;
use crate::site::{Distribution, Site};
use crate::take_over;
use crate::verify::unsatisfied;

mod foreign;
mod remove;

use remove::remove;

pub(crate) fn decide(task: &NodeTask, observed: &Observed) -> Decision {
    match task.action {
        NodeAction::Preflight => preflight(task, observed),
        NodeAction::Install | NodeAction::Inspect => install(task, observed),
        NodeAction::Remove => remove(task, observed),
    }
}

fn preflight(task: &NodeTask, observed: &Observed) -> Decision {
    let mut checks: Vec<Check> = foreign::of_dead(task, observed).into_iter().collect();
    checks.extend(checks_of(task, observed));
    let wanted: BTreeSet<&String> = task.handlers.iter().map(|handler| &handler.name).collect();
    let installed = observed.state.installed.iter().flat_map(|it| it.handlers.keys());
    let offered = observed.cri.as_ref().map(|cri| live(&cri.status).handlers).unwrap_or_default();
    let restarts = installed.collect::<BTreeSet<_>>() != wanted
        || !wanted.iter().all(|name| offered.contains(*name));
    // A file that cannot be read is named once, and not again in the words of the container runtime's program.
    let is_named = checks.iter().any(|check| check.code == Code::RuntimeConfigBroken);
    if restarts && !is_named {
        checks.extend(foreign::of_restart(task, observed));
    }
    Decision { checks, ..Decision::default() }
}

fn install(task: &NodeTask, observed: &Observed) -> Decision {
    let mut checks: Vec<Check> = foreign::of_dead(task, observed).into_iter().collect();
    checks.extend(checks_of(task, observed));
    if task.action == NodeAction::Inspect {
        checks.extend(foreign::of_any_restart(task, observed));
    }
    if task.action == NodeAction::Inspect
        && let Some(lost) = lost(task, observed)
    {
        let drift = vec![Check::new(Code::PayloadDrifted, lost)];
        return Decision { checks, drift, ..Decision::default() };
    }
    if observed.payload.is_none() {
        checks.push(Check::new(Code::PayloadMissing, missing(task)));
    }
    let (Ok(Some(site)), Ok(cri), Some(found), Some(Ok(release))) =
        (&observed.site, &observed.cri, &observed.payload, &observed.release)
    else {
        return Decision { checks, ..Decision::default() };
    };
    let Ok(files) = wanted_files(observed, site, cri, release, &mut checks) else {
        return Decision { checks, ..Decision::default() };
    };
    let installed = observed.state.installed.as_ref();
    let before: BTreeMap<String, Handler> =
        installed.map(|installed| installed.handlers.clone()).unwrap_or_default();
    let theirs = observed.files.kata_deploy.as_ref();
    let replaced: BTreeMap<String, Handler> = theirs
        .into_iter()
        .flat_map(KataDeploy::handlers)
        .map(|(name, handler)| (name.clone(), handler.clone()))
        .collect();
    let gone: BTreeSet<String> = before
        .keys()
        .chain(replaced.keys())
        .filter(|name| !release.handlers.contains_key(*name))
        .cloned()
        .collect();
    checks.extend(foreign::copy(observed, site, &gone));
    if checks.iter().any(Check::fatal) {
        return Decision { checks, ..Decision::default() };
    }
    let expect = Expect {
        ours: release.handlers.clone(),
        kept: cri.kept(observed.handlers_on_disk().as_ref(), release.handlers.keys().chain(&gone)),
        gone,
    };
    let mut known = &live(&cri.status).handlers | &observed.files.own_handlers();
    known.extend(observed.files.copied_handlers());
    let added = release.handlers.keys().filter(|name| !known.contains(*name)).cloned().collect();
    let touched: BTreeSet<&String> = before
        .iter()
        .filter(|(name, handler)| release.handlers.get(*name) != Some(handler))
        .map(|(name, _)| name)
        .collect();
    let mut in_the_way = cri.ready(|handler| touched.contains(&handler.to_owned()));
    in_the_way.extend(take_over::in_the_way(theirs, release, cri));

    let mut drift = Vec::new();
    let mut prepare = prepare(observed, found, release, &mut drift);
    let mut changes = files.changes;
    let rewritten = changes.iter().any(|change| change.path == observed.files.drop_in)
        && observed.files.own_drop_in().is_some_and(|text| !same_toml(text, &files.drop_in));
    if !changes.is_empty() {
        let found: Vec<String> = changes.iter().map(how_it_differs).collect();
        drift.push(Check::new(Code::ConfigDrifted, found.join(", ")));
    }
    let link = Content::Link { target: format!("releases/{}", release.name) };
    if observed.current != link {
        changes.insert(
            0,
            Change {
                path: paths::CURRENT.to_owned(),
                before: observed.current.clone(),
                after: link,
            },
        );
        drift.push(Check::new(
            Code::PayloadDrifted,
            format!("{} is in use, and not release {}", current_name(observed), release.name),
        ));
    }
    let missing = unsatisfied(cri, &expect);
    if let Some(missing) = &missing {
        drift.push(Check::new(Code::HandlersDrifted, missing.clone()));
    }
    let running: BTreeSet<String> = cri
        .ready(|handler| before.contains_key(handler) || release.handlers.contains_key(handler))
        .into_iter()
        .map(|sandbox| sandbox.id)
        .collect();
    let taken = take_over::taken(task, observed, cri, site, &changes);
    if let Some(settled) = take_over::settle(installed, taken.as_ref()) {
        let message = format!("{} of kata-deploy is not used any more", kata_deploy::TREE);
        drift.push(Check::new(Code::ConfigDrifted, message));
        prepare.push(settled);
    }
    let next = Installed {
        image: found.payload.stage.image.clone(),
        digest: found.payload.stage.digest.clone(),
        kata_version: found.payload.stage.kata_version.clone(),
        release: release.name.clone(),
        drop_in: observed.files.drop_in.clone(),
        handlers: release.handlers.clone(),
        main: files.main,
        directories: files.directories,
        retained: retained(observed, cri, release, running),
        taken,
    };
    let cleanup = prune(observed, found, &next);
    if observed.foreign.ours_is_newer {
        let message = format!("{} was written after CRI-O was started", observed.files.drop_in);
        drift.push(Check::new(Code::HandlersDrifted, message));
    }
    let unchanged = prepare.is_empty()
        && !observed.foreign.ours_is_newer
        && changes.is_empty()
        && missing.is_none()
        && cleanup.is_empty()
        && installed == Some(&next);
    let restart = missing.is_some() || rewritten || observed.foreign.ours_is_newer;
    if task.action == NodeAction::Install {
        checks.extend(foreign::of_change(task, observed, &changes, restart));
    }
    let plan = (!unchanged).then(|| HostPlan {
        site: site.clone(),
        prepare,
        changes,
        restart,
        rewritten,
        baseline: foreign::baseline(observed, site),
        changed_by_others: observed.foreign.changed.paths.clone(),
        expect,
        added,
        replaced,
        cleanup,
        next: Some(next),
    });
    Decision { checks, in_the_way, plan, drift }
}

/// How a file differs from what an installation makes.
fn how_it_differs(change: &Change) -> String {
    let Change { path, before, after } = change;
    match before {
        Content::Absent => format!("{path} is missing"),
        found if found.ours().is_some_and(header::is_edited) => format!("{path} was edited"),
        Content::File { .. } if *after == Content::Absent && before.ours().is_none() => {
            format!("{path} of kata-deploy is there")
        }
        _ => format!("{path} is not as it was made"),
    }
}

fn missing(task: &NodeTask) -> String {
    let image = task.payload_image.as_deref().unwrap_or("any image");
    format!("no payload of {image} is below {}", paths::ROOT)
}

/// Why the node has no intact payload with which the rest could be compared.
fn lost(task: &NodeTask, observed: &Observed) -> Option<String> {
    let Some(found) = &observed.payload else { return Some(missing(task)) };
    let first = found.damaged.first().filter(|_| !found.staged)?;
    let all = found.payload.manifest.entries.len();
    Some(format!(
        "{} of {all} files of the payload differ, the first is {first}",
        found.damaged.len()
    ))
}

fn current_name(observed: &Observed) -> &str {
    match &observed.current {
        Content::Link { target } => target,
        Content::Absent | Content::Directory | Content::File { .. } => "no release",
    }
}

fn same_toml(one: &str, other: &str) -> bool {
    match (one.parse::<toml::Table>(), other.parse::<toml::Table>()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// The desired files of the container runtime.
struct WantedFiles {
    drop_in: String,
    changes: Vec<Change>,
    main: Option<MainFile>,
    directories: Vec<String>,
}

fn wanted_files(
    observed: &Observed,
    site: &Site,
    cri: &Cri,
    release: &Release,
    checks: &mut Vec<Check>,
) -> Result<WantedFiles, ()> {
    let files = &observed.files;
    let installed = observed.state.installed.as_ref();
    let Ok(config) = &files.config else { return Err(()) };
    let built_in = match &files.built_in {
        Ok(built_in) => built_in,
        Err(reason) => {
            checks.push(Check::new(Code::RuntimeConfigUnknown, reason.clone()));
            return Err(());
        }
    };
    let drop_in = match site.distribution {
        Distribution::Crio => crio::drop_in(&release.handlers),
        // k0s merges key by key with every version of containerd.
        Distribution::K0s => {
            let base = Base::plain(config.schema);
            containerd::drop_in(&base, (2, 0), built_in, &release.handlers)
        }
        _ => containerd::drop_in(&files.base, cri.numbers(), built_in, &release.handlers),
    };
    let mut changes = Vec::new();
    let mut directories: Vec<String> =
        installed.map(|installed| installed.directories.clone()).unwrap_or_default();
    for path in &files.missing_dirs {
        changes.push(Change {
            path: path.clone(),
            before: Content::Absent,
            after: Content::Directory,
        });
        if !directories.contains(path) {
            directories.push(path.clone());
        }
    }
    let content = Content::File { text: drop_in.clone(), mode: drop_in_mode(files, site, cri) };
    if files.ours != content {
        changes.push(Change {
            path: files.drop_in.clone(),
            before: files.ours.clone(),
            after: content,
        });
    }
    changes.extend(files.without_stale());
    let mut main = installed.and_then(|installed| installed.main.clone());
    let theirs = files.kata_deploy.as_ref();
    let its_imports = theirs.map(|theirs| theirs.imports.as_slice()).unwrap_or_default();
    let is_edited = !files.is_imported || !its_imports.is_empty();
    if let (true, Some(path)) = (is_edited, &site.editable) {
        let import = format!("{}/*.toml", paths::parent(&files.drop_in));
        let edited = match &files.editable {
            Content::Absent => containerd::add_import(None, &import)
                .map(|text| (Content::Absent, Content::File { text, mode: 0o644 })),
            Content::File { text, mode } => {
                let added = (!files.is_imported).then_some(import.as_str());
                let file = |text| Content::File { text, mode: *mode };
                let without = containerd::replace_imports(text, its_imports, None);
                let with = containerd::replace_imports(text, its_imports, added);
                without.and_then(|without| Ok((file(without), file(with?))))
            }
            // The preflight says so.
            Content::Link { .. } => return Err(()),
            Content::Directory => Err("it is a directory".to_owned()),
        };
        match edited {
            Ok((without, after)) => {
                // No later run would take ours out of the file that was used before.
                let moved = main.as_ref().filter(|main| main.path != *path);
                changes.extend(moved.and_then(|main| files.without_import(main)));
                changes.push(Change {
                    path: path.clone(),
                    before: files.editable.clone(),
                    after: after.clone(),
                });
                if !files.is_imported {
                    main = Some(MainFile { path: path.clone(), before: without, after, import });
                }
            }
            Err(reason) => {
                checks.push(Check::new(
                    Code::RuntimeConfigUnknown,
                    format!("{path} cannot be edited: {reason}"),
                ));
                return Err(());
            }
        }
    }
    // After ours, so that the handlers are in one of the files all the time.
    changes.extend(theirs.into_iter().flat_map(|theirs| &theirs.drop_ins).map(
        |(path, content)| Change {
            path: path.clone(),
            before: content.clone(),
            after: Content::Absent,
        },
    ));
    changes.extend(boot::change(observed, site, config));
    Ok(WantedFiles { drop_in, changes, main, directories })
}

/// Who may read our drop-in. It may copy a section of the main file or of another drop-in, which may have credentials of
/// registries.
fn drop_in_mode(files: &Files, site: &Site, cri: &Cri) -> u32 {
    let of_main = match (site.distribution, &files.main) {
        (Distribution::Crio | Distribution::K0s, _) | (_, Content::Absent) => return 0o644,
        _ if !files.base.is_copied(cri.numbers()) => return 0o644,
        (_, Content::File { mode, .. }) => mode & 0o666,
        (_, Content::Link { .. } | Content::Directory) => 0o600,
    };
    let copied = files.others.iter().filter(|other| other.has_section());
    copied.fold(of_main, |mode, other| mode & other.mode)
}

fn prepare(
    observed: &Observed,
    found: &Found,
    release: &Release,
    drift: &mut Vec<Check>,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let id = found.payload.id();
    let staged = format!("{}/{id}", paths::STAGING);
    let version = format!("{}/{id}", paths::VERSIONS);
    if !found.promoted {
        if observed.versions.contains(&id) {
            // There is something of that name, and it cannot be trusted.
            steps.push(Step::RemoveTree { path: version.clone() });
        }
        steps.push(Step::Move { from: staged, to: version });
    } else if !found.damaged.is_empty() {
        drift.push(Check::new(
            Code::PayloadDrifted,
            format!("{} files of the payload are damaged", found.damaged.len()),
        ));
        let directories = found.damaged.iter().any(|path| {
            matches!(found.payload.manifest.entries.get(path), Some(Entry::Directory { .. }))
        });
        if directories {
            steps.push(Step::RemoveTree { path: version.clone() });
            steps.push(Step::Move { from: staged, to: version });
        } else {
            steps.extend(found.damaged.iter().map(|path| Step::Repair {
                from: format!("{staged}/{TREE}/{path}"),
                to: format!("{version}/{TREE}/{path}"),
            }));
            steps.push(Step::Seal { path: version });
        }
    }
    match &observed.release_damaged {
        None => {
            steps.push(Step::Build { path: release.folder(), content: release.content.clone() });
        }
        Some(damaged) => {
            for name in damaged {
                let path = format!("{}/{name}", release.folder());
                let (message, step) = match release.content.get(name) {
                    Some(content) => (
                        format!("{path} was changed"),
                        Step::Put { path, content: content.clone() },
                    ),
                    None => (
                        format!(
                            "{path} was added, and the next change of the node deletes it: move its settings to spec.runtimes[].config"
                        ),
                        Step::RemoveTree { path },
                    ),
                };
                drift.push(Check::new(Code::PayloadDrifted, message));
                steps.push(step);
            }
        }
    }
    steps
}

/// The earlier releases that must be kept: those that running sandboxes were started from, or may have been.
fn retained(
    observed: &Observed,
    cri: &Cri,
    release: &Release,
    running: BTreeSet<String>,
) -> Vec<Retained> {
    let ids = |ours: &dyn Fn(&str) -> bool| -> BTreeSet<String> {
        cri.ready(ours).into_iter().map(|sandbox| sandbox.id).collect()
    };
    let mut retained = match &observed.state.installed {
        Some(installed) => {
            let mut retained = installed.retained.clone();
            if installed.release != release.name {
                retained.push(Retained {
                    release: installed.release.clone(),
                    digest: installed.digest.clone(),
                    kata_version: installed.kata_version.clone(),
                    sandboxes: running,
                });
            }
            retained
        }
        None => observed
            .unnamed
            .iter()
            .map(|old| Retained {
                release: old.release.clone(),
                digest: old.payload.clone(),
                kata_version: None,
                sandboxes: ids(&|handler| old.handlers.contains(handler)),
            })
            .collect(),
    };
    // Their handler may have another name by now.
    let alive = ids(&|_| true);
    for old in &mut retained {
        old.sandboxes.retain(|sandbox| alive.contains(sandbox));
    }
    retained.retain(|old| old.release != release.name && !old.sandboxes.is_empty());
    retained
}

/// Everything below our folders that is not needed after the change.
fn prune(observed: &Observed, found: &Found, next: &Installed) -> Vec<Step> {
    let versions: BTreeSet<String> = std::iter::once(&next.digest)
        .chain(next.retained.iter().map(|old| &old.digest))
        .map(|digest| paths::id(digest))
        .collect();
    let releases: BTreeSet<&String> = std::iter::once(&next.release)
        .chain(next.retained.iter().map(|old| &old.release))
        .collect();
    let moved = |name: &String| !found.promoted && *name == found.payload.id();
    let stagings = observed
        .stagings
        .iter()
        .filter(|name| !moved(name))
        .map(|name| format!("{}/{name}", paths::STAGING));
    let versions = observed
        .versions
        .iter()
        .filter(|name| !versions.contains(*name))
        .map(|name| format!("{}/{name}", paths::VERSIONS));
    let releases = observed
        .releases
        .iter()
        .filter(|name| !releases.contains(name))
        .map(|name| format!("{}/{name}", paths::RELEASES));
    stagings.chain(versions).chain(releases).map(|path| Step::RemoveTree { path }).collect()
}
