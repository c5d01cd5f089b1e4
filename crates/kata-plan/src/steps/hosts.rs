//! The steps where Jobs change the nodes: labels, Jobs, RuntimeClasses, in an order in which no sandboxed
//! pod loses its runtime.
//!
//! Which node may go on is settled in [`crate::hosts`].

use std::collections::{BTreeMap, BTreeSet};

use kata_api::kata_node::Phase;
use kata_api::node_task::NodeAction;
use kata_api::{Code, names};

use super::install::{finalizer, runtime_classes};
use super::remove::{no_pods, remove_classes};
use super::{Steps, delete, kata_nodes, no_nodes, our_classes, remove_finalizers, taints};
use crate::bodies::node_job;
use crate::hosts::{CHECKS, Held, HostNode, Hosts, Next, Rollout, keeps_label};
use crate::object::{Kind, ObjectRef};
use crate::plan::{Action, OnFailure};
use crate::report::{Finding, Waiting};
use crate::selection;
use crate::snapshot::{Need, PodScope};
use crate::text;
use crate::view::{NodeView, View};

/// From how many nodes on one read of all pods is cheaper than one per node.
const NODES_FOR_CLUSTER_READ: usize = 20;

/// Brings Kata onto nodes, and takes it off those that are not selected any more.
pub(super) fn install(view: &View<'_>, hosts: &Hosts, out: &mut Steps) {
    finalizer(view, out);
    labels(view, out);
    taints::lift(view, out);
    if !view.nodes.iter().any(|node| node.wanted) {
        no_nodes(view, out);
    }
    leaving_pods(view, out);
    jobs(view, hosts, out);
    runtime_classes(view, out);
    kata_nodes(view, out);
    wait(view, hosts, out);
}

/// Removes everything when the KataConfig is being deleted.
pub(super) fn remove(view: &View<'_>, hosts: &Hosts, out: &mut Steps) {
    labels(view, out);
    let labels_off = !view.nodes.iter().any(|node| node.verified);
    let classes = our_classes(view);
    let pods_matter = !labels_off || !classes.is_empty() || !view.nodes.is_empty();
    let clear = !pods_matter || no_pods(view, out);
    let removable = clear && labels_off;
    if removable {
        if !remove_classes(&classes, out) {
            jobs(view, hosts, out);
        }
    } else {
        // Jobs that are over go all the same.
        spent_jobs(view, hosts, out);
    }
    if clear && !labels_off {
        let config = selection::config_ref(view.config);
        out.wait(Waiting::OwnWrites, config, "the label of verified nodes is taken off");
    }
    kata_nodes(view, out);
    wait(view, hosts, out);
    finish(view, hosts, &classes, removable, out);
}

/// Lets the KataConfig go when nothing is left.
fn finish(
    view: &View<'_>,
    hosts: &Hosts,
    classes: &[&k8s_openapi::api::node::v1::RuntimeClass],
    clear: bool,
    out: &mut Steps,
) {
    // What cannot be understood may have Kata.
    let unreadable = view.snapshot.unreadable(Kind::Node);
    for node in &unreadable {
        let message = format!("{} to be readable", node.object);
        out.wait(Waiting::Read, node.object.clone(), message);
    }
    let jobs_left = view.snapshot.jobs.jobs.known().is_none_or(|jobs| !jobs.is_empty());
    let kata_nodes_left = view.snapshot.kata_nodes.known().is_none_or(|list| !list.is_empty());
    if !clear
        || !unreadable.is_empty()
        || !classes.is_empty()
        || !view.nodes.is_empty()
        || kata_nodes_left
    {
        return;
    }
    if jobs_left {
        let subject = hosts.strays.first().map_or_else(
            || selection::config_ref(view.config),
            |(name, uid)| job_ref(view, name, Some(uid)),
        );
        out.wait(Waiting::Deletion, subject, "the Jobs on the nodes to be gone");
    } else {
        out.steps.push(remove_finalizers(view.config, "nothing is left"));
    }
}

/// The labels of the nodes: `true` on those that can run sandboxed pods, `false` on those that something of
/// ours may be on, none on the others.
fn labels(view: &View<'_>, out: &mut Steps) {
    for node in &view.nodes {
        let Some(host) = &node.host else { continue };
        let value = node.facts.labels.get(names::RUNTIME_LABEL).map(String::as_str);
        let claims = host.permitted && host.next == Next::Change(NodeAction::Install);
        let wanted = if is_clean(node, host) {
            None
        } else if node.verdict == Some(true) {
            Some(names::RUNTIME_LABEL_VERIFIED)
        } else if node.verdict == Some(false)
            && (node.labelled || host.known.status.touched || claims)
        {
            Some(names::RUNTIME_LABEL_CLAIMED)
        } else {
            continue;
        };
        if value == wanted && node.labelled == wanted.is_some() {
            continue;
        }
        let why = match wanted {
            None => "nothing of ours is on it any more",
            Some(names::RUNTIME_LABEL_VERIFIED) => "it can run sandboxed pods",
            Some(_) if claims => "it is about to be changed",
            Some(_) if node.wanted => "it cannot run sandboxed pods now",
            Some(_) => "no new sandboxed pod shall come",
        };
        let keys = [names::RUNTIME_LABEL, names::CLAIM_LABEL].map(str::to_owned);
        let (set, remove) = match wanted {
            None => (BTreeMap::new(), BTreeSet::from(keys)),
            Some(value) => {
                let [runtime, claim] = keys;
                let claimed = names::CLAIMED.to_owned();
                (BTreeMap::from([(runtime, value.to_owned()), (claim, claimed)]), BTreeSet::new())
            }
        };
        // To keep new pods away is right on a node that has changed too.
        let seen = if wanted == Some(names::RUNTIME_LABEL_CLAIMED) { None } else { node.version() };
        out.push(
            Action::LabelNode { node: node.object(), seen, set, remove },
            OnFailure::Continue,
            why,
        );
    }
}

/// Whether a node that leaves has nothing of ours any more. Jobs before the last one count: what is known of
/// the node goes with its KataNode, and they would be taken for news.
fn is_clean(node: &NodeView<'_>, host: &HostNode<'_>) -> bool {
    !node.wanted
        && !node.verified
        && !host.known.status.touched
        && host.known.spent.is_empty()
        && !host.is_changing()
        && host.next == Next::Nothing
        && !host.known.unsure
}

/// Has the pods on nodes that leave read.
fn leaving_pods(view: &View<'_>, out: &mut Steps) {
    let leaving: Vec<&NodeView<'_>> = view
        .nodes
        .iter()
        .filter(|node| {
            let next = node.host.as_ref().map(|host| host.next);
            !node.wanted && !node.verified && next == Some(Next::Change(NodeAction::Remove))
        })
        .collect();
    let many = leaving.len() > NODES_FOR_CLUSTER_READ;
    for node in leaving {
        let name = &node.facts.name;
        match view.running(Some(name)) {
            Err(None) => {
                let scope = if many { PodScope::Cluster } else { PodScope::Node(name.clone()) };
                out.needs.insert(Need::Pods { scope, classes: view.classes.clone() });
                out.wait(Waiting::Read, node.object(), format!("the pods on {name} are read"));
            }
            Err(Some(error)) => out.find(
                Code::ReadFailed,
                node.object(),
                format!("cannot read the pods on node {name}: {error}; it keeps Kata meanwhile"),
            ),
            Ok(pods) if pods.is_empty() => {}
            Ok(pods) => out.wait(
                Waiting::Pods,
                node.object(),
                format!("{} on {name} to end", text::count(pods.len(), "sandboxed pod")),
            ),
        }
    }
}

fn job_ref(view: &View<'_>, name: &str, uid: Option<&str>) -> ObjectRef {
    ObjectRef::new(Kind::Job, name, uid).within(&view.snapshot.options.namespace)
}

/// The Jobs that are due, and those that are spent.
fn jobs(view: &View<'_>, hosts: &Hosts, out: &mut Steps) {
    let options = &view.snapshot.options;
    spent_jobs(view, hosts, out);
    for node in &view.nodes {
        let Some(host) = &node.host else { continue };
        if host.known.unsure {
            out.needs.insert(Need::Objects);
        }
        let action = match host.next {
            Next::Check(action) => action,
            Next::Change(NodeAction::Install) if !node.labelled => continue,
            Next::Change(NodeAction::Install) if node.verified && !keeps_label(node, host) => {
                continue;
            }
            Next::Change(action) => action,
            Next::Nothing | Next::Later(_) | Next::Confirm => continue,
        };
        if !host.permitted {
            continue;
        }
        let Some(agent_image) = &options.agent_image else {
            let config = selection::config_ref(view.config);
            let message = "the operator does not know its own image, so no Job can run".to_owned();
            out.find(Code::AgentImageUnknown, config, message);
            return;
        };
        // There may be a payload, and it is not known to be as it was installed.
        let verify = host.known.status.touched && host.known.status.installed.is_none();
        let task = hosts.desired.task(node.facts, action, verify);
        let wish = node_job::Wish {
            task: &task,
            node_uid: &node.facts.uid,
            state: &hosts.desired.state,
            facts: &host.facts,
            number: host.next_number(),
            stages: action == NodeAction::Install
                || (action == NodeAction::Preflight && host.stages_ahead()),
            agent_image,
            payload_image: hosts.desired.payload_image(),
        };
        let name = node_job::name(&node.facts.name, &node.facts.uid, wish.number);
        let why = match action {
            NodeAction::Preflight if host.stages_ahead() => {
                "to bring the other payload onto the node while it serves with what it has"
            }
            NodeAction::Preflight => "to see whether the node can run Kata",
            NodeAction::Install if node.behind => "the node has another version or other settings",
            NodeAction::Install => "the node shall have Kata",
            NodeAction::Inspect => "to see whether the node is as it was installed",
            NodeAction::Remove => "the node shall lose Kata, and no sandboxed pod is left",
        };
        out.push(
            Action::Apply {
                object: job_ref(view, &name, None),
                body: node_job::job(&wish, options),
            },
            OnFailure::Continue,
            format!("{} {why}", action.as_str()),
        );
    }
}

/// Deletes Jobs that nobody needs any more.
fn spent_jobs(view: &View<'_>, hosts: &Hosts, out: &mut Steps) {
    let spent = view
        .nodes
        .iter()
        .filter_map(|node| node.host.as_ref())
        .flat_map(|host| host.known.spent.iter().copied())
        .filter(|job| !job.deleting);
    for job in spent {
        out.push(
            delete(job_ref(view, &job.name, Some(&job.uid))),
            OnFailure::Continue,
            "its result is recorded",
        );
    }
    for (name, uid) in &hosts.strays {
        out.push(
            delete(job_ref(view, name, Some(uid))),
            OnFailure::Continue,
            "its node has nothing to do with Kata",
        );
    }
}

/// Why a node is not being changed although nothing is wrong with it, in the order in which it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Queued {
    /// Its turn has not come.
    Held(Held),
    /// It has.
    Next,
}

/// Why a node is not being changed; `None` if a finding says it, or if it waits for something else.
fn queued(view: &View<'_>, rollout: &Rollout, node: &str) -> Option<Queued> {
    if rollout.permitted.contains(node) {
        view.snapshot.options.agent_image.is_some().then_some(Queued::Next)
    } else {
        rollout.held.get(node).copied().map(Queued::Held)
    }
}

fn why(queued: Queued, rollout: &Rollout) -> String {
    match queued {
        Queued::Held(Held::Room) => {
            let Rollout { limit, unavailable, leaving_service, .. } = rollout;
            let mut nodes = [unavailable.as_slice(), leaving_service].concat();
            nodes.sort();
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
        Queued::Held(Held::Canary) => "the first one goes alone".to_owned(),
        Queued::Held(Held::Ahead) => {
            format!("at most {} get the payload before their turn", rollout.limit)
        }
        Queued::Held(Held::Checks) => format!("at most {CHECKS} are checked at once"),
        Queued::Next => "Jobs are being made".to_owned(),
    }
}

/// Why no further node is changed, if so.
fn stopped(view: &View<'_>, rollout: &Rollout, out: &mut Steps) {
    let config = selection::config_ref(view.config);
    let said = |name: &String| {
        let node = view.nodes.iter().find(|node| node.facts.name == *name);
        node.and_then(|node| node.finding.as_ref()).map(|finding| finding.message.clone())
    };
    if let Some(first) = rollout.stopped_by.first() {
        let mut message = format!(
            "the change failed on {}, so no further node is changed: {}",
            text::count(rollout.stopped_by.len(), "node"),
            text::list(&rollout.stopped_by, text::NAMES)
        );
        if let Some(said) = said(first) {
            message.push_str(&format!("; {said}"));
        }
        out.find(Code::RolloutStopped, config, message);
    } else if let Some(told) = rollout.spared.values().next() {
        let spared: Vec<String> = rollout.spared.keys().cloned().collect();
        let message = format!(
            "what node {told} tells of the payload holds for {} as well, so nothing is changed there",
            text::list(&spared, text::NAMES)
        );
        let mut finding = Finding::new(Code::RolloutStopped, config, message);
        "Correct spec.runtimes or spec.payload.image of the KataConfig."
            .clone_into(&mut finding.fix);
        out.findings.push(finding);
    }
}

/// What the nodes wait for, and what is wrong with the rollout.
fn wait(view: &View<'_>, hosts: &Hosts, out: &mut Steps) {
    let rollout = &hosts.rollout;
    let config = selection::config_ref(view.config);
    let mut in_line: Vec<(Option<Queued>, &str)> = Vec::new();
    for node in &view.nodes {
        let Some(host) = &node.host else { continue };
        let waits = matches!(host.next, Next::Change(_) | Next::Check(NodeAction::Preflight));
        let done = !node.wanted && !host.known.status.touched && host.next == Next::Nothing;
        if let Some(job) = host.known.spent.first().filter(|_| done).or(host.known.earlier.as_ref())
        {
            let message = format!("Job {} on {} to be gone", job.name, node.facts.name);
            out.wait(Waiting::Deletion, job_ref(view, &job.name, Some(&job.uid)), message);
        } else if let Some((job, _)) =
            host.known.running.filter(|_| !node.wanted && !node.in_flight())
        {
            let message = format!("Job {} on {} to end", job.name, node.facts.name);
            out.wait(Waiting::Node, job_ref(view, &job.name, Some(&job.uid)), message);
        } else if node.in_flight() || host.next == Next::Confirm {
            out.wait(Waiting::Node, node.object(), node.brief());
        } else if let Next::Later(until) = host.next {
            let message = format!("{} to be tried again at {until}", node.facts.name);
            out.wait(Waiting::Node, node.object(), message);
        } else if waits || node.phase != Phase::Ready {
            let name = &node.facts.name;
            in_line.push((queued(view, rollout, name), name));
        }
    }
    if !view.deleting {
        stopped(view, rollout, out);
    }
    let changes_wait =
        view.nodes.iter().filter_map(|node| node.host.as_ref()).any(|host| match host.next {
            Next::Change(_) => true,
            Next::Check(NodeAction::Preflight) => host.stages_ahead(),
            _ => false,
        });
    if rollout.paused && changes_wait {
        let message = "spec.rollout.paused is true, so no further node is changed".to_owned();
        out.find(Code::RolloutPaused, config.clone(), message);
    }
    in_line.sort_by_key(|(queued, _)| (queued.is_none(), *queued));
    let in_line = in_line.into_iter();
    out.wait_in_line(
        &config,
        in_line.map(|(queued, name)| (queued.map(|queued| why(queued, rollout)), name)),
    );
}
