//! How many nodes may be changed at once, and which of them now.
//!
//! A node that is down for another reason counts. The first node of a change goes alone; a change that
//! fails on several nodes goes no further.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kata_api::kata_node::{HostJob, JobOutcome};
use kata_api::node_task::NodeAction;

use super::classify::keeps_label;
use super::{HostNode, Next, memory};
use crate::view::{NodeView, View};

/// On how many nodes a change may fail before the first on which it succeeds.
const FAILURES_BEFORE_SUCCESS: usize = 2;
/// On how many nodes it may fail after that.
const FAILURES: usize = 3;
/// After how many attempts a change has failed on a node, although it is tried again from time to time.
pub(super) const ATTEMPTS: i64 = 3;
/// The kubelet's label for the architecture of a node.
const ARCHITECTURE: &str = "kubernetes.io/arch";
/// How many Jobs that change nothing run at once.
pub(crate) const CHECKS: usize = 20;

/// Why the turn of a node has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Held {
    /// As many nodes as may be are unavailable, or are about to be.
    Room,
    /// The change has not succeeded anywhere, and another node is the first to try it.
    Canary,
    /// As many nodes have, or get, the payload of a change whose turn has not come as may be changed at once.
    Ahead,
    /// As many nodes are being checked as may be at once.
    Checks,
}

/// Who may go on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rollout {
    /// How many nodes may be unavailable at once.
    pub(crate) limit: usize,
    /// The nodes that are unavailable, or are being changed, by name.
    pub(crate) unavailable: Vec<String>,
    /// The nodes on which the change failed, if so many that it goes no further.
    pub(crate) stopped_by: Vec<String>,
    /// By architecture, a node on which the payload turned out to be of no use: it would be so on the others.
    pub(crate) of_no_use: BTreeMap<String, String>,
    /// The nodes that are not changed for that, and the one that tells it.
    pub(crate) spared: BTreeMap<String, String>,
    /// `spec.rollout.paused`.
    pub(crate) paused: bool,
    /// The nodes that may get their next Job now.
    pub(crate) permitted: BTreeSet<String>,
    /// Those of them that were available until now, and will not be.
    pub(crate) leaving_service: Vec<String>,
    /// The nodes that have to wait, and why. One that waits since the rollout is paused or goes no further,
    /// which findings say, is not among them, nor is one that something of its own holds up.
    pub(crate) held: BTreeMap<String, Held>,
}

/// Who may go on.
pub(super) fn rollout(view: &View<'_>, state: &str) -> Rollout {
    let spec = view.config.spec.rollout.as_ref();
    let limit =
        most_unavailable(spec.and_then(|spec| spec.max_unavailable.as_ref()), view.nodes.len());
    let hosts = || view.nodes.iter().filter_map(|node| Some((node, node.host.as_ref()?)));
    let unavailable: Vec<String> = hosts()
        .filter(|(node, host)| is_unavailable(node, host))
        .map(|(node, _)| node.facts.name.clone())
        .collect();
    // That an installation has worked is not known before the kubelet offers what was installed.
    let succeeded = hosts().any(|(node, host)| {
        let installed = host.known.status.installed.as_deref() == Some(state);
        node.wanted && installed && host.missing.is_empty()
    });
    let failed: Vec<String> = hosts()
        .filter(|(node, host)| node.wanted && host.failed)
        .map(|(node, _)| node.facts.name.clone())
        .collect();
    let of_no_use = hosts()
        .filter(|(node, host)| {
            let last = host.known.status.job.as_ref();
            node.wanted && host.given_up && last.is_some_and(memory::is_of_payload)
        })
        .map(|(node, _)| (architecture(node), node.facts.name.clone()))
        .collect();
    let tolerated = if succeeded { FAILURES } else { FAILURES_BEFORE_SUCCESS };
    let mut rollout = Rollout {
        limit,
        unavailable,
        stopped_by: if failed.len() >= tolerated { failed } else { Vec::new() },
        of_no_use,
        paused: spec.is_some_and(|spec| spec.paused),
        ..Rollout::default()
    };
    permit_changes(view, !succeeded, &mut rollout);
    permit_staging(view, !succeeded, &mut rollout);
    permit_checks(view, &mut rollout);
    rollout
}

/// The architecture that a node's kubelet tells.
pub(crate) fn architecture(node: &NodeView<'_>) -> String {
    node.facts.labels.get(ARCHITECTURE).cloned().unwrap_or_default()
}

/// Whether a node is unavailable, or is being made so.
fn is_unavailable(node: &NodeView<'_>, host: &HostNode<'_>) -> bool {
    is_out(node, host) || is_unknown(host)
}

/// Whether nobody knows what a change has made of a node. The change goes on there before another node is
/// taken out of service.
fn is_unknown(host: &HostNode<'_>) -> bool {
    let changes = |job: &HostJob| matches!(job.action, NodeAction::Install | NodeAction::Remove);
    let last = host.known.status.job.as_ref();
    // Without an outcome it is under way, unless it is missing.
    let misses = |job: &HostJob| job.outcome.is_none() && host.known.unsure;
    last.is_some_and(|job| changes(job) && (misses(job) || memory::is_lost(job)))
}

/// Whether a node cannot be changed now, since it is down, or is being changed, or was left broken.
fn is_out(node: &NodeView<'_>, host: &HostNode<'_>) -> bool {
    let known = &host.known;
    let last = known.status.job.as_ref();
    node.facts.ready.status != Some(true)
        || node.facts.unschedulable
        || node.facts.deleting
        || host.is_changing()
        || ((host.next == Next::Confirm || host.overdue)
            && (!node.verified || keeps_label(node, host)))
        || last.is_some_and(|last| last.outcome == Some(JobOutcome::Unsafe))
}

/// Permits changes. With `canary` one node goes alone, since the change has not succeeded anywhere.
fn permit_changes(view: &View<'_>, canary: bool, rollout: &mut Rollout) {
    if rollout.paused {
        return;
    }
    let mut slots = rollout.limit.saturating_sub(rollout.unavailable.len());
    let mut eligible: Vec<(&NodeView<'_>, NodeAction)> = view
        .nodes
        .iter()
        .filter_map(|node| {
            let host = node.host.as_ref()?;
            let Next::Change(action) = host.next else { return None };
            let free = host.known.is_free();
            let guarded = match action {
                // What is unavailable anyway may lose Kata meanwhile.
                NodeAction::Remove => super::is_clear(view, node),
                _ => !is_out(node, host),
            };
            (free && guarded).then_some((node, action))
        })
        .collect();
    // Who was begun with goes first, so that no more nodes are without the label than may be.
    eligible.sort_by_key(|(node, _)| (!node.labelled || node.verified, &node.facts.name));
    let installing = view
        .nodes
        .iter()
        .filter_map(|node| node.host.as_ref())
        .filter(|host| host.runs(NodeAction::Install) || host.next == Next::Confirm)
        .count();
    let mut installs = if !rollout.stopped_by.is_empty() {
        0
    } else if canary {
        1_usize.saturating_sub(installing)
    } else {
        usize::MAX
    };
    // A node of which nobody knows how it is has its room already, if there was any for it.
    let out =
        view.nodes.iter().filter(|node| node.host.as_ref().is_some_and(|host| is_out(node, host)));
    let mut going_on = rollout.limit.saturating_sub(out.count());
    for (node, action) in eligible {
        let name = &node.facts.name;
        let is_install = action == NodeAction::Install;
        // Nobody knows how it is: it may well serve, and does not while it is changed.
        let goes_on =
            node.host.as_ref().is_some_and(|host| is_unknown(host) && !is_out(node, host));
        if is_install && let Some(told) = rollout.of_no_use.get(&architecture(node)) {
            rollout.spared.insert(name.clone(), told.clone());
            continue;
        }
        // What would hold the node back if there were room is the reason, whether or not there is.
        if is_install && installs == 0 {
            if rollout.stopped_by.is_empty() {
                rollout.held.insert(name.clone(), Held::Canary);
            }
            continue;
        }
        if goes_on {
            if going_on == 0 {
                rollout.held.insert(name.clone(), Held::Room);
                continue;
            }
            going_on -= 1;
        } else if !rollout.unavailable.contains(name) {
            if slots == 0 {
                rollout.held.insert(name.clone(), Held::Room);
                continue;
            }
            slots -= 1;
            rollout.leaving_service.push(name.clone());
        }
        installs -= usize::from(is_install);
        rollout.permitted.insert(name.clone());
    }
}

/// Permits the checks that bring the payload onto nodes with another one: no more than can be changed next,
/// and where a change would be permitted as far as others are concerned.
fn permit_staging(view: &View<'_>, canary: bool, rollout: &mut Rollout) {
    if rollout.paused || !rollout.stopped_by.is_empty() {
        return;
    }
    let hosts = || view.nodes.iter().filter_map(|node| Some((node, node.host.as_ref()?)));
    let is_ahead = |host: &HostNode<'_>| {
        host.stages_ahead()
            && (host.runs(NodeAction::Preflight)
                || (host.next == Next::Change(NodeAction::Install) && host.known.is_free()))
    };
    // Whoever is spared, is down or leaves goes nowhere, and is in nobody's way.
    let ahead = hosts()
        .filter(|(node, host)| {
            let goes = node.wanted && !is_out(node, host);
            goes && is_ahead(host) && !rollout.spared.contains_key(&node.facts.name)
        })
        .count();
    let changing =
        hosts().any(|(_, host)| host.runs(NodeAction::Install) || host.next == Next::Confirm);
    let busy = changing || ahead > 0;
    let mut slots = match (canary, busy) {
        (true, true) => 0,
        (true, false) => 1,
        (false, _) => rollout.limit.saturating_sub(ahead),
    };
    for (node, _) in hosts().filter(|(_, host)| waits_to_stage(host)) {
        let name = &node.facts.name;
        if let Some(told) = rollout.of_no_use.get(&architecture(node)) {
            rollout.spared.insert(name.clone(), told.clone());
        } else if slots == 0 {
            let held = if canary { Held::Canary } else { Held::Ahead };
            rollout.held.insert(name.clone(), held);
        } else {
            slots -= 1;
            rollout.permitted.insert(name.clone());
        }
    }
}

fn waits_to_stage(host: &HostNode<'_>) -> bool {
    host.stages_ahead() && host.next == Next::Check(NodeAction::Preflight) && host.known.is_free()
}

fn permit_checks(view: &View<'_>, rollout: &mut Rollout) {
    let hosts = || view.nodes.iter().filter_map(|node| Some((node, node.host.as_ref()?)));
    let running = hosts()
        .filter(|(_, host)| host.runs(NodeAction::Preflight) || host.runs(NodeAction::Inspect))
        .count();
    let mut waiting = hosts()
        .filter(|(_, host)| matches!(host.next, Next::Check(_)) && host.known.is_free())
        .filter(|(_, host)| !waits_to_stage(host))
        .map(|(node, _)| node.facts.name.clone());
    rollout.permitted.extend(waiting.by_ref().take(CHECKS.saturating_sub(running)));
    rollout.held.extend(waiting.map(|name| (name, Held::Checks)));
}

/// How many of so many nodes `spec.rollout.maxUnavailable` lets be unavailable at once: at least one.
pub fn most_unavailable(value: Option<&IntOrString>, nodes: usize) -> usize {
    let limit = match value {
        None => 1,
        Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or(1),
        Some(IntOrString::String(text)) => {
            let percent: usize =
                text.trim_end_matches('%').parse().ok().filter(|it| *it <= 100).unwrap_or(0);
            nodes.saturating_mul(percent) / 100
        }
    };
    limit.max(1)
}
