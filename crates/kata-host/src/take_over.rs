//! Takes over what kata-deploy installed on a node, and gives it back.
//!
//! Its drop-ins, or its import in the main file, go in the change that brings ours, so that one restart moves the
//! handlers. Its payload stays where it is: sandboxes run from it, and it is the way back.
//! What is decided here is data; nothing is read or changed.

use std::collections::{BTreeMap, BTreeSet};

use kata_api::Code;
use kata_api::node_task::NodeTask;

use crate::check::Check;
use crate::containerd;
use crate::cri::Cri;
use crate::kata_deploy::{self, KataDeploy};
use crate::observe::{Files, Observed};
use crate::paths;
use crate::plan::{Change, Content, Handler, Installed, Step, TakenOver};
use crate::release::Release;
use crate::site::{Distribution, Site};

/// How the names of kata-deploy's pods begin.
const PODS: &str = "kata-deploy";
/// How the name of its file for CRI-O begins.
const CRIO_FILE: &str = "99-kata-deploy";
/// The files that a message names.
const NAMED: usize = 4;

/// What speaks against taking kata-deploy's installation over, and what of it is left.
pub(crate) fn checks(
    task: &NodeTask,
    observed: &Observed,
    site: &Site,
    cri: &Cri,
    checks: &mut Vec<Check>,
) {
    if !task.take_over {
        return;
    }
    if let Some(reason) = refusal(observed, site, cri) {
        checks.push(Check::new(Code::TakeOverRefused, reason));
    }
    let Some(found) = &observed.files.kata_deploy else { return };
    let left: Vec<&String> = found.settings.iter().chain(&found.elsewhere).collect();
    if !left.is_empty() {
        let named: Vec<&str> = left.iter().take(NAMED).map(|path| path.as_str()).collect();
        let more = match left.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message = format!("not taken over: {}{more}", named.join(", "));
        checks.push(Check::new(Code::ForeignSettings, message));
    }
}

/// Why kata-deploy's installation cannot be taken over.
fn refusal(observed: &Observed, site: &Site, cri: &Cri) -> Option<String> {
    let files = &observed.files;
    let names_crio = |path: &str| paths::name(path).starts_with(CRIO_FILE);
    if site.distribution == Distribution::Crio {
        let (path, _) = files.crio(site).find(|(path, _)| names_crio(path))?;
        return Some(format!(
            "{path} is for CRI-O, and only containerd can be taken over: remove kata-deploy from the node once none of its \
             sandboxes runs there"
        ));
    }
    if cri.numbers() < (2, 0) {
        let text = files.main_text.as_ref()?;
        let is_its = text.contains(&format!("\"{}/", kata_deploy::TREE));
        return is_its.then(|| {
            format!(
                "kata-deploy wrote its handlers into {}, since it is for {} {}, and only containerd 2 or newer can be \
                 taken over: update containerd, or remove kata-deploy from the node once none of its sandboxes runs there",
                site.main, cri.version.name, cri.version.version
            )
        });
    }
    let found = files.kata_deploy.as_ref()?;
    if site.distribution == Distribution::Microk8s {
        return Some(
            "kata-deploy cannot be taken over on MicroK8s: remove it from the node once none of its sandboxes runs there"
                .to_owned(),
        );
    }
    let handlers = match &found.handlers {
        Ok(handlers) => handlers,
        Err(reason) => {
            return Some(format!(
                "{reason}, and only handlers with shims and configurations below {} can be taken over: change the values \
                 of kata-deploy, or remove it from the node",
                kata_deploy::TREE
            ));
        }
    };
    if let Some(other) =
        files.others.iter().find(|other| kata_deploy::is_of_user(paths::name(&other.path)))
    {
        return Some(format!(
            "{} is a drop-in that kata-deploy's user gave it: move it to a name of your own, or take it out of \
             kata-deploy's values",
            other.path
        ));
    }
    if let (Content::Link { target }, Some(path), false) =
        (&files.editable, &site.editable, found.imports.is_empty())
    {
        return Some(format!(
            "{path} imports kata-deploy's drop-in and is a link to {target}, which others may use as well: put a copy \
             in its place"
        ));
    }
    if let (Some(import), None) = (found.imports.first(), &site.editable) {
        return Some(format!(
            "{} imports {import}, and {} writes that file anew at each start: take the import out of its template",
            site.main,
            site.unit.as_deref().unwrap_or("the distribution")
        ));
    }
    let its_pods = cri.ready(str::is_empty);
    if let Some(pod) = its_pods.iter().find(|sandbox| sandbox.pod.starts_with(PODS)) {
        return Some(format!(
            "pod {}/{} of kata-deploy runs on the node, and would undo the take-over: stop it with \
             `kubectl kata takeover begin`",
            pod.namespace, pod.pod
        ));
    }
    let Some(Ok(release)) = &observed.release else { return None };
    let other = handlers.iter().find(|(name, theirs)| {
        release.handlers.get(*name).is_some_and(|ours| {
            kata_deploy::is_rust(&ours.runtime_path) != kata_deploy::is_rust(&theirs.runtime_path)
        })
    });
    other.map(|(name, theirs)| {
        let (here, there) = if kata_deploy::is_rust(&theirs.runtime_path) {
            ("Rust", "Go")
        } else {
            ("Go", "Rust")
        };
        format!(
            "the handler {name} has the shim in {here}, and with the payload's image it would have the one in {there}, \
             which cannot stop sandboxes of the other: name the right shim in spec.runtimes[].shim"
        )
    })
}

/// The sandboxes of handlers that go with kata-deploy's files, and that the task does not name.
pub(crate) fn in_the_way(
    found: Option<&KataDeploy>,
    release: &Release,
    cri: &Cri,
) -> Vec<crate::host::Sandbox> {
    let Some(found) = found else { return Vec::new() };
    cri.ready(|handler| found.has(handler) && !release.handlers.contains_key(handler))
}

/// What is to be remembered of kata-deploy once the changes are made; `None` if nothing of it is needed.
pub(crate) fn taken(
    task: &NodeTask,
    observed: &Observed,
    cri: &Cri,
    site: &Site,
    changes: &[Change],
) -> Option<TakenOver> {
    let before = observed.state.installed.as_ref().and_then(|installed| installed.taken.clone());
    let alive: BTreeSet<String> = cri.ready(|_| true).into_iter().map(|it| it.id).collect();
    let mut taken = before.unwrap_or_default();
    taken.sandboxes.retain(|id| alive.contains(id));
    taken.of_unknown_payload.retain(|id| alive.contains(id));
    if let Some(found) = &observed.files.kata_deploy {
        taken.sandboxes.extend(observed.state.of_kata_deploy.intersection(&alive).cloned());
        // Of what an earlier change of ours may have started nothing is known.
        let is_first = observed.state.installed.is_none()
            && (!observed.has_journal || observed.unnamed.is_empty());
        let its = cri.ready(|handler| found.has(handler)).into_iter().map(|it| it.id);
        let its: Vec<String> = its.filter(|id| !taken.sandboxes.contains(id)).collect();
        let known = if is_first { &mut taken.sandboxes } else { &mut taken.of_unknown_payload };
        known.extend(its);
        let editable = site.editable.as_ref().filter(|_| !found.imports.is_empty());
        taken.main = editable.and_then(|path| changes.iter().find(|it| it.path == *path)).cloned();
        taken.imports.clone_from(&found.imports);
        taken.drop_ins = found.drop_ins.iter().cloned().collect();
        taken.handlers = found.handlers().map(|(name, it)| (name.clone(), it.clone())).collect();
        taken.sets_log_level = found.sets_log_level;
        taken.still_ours = None;
    }
    let is_any = !taken.handlers.is_empty();
    let is_needed = task.take_over
        || !taken.sandboxes.is_empty()
        || !taken.of_unknown_payload.is_empty()
        || names_tree(&observed.files);
    (is_any && is_needed).then_some(taken)
}

/// Whether a file that is not ours names the payload of kata-deploy: its sandboxes are in no list of ours.
pub(crate) fn names_tree(files: &Files) -> bool {
    let texts = files.main_text.iter().chain(files.others.iter().map(|other| &other.text));
    let below = format!("{}/", kata_deploy::TREE);
    texts.into_iter().any(|text| text.contains(&below))
}

/// The handlers of kata-deploy, if its drop-in is read.
pub(crate) fn handlers_there(files: &Files) -> Option<BTreeMap<String, Handler>> {
    let others = files.others.iter();
    let mut its =
        others.filter(|other| paths::name(&other.path) == kata_deploy::DROP_IN).peekable();
    its.peek()?;
    Some(its.filter_map(|other| kata_deploy::handlers(&other.text).ok()).flatten().collect())
}

/// Removes the payload of kata-deploy, if it was taken over and is not to be given back any more.
pub(crate) fn settle(installed: Option<&Installed>, next: Option<&TakenOver>) -> Option<Step> {
    let is_taken = installed.is_some_and(|installed| installed.taken.is_some());
    (is_taken && next.is_none()).then(|| Step::RemoveTree { path: kata_deploy::TREE.to_owned() })
}

/// Why kata-deploy's files cannot be given back.
pub(crate) fn not_to_give_back(observed: &Observed) -> Option<Check> {
    let lost = observed.lost_shims.first()?;
    let message = format!(
        "{lost}, the shim that kata-deploy's files name, is not there any more: remove spec.takeOver, and the removal \
         goes on without giving anything back"
    );
    Some(Check::new(Code::TakeOverRefused, message))
}

/// The changes that bring kata-deploy's drop-ins and imports back; ours are still read meanwhile, but for our import.
pub(crate) fn give_back(files: &Files, installed: &Installed, taken: &TakenOver) -> Vec<Change> {
    let mut changes = Vec::new();
    for (path, content) in &taken.drop_ins {
        if files.taken.get(path) == Some(&Content::Absent) {
            changes.push(Change {
                path: path.clone(),
                before: Content::Absent,
                after: content.clone(),
            });
        }
    }
    if let Some(main) = &taken.main {
        let now = &files.edited;
        let after = match now {
            _ if *now == main.after => main.before.clone(),
            Content::File { text, mode } => {
                let ours = installed.main.as_ref().map(|main| main.import.as_str());
                let ours = ours.filter(|import| !files.is_relied_on(import));
                match containerd::exchange_imports(text, ours, &taken.imports) {
                    Ok(text) => Content::File { text, mode: *mode },
                    // The program that broke it has to fix it.
                    Err(_) => now.clone(),
                }
            }
            Content::Absent | Content::Directory | Content::Link { .. } => now.clone(),
        };
        if *now != after {
            changes.push(Change { path: main.path.clone(), before: now.clone(), after });
        }
    }
    changes
}
