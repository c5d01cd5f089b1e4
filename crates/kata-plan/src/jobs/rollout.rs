//! How many nodes may be changed at once, and which nodes may be changed now.
//!
//! A node that is down for another reason counts as unavailable. A new node that takes no pods before it has Kata does not
//! count: no service loses anything while it is changed. The first of the nodes with one desired state is
//! changed alone; a change that fails on several of them stops for that state.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_node::{HostJob, JobOutcome};
use kata_api::node_task::NodeAction;

use super::cluster::{Cluster, Due, Host, Rollout, WaitReason, architecture};
use super::record;
use crate::disruption::most_unavailable;

/// If no node has succeeded yet, a change stops after it has failed on this many nodes.
const FAILURES_TO_STOP_BEFORE_SUCCESS: usize = 2;
/// If a node has succeeded, a change stops after it has failed on this many nodes.
const FAILURES_TO_STOP: usize = 3;
/// A change has failed on a node after this many attempts, although it is still retried.
pub(super) const ATTEMPTS: i64 = 3;
/// How many Jobs that change nothing may run at once.
pub(super) const MAX_CHECKS: usize = 20;
/// How long a check that has not started counts among those.
const CHECK_STARTS_WITHIN: SignedDuration = SignedDuration::from_secs(15);

/// Decides which nodes may be changed now.
pub(super) fn rollout(cluster: &Cluster<'_>) -> Rollout {
    let spec = cluster.base.config.spec.rollout.as_ref();
    let max_unavailable = spec.and_then(|spec| spec.max_unavailable.as_ref());
    let hosts = || cluster.nodes.iter();
    let by_state = |keep: &dyn Fn(&Host<'_>) -> bool| {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for host in hosts().filter(|host| host.node.wanted && keep(host)) {
            found.entry(host.desired.state.clone()).or_default().push(name(host));
        }
        found
    };
    // An installation has not succeeded before the kubelet reports the handlers.
    let proven: BTreeSet<&str> = hosts()
        .filter(|host| host.node.wanted && host.is_current() && host.missing.is_empty())
        .map(|host| host.desired.state.as_str())
        .collect();
    let is_proven = |state: &str| proven.contains(state);
    // By installed state, the last success: an installation, or an inspection that found it as it should be.
    let mut succeeded_at: BTreeMap<&str, Timestamp> = BTreeMap::new();
    for status in hosts().map(|host| &host.record.status) {
        if let (Some(state), Some(at)) = (&status.installed, status.inspected) {
            let last = succeeded_at.entry(state).or_insert(at);
            *last = at.max(*last);
        }
    }
    // A Job that never started says nothing about other nodes, unless it is like that on all so far.
    let mut stopped_by = by_state(&|host| host.node.has_failed && !never_began(host));
    stopped_by.retain(|state, nodes| {
        let most =
            if is_proven(state) { FAILURES_TO_STOP } else { FAILURES_TO_STOP_BEFORE_SUCCESS };
        nodes.len() >= most
    });
    let mut held_by = by_state(&|host| {
        is_unstarted(host)
            && (!is_proven(&host.desired.state) || counts_after_success(&succeeded_at, host))
    });
    let awaited = by_state(&|host| {
        let is_due = matches!(
            host.due,
            Due::Change(NodeAction::Install) | Due::Check(NodeAction::Preflight)
        );
        is_due && !is_unstarted(host)
    });
    held_by.retain(|state, nodes| {
        awaited.contains_key(state) && nodes.len() >= FAILURES_TO_STOP_BEFORE_SUCCESS
    });
    let unusable_payload = hosts()
        .filter(|host| {
            let last = host.record.status.job.as_ref();
            host.node.wanted && host.given_up && last.and_then(record::refusal_code).is_some()
        })
        .map(|host| ((host.desired.state.clone(), architecture(host)), name(host)))
        .collect();
    let mut rollout = Rollout {
        limit: most_unavailable(max_unavailable, cluster.nodes.len()),
        unavailable: hosts()
            .filter(|host| is_unavailable(host) && !is_joining(cluster, host))
            .map(name)
            .collect(),
        stopped_by,
        held_by,
        unusable_payload,
        paused: spec.is_some_and(|spec| spec.paused),
        removes_only: !cluster.desired.problems.is_empty(),
        ..Rollout::default()
    };
    permit_changes(cluster, &proven, &mut rollout);
    permit_staging(cluster, &proven, &mut rollout);
    permit_checks(cluster, &mut rollout);
    rollout
}

fn name(host: &Host<'_>) -> String {
    host.node.facts.name.clone()
}

/// Whether the result of a change is unknown. Such a change resumes before another node is taken out of
/// service.
fn has_unknown_result(host: &Host<'_>) -> bool {
    let changes = |job: &HostJob| matches!(job.action, NodeAction::Install | NodeAction::Remove);
    // A Job without an outcome is running, unless it is missing.
    let is_missing = |job: &HostJob| job.outcome.is_none() && host.record.needs_fresh_read;
    let last = host.record.status.job.as_ref();
    last.is_some_and(|job| changes(job) && (is_missing(job) || record::is_lost(job)))
}

/// Whether a node cannot be changed now: it is down, is being changed, waits for its kubelet, or was left
/// broken by a change.
fn cannot_be_changed(host: &Host<'_>) -> bool {
    !may_run_pods(host)
        || host.node.facts.deleting
        || host.due == Due::AwaitKubelet
        || host.overdue
        || host.is_broken()
}

/// Whether a node is Ready and not cordoned, and no Job changes it: pods may run on it and come to it.
fn may_run_pods(host: &Host<'_>) -> bool {
    let facts = &host.node.facts;
    facts.ready.status == Some(true) && !facts.unschedulable && !host.is_changing()
}

/// Whether a node counts as unavailable.
fn is_unavailable(host: &Host<'_>) -> bool {
    cannot_be_changed(host)
        || has_unknown_result(host)
        || (!host.record.is_understood && !host.node.has_runtime_label)
}

/// Whether a node gets Kata for the first time, and has no pod of a service.
fn is_joining(cluster: &Cluster<'_>, host: &Host<'_>) -> bool {
    host.node.wanted
        && host.record.status.installed.is_none()
        && host.node.facts.has_no_service_pods(cluster.now())
}

/// Whether the change of a node has begun: the node is claimed, and takes no sandboxed pods yet.
fn has_begun(host: &Host<'_>) -> bool {
    host.node.joined && !host.node.has_runtime_label
}

/// Whether the last Job of a node never started.
fn never_began(host: &Host<'_>) -> bool {
    let last = host.record.status.job.as_ref();
    last.is_some_and(|last| last.outcome.or(last.previous_outcome) == Some(JobOutcome::NotStarted))
}

/// Whether the installation of a node could not start when it was last tried, and is tried again.
fn is_unstarted(host: &Host<'_>) -> bool {
    let last = host.record.status.job.as_ref();
    let is_install = last.is_some_and(|last| {
        last.action == NodeAction::Install && last.desired_state_digest == host.desired.state
    });
    let is_retried = host.is_changing() || !cannot_be_changed(host);
    host.node.wanted && is_install && never_began(host) && is_retried
}

/// Whether a failed start counts for other nodes although one has succeeded: it is later than the last
/// success, and the node has failed fewer than [`ATTEMPTS`] times. After more, the cause is probably the node.
fn counts_after_success(succeeded_at: &BTreeMap<&str, Timestamp>, host: &Host<'_>) -> bool {
    let succeeded_at = succeeded_at.get(host.desired.state.as_str()).copied();
    let last = host.record.status.job.as_ref();
    last.is_some_and(|last| last.failures < ATTEMPTS && Some(last.time) > succeeded_at)
}

fn has_failed_before(host: &Host<'_>) -> bool {
    host.record.status.job.as_ref().is_some_and(|job| job.failures > 0)
}

/// Permits changes. Of a desired state that is not `proven`, since the change has not succeeded on any node yet, only
/// one node is changed.
fn permit_changes(cluster: &Cluster<'_>, proven: &BTreeSet<&str>, rollout: &mut Rollout) {
    if rollout.paused {
        return;
    }
    let mut eligible: Vec<(&Host<'_>, NodeAction)> = cluster
        .nodes
        .iter()
        .filter_map(|host| {
            let Due::Change(action) = host.due else { return None };
            let may_change = match action {
                // Kata may be removed from a node that is unavailable.
                NodeAction::Remove => cluster.is_clear(host),
                _ if rollout.removes_only => false,
                _ => !cannot_be_changed(host),
            };
            (host.record.has_no_job() && may_change).then_some((host, action))
        })
        .collect();
    // A change that has begun comes first, so that the limit on unavailable nodes holds. A node on which
    // the change failed or could not start comes last, so that it does not block the others.
    eligible.sort_by_key(|(host, _)| {
        let never_began = never_began(host);
        (!has_begun(host) || never_began, has_failed_before(host) || never_began)
    });
    let hosts = || cluster.nodes.iter();
    // The states of which a first node is being changed.
    let mut tried: BTreeSet<&str> = hosts()
        .filter(|host| host.runs(NodeAction::Install) || host.due == Due::AwaitKubelet)
        .map(|host| host.desired.state.as_str())
        .collect();
    let mut room = rollout.limit.saturating_sub(rollout.unavailable.len());
    // A node with an unknown result already counts as unavailable.
    let out = hosts().filter(|host| cannot_be_changed(host) && !is_joining(cluster, host)).count();
    let mut room_to_resume = rollout.limit.saturating_sub(out);
    // One that was left broken counts as unavailable, and may still run pods.
    let without_pods =
        hosts().filter(|host| !may_run_pods(host) && !is_joining(cluster, host)).count();
    let mut room_to_repair = rollout.limit.saturating_sub(without_pods);
    for (host, action) in eligible {
        let name = name(host);
        let is_install = action == NodeAction::Install;
        // The node may be in service, and is not while it is changed.
        let resumes = has_unknown_result(host) && !cannot_be_changed(host);
        if is_install && let Some(found_by) = rollout.found_unusable(host).cloned() {
            rollout.skipped.insert(name, found_by);
            continue;
        }
        let is_stopped = rollout.stopped_by.contains_key(&host.desired.state);
        if is_install && (is_stopped || (rollout.is_held(host) && !resumes)) {
            continue;
        }
        let state = host.desired.state.as_str();
        // A node that waits for the canary has that reason even if the limit on unavailable nodes is
        // reached, too.
        if is_install && !proven.contains(state) && tried.contains(state) {
            rollout.waiting.insert(name, WaitReason::Canary);
            continue;
        }
        if is_joining(cluster, host) {
            // It takes no room.
        } else if resumes {
            if room_to_resume == 0 {
                rollout.waiting.insert(name, WaitReason::MaxUnavailable);
                continue;
            }
            room_to_resume -= 1;
        } else if host.is_broken() && may_run_pods(host) {
            if room_to_repair == 0 {
                rollout.waiting.insert(name, WaitReason::MaxUnavailable);
                continue;
            }
            room_to_repair -= 1;
        } else if !is_unavailable(host) {
            if room == 0 {
                rollout.waiting.insert(name, WaitReason::MaxUnavailable);
                continue;
            }
            room -= 1;
            rollout.leaving_service.push(name.clone());
        }
        if is_install {
            tried.insert(state);
        }
        rollout.permitted.insert(name);
    }
}

/// Permits the preflights that also stage the payload, on nodes that have another payload: no more than may
/// be changed at once, and only if the rollout does not stop the change that follows.
fn permit_staging(cluster: &Cluster<'_>, proven: &BTreeSet<&str>, rollout: &mut Rollout) {
    let hosts = || cluster.nodes.iter();
    let is_staged = |host: &Host<'_>| {
        host.stages_ahead()
            && (host.runs(NodeAction::Preflight)
                || (host.due == Due::Change(NodeAction::Install) && host.record.has_no_job()))
    };
    // Skipped, unavailable and leaving nodes do not count.
    let staged: Vec<&Host<'_>> = hosts()
        .filter(|host| {
            let counts = host.node.wanted && !cannot_be_changed(host);
            counts && is_staged(host) && !rollout.skipped.contains_key(&host.node.facts.name)
        })
        .collect();
    let is_changing =
        |host: &&Host<'_>| host.runs(NodeAction::Install) || host.due == Due::AwaitKubelet;
    let changing = hosts().filter(is_changing).chain(staged.iter().copied());
    // The states of which a first node is being changed.
    let mut tried: BTreeSet<&str> = changing.map(|host| host.desired.state.as_str()).collect();
    let mut room = rollout.limit.saturating_sub(staged.len());
    for host in hosts().filter(|host| waits_to_stage(host)) {
        let (name, state) = (name(host), host.desired.state.as_str());
        if rollout.is_stopped(host) || rollout.held_by.contains_key(state) {
            continue;
        }
        if let Some(found_by) = rollout.found_unusable(host).cloned() {
            rollout.skipped.insert(name, found_by);
        } else if !proven.contains(state) && tried.contains(state) {
            rollout.waiting.insert(name, WaitReason::Canary);
        } else if room == 0 {
            rollout.waiting.insert(name, WaitReason::StagingLimit);
        } else {
            room -= 1;
            tried.insert(state);
            rollout.permitted.insert(name);
        }
    }
}

fn waits_to_stage(host: &Host<'_>) -> bool {
    host.stages_ahead() && host.due == Due::Check(NodeAction::Preflight) && host.record.has_no_job()
}

/// Whether the check of a node has not started in time, so that another node is checked meanwhile.
fn check_waits(host: &Host<'_>, now: Timestamp) -> bool {
    check_waits_from(host).is_some_and(|from| from <= now)
}

/// From when the check of a node no longer keeps another node waiting, if it does not start before.
pub(super) fn check_waits_from(host: &Host<'_>) -> Option<Timestamp> {
    let (job, pod) = host.record.running?;
    let is_check = matches!(job.action, NodeAction::Preflight | NodeAction::Inspect);
    let waits = pod.is_none_or(|pod| !pod.started && !pod.finished);
    let created = job.created.filter(|_| is_check && waits)?;
    created.checked_add(CHECK_STARTS_WITHIN).ok()
}

fn permit_checks(cluster: &Cluster<'_>, rollout: &mut Rollout) {
    // A check would find only what is known.
    if rollout.removes_only {
        return;
    }
    let hosts = || cluster.nodes.iter();
    let running = hosts()
        .filter(|host| host.runs(NodeAction::Preflight) || host.runs(NodeAction::Inspect))
        .filter(|host| !check_waits(host, cluster.now()))
        .count();
    let mut waiting: Vec<&Host<'_>> = hosts()
        .filter(|host| matches!(host.due, Due::Check(_)) && host.record.has_no_job())
        .filter(|host| !waits_to_stage(host))
        .collect();
    // Nodes that were not tried yet come before those on which no Job would start or end well, and a new node before
    // inspections, which are due on all nodes after a power cut.
    waiting.sort_by_key(|host| {
        let is_inspection = host.due == Due::Check(NodeAction::Inspect);
        (never_began(host) || has_failed_before(host), is_inspection)
    });
    let mut waiting = waiting.into_iter().map(name);
    rollout.permitted.extend(waiting.by_ref().take(MAX_CHECKS.saturating_sub(running)));
    rollout.waiting.extend(waiting.map(|name| (name, WaitReason::CheckLimit)));
}
