//! What is due on a node, and when. [`super::rollout`] decides whether it may happen now.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_node::JobOutcome;
use kata_api::node_task::NodeAction;

use super::cluster::{Cluster, Due, Host};
use super::{node, record, rollout};
use crate::snapshot::NodeFacts;
use crate::text;

/// How long the kubelet may take to report the handlers of a container runtime that was restarted.
pub(super) const HANDLERS_GRACE: SignedDuration = SignedDuration::from_mins(2);
/// The least time from an inspection that succeeded to the next one, so that facts that change back and forth cost a
/// node no more than a Job a minute.
const INSPECTION_PAUSE: SignedDuration = SignedDuration::from_mins(1);
/// How often a node is inspected whose kubelet does not report what the container runtime offers.
const HANDLERS_RECHECK: SignedDuration = SignedDuration::from_mins(15);

/// What is due on a node.
pub(super) fn due(cluster: &Cluster<'_>, host: &Host<'_>) -> Due {
    if !host.record.is_understood {
        Due::Nothing
    } else if host.node.wanted {
        due_on_wanted(cluster, host)
    } else {
        due_on_leaving(cluster, host)
    }
}

/// Whether a node is Ready, not cordoned and not being deleted.
fn is_open(facts: &NodeFacts) -> bool {
    facts.ready.status == Some(true) && !facts.unschedulable && !facts.deleting
}

fn due_on_wanted(cluster: &Cluster<'_>, host: &Host<'_>) -> Due {
    let (status, facts, desired) = (&host.record.status, &host.node.facts, &host.desired);
    let now = cluster.now();
    if host.record.needs_fresh_read {
        return Due::Nothing;
    }
    if host.is_current() {
        let pause = record::back_off_until(status, &[NodeAction::Inspect], || host.facts_digest())
            .filter(|until| *until > now);
        if !is_open(facts) {
            return Due::Nothing;
        }
        return match (inspection(cluster, host), pause) {
            // Until the kubelet has had its time, the node counts against maxUnavailable: it is not inspected yet.
            _ if !host.missing.is_empty() && !host.overdue => Due::AwaitKubelet,
            (Some(at), None) if at <= now => Due::Check(NodeAction::Inspect),
            (_, Some(until)) => Due::RetryAt(until),
            _ => Due::Nothing,
        };
    }
    if host.given_up {
        return Due::Nothing;
    }
    let actions = [NodeAction::Preflight, NodeAction::Install, NodeAction::Remove];
    if let Some(until) = record::back_off_until(status, &actions, || host.facts_digest())
        .filter(|until| *until > now)
        && status.job.as_ref().is_some_and(|last| last.desired_state_digest == desired.state)
    {
        return Due::RetryAt(until);
    }
    if !is_open(facts) {
        return Due::Nothing;
    }
    let fit = record::fit_key(&desired.state, host.facts_digest());
    // A change whose result is unknown resumes without a preflight: its Job inspects the node first.
    let resumes = status
        .job
        .as_ref()
        .is_some_and(|job| job.action == NodeAction::Install && record::is_lost(job));
    if !resumes && status.fit_for.as_ref() != Some(&fit) {
        Due::Check(NodeAction::Preflight)
    } else {
        Due::Change(NodeAction::Install)
    }
}

fn due_on_leaving(cluster: &Cluster<'_>, host: &Host<'_>) -> Due {
    let status = &host.record.status;
    let removed = status.job.as_ref().is_some_and(|last| {
        last.action == NodeAction::Remove && last.outcome == Some(JobOutcome::Done)
    });
    let done = removed && !status.may_have_artifacts;
    if host.record.needs_fresh_read || host.given_up || done {
        return Due::Nothing;
    }
    if let Some(until) =
        record::back_off_until(status, &[NodeAction::Remove], || host.facts_digest())
            .filter(|until| *until > cluster.now())
    {
        return Due::RetryAt(until);
    }
    // Kata is also removed from a cordoned node.
    let is_ready = host.node.facts.ready.status == Some(true);
    if is_ready { Due::Change(NodeAction::Remove) } else { Due::Nothing }
}

/// Whether an installed node is inspected although its period is not over: since the last Job it has booted, or has
/// another kernel or container runtime, or was asked to retry; or the last inspection had no result.
fn is_due_at_once(host: &Host<'_>) -> bool {
    host.record.status.job.as_ref().is_some_and(|last| {
        let created_for = last.node_facts_digest.as_str();
        let has_other_facts = !created_for.is_empty() && created_for != host.facts_digest();
        has_other_facts || (last.action == NodeAction::Inspect && last.failures > 0)
    })
}

/// Whether the kubelet reports other handlers than the container runtime did to the last Job, and all of ours: another
/// program has restarted it since, with another configuration.
fn has_other_handlers(host: &Host<'_>) -> bool {
    let Some(reported) = &host.node.facts.runtime_handlers else { return false };
    let reported: BTreeSet<&str> =
        reported.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    let recorded: BTreeSet<&str> = host.record.status.handlers.iter().map(String::as_str).collect();
    host.missing.is_empty() && !recorded.is_empty() && reported != recorded
}

/// When an installed node is next inspected. Each node has its own offset in the period, so that not all
/// nodes are inspected at once.
fn inspection(cluster: &Cluster<'_>, host: &Host<'_>) -> Option<Timestamp> {
    let last = host.record.status.inspected?;
    if last > cluster.now().checked_add(INSPECTION_PAUSE).ok()? {
        // It was recorded by a clock that has been set back.
        return Some(cluster.now());
    }
    if is_due_at_once(host) {
        return last.checked_add(INSPECTION_PAUSE).ok();
    }
    if host.overdue || has_other_handlers(host) {
        return last.checked_add(HANDLERS_RECHECK).ok();
    }
    let period = i64::try_from(cluster.base.options.inspect_every.as_secs()).ok()?.max(1);
    let offset = u64::from_str_radix(&text::digest(&host.node.facts.name), 16).unwrap_or(0);
    let offset = i64::try_from(offset % u64::try_from(period).unwrap_or(1)).unwrap_or(0);
    let since = last.as_second().saturating_sub(offset);
    let next = since.div_euclid(period).saturating_add(1).saturating_mul(period);
    let next = Timestamp::from_second(next.saturating_add(offset)).ok()?;
    Some(next.max(last.checked_add(INSPECTION_PAUSE).ok()?))
}

/// When something is next due on a node even if no watch event arrives.
pub(super) fn next_timer(cluster: &Cluster<'_>, host: &Host<'_>) -> Option<Timestamp> {
    let status = &host.record.status;
    let reported_by = status
        .job
        .as_ref()
        .filter(|_| !host.missing.is_empty() && !host.overdue)
        .and_then(|job| job.time.checked_add(HANDLERS_GRACE).ok());
    let since = host.record.running.and_then(|(job, pod)| match &job.end {
        Some(_) => job.ended_at(cluster.now()),
        None if pod.is_none_or(|pod| pod.held.is_some()) => job.created,
        None => None,
    });
    let overdue = since.and_then(|since| since.checked_add(node::POD_GRACE).ok());
    let created = host.record.running.and_then(|(job, _)| job.created);
    let started_by = created.and_then(|created| created.checked_add(record::START_GRACE).ok());
    let starts = host.record.running.and_then(|(_, pod)| node::starts_by(pod?));
    let inspection = host.is_current().then(|| inspection(cluster, host)).flatten();
    let retry = match host.due {
        Due::RetryAt(until) => Some(until),
        _ => None,
    };
    let check_waits = rollout::check_waits_from(host);
    let times = [reported_by, overdue, started_by, starts, check_waits, inspection, retry];
    times.into_iter().flatten().filter(|at| *at > cluster.now()).min()
}
