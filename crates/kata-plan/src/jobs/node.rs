//! The phase, step, label decision and finding of one node. Plans no steps.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_node::{JobOutcome, NodeStep, Phase};
use kata_api::node_task::NodeAction;
use kata_api::{Code, names};

use super::cluster::{Cluster, Due, Host, Rollout};
use super::record::{self, START_GRACE};
use super::rollout::ATTEMPTS;
use crate::assessment::{KataState, LabelDecision, NodeAssessment, OfferedHandlers};
use crate::node;
use crate::report::Finding;
use crate::snapshot::{JobPod, NodeJob, StuckContainer};
use crate::text;

/// How long a Job may be without a pod, or a pod outlast its Job, before that is reported.
pub(super) const POD_GRACE: SignedDuration = SignedDuration::from_secs(60);

/// Sets the phase, step, label decision and finding of a node.
pub(super) fn classify(cluster: &Cluster<'_>, host: &mut Host<'_>) {
    if !host.record.is_understood {
        let is_ready = host.node.facts.ready.status == Some(true);
        host.node.phase = match (host.node.wanted, host.node.has_runtime_label && is_ready) {
            (true, true) => Phase::Ready,
            (true, false) => Phase::Unknown,
            (false, _) => Phase::WaitingToRemove,
        };
        return;
    }
    host.node.label = label_decision(cluster, host);
    (host.node.phase, host.node.step) =
        if host.node.wanted { phase_of_wanted(host) } else { phase_of_leaving(host) };
    host.node.finding = finding(cluster, host);
    host.node.is_being_updated = host.node.phase == Phase::Updating;
    let finding = host.node.finding.as_ref();
    host.node.failure = finding.map(|finding| finding.message.clone()).unwrap_or_default();
    let status = &host.record.status;
    // An empty list means that the Job did not report the handlers.
    if status.installed.is_some() && !status.handlers.is_empty() {
        host.node.offered = OfferedHandlers::Recorded { except: host.missing.clone() };
    }
    // An older kubelet reports none; the Job read them from the container runtime. A node that was left broken does not
    // offer them.
    if host.node.facts.runtime_handlers.is_none() && !host.is_broken() {
        host.node.recorded_handlers = status.handlers.iter().cloned().collect();
    }
}

/// Decides about the runtime label. Unknown facts do not change it: a node keeps the label until Kata is
/// found to be missing.
fn label_decision(cluster: &Cluster<'_>, host: &Host<'_>) -> LabelDecision {
    let node = &host.node;
    if !node.wanted {
        let offers_kata = host.record.status.installed.is_some() && !host.is_changing();
        return node::label_of_leaving(&cluster.base, node, offers_kata);
    }
    if is_found_gone(cluster, host) {
        return LabelDecision::Clear;
    }
    let is_known = host.record.status.installed.is_some()
        && !host.is_changing()
        && !host.record.needs_fresh_read
        && (host.missing.is_empty() || host.overdue);
    if is_known && node::unavailable(&node.facts).is_none() {
        LabelDecision::Set
    } else {
        LabelDecision::Keep
    }
}

/// Whether a node was found without Kata: no Job installed it, its kubelet reports none of the handlers, or
/// the node cannot create virtual machines any more.
fn is_found_gone(cluster: &Cluster<'_>, host: &Host<'_>) -> bool {
    let status = &host.record.status;
    if status.installed.is_none() && !status.may_have_artifacts {
        return !host.is_unrecorded && !host.record.needs_fresh_read;
    }
    let last = status.job.as_ref();
    // The result is written to the KataNode before the label is removed.
    let written = host.node.previous.as_ref().and_then(|previous| previous.status.as_ref());
    let is_written =
        written.is_none_or(|it| it.host.as_ref().is_none_or(|it| it.installed.is_none()));
    let cannot_run = status.installed.is_none()
        && is_written
        && last.is_some_and(|last| {
            last.outcome.or(last.previous_outcome) == Some(JobOutcome::Refused)
                && last
                    .code
                    .as_deref()
                    .and_then(Code::parse)
                    .is_some_and(record::is_need_of_sandboxes)
        });
    let is_ready = host.node.facts.ready.status == Some(true);
    let offers_none = match &host.node.facts.runtime_handlers {
        Some(reported) => !reported.iter().any(|handler| cluster.desired.is_handler(handler)),
        None => status.installed.is_none() && is_written && !host.is_unknown(),
    };
    let awaited = host.is_changing() || awaits_kubelet(host);
    cannot_run || (is_ready && offers_none && !awaited)
}

/// Whether the kubelet still has time to report the handlers after a change in place. On a node that was Ready
/// since, it reported them before.
fn awaits_kubelet(host: &Host<'_>) -> bool {
    let before = host.node.previous.as_ref().and_then(|previous| previous.status.as_ref());
    let was_ready = before.is_some_and(|before| before.phase == Phase::Ready);
    !host.missing.is_empty() && !host.overdue && !was_ready
}

fn phase_of_wanted(host: &Host<'_>) -> (Phase, Option<NodeStep>) {
    let node = &host.node;
    let installed = node.kata == KataState::Installed;
    let changing = if installed { Phase::Updating } else { Phase::Installing };
    if host.runs(NodeAction::Install) || host.runs(NodeAction::Remove) {
        return (changing, Some(host.job_step()));
    }
    if host.permitted && host.due == Due::Change(NodeAction::Install) && node.joined {
        return (changing, Some(NodeStep::Staging));
    }
    if host.due == Due::AwaitKubelet {
        let before = node.previous.as_ref().and_then(|previous| previous.status.as_ref());
        let phase = match before.map(|before| before.phase) {
            // The node completes its change.
            Some(phase @ (Phase::Installing | Phase::Updating)) => phase,
            _ if node.has_runtime_label => Phase::NotReady,
            _ => changing,
        };
        return (phase, Some(NodeStep::Confirming));
    }
    if installed {
        let takes_pods = node::unavailable(&node.facts).is_none() && host.missing.is_empty();
        let phase = if takes_pods { Phase::Ready } else { Phase::NotReady };
        return (phase, host.runs(NodeAction::Preflight).then_some(NodeStep::Staging));
    }
    if node.has_failed {
        return (Phase::Failed, None);
    }
    (Phase::Waiting, host.runs(NodeAction::Preflight).then_some(NodeStep::Preflight))
}

fn phase_of_leaving(host: &Host<'_>) -> (Phase, Option<NodeStep>) {
    let nothing_left = host.due == Due::Nothing && !host.record.status.may_have_artifacts;
    if host.is_changing() {
        (Phase::Removing, Some(host.job_step()))
    } else if host.node.has_failed {
        (Phase::Failed, None)
    } else if nothing_left {
        // The operator is removing its labels.
        (Phase::Removing, Some(NodeStep::Confirming))
    } else {
        (Phase::WaitingToRemove, None)
    }
}

fn finding(cluster: &Cluster<'_>, host: &Host<'_>) -> Option<Finding> {
    let node = &host.node;
    let name = &node.facts.name;
    let make = |code: Code, message: String| Some(Finding::new(code, node.object(), message));
    let ready = node.facts.ready.status == Some(true);
    if let Some((job, pod)) = host.record.running
        && (ready || job.end.is_none())
    {
        if let Some(pod) = pod_outliving_job(cluster, job, pod) {
            let message = format!("node {name}: Job {} has ended, but {pod} has not", job.name);
            return Some(unended_pod(Code::NodeJobTimedOut, node, message));
        }
        if let Some((code, what)) = problem(cluster, job, pod) {
            let mut finding = make(code, format!("node {name}: Job {} {what}", job.name))?;
            if code == Code::NodeJobHeld && job.held.is_some() {
                finding.fix.push_str(&format!(
                    " To resume it: `kubectl patch job {} -n {} -p '{{\"spec\":{{\"suspend\":false}}}}'`.",
                    job.name, cluster.base.options.namespace
                ));
            }
            return Some(finding);
        }
    }
    let busy = host.record.running.is_some();
    if let Some(pod) =
        host.record.orphaned_pod.filter(|pod| !busy && !ends_with_job(cluster, host, pod))
    {
        let message = format!(
            "node {name}: Job {} is gone, but {} has not ended",
            pod.job,
            full_name(cluster, pod)
        );
        return Some(unended_pod(Code::NodeJobVanished, node, message));
    }
    let has_ended = host.record.running.is_some_and(|(job, _)| job.end.is_some());
    let may_block = node.phase != Phase::Ready && (has_ended || !host.is_changing());
    if may_block && !ready {
        if let Some(broken) = left_broken(host) {
            return Some(broken);
        }
        let message = node::not_ready_message(&node.facts);
        return Some(node::not_ready(node, message, true));
    }
    if may_block && node.facts.unschedulable {
        let message =
            format!("node {name} is cordoned, so it is not changed and counts as unavailable");
        return Some(node::cordoned(node, message));
    }
    if let Some((code, message)) = last_failure(host) {
        let again = next_try(&cluster.rollout, host);
        let message = format!("node {name}: {message}{again}");
        let mut finding = Finding::new(code, node.object(), message);
        let refused = host.record.status.job.as_ref().and_then(record::refusal_code);
        if refused.is_some_and(|code| record::IMAGE_CODES.contains(&code)) {
            finding.fix.push_str(
                " If you replaced the image, use another tag or its digest: nodes keep the image that they \
                 pulled.",
            );
        }
        finding.fix = finding.fix.replace("the KataNode", &format!("KataNode {name}"));
        return Some(finding);
    }
    if host.overdue {
        let is_lost = host.missing.len() == host.desired.handlers().count();
        let message = format!(
            "node {name} {} Kata, but its kubelet does not report the handler {}",
            if is_lost { "had" } else { "has" },
            host.missing.join(", ")
        );
        let mut finding = Finding::new(Code::HandlerMissing, node.object(), message);
        "The operator inspects the node every 15 minutes and repairs it. If this stays for longer, check the logs of the container runtime and of the \
         kubelet on the node."
            .clone_into(&mut finding.fix);
        return Some(finding);
    }
    without_startup_taint(host).or_else(|| node::pods_on_leaving(&cluster.base, node))
}

/// The finding that a node came with the label of nodes with Kata and without a startup taint, until it has Kata.
fn without_startup_taint(host: &Host<'_>) -> Option<Finding> {
    let node = &host.node;
    let code = Code::NoStartupTaint;
    let status = &host.record.status;
    if !node.wanted || status.installed.is_some() || node.facts.has_startup_taint() {
        return None;
    }
    let written = node.previous.as_ref().and_then(|previous| previous.status.as_ref());
    // The label has gone by then.
    let was_found = written.and_then(|it| it.code.as_deref()) == Some(code.entry().code);
    let is_new = status.job.is_none() && !status.may_have_artifacts && !host.is_unrecorded;
    let came_with_label = node.has_runtime_label && is_new;
    let message = format!(
        "node {} came with the label {} before it had Kata, and without a startup taint",
        node.facts.name,
        names::RUNTIME_LABEL
    );
    (was_found || came_with_label).then(|| Finding::new(code, node.object(), message))
}

/// Whether a node waits too long for a Job: its Jobs failed several times, or its Job has not started for
/// minutes, or did not start before.
pub(super) fn waits_too_long_for_job(cluster: &Cluster<'_>, host: &Host<'_>) -> bool {
    let Some(code) = host.node.finding.as_ref().map(|finding| finding.code) else { return false };
    let last = host.record.status.job.as_ref();
    let failures = last.map_or(0, |last| last.failures);
    let cannot_start =
        matches!(code, Code::NodeJobUnschedulable | Code::NodeJobImage | Code::NodeJobWithoutPod);
    let is_late =
        host.record.running.is_some_and(|(job, pod)| record::cannot_start(job, pod, cluster.now()));
    failures >= ATTEMPTS || (cannot_start && (failures > 0 || is_late))
}

/// The finding that a node is not Ready because a change failed and could not be rolled back. No Job can
/// run there, so the last Job's message is the reason.
fn left_broken(host: &Host<'_>) -> Option<Finding> {
    let node = &host.node;
    let last = host.record.status.job.as_ref();
    let last = last.filter(|last| last.outcome == Some(JobOutcome::Unsafe))?;
    let name = &node.facts.name;
    let message = format!(
        "node {name} is not Ready, because a change failed and could not be rolled back: {}",
        last.message
    );
    let mut finding = Finding::new(Code::NodeBroken, node.object(), message);
    finding.fix = format!(
        "Start the container runtime on the node, so that it becomes Ready; then run `kubectl kata retry {name}`."
    );
    Some(finding)
}

/// Whether a pod is being deleted together with its Job, which was given up a moment ago.
fn ends_with_job(cluster: &Cluster<'_>, host: &Host<'_>, pod: &JobPod) -> bool {
    host.record.status.job.as_ref().is_some_and(|last| {
        last.name == pod.job
            && last.outcome == Some(JobOutcome::NotStarted)
            && cluster.now().duration_since(last.time) < POD_GRACE
    })
}

/// The pod of a Job, if it has not ended [`POD_GRACE`] after its Job.
fn pod_outliving_job(cluster: &Cluster<'_>, job: &NodeJob, pod: Option<&JobPod>) -> Option<String> {
    let waits =
        job.ended_at(cluster.now()).is_some_and(|at| cluster.now().duration_since(at) >= POD_GRACE);
    pod.filter(|pod| waits && !pod.finished).map(|pod| full_name(cluster, pod))
}

/// When a pod that has not started should start at the latest.
pub(super) fn starts_by(pod: &JobPod) -> Option<Timestamp> {
    pod.waits_since?.checked_add(START_GRACE).ok()
}

/// `pod NAMESPACE/NAME`.
fn full_name(cluster: &Cluster<'_>, pod: &JobPod) -> String {
    format!("pod {}/{}", cluster.base.options.namespace, pod.name)
}

/// The finding that a pod may still change the node after its Job has ended.
fn unended_pod(code: Code, node: &NodeAssessment, message: String) -> Finding {
    let mut finding = Finding::new(code, node.object(), message);
    "Delete the pod if it does not end by itself, but not with --force: its containers would keep changing the \
     node unobserved."
        .clone_into(&mut finding.fix);
    finding
}

/// Why a Job does not run.
fn problem(cluster: &Cluster<'_>, job: &NodeJob, pod: Option<&JobPod>) -> Option<(Code, String)> {
    if job.end.is_some() {
        return None;
    }
    // What suspends a Job when it is created, or gates its pod, may let it go on a moment later.
    let waits = job.created.is_some_and(|made| cluster.now().duration_since(made) >= POD_GRACE);
    let Some(pod) = pod else {
        let why = match &job.held {
            Some(held) => (Code::NodeJobHeld, held.clone()),
            None => (Code::NodeJobWithoutPod, "has no pod".to_owned()),
        };
        return waits.then_some(why);
    };
    if let Some(held) = &pod.held {
        let text = format!("cannot run: pod {} {held}", pod.name);
        return waits.then_some((Code::NodeJobHeld, text));
    }
    if let Some(message) = &pod.unschedulable {
        return Some((
            Code::NodeJobUnschedulable,
            format!("cannot run: pod {} is not scheduled: {message}", pod.name),
        ));
    }
    let Some(stuck) = pod.stuck.as_ref() else {
        let late = starts_by(pod).is_some_and(|by| cluster.now() >= by);
        let (minutes, pod) = (START_GRACE.as_mins(), full_name(cluster, pod));
        let what =
            format!("has not started for more than {minutes} minutes: see the Events of {pod}");
        return late.then_some((Code::NodeJobNotStarted, what));
    };
    Some(if stuck.is_pull() {
        (Code::NodeJobImage, format!("cannot run: {}", stuck.pull()))
    } else {
        let StuckContainer { container, reason, .. } = stuck;
        let text = format!("cannot run: container {container} waits: {reason}{}", stuck.detail());
        (Code::NodeJobFailed, text)
    })
}

/// When a failed Job is retried, as the end of a message; empty if that is not known.
fn next_try(rollout: &Rollout, host: &Host<'_>) -> String {
    match host.due {
        _ if host.record.running.is_some() => "; a retry is running".to_owned(),
        // A rollout that is stopped delays the retry.
        Due::RetryAt(until) if !rollout.is_stopped(host) => {
            format!("; the next retry is at {}", until.strftime("%Y-%m-%dT%H:%M:%SZ"))
        }
        _ => String::new(),
    }
}

/// The failure of the last Job that has ended. It is reported until a later Job for the same change has
/// ended, too.
fn last_failure(host: &Host<'_>) -> Option<(Code, String)> {
    let status = &host.record.status;
    let last = status.job.as_ref()?;
    let is_same_change =
        last.action == NodeAction::Remove || last.desired_state_digest == host.desired.state;
    let runs = host.record.running.is_some();
    if runs != last.outcome.is_none() {
        return None;
    }
    let outcome = last.outcome.or(last.previous_outcome)?;
    // It is also reported while a retry is due and has not begun.
    let is_due_again = match host.due {
        Due::RetryAt(_) => true,
        Due::Change(_) | Due::Check(NodeAction::Preflight) => {
            last.failures > 0 && is_same_change && last.node_facts_digest == host.facts_digest()
        }
        _ => false,
    };
    let is_reported = runs
        || is_due_again
        || host.given_up
        || outcome == JobOutcome::Drifted
        || (outcome == JobOutcome::NotStarted && is_same_change);
    if !is_reported {
        return None;
    }
    let what = match last.action {
        NodeAction::Preflight if host.stages_ahead() => "staging the payload",
        NodeAction::Preflight => "the check",
        NodeAction::Install => "the installation",
        NodeAction::Inspect => "the inspection",
        NodeAction::Remove => "the removal",
    };
    let message = if last.message.is_empty() { "no reason is given" } else { &last.message };
    let job = if runs { String::new() } else { format!(" by Job {}", last.name) };
    let which = if runs { "an earlier Job".to_owned() } else { format!("Job {}", last.name) };
    let again = if last.failures > 1 {
        format!(
            " ({} in a row)",
            text::count(usize::try_from(last.failures).unwrap_or(0), "failure")
        )
    } else {
        String::new()
    };
    Some(match outcome {
        JobOutcome::Done => return None,
        JobOutcome::Refused => match last.code.as_deref().and_then(Code::parse) {
            Some(code)
                if record::refusal_code(last).is_some() || record::waits_for_restart(last) =>
            {
                (code, strip_code_and_fix(code, message))
            }
            _ => (Code::NodeUnfit, format!("{message}{again}")),
        },
        JobOutcome::Blocked => (Code::SandboxesOnNode, format!("{what} is blocked: {message}")),
        JobOutcome::Drifted => {
            (Code::NodeDrifted, format!("it differs from what was installed: {message}"))
        }
        JobOutcome::RolledBack => {
            (Code::NodeRolledBack, format!("{what} was rolled back: {message}"))
        }
        JobOutcome::Unsafe => {
            (Code::NodeBroken, format!("{what} failed and could not be rolled back: {message}"))
        }
        JobOutcome::NotStarted => {
            let code = last.code.as_deref().and_then(Code::parse).unwrap_or(Code::NodeJobFailed);
            (code, format!("{which} for {what} did not start: {message}{again}"))
        }
        JobOutcome::Failed => {
            (Code::NodeJobFailed, format!("{what}{job} failed: {message}{again}"))
        }
        JobOutcome::TimedOut => {
            (Code::NodeJobTimedOut, format!("{which} for {what} did not end in time{again}"))
        }
        JobOutcome::NoReport => {
            (Code::NodeJobNoReport, format!("{which} for {what}: {message}{again}"))
        }
        JobOutcome::Vanished => {
            (Code::NodeJobVanished, format!("{message}, and its result is unknown{again}"))
        }
    })
}

/// A message without its code and its fix, which the finding of that code has, too.
pub(super) fn strip_code_and_fix(code: Code, message: &str) -> String {
    let entry = code.entry();
    let message =
        message.strip_prefix(entry.code).unwrap_or(message).trim_start_matches([':', ' ']);
    let message = message.strip_suffix(entry.fix.trim_end_matches('.')).unwrap_or(message);
    message.trim_end_matches(['.', ' ']).to_owned()
}

/// Whether the change of a node failed several times. A change that was refused or blocked by sandboxes
/// does not count, because it says nothing about other nodes, and neither does a failed installation on a
/// node that is leaving.
pub(super) fn has_failed(host: &Host<'_>) -> bool {
    let wanted = host.node.wanted;
    let last = host.record.status.job.as_ref();
    host.given_up
        || last.is_some_and(|last| {
            let change = match last.action {
                NodeAction::Remove => true,
                NodeAction::Install => wanted,
                NodeAction::Preflight => wanted && host.stages_ahead(),
                NodeAction::Inspect => false,
            };
            let same = last.action == NodeAction::Remove
                || last.desired_state_digest == host.desired.state;
            // A node has failed until a retry ends in another way.
            let outcome = last.outcome.or(last.previous_outcome);
            let begun = !matches!(outcome, None | Some(JobOutcome::Refused | JobOutcome::Blocked));
            change
                && same
                && begun
                && last.failures >= ATTEMPTS
                && last.node_facts_digest == host.facts_digest()
        })
}

/// Whether the node is claimed, so that artifacts of the operator may be on it.
pub(crate) fn is_claimed(labels: &BTreeMap<String, String>) -> bool {
    labels.contains_key(names::CLAIM_LABEL)
}
