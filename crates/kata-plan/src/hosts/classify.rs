//! One node: phase, step, whether it shall carry the label of verified nodes, and what holds it up.
//!
//! Plans nothing.

use jiff::{SignedDuration, Timestamp};
use kata_api::kata_node::{JobOutcome, NodeStep, Phase};
use kata_api::node_task::NodeAction;
use kata_api::{Code, names};

use super::memory::is_of_payload;
use super::rollout::ATTEMPTS;
use super::{HostNode, Next, Rollout};
use crate::report::Finding;
use crate::snapshot::{JobPod, NodeJob};
use crate::text;
use crate::view::{NodeView, View};

/// What the version of the containerd of k3s and RKE2 has in it, as `containerd://2.1.4-k3s2`.
const OF_K3S: &str = "-k3s";

/// How long a Job may be without a pod, or a pod outlast its Job, before somebody has to look.
pub(super) const POD_GRACE: SignedDuration = SignedDuration::from_secs(60);

/// How long each container of a Job's pod may take to get its image and to be set up. What it does then, such
/// as to stage a big payload, takes its time.
pub(super) const START_GRACE: SignedDuration = SignedDuration::from_mins(5);

/// Settles what is said about a node.
pub(super) fn classify(
    view: &View<'_>,
    rollout: &Rollout,
    node: &mut NodeView<'_>,
    host: &HostNode<'_>,
) {
    node.verdict = verdict(view, node, host);
    (node.phase, node.step) = if node.wanted { wanted(node, host) } else { leaving(node, host) };
    node.finding = finding(view, rollout, node, host);
}

/// Whether the node shall carry the label of verified nodes, see [`crate::view`]: a node that is being
/// changed, or about to be, does not.
fn verdict(view: &View<'_>, node: &NodeView<'_>, host: &HostNode<'_>) -> Option<bool> {
    let changes = host.is_changing() || (host.permitted && matches!(host.next, Next::Change(_)));
    let changes = changes && !keeps_label(node, host);
    let usable = node.wanted
        && !node.facts.unschedulable
        && !node.facts.deleting
        && !changes
        && host.known.status.installed.is_some()
        && host.missing.is_empty()
        && serves_all(view, host);
    if host.forgotten && !changes && !node.facts.unschedulable && !node.facts.deleting {
        // It is looked at anew in its turn, and serves meanwhile: else all would be without the label at once.
        return crate::view::label_of_ready(view, node.facts).filter(|ready| !ready);
    }
    if !usable {
        return Some(false);
    }
    crate::view::label_of_ready(view, node.facts)
}

/// Whether a node keeps the label while it is changed. In k3s and RKE2 the container runtime is restarted with the
/// kubelet, which then looks at every pod as at a new one: those that select the label would be failed, although
/// they run. What offers the handlers that the pods have goes on offering them.
pub(crate) fn keeps_label(node: &NodeView<'_>, host: &HostNode<'_>) -> bool {
    let removes = host.runs(NodeAction::Remove) || host.next == Next::Change(NodeAction::Remove);
    node.facts.container_runtime_version.contains(OF_K3S)
        && host.known.status.installed.is_some()
        && !removes
}

/// Whether a node has the handler of every RuntimeClass of ours: the label takes the pods of all of them to it,
/// and a class may have come while the node could not be changed.
fn serves_all(view: &View<'_>, host: &HostNode<'_>) -> bool {
    let classes = view.snapshot.runtime_classes.known().into_iter().flatten();
    let mut ours = classes.filter(|class| {
        crate::bodies::is_our_class(class) && class.metadata.deletion_timestamp.is_none()
    });
    ours.all(|class| host.offers(&class.handler))
}

fn wanted(node: &NodeView<'_>, host: &HostNode<'_>) -> (Phase, Option<NodeStep>) {
    let installed = host.known.status.installed.is_some();
    let changing = if installed { Phase::Updating } else { Phase::Installing };
    if host.runs(NodeAction::Install) || host.runs(NodeAction::Remove) {
        return (changing, Some(host.job_step()));
    }
    if host.permitted && host.next == Next::Change(NodeAction::Install) && node.labelled {
        return (changing, Some(NodeStep::Staging));
    }
    if host.next == Next::Confirm {
        let before = node.previous.and_then(|previous| previous.status.as_ref());
        let phase = match before.map(|before| before.phase) {
            _ if node.verified => Phase::NotReady,
            // What comes next is the end of an installation.
            Some(Phase::Installing) => Phase::Installing,
            _ => changing,
        };
        return (phase, Some(NodeStep::Confirming));
    }
    if installed {
        let phase = if node.verdict == Some(true) { Phase::Ready } else { Phase::NotReady };
        return (phase, host.runs(NodeAction::Preflight).then_some(NodeStep::Staging));
    }
    if host.failed {
        return (Phase::Failed, None);
    }
    (Phase::Waiting, host.runs(NodeAction::Preflight).then_some(NodeStep::Preflight))
}

fn leaving(node: &NodeView<'_>, host: &HostNode<'_>) -> (Phase, Option<NodeStep>) {
    if host.is_changing() {
        (Phase::Removing, Some(host.job_step()))
    } else if host.failed {
        (Phase::Failed, None)
    } else if host.next == Next::Nothing && !host.known.status.touched && node.labelled {
        // Clean; its labels are going.
        (Phase::Removing, Some(NodeStep::Confirming))
    } else {
        (Phase::WaitingToRemove, None)
    }
}

fn finding(
    view: &View<'_>,
    rollout: &Rollout,
    node: &NodeView<'_>,
    host: &HostNode<'_>,
) -> Option<Finding> {
    let name = &node.facts.name;
    let make = |code: Code, message: String| Some(Finding::new(code, node.object(), message));
    let ready = node.facts.ready.status == Some(true);
    if let Some((job, pod)) = host.known.running
        && (ready || job.end.is_none())
    {
        if let Some(pod) = outlasting(view, job, pod) {
            let message = format!("node {name}: Job {} is over, and {pod} is not", job.name);
            return Some(without_end(Code::NodeJobTimedOut, node, message));
        }
        if let Some((code, what)) = trouble(view, job, pod) {
            return make(code, format!("node {name}: Job {} {what}", job.name));
        }
    }
    let busy = host.known.running.is_some();
    if let Some(pod) = host.known.lingering.filter(|pod| !busy && !is_going(view, host, pod)) {
        let message =
            format!("node {name}: Job {} is gone, and {} is not", pod.job, full_name(view, pod));
        return Some(without_end(Code::NodeJobVanished, node, message));
    }
    let over = host.known.running.is_some_and(|(job, _)| job.end.is_some());
    let concerned = node.phase != Phase::Ready && (over || !host.is_changing());
    if concerned && !ready {
        if let Some(broken) = left_broken(node, host) {
            return Some(broken);
        }
        let reason = match node.facts.ready.reason.as_str() {
            "" => "the kubelet does not report",
            reason => reason,
        };
        let message = format!("node {name} is not Ready: {reason}");
        return Some(crate::view::not_ready(node, message, true));
    }
    if concerned && node.facts.unschedulable {
        let message =
            format!("node {name} is cordoned, so it is not changed, and counts as unavailable");
        let mut finding = Finding::new(Code::NodeCordoned, node.object(), message);
        "Uncordon the node.".clone_into(&mut finding.fix);
        return Some(finding);
    }
    if let Some((code, message)) = last_failure(host) {
        let again = again(rollout, host);
        let message = format!("node {name}: {message}{again}");
        let mut finding = Finding::new(code, node.object(), message);
        if host.known.status.job.as_ref().is_some_and(is_of_payload) {
            finding.fix.push_str(
                " An image that was replaced since needs another tag, or its digest: nodes keep what they \
                 have pulled.",
            );
        }
        finding.fix = finding.fix.replace("the KataNode", &format!("KataNode {name}"));
        return Some(finding);
    }
    if host.overdue {
        let message = format!(
            "node {name} has Kata, and its kubelet does not report the handler {}",
            host.missing.join(", ")
        );
        let mut finding = Finding::new(Code::HandlerMissing, node.object(), message);
        "Look at the container runtime's and the kubelet's log on the node."
            .clone_into(&mut finding.fix);
        return Some(finding);
    }
    crate::view::pods_on_leaving(view, node)
}

/// That a node is not Ready since a change of it failed, and could not be undone: what was seen last is its
/// reason, and no Job can run there that would see more.
fn left_broken(node: &NodeView<'_>, host: &HostNode<'_>) -> Option<Finding> {
    let last = host.known.status.job.as_ref();
    let last = last.filter(|last| last.outcome == Some(JobOutcome::Unsafe))?;
    let name = &node.facts.name;
    let message = format!(
        "node {name} is not Ready since a change of it failed, and could not be undone: {}",
        last.message
    );
    let mut finding = Finding::new(Code::NodeBroken, node.object(), message);
    finding.fix = format!(
        "Start the container runtime on the node, so that it becomes Ready; then annotate KataNode {name} with \
         kata-operator.dev/retry and any new value."
    );
    Some(finding)
}

/// Whether a pod goes with its Job that was given up a moment ago.
fn is_going(view: &View<'_>, host: &HostNode<'_>, pod: &JobPod) -> bool {
    host.known.status.job.as_ref().is_some_and(|last| {
        last.name == pod.job
            && last.outcome == Some(JobOutcome::NotStarted)
            && view.now.duration_since(last.at) < POD_GRACE
    })
}

/// The pod that goes on after the end of its Job, if it had its grace.
fn outlasting(view: &View<'_>, job: &NodeJob, pod: Option<&JobPod>) -> Option<String> {
    let waits = job.end.as_ref()?.at.is_some_and(|at| view.now.duration_since(at) >= POD_GRACE);
    pod.filter(|pod| waits && !pod.finished).map(|pod| full_name(view, pod))
}

/// By when a pod should have begun that has not.
pub(super) fn starts_by(pod: &JobPod) -> Option<Timestamp> {
    pod.waits_since?.checked_add(START_GRACE).ok()
}

/// `pod NAMESPACE/NAME`, as somebody who shall delete it needs it.
fn full_name(view: &View<'_>, pod: &JobPod) -> String {
    format!("pod {}/{}", view.snapshot.options.namespace, pod.name)
}

/// A pod that may still change the node, although nobody waits for it any more.
fn without_end(code: Code, node: &NodeView<'_>, message: String) -> Finding {
    let mut finding = Finding::new(code, node.object(), message);
    "Delete the pod if it does not end by itself, but not with --force: what it does on the node would go \
     on unseen."
        .clone_into(&mut finding.fix);
    finding
}

/// What keeps a Job from running.
fn trouble(view: &View<'_>, job: &NodeJob, pod: Option<&JobPod>) -> Option<(Code, String)> {
    if job.end.is_some() {
        return None;
    }
    let Some(pod) = pod else {
        let waits = job.created.is_some_and(|made| view.now.duration_since(made) >= POD_GRACE);
        return waits.then(|| (Code::NodeJobWithoutPod, "has no pod".to_owned()));
    };
    if let Some(message) = &pod.unschedulable {
        return Some((
            Code::NodeJobUnschedulable,
            format!("cannot run: pod {} is not scheduled: {message}", pod.name),
        ));
    }
    let Some(stuck) = pod.stuck.as_ref() else {
        let late = starts_by(pod).is_some_and(|by| view.now >= by);
        let (minutes, pod) = (START_GRACE.as_mins(), full_name(view, pod));
        let what =
            format!("has not begun for more than {minutes} minutes: see the Events of {pod}");
        return late.then_some((Code::NodeJobNotStarted, what));
    };
    let pulls = matches!(
        stuck.reason.as_str(),
        "ErrImagePull"
            | "ImagePullBackOff"
            | "InvalidImageName"
            | "ErrImageNeverPull"
            | "RegistryUnavailable"
            | "ImageInspectError"
            | "SignatureValidationFailed"
    );
    let detail =
        if stuck.message.is_empty() { String::new() } else { format!(": {}", stuck.message) };
    Some(if pulls {
        (
            Code::NodeJobImage,
            format!("cannot run: image {} cannot be pulled: {}{detail}", stuck.image, stuck.reason),
        )
    } else {
        (
            Code::NodeJobFailed,
            format!("cannot run: container {} waits: {}{detail}", stuck.container, stuck.reason),
        )
    })
}

/// When what failed is tried again, if that is known.
fn again(rollout: &Rollout, host: &HostNode<'_>) -> String {
    match host.next {
        _ if host.known.running.is_some() => "; it is being tried again".to_owned(),
        // Whoever is held back by the rollout gets no try at that time.
        Next::Later(until) if !rollout.paused && rollout.stopped_by.is_empty() => {
            format!("; the next try is at {}", until.strftime("%Y-%m-%dT%H:%M:%SZ"))
        }
        _ => String::new(),
    }
}

/// What the last Job that is over left to say, as long as it holds: until another one for the same is over,
/// too.
fn last_failure(host: &HostNode<'_>) -> Option<(Code, String)> {
    let status = &host.known.status;
    let last = status.job.as_ref()?;
    let runs = host.known.running.is_some();
    if runs != last.outcome.is_none() {
        return None;
    }
    let outcome = last.outcome.or(last.before)?;
    let holds = runs
        || matches!(host.next, Next::Later(_))
        || host.given_up
        || outcome == JobOutcome::Drifted;
    if !holds {
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
            Some(code) if is_of_payload(last) => (code, found(code, message)),
            _ => (Code::NodeUnfit, format!("{message}{again}")),
        },
        JobOutcome::Blocked => (Code::SandboxesOnNode, format!("{what} is held up: {message}")),
        JobOutcome::Drifted => {
            (Code::NodeDrifted, format!("it differs from what was installed: {message}"))
        }
        JobOutcome::RolledBack => (Code::NodeRolledBack, format!("{what} was undone: {message}")),
        JobOutcome::Unsafe => {
            (Code::NodeBroken, format!("{what} failed, and could not be undone: {message}"))
        }
        JobOutcome::Failed | JobOutcome::NotStarted => {
            (Code::NodeJobFailed, format!("{what}{job} failed: {message}{again}"))
        }
        JobOutcome::TimedOut => {
            (Code::NodeJobTimedOut, format!("{which} for {what} did not end in time{again}"))
        }
        JobOutcome::NoReport => {
            (Code::NodeJobNoReport, format!("{which} for {what}: {message}{again}"))
        }
        JobOutcome::Vanished => {
            (Code::NodeJobVanished, format!("{message}, and its result is not known{again}"))
        }
    })
}

/// A message without its code and what to do, which the finding of that code has.
fn found(code: Code, message: &str) -> String {
    let entry = code.entry();
    let message =
        message.strip_prefix(entry.code).unwrap_or(message).trim_start_matches([':', ' ']);
    let message = message.strip_suffix(entry.fix.trim_end_matches('.')).unwrap_or(message);
    message.trim_end_matches(['.', ' ']).to_owned()
}

/// Whether a change of the node failed for the time being. One that was not begun, since the node is unfit or
/// sandboxes are in the way, says nothing about other nodes.
/// What a node failed with that is leaving by now is no matter any more.
pub(super) fn has_failed(host: &HostNode<'_>, state: &str, wanted: bool) -> bool {
    let last = host.known.status.job.as_ref();
    host.given_up
        || last.is_some_and(|last| {
            let change = match last.action {
                NodeAction::Remove => true,
                NodeAction::Install => wanted,
                NodeAction::Preflight => wanted && host.stages_ahead(),
                NodeAction::Inspect => false,
            };
            let same = last.action == NodeAction::Remove || last.state == state;
            // A node that failed does so until a further try succeeds, or ends in another way.
            let outcome = last.outcome.or(last.before);
            let begun = !matches!(outcome, None | Some(JobOutcome::Refused | JobOutcome::Blocked));
            change && same && begun && last.failures >= ATTEMPTS && last.facts == host.facts
        })
}

/// Whether the label says that something of ours may be on the node.
pub(super) fn is_claimed(labels: &std::collections::BTreeMap<String, String>) -> bool {
    labels.contains_key(names::CLAIM_LABEL)
}
