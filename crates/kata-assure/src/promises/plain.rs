//! The promises where Jobs change the nodes, checked like those where the Machine Config Operator does.

use std::collections::BTreeSet;
use std::time::Duration;

use kata_api::names::{self, node_job};
use serde_json::Value;
use simcluster::api::{Event, EventKind};
use simcluster::resource::{JOBS, KATACONFIGS, NODES, PODS, RUNTIMECLASSES};
use simcluster::world::{Host, NodeFault};
use simcluster::{Context, Resource};

use tokio::time::Instant;

use crate::ledger::Page;
use crate::plain::{
    annotation, changes, class_labels, has_startup_taint, is_agents, is_of_kata_deploy, is_others,
    is_provided, is_unfinished, offers, provides_kata, takes_over,
};
use crate::world::{is_marked, is_ready, is_usable, label, leads_to_kata, word};

/// After which time the operator knows the labels of a node, even if a watch missed them: twice its resync.
const KNOWN_AFTER: Duration = Duration::from_mins(10);

/// Looks at an event.
pub(super) fn check(event: &Event, by_operator: bool, cx: &Context<'_>, page: &mut Page) {
    match &event.resource {
        resource if *resource == NODES => {
            node(event, cx, page);
            written(event, by_operator, cx, page);
        }
        resource if *resource == JOBS => job(event, by_operator, cx, page),
        resource if *resource == PODS => pods(cx, page),
        resource if *resource == RUNTIMECLASSES && by_operator => class(event, cx, page),
        _ => {}
    }
    runtimes(cx, page);
    restarts(cx, page);
}

/// S16: no restart brings into effect what another program has changed in the container runtime's files.
fn restarts(cx: &Context<'_>, page: &mut Page) {
    let starts = |node: &String| cx.world.hosts.get(node).map_or(0, |host| host.containerd.starts);
    let restarted = page.foreign.iter().filter(|(node, before)| starts(node) > **before);
    let restarted: Vec<String> = restarted.map(|(node, _)| node.clone()).collect();
    for node in restarted {
        page.broke("S16", format!("the change of another program took effect on host {node}"));
    }
}

/// S3: a node is marked when its container runtime offers the handler and no Job changes it.
fn node(event: &Event, cx: &Context<'_>, page: &mut Page) {
    let (name, node) = (event.name.as_str(), &event.current);
    let before = event.previous.as_ref();
    if event.kind == EventKind::Deleted
        || !is_marked(node)
        || before.is_some_and(|before| is_marked(before))
    {
        return;
    }
    let offers = cx.world.hosts.get(name).is_some_and(offers);
    if !offers || !is_ready(node) || is_being_changed(cx, name) {
        page.broke("S3", format!("node {name} was marked, and does not have Kata"));
    }
}

/// S9: of other installers' nodes nothing is written, and of taints only ours; S3: the startup taint goes from
/// nodes that are marked already.
fn written(event: &Event, by_operator: bool, cx: &Context<'_>, page: &mut Page) {
    let (name, node) = (event.name.as_str(), &event.current);
    let Some(before) = event.previous.as_ref().filter(|_| by_operator) else { return };
    if event.kind == EventKind::Deleted {
        return;
    }
    if is_others(before) && is_others(node) {
        page.broke("S9", format!("node {name} of another installer was written"));
    }
    let host = cx.world.hosts.get(name);
    let has_kata =
        host.is_some_and(|host| offers(host) && !host.faults.contains(&NodeFault::NoKvm));
    super::mark_stays(event, has_kata, cx, page);
    super::taints_of_others(event, page);
    let lifted = has_startup_taint(before) && !has_startup_taint(node);
    if lifted && !(is_marked(before) && is_marked(node)) {
        page.broke("S3", format!("node {name} lost its startup taint before it was marked"));
    }
}

/// S3: no class of ours leads to a node of another installer, which may carry the same mark.
fn class(event: &Event, cx: &Context<'_>, page: &mut Page) {
    let selector = event.current["scheduling"]["nodeSelector"].as_object();
    // A class of kata-deploy may be given back.
    let is_its = selector.is_some_and(|it| it.contains_key(names::KATA_DEPLOY_LABEL));
    if event.kind == EventKind::Deleted || is_its {
        return;
    }
    let is_selected = |node: &Value| {
        let mut labels = selector.into_iter().flatten();
        labels.all(|(key, value)| label(node, key) == value.as_str())
    };
    for node in cx.api.store.list(&NODES).filter(|node| is_others(node) && is_selected(node)) {
        let node = word(node, "/metadata/name");
        let name = &event.name;
        page.broke("S3", format!("RuntimeClass {name} leads to node {node} of another installer"));
    }
}

/// Whether another client edits the node at this very moment, between what the operator has read and what it writes.
fn is_edited_now(node: &str, page: &Page) -> bool {
    page.edited.get(node) == Some(&Instant::now())
}

fn unfinished<'a>(cx: &'a Context<'_>) -> impl Iterator<Item = &'a Value> {
    static KIND: Resource = JOBS;
    let jobs = cx.api.store.list(&KIND).map(AsRef::as_ref);
    jobs.filter(|job| is_agents(job) && is_unfinished(job))
}

fn is_being_changed(cx: &Context<'_>, node: &str) -> bool {
    unfinished(cx).any(|job| changes(job) && annotation(job, node_job::NODE) == node)
}

fn job(event: &Event, by_operator: bool, cx: &Context<'_>, page: &mut Page) {
    let (name, job) = (event.name.as_str(), &event.current);
    if !is_agents(job) {
        return;
    }
    let on = annotation(job, node_job::NODE);
    let node = cx.api.store.list(&NODES).find(|node| word(node, "/metadata/name") == on);
    if event.kind == EventKind::Deleted {
        let there = node
            .is_some_and(|node| word(node, "/metadata/uid") == annotation(job, node_job::NODE_UID));
        if by_operator && changes(job) && is_unfinished(job) && there {
            page.broke("S12", format!("Job {name} was deleted while it changes node {on}"));
        }
        return;
    }
    if event.previous.is_some() {
        return;
    }
    unprivileged(name, job, page);
    let Some(node) = node else {
        page.broke("S13", format!("Job {name} is for node {on}, which does not exist"));
        return;
    };
    let is_taken = cx.api.store.list(&KATACONFIGS).any(|config| takes_over(config, node));
    let is_left = is_others(node) && !is_taken;
    if is_left || label(node, names::CONTROL_PLANE_ROLE_LABEL).is_some() {
        page.broke("S9", format!("Job {name} is for node {on}, which is not ours to change"));
    }
    let others = unfinished(cx).filter(|other| {
        annotation(other, node_job::NODE) == on && word(other, "/metadata/name") != name
    });
    if let Some(other) = others.map(|other| word(other, "/metadata/name")).next() {
        page.broke("S6", format!("Job {name} for node {on} is made beside {other}"));
    }
    provided(name, on, node, job, cx, page);
    if !changes(job) {
        return;
    }
    if annotation(job, node_job::ACTION) == "Remove" {
        // The label stays while Kata is changed in place; that of kata-deploy stays for ever, and its classes lead to no node
        // with labels of ours.
        let is_open =
            if is_of_kata_deploy(node) { !class_labels(node).is_empty() } else { is_marked(node) };
        if is_open {
            page.broke(
                "S2",
                format!("Job {name} takes Kata from node {on}, to which pods can come"),
            );
        }
        let host = cx.world.hosts.get(on);
        for pod in sandboxed_on(cx, on).into_iter().filter(|pod| !is_from_kata_deploy(pod, host)) {
            page.broke("S1", format!("Job {name} takes the runtime of node {on} from pod {pod}"));
        }
    } else if label(node, names::CLAIM_LABEL).is_none() && !is_edited_now(on, page) {
        page.broke("S10", format!("Job {name} changes node {on}, which is not claimed"));
    }
    disrupted(cx, page);
}

/// S15: no Job is made for a node whose system provides Kata, once the operator can know of it, but one that removes what
/// the operator installed there before.
fn provided(name: &str, on: &str, node: &Value, job: &Value, cx: &Context<'_>, page: &mut Page) {
    let is_provided = cx.api.store.list(&KATACONFIGS).any(|config| is_provided(config, node));
    let host = cx.world.hosts.get(on);
    let is_ours =
        host.is_some_and(|host| host.files.keys().any(|path| path.contains(names::PRODUCT)));
    let removes = is_ours && annotation(job, node_job::ACTION) == "Remove";
    let edited = page.edited.get(on).is_some_and(|edited| edited.elapsed() < KNOWN_AFTER);
    if is_provided && !removes && !edited {
        page.broke("S15", format!("Job {name} is for node {on}, whose system provides Kata"));
    }
}

/// S14: what may change a node has no token, no privileges and no network of the node.
fn unprivileged(name: &str, job: &Value, page: &mut Page) {
    let pod = &job["spec"]["template"]["spec"];
    let containers = ["initContainers", "containers"]
        .into_iter()
        .flat_map(|list| pod[list].as_array().into_iter().flatten());
    let mut plain = pod["automountServiceAccountToken"] == false
        && pod["hostNetwork"] != true
        && pod["hostPID"] != true
        && job["spec"]["backoffLimit"] == 0
        && job["spec"]["activeDeadlineSeconds"].is_number();
    for container in containers {
        let security = &container["securityContext"];
        plain &= security["privileged"] == false && security["allowPrivilegeEscalation"] == false;
    }
    if !plain {
        page.broke("S14", format!("Job {name} has more than it needs"));
    }
}

/// S4: nodes that are down or that a Job changes, against what the KataConfig allows.
fn disrupted(cx: &Context<'_>, page: &mut Page) {
    let spec = cx.api.store.list(&KATACONFIGS).next().map(|config| &config["spec"]["rollout"]);
    let claimed: Vec<_> = cx
        .api
        .store
        .list(&NODES)
        .filter(|node| label(node, names::CLAIM_LABEL).is_some())
        .filter(|node| {
            let host = cx.world.hosts.get(word(node, "/metadata/name"));
            !host.is_some_and(provides_kata)
        })
        .collect();
    let allowed = match spec.map(|spec| &spec["maxUnavailable"]) {
        Some(Value::Number(number)) => usize::try_from(number.as_u64().unwrap_or(1)).unwrap_or(1),
        _ => 1,
    };
    let out: BTreeSet<&str> = claimed
        .iter()
        .map(|node| word(node, "/metadata/name"))
        .filter(|name| {
            let down = claimed
                .iter()
                .any(|node| word(node, "/metadata/name") == *name && !is_usable(node));
            down || is_being_changed(cx, name)
        })
        .collect();
    if out.len() > allowed {
        page.broke("S4", format!("nodes {out:?} are out, {allowed} may be"));
    }
}

fn sandboxed_on(cx: &Context<'_>, node: &str) -> Vec<String> {
    let classes: BTreeSet<&str> = cx
        .api
        .store
        .list(&RUNTIMECLASSES)
        .filter(|class| leads_to_kata(class))
        .map(|class| word(class, "/metadata/name"))
        .chain([names::RUNTIME_CLASS])
        .collect();
    cx.api
        .store
        .list(&PODS)
        .filter(|pod| crate::world::is_unfinished(pod))
        .filter(|pod| classes.contains(word(pod, "/spec/runtimeClassName")))
        .filter(|pod| word(pod, "/spec/nodeName") == node)
        .map(|pod| word(pod, "/metadata/name").to_owned())
        .collect()
}

/// Whether the sandbox of a pod was started with what kata-deploy installed, so that it needs nothing of ours.
fn is_from_kata_deploy(pod: &str, host: Option<&Host>) -> bool {
    let mut sandboxes = host.into_iter().flat_map(|host| host.sandboxes.values());
    sandboxes.any(|sandbox| sandbox.name == pod && sandbox.program.starts_with("/opt/kata/"))
}

/// S1: a sandboxed pod is never bound to a node without the runtime.
fn pods(cx: &Context<'_>, page: &mut Page) {
    for (name, _) in cx.world.hosts.iter().filter(|(_, host)| !offers(host)) {
        for pod in sandboxed_on(cx, name) {
            page.broke("S1", format!("pod {pod} is on node {name}, which has no runtime"));
        }
    }
}

/// S1: the files of a sandbox's runtime are there for as long as the sandbox is, and its handler too.
fn runtimes(cx: &Context<'_>, page: &mut Page) {
    for (name, host) in &cx.world.hosts {
        for sandbox in host.sandboxes.values().filter(|sandbox| sandbox.vm.is_some()) {
            let pod = &sandbox.name;
            if !host.handlers.contains_key(&sandbox.handler) {
                page.broke("S1", format!("host {name} lost the handler of pod {pod}"));
            }
            if !host.files.contains_key(&sandbox.program) {
                let program = &sandbox.program;
                page.broke("S1", format!("host {name} lost {program}, which runs for pod {pod}"));
            }
        }
    }
}
