//! Creates and deletes Jobs, claims nodes, and reports what nodes wait for.
//!
//! [`super::rollout`] decides which node may be changed now.

use std::collections::{BTreeMap, BTreeSet};

use kata_api::kata_node::Phase;
use kata_api::node_task::NodeAction;
use kata_api::{Code, Natural, names};

use super::cluster::{Cluster, Due, Host, Rollout, WaitReason};
use super::payload::Digests;
use super::rollout::MAX_CHECKS;
use super::{job_body, provided, record};
use crate::assessment::NodeAssessment;
use crate::configs::config_ref;
use crate::draft::Draft;
use crate::object::{Kind, ObjectRef};
use crate::plan::{Action, OnFailure};
use crate::report::{Finding, Waiting};
use crate::text;

/// Adds the steps of the back end; returns whether none of its objects is left in the cluster.
pub(super) fn changes(cluster: &Cluster<'_>, out: &mut Draft) -> bool {
    label_claims(cluster, out);
    provided::changes(cluster, out);
    delete_recorded_jobs(cluster, out);
    create_jobs(cluster, out);
    wait_for_nodes(cluster, out);
    is_clean(cluster, out)
}

/// Whether no Job and no RuntimeClass is left. Waits for the Jobs if no node is left.
fn is_clean(cluster: &Cluster<'_>, out: &mut Draft) -> bool {
    let jobs = cluster.snapshot.jobs.jobs.known();
    let unreadable = &cluster.snapshot.jobs.unreadable;
    let jobs_left = jobs.is_none_or(|jobs| !jobs.is_empty()) || !unreadable.is_empty();
    if cluster.base.deleting && cluster.nodes.is_empty() && jobs_left {
        let subject = cluster.orphaned_jobs.first().map_or_else(
            || config_ref(&cluster.base.config),
            |(name, uid)| job_ref(cluster, name, Some(uid)),
        );
        out.wait_for(Waiting::Deletion, subject, "the Jobs on the nodes to be gone");
    }
    let classes_left = cluster.base.our_classes().next().is_some();
    !jobs_left && !classes_left && cluster.base.pods_are_gone()
}

/// Claims nodes by a label before the operator first changes them, and removes the label once a node is
/// clean.
fn label_claims(cluster: &Cluster<'_>, out: &mut Draft) {
    for host in &cluster.nodes {
        let begins = host.permitted && host.due == Due::Change(NodeAction::Install);
        let claims = begins || host.record.status.may_have_artifacts || host.node.has_runtime_label;
        let claim = names::CLAIM_LABEL.to_owned();
        let (set, remove, why) = if is_node_clean(host) {
            if !host.node.joined {
                continue;
            }
            (BTreeMap::new(), BTreeSet::from([claim]), "nothing of kata-operator is left on it")
        } else if claims && !host.node.joined {
            let why = if begins { "it is about to be changed" } else { "Kata may be on it" };
            (BTreeMap::from([(claim, names::CLAIMED.to_owned())]), BTreeSet::new(), why)
        } else {
            continue;
        };
        out.push(
            Action::LabelNode {
                node: host.node.object(),
                seen: host.node.version(),
                set,
                remove,
                needs_fresh_classes: false,
            },
            OnFailure::Continue,
            why,
        );
    }
}

/// Whether a leaving node has no artifacts of the operator any more. Its Jobs must be deleted, too: they
/// would count as new ones once the node's KataNode is deleted.
fn is_node_clean(host: &Host<'_>) -> bool {
    !host.node.wanted
        && !host.node.has_runtime_label
        && !host.record.status.may_have_artifacts
        && host.record.deletable_jobs.is_empty()
        && !host.is_changing()
        && host.due == Due::Nothing
        && !host.record.needs_fresh_read
        && host.record.is_understood
}

/// A Job of the node agent, in the operator's namespace.
pub(super) fn job_ref(cluster: &Cluster<'_>, name: &str, uid: Option<&str>) -> ObjectRef {
    ObjectRef::new(Kind::Job, name, uid).within(&cluster.base.options.namespace)
}

/// The action of the Job that a node gets now, if it gets one.
fn next_job(host: &Host<'_>) -> Option<NodeAction> {
    let action = match host.due {
        Due::Check(action) | Due::Change(action) if host.permitted => action,
        _ => return None,
    };
    // Before a node is changed, it must be claimed.
    let waits = action == NodeAction::Install && !host.node.joined;
    (!waits).then_some(action)
}

/// Creates the Jobs that are due.
fn create_jobs(cluster: &Cluster<'_>, out: &mut Draft) {
    let options = &cluster.base.options;
    let digests = Digests::of(cluster);
    for host in &cluster.nodes {
        let Some(action) = next_job(host) else { continue };
        let Some(agent_image) = &options.agent_image else {
            let config = config_ref(&cluster.base.config);
            let message = "the operator does not know its own image, so no Job can run".to_owned();
            out.add_finding(Code::AgentImageUnknown, config, message);
            return;
        };
        let facts = &host.node.facts;
        // There may be a payload, but it may differ from what was installed.
        let status = &host.record.status;
        let verify = status.may_have_artifacts && status.installed.is_none();
        let task = cluster.desired.task(facts, &host.desired, action, verify);
        let parameters = job_body::JobParameters {
            task: &task,
            node_uid: &facts.uid,
            state: &host.desired.state,
            facts: host.facts_digest(),
            number: host.next_number(),
            stages: job_body::stages(action, host.stages_ahead()),
            agent_image,
            payload_image: cluster.desired.payload_image(),
            payload_digest: digests.for_node(host),
        };
        let name = job_body::name(&facts.name, &facts.uid, parameters.number);
        let why = match action {
            NodeAction::Preflight if host.stages_ahead() => {
                "to stage the new payload while the node stays in service"
            }
            NodeAction::Preflight => "to check whether the node can run Kata",
            NodeAction::Install if host.node.behind => {
                "the node has another version or other settings"
            }
            NodeAction::Install => "the node should have Kata",
            NodeAction::Inspect => "to check whether the installation is unchanged",
            NodeAction::Remove => "the node should lose Kata, and no sandboxed pod is left on it",
        };
        out.push(
            Action::Apply {
                object: job_ref(cluster, &name, None),
                body: job_body::job(&parameters, options),
            },
            OnFailure::Continue,
            format!("{} {why}", action.as_str()),
        );
    }
}

/// Deletes Jobs whose result is recorded, and requests a fresh read if a Job seems to be gone.
fn delete_recorded_jobs(cluster: &Cluster<'_>, out: &mut Draft) {
    for host in &cluster.nodes {
        if host.record.needs_fresh_read {
            out.needs.insert(crate::snapshot::Need::Objects);
        }
        for job in host.record.deletable_jobs.iter().filter(|job| !job.deleting) {
            let object = job_ref(cluster, &job.name, Some(&job.uid));
            out.delete(object, OnFailure::Continue, "its result is recorded");
        }
    }
    for (name, uid) in &cluster.orphaned_jobs {
        let object = job_ref(cluster, name, Some(uid));
        out.delete(object, OnFailure::Continue, "its node has no Kata and gets none");
    }
}

/// Why a node without a finding is not being changed, in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Queued {
    /// The rollout does not permit it yet.
    Waits(WaitReason),
    /// Something else comes first.
    After(&'static str),
    /// Its Job is created in this pass.
    Next,
}

/// Why a node is not being changed; `None` if another part of the report has the reason.
fn queued(cluster: &Cluster<'_>, node: &NodeAssessment) -> Option<Queued> {
    let name = &node.facts.name;
    let is_released = !node.has_runtime_label;
    if let Some(reason) = cluster.base.earlier_steps(node, cluster.may_remove, is_released) {
        return node.finding.is_none().then_some(Queued::After(reason));
    }
    if cluster.rollout.permitted.contains(name) {
        return cluster.base.options.agent_image.is_some().then_some(Queued::Next);
    }
    cluster.rollout.waiting.get(name).copied().map(Queued::Waits)
}

/// What ends before a node gets its next Job: a Job that runs, or the pod of one that is gone. `None` if a finding
/// says why the node gets none.
fn earlier_job(cluster: &Cluster<'_>, host: &Host<'_>) -> Option<(ObjectRef, String)> {
    let (rollout, name) = (&cluster.rollout, &host.node.facts.name);
    if rollout.is_stopped(host)
        || rollout.is_held(host)
        || rollout.skipped.contains_key(name)
        || host.node.finding.is_some()
    {
        return None;
    }
    if let Some((job, _)) = host.record.running {
        let message = format!("Job {} on {name} to end", job.name);
        return Some((job_ref(cluster, &job.name, Some(&job.uid)), message));
    }
    let pod = host.record.orphaned_pod?;
    let object = ObjectRef::new(Kind::Pod, &pod.name, None).within(&cluster.base.options.namespace);
    Some((object, format!("pod {} on {name} to end, whose Job is gone", pod.name)))
}

fn reason_of_wait(queued: Queued, cluster: &Cluster<'_>) -> String {
    let rollout = &cluster.rollout;
    match queued {
        Queued::Waits(WaitReason::MaxUnavailable) => {
            let Rollout { limit, unavailable, leaving_service, .. } = rollout;
            let mut nodes = [unavailable.as_slice(), leaving_service].concat();
            nodes.sort_by(|a, b| Natural(a).cmp(&Natural(b)));
            let are = match (unavailable.is_empty(), leaving_service.is_empty(), nodes.len()) {
                (_, true, 1) => "is",
                (_, true, _) => "are",
                (true, false, 1) => "is about to be",
                (true, false, _) => "are about to be",
                (false, false, _) => "are, or are about to be",
            };
            let nodes = text::list(&nodes, text::NAMES);
            format!("at most {limit} may be unavailable, and {nodes} {are}")
        }
        Queued::Waits(WaitReason::Canary) => {
            format!("the first node{} must succeed first", same_runtimes(cluster))
        }
        Queued::Waits(WaitReason::StagingLimit) => {
            format!("at most {} stage their payload ahead of the change", rollout.limit)
        }
        Queued::Waits(WaitReason::CheckLimit) => {
            format!("at most {MAX_CHECKS} nodes are checked at once")
        }
        Queued::After(reason) => reason.to_owned(),
        Queued::Next => "the next Job is being created".to_owned(),
    }
}

/// Which nodes a change of one node says something about, if nodes should have different runtimes.
fn same_runtimes(cluster: &Cluster<'_>) -> &'static str {
    let wanted = || cluster.nodes.iter().filter(|host| host.node.wanted);
    let first = wanted().next().map(|host| &host.desired.state);
    if wanted().all(|host| Some(&host.desired.state) == first) {
        ""
    } else {
        " with the same runtimes"
    }
}

/// Reports why the rollout changes no further node, if it has stopped.
fn report_stopped_rollout(cluster: &Cluster<'_>, out: &mut Draft) {
    let rollout = &cluster.rollout;
    let config = config_ref(&cluster.base.config);
    let failure_of = |name: &String| {
        let host = cluster.nodes.iter().find(|host| host.node.facts.name == *name);
        host.and_then(|host| host.node.finding.as_ref()).map(|finding| finding.message.clone())
    };
    let which = same_runtimes(cluster);
    let others = if which.is_empty() { "" } else { "; nodes with other runtimes go on" };
    let message = |what: &str, done: &str, names: &[String]| {
        let of_first = names.first().and_then(failure_of);
        format!(
            "{what} on {}, so no further node{which} is {done}{others}: {}{}",
            text::count(names.len(), "node"),
            text::list(names, text::NAMES),
            of_first.map(|failure| format!("; {failure}")).unwrap_or_default()
        )
    };
    for nodes in rollout.stopped_by.values() {
        let message = message("the change failed", "changed", nodes);
        out.add_finding(Code::RolloutStopped, config.clone(), message);
    }
    let held = rollout.held_by.iter().filter(|(it, _)| !rollout.stopped_by.contains_key(*it));
    for (_, nodes) in held {
        let message = message("the installation could not start", "tried", nodes);
        let mut finding = Finding::new(Code::RolloutStopped, config.clone(), message);
        "Fix the cause that the message names. The operator tries these nodes again by itself, and goes on once \
         one of them succeeds, or, if other nodes have Kata, after three attempts on each."
            .clone_into(&mut finding.fix);
        out.findings.push(finding);
    }
    let mut skipped_by: BTreeMap<&String, Vec<String>> = BTreeMap::new();
    for host in &cluster.nodes {
        let (state, skipped) = (&host.desired.state, &host.node.facts.name);
        let has_finding =
            rollout.stopped_by.contains_key(state) || rollout.held_by.contains_key(state);
        let Some(found_by) = rollout.skipped.get(skipped).filter(|_| !has_finding) else {
            continue;
        };
        skipped_by.entry(found_by).or_default().push(skipped.clone());
    }
    for (found_by, skipped) in skipped_by {
        let found = cluster.nodes.iter().find(|host| host.node.facts.name == *found_by);
        let refused =
            found.and_then(|host| host.record.status.job.as_ref()).and_then(record::refusal_code);
        let what = match refused {
            Some(Code::SettingsMisfit) => "the settings of a runtime do not fit the payload",
            _ => "the payload is unusable",
        };
        let message = format!(
            "{what} on node {found_by}, so the change is not made on {}",
            text::list(&skipped, text::NAMES)
        );
        let mut finding = Finding::new(Code::RolloutStopped, config.clone(), message);
        "Fix spec.runtimes or spec.payload.image of the KataConfig.".clone_into(&mut finding.fix);
        out.findings.push(finding);
    }
}

/// Reports what the nodes wait for, and why the rollout is paused or stopped.
fn wait_for_nodes(cluster: &Cluster<'_>, out: &mut Draft) {
    let rollout = &cluster.rollout;
    let config = config_ref(&cluster.base.config);
    let mut waiting: Vec<(Option<Queued>, &str)> = Vec::new();
    for host in &cluster.nodes {
        let (node, name) = (&host.node, &host.node.facts.name);
        let is_due = matches!(host.due, Due::Change(_) | Due::Check(NodeAction::Preflight));
        let is_removed =
            !node.wanted && !host.record.status.may_have_artifacts && host.due == Due::Nothing;
        let deletable = host.record.deletable_jobs.first().filter(|_| is_removed);
        if let Some(job) = deletable.or(host.record.job_of_earlier_node.as_ref()) {
            let message = format!("Job {} on {name} to be gone", job.name);
            out.wait_for(Waiting::Deletion, job_ref(cluster, &job.name, Some(&job.uid)), message);
        } else if let Some((job, _)) =
            host.record.running.filter(|_| !node.wanted && !node.in_flight())
        {
            let message = format!("Job {} on {name} to end", job.name);
            out.wait_for(Waiting::Node, job_ref(cluster, &job.name, Some(&job.uid)), message);
        } else if node.in_flight()
            || host.due == Due::AwaitKubelet
            || (node.step.is_some() && node.finding.is_none())
        {
            out.wait_for(Waiting::Node, node.object(), node.brief());
        } else if let Due::RetryAt(until) = host.due {
            out.wait_for(Waiting::Node, node.object(), format!("{name} to be retried at {until}"));
        } else if is_due || node.phase != Phase::Ready {
            match earlier_job(cluster, host) {
                Some((object, message)) => out.wait_for(Waiting::Node, object, message),
                None => waiting.push((queued(cluster, node), name)),
            }
        }
    }
    if !cluster.base.deleting {
        out.findings.extend(Digests::of(cluster).moved(cluster));
        report_stopped_rollout(cluster, out);
    }
    if rollout.paused && !cluster.nodes.is_empty() {
        let message = "spec.rollout.paused is true, so no further node is changed".to_owned();
        out.add_finding(Code::RolloutPaused, config.clone(), message);
    }
    if cluster.base.deleting {
        for node in &cluster.provided {
            // Otherwise its claim goes in this pass.
            if let Some(queued) = queued(cluster, node) {
                waiting.push((Some(queued), &node.facts.name));
            }
        }
    }
    waiting.sort_by_key(|(queued, name)| (queued.is_none(), *queued, Natural(name)));
    let mut reasons: BTreeMap<Queued, String> = BTreeMap::new();
    let waiting = waiting.into_iter().map(|(queued, name)| {
        let reason = queued.map(|queued| {
            reasons.entry(queued).or_insert_with(|| reason_of_wait(queued, cluster)).clone()
        });
        (reason, name)
    });
    out.wait_in_queue(&config, waiting);
}
