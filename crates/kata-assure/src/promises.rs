//! The operator's promises, checked inside the simulator after every accepted write, and on every
//! request.
//!
//! The checker is a controller of the simulation that writes nothing. It shares no judgement with the
//! operator: it looks at the store, at the hosts and at who wrote.

mod fields;
mod plain;
pub mod requests;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use kata_api::names;
use serde_json::Value;
use simcluster::api::{Event, EventKind};
use simcluster::resource::{
    CONTAINERRUNTIMECONFIGS, JOBS, KATACONFIGS, MACHINECONFIGPOOLS, MACHINECONFIGS, NODES, PODS,
    RUNTIMECLASSES,
};
use simcluster::world::Platform;
use simcluster::{Context, Controller};

use crate::ledger::{Actor, Ledger, Page};
use crate::plain::{class_labels, has_startup_taint, is_others, is_startup_taint, offered, taints};
use crate::world::{self, KATANODES, label, word};

/// The checker.
#[derive(Debug)]
pub struct Promises {
    ledger: Ledger,
    converged: bool,
    /// The last observedGeneration of each KataConfig, by uid.
    observed: BTreeMap<String, i64>,
}

impl Promises {
    /// A checker that notes what is broken in a ledger.
    pub fn new(ledger: Ledger, converged: bool) -> Self {
        Self { ledger, converged, observed: BTreeMap::new() }
    }
}

impl Controller for Promises {
    fn name(&self) -> &'static str {
        "promises"
    }

    fn observe(&mut self, event: &Event, cx: &mut Context<'_>) {
        let ledger = self.ledger.clone();
        let mut page = ledger.open();
        let by_operator = page.actor == Actor::Operator && is_written_by_operators(event);
        if by_operator {
            let key = format!("{} {}", event.resource, event.name);
            *page.writes.entry(key).or_default() += 1;
            fields::check(event, &mut page);
            finalizer(event, cx, &mut page);
        }
        let is_plain = cx.world.platform == Platform::Kubernetes;
        if page.actor != Actor::Episode && is_plain {
            plain::check(event, by_operator, cx, &mut page);
        }
        if [&NODES, &RUNTIMECLASSES, &JOBS].contains(&&event.resource) {
            open(cx, is_plain, &mut page);
        }
        if page.actor != Actor::Episode {
            match &event.resource {
                resource if *resource == NODES && !is_plain => {
                    node(event, by_operator, cx, &mut page);
                }
                _ if event.kind == EventKind::Deleted => deleted(event, by_operator, cx, &mut page),
                _ => {}
            }
            if event.resource == PODS && !is_plain {
                pods(cx, &mut page);
            }
        }
        if event.resource == RUNTIMECLASSES && by_operator && event.kind != EventKind::Deleted {
            let selector = &event.current["scheduling"]["nodeSelector"];
            let closed = selector[names::CLOSED_LABEL].is_string();
            let own = selector[names::class_label(&event.name)] == names::CLASS_LABEL_SERVED;
            let serves = selector[names::RUNTIME_LABEL] == names::RUNTIME_LABEL_VERIFIED && own;
            // A class of kata-deploy is given back once no node is ours any more.
            let claimed = |node: &Arc<Value>| label(node, names::CLAIM_LABEL).is_some();
            let given_back = selector[names::KATA_DEPLOY_LABEL] == "true"
                && !cx.api.store.list(&NODES).any(claimed);
            if !(closed || serves || given_back) {
                page.broke("S3", format!("RuntimeClass {} matches unverified nodes", event.name));
            }
        }
        if event.resource == KATACONFIGS {
            status::check(event, by_operator, &mut self.observed, &mut page);
        }
        if self.converged && by_operator && event.resource == MACHINECONFIGS {
            converged(event, cx, &mut page);
        }
    }

    fn act(&mut self, _key: &str, _cx: &mut Context<'_>) {}
}

/// Whether an event is of a kind that operators write. Controllers whose work is due at the same moment
/// write in between; they own other kinds, or are distinguished by what they write.
fn is_written_by_operators(event: &Event) -> bool {
    let resource = &event.resource;
    let named = [&KATACONFIGS, &RUNTIMECLASSES, &KATANODES];
    if *resource == JOBS {
        // Its status is the Job controller's.
        return event.kind == EventKind::Deleted
            || event.previous.as_ref().is_none_or(|previous| {
                let paths = fields::differing(previous, &event.current);
                paths.iter().any(|path| !path.starts_with("/status"))
            });
    }
    let ours = match resource {
        resource if named.contains(&resource) => true,
        resource if *resource == MACHINECONFIGS => {
            !event.name.starts_with(names::mco::RENDERED_PREFIX)
                && !event.name.contains("-generated-")
        }
        resource if [&MACHINECONFIGPOOLS, &CONTAINERRUNTIMECONFIGS].contains(&resource) => {
            // Its status and its configuration are the Machine Config Operator's.
            event.previous.as_ref().is_none_or(|previous| {
                fields::differing(previous, &event.current).iter().any(|path| {
                    !path.starts_with("/status")
                        && !path.starts_with("/spec/configuration")
                        && !path.starts_with("/metadata/annotations")
                        && !path.starts_with("/metadata/finalizers")
                })
            })
        }
        resource if *resource == NODES => event.previous.as_ref().is_some_and(|previous| {
            fields::differing(previous, &event.current)
                .iter()
                .any(|path| path.starts_with("/metadata/labels"))
                || has_startup_taint(previous) && !has_startup_taint(&event.current)
        }),
        _ => false,
    };
    // Deletions carry no manager; those by the garbage collector follow the KataConfig's.
    ours && (event.kind == EventKind::Deleted || fields::last_writer_is_ours(event))
}

/// S9: of a node's taints only the startup taint changes, and it is never put on.
fn taints_of_others(event: &Event, page: &mut Page) {
    let (name, node) = (event.name.as_str(), &event.current);
    let Some(before) = event.previous.as_ref() else { return };
    let others = |taint: &&Value| !is_startup_taint(taint);
    let added = has_startup_taint(node) && !has_startup_taint(before);
    if added || !taints(before).filter(others).eq(taints(node).filter(others)) {
        page.broke("S9", format!("taints of node {name} were written that are not ours"));
    }
}

/// S1: the runtime label is not taken from a node with Kata on which a sandboxed pod runs. A kubelet that
/// restarts would fail the pod.
fn mark_stays(event: &Event, has_kata: bool, cx: &Context<'_>, page: &mut Page) {
    let (name, node) = (event.name.as_str(), &event.current);
    // A node that goes back to kata-deploy keeps the label.
    let lost = event.previous.as_ref().is_some_and(|before| world::is_marked(before))
        && label(node, names::RUNTIME_LABEL) != Some(names::RUNTIME_LABEL_VERIFIED);
    if lost && has_kata {
        for pod in running_on(cx, Some(name)) {
            page.broke("S1", format!("node {name} lost the runtime label under pod {pod}"));
        }
    }
}

/// S3: a node is open for a class only while it offers the handler.
fn open(cx: &Context<'_>, is_plain: bool, page: &mut Page) {
    for node in cx.api.store.list(&NODES).filter(|node| !is_others(node)) {
        let name = word(node, "/metadata/name");
        let Some(host) = cx.world.hosts.get(name) else { continue };
        for class in class_labels(node) {
            let class = cx.api.store.get(&RUNTIMECLASSES, "", class);
            let Some(class) = class.filter(|class| world::leads_to_kata(class)) else { continue };
            let handler = word(class, "/handler");
            let offers = if is_plain {
                offered(host).contains(handler)
            } else {
                host.extensions.contains(names::EXTENSION)
            };
            if !offers {
                let class = word(class, "/metadata/name");
                page.broke("S3", format!("node {name} is open for {class} without {handler}"));
            }
        }
    }
}

fn node(event: &Event, by_operator: bool, cx: &Context<'_>, page: &mut Page) {
    let (name, node) = (event.name.as_str(), &event.current);
    let Some(before) = event.previous.as_ref() else { return };
    if event.kind == EventKind::Deleted {
        return;
    }
    if world::is_marked(node) && !world::is_marked(before) {
        let down =
            cx.world.hosts.get(name).is_none_or(|host| !host.extensions.contains(names::EXTENSION));
        if down || !world::is_ready(node) {
            page.broke("S3", format!("node {name} was marked, and does not have Kata"));
        }
    }
    if by_operator {
        let host = cx.world.hosts.get(name);
        let has_kata = host.is_some_and(|host| host.extensions.contains(names::EXTENSION));
        mark_stays(event, has_kata, cx, page);
        taints_of_others(event, page);
    }
    let left = label(before, names::KATA_ROLE_LABEL).is_some()
        && label(node, names::KATA_ROLE_LABEL).is_none();
    if left && by_operator {
        if label(node, names::RUNTIME_LABEL).is_some() {
            page.broke("S2", format!("node {name} left the pool while pods could still come"));
        }
        for pod in running_on(cx, Some(name)) {
            page.broke("S1", format!("node {name} left the pool under pod {pod}"));
        }
    }
    disrupted(cx, page);
}

/// Sandboxed pods that have not ended, on a node or anywhere.
fn running_on(cx: &Context<'_>, node: Option<&str>) -> Vec<String> {
    let classes: Vec<String> = cx
        .api
        .store
        .list(&RUNTIMECLASSES)
        .filter(|class| world::leads_to_kata(class))
        .map(|class| word(class, "/metadata/name").to_owned())
        .collect();
    cx.api
        .store
        .list(&PODS)
        .filter(|pod| world::is_unfinished(pod))
        .filter(|pod| {
            let class = word(pod, "/spec/runtimeClassName");
            class == names::RUNTIME_CLASS || classes.iter().any(|known| known == class)
        })
        .filter(|pod| {
            let on = word(pod, "/spec/nodeName");
            !on.is_empty() && node.is_none_or(|node| node == on)
        })
        .map(|pod| word(pod, "/metadata/name").to_owned())
        .collect()
}

/// S4: nodes of the pool that the Machine Config Operator has taken out, against what the pool allows.
fn disrupted(cx: &Context<'_>, page: &mut Page) {
    let nodes: Vec<_> = cx.api.store.list(&NODES).collect();
    for pool in cx.api.store.list(&MACHINECONFIGPOOLS) {
        let name = word(pool, "/metadata/name");
        let role = format!("node-role.kubernetes.io/{name}");
        let members: Vec<_> = nodes
            .iter()
            .filter(|node| label(node, &role).is_some())
            .filter(|node| name != names::WORKER_POOL || !has_custom_role(node))
            .collect();
        let allowed = match &pool["spec"]["maxUnavailable"] {
            Value::Number(number) => usize::try_from(number.as_u64().unwrap_or(1)).unwrap_or(1),
            Value::String(text) => {
                let percent: usize = text.trim_end_matches('%').parse().unwrap_or(100);
                (members.len() * percent / 100).max(1)
            }
            _ => 1,
        };
        let out = members
            .iter()
            .filter(|node| {
                let annotations = &node["metadata"]["annotations"];
                node["spec"]["unschedulable"] == true
                    && annotations[names::mco::CURRENT_CONFIG]
                        != annotations[names::mco::DESIRED_CONFIG]
            })
            .count();
        // A node that changes pools while it is out counts for its new pool too.
        if out > allowed + 1 {
            page.broke("S4", format!("{out} nodes of pool {name} are out, {allowed} may be"));
        }
    }
}

fn has_custom_role(node: &Value) -> bool {
    label(node, names::KATA_ROLE_LABEL).is_some()
        || label(node, "node-role.kubernetes.io/infra").is_some()
}

fn deleted(event: &Event, by_operator: bool, cx: &Context<'_>, page: &mut Page) {
    let (name, object) = (event.name.as_str(), &event.current);
    let pool_object = (event.resource == MACHINECONFIGPOOLS && name == names::POOL)
        || (event.resource == MACHINECONFIGS && name == names::MACHINE_CONFIG);
    if pool_object {
        for node in cx.api.store.list(&NODES).filter(|node| world::is_on_pool(node)) {
            let node = word(node, "/metadata/name");
            page.broke("S7", format!("{} {name} was deleted under node {node}", event.resource));
        }
    }
    if event.resource == RUNTIMECLASSES {
        for pod in cx.api.store.list(&PODS).filter(|pod| world::is_unfinished(pod)) {
            if word(pod, "/spec/runtimeClassName") == name {
                let pod = word(pod, "/metadata/name");
                page.broke("S1", format!("RuntimeClass {name} was deleted under pod {pod}"));
            }
        }
    }
    if by_operator && event.resource != KATACONFIGS {
        let made = label(object, names::MANAGED_BY) == Some(names::PRODUCT)
            || label(object, names::APP_LABEL).is_some()
            || event.resource == KATANODES
            || object["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|owners| owners.iter().any(|owner| owner["kind"] == "KataConfig"));
        if !made {
            page.broke("S8", format!("{} {name} was deleted, and is not ours", event.resource));
        }
    }
}

/// Sandboxed pods never run on a node without the runtime.
fn pods(cx: &Context<'_>, page: &mut Page) {
    for pod in cx.api.store.list(&PODS).filter(|pod| world::is_unfinished(pod)) {
        let node = word(pod, "/spec/nodeName");
        if word(pod, "/spec/runtimeClassName") != names::RUNTIME_CLASS || node.is_empty() {
            continue;
        }
        let runs =
            cx.world.hosts.get(node).is_none_or(|host| host.extensions.contains(names::EXTENSION));
        if !runs {
            let pod = word(pod, "/metadata/name");
            page.broke("S1", format!("pod {pod} is on node {node}, which has no runtime"));
        }
    }
}

/// On converged clusters the MachineConfig is the runtime of every node.
fn converged(event: &Event, cx: &Context<'_>, page: &mut Page) {
    if event.name == names::MACHINE_CONFIG && event.kind == EventKind::Deleted {
        for pod in running_on(cx, None) {
            page.broke("S1", format!("the MachineConfig was deleted under pod {pod}"));
        }
    }
}

/// S10: the finalizer is there before the first effect, and goes when nothing is left.
fn finalizer(event: &Event, cx: &Context<'_>, page: &mut Page) {
    let has = |config: &Value| {
        let finalizers = config["metadata"]["finalizers"].as_array().into_iter().flatten();
        let ours = [names::FINALIZER, names::LEGACY_FINALIZER];
        finalizers.into_iter().any(|name| ours.iter().any(|ours| name == ours))
    };
    if event.resource == KATACONFIGS {
        let had = event.previous.as_ref().is_some_and(|config| has(config));
        let deleting = !event.current["metadata"]["deletionTimestamp"].is_null();
        let gone = event.kind == EventKind::Deleted || (had && !has(&event.current));
        // Another KataConfig that is still there keeps what it needs.
        let others = cx
            .api
            .store
            .list(&KATACONFIGS)
            .any(|config| word(config, "/metadata/name") != event.name && has(config));
        if gone && deleting && !others {
            for trace in leftovers(cx) {
                page.broke("S10", format!("the finalizer went while there was still {trace}"));
            }
        }
        return;
    }
    let effect = event.kind != EventKind::Deleted && event.resource != KATANODES;
    if effect && !cx.api.store.list(&KATACONFIGS).any(|config| has(config)) {
        page.broke("S10", format!("{} {} written without a finalizer", event.resource, event.name));
    }
}

fn leftovers(cx: &Context<'_>) -> Vec<String> {
    let mut left = Vec::new();
    for (resource, kind) in [
        (&MACHINECONFIGS, "MachineConfig"),
        (&MACHINECONFIGPOOLS, "MachineConfigPool"),
        (&CONTAINERRUNTIMECONFIGS, "ContainerRuntimeConfig"),
        (&RUNTIMECLASSES, "RuntimeClass"),
        (&KATANODES, "KataNode"),
    ] {
        let made = |object: &Value| {
            *resource == KATANODES || label(object, names::MANAGED_BY) == Some(names::PRODUCT)
        };
        let objects = cx.api.store.list(resource).filter(|object| made(object));
        left.extend(objects.map(|object| format!("{kind} {}", word(object, "/metadata/name"))));
    }
    for node in cx.api.store.list(&NODES) {
        let marked = label(node, names::RUNTIME_LABEL).is_some() && !crate::plain::is_others(node)
            || label(node, &names::class_label(names::RUNTIME_CLASS)).is_some()
            || label(node, names::KATA_ROLE_LABEL).is_some()
            || world::is_on_pool(node);
        if marked {
            left.push(format!("the mark of Node {}", word(node, "/metadata/name")));
        }
    }
    if cx.world.platform == Platform::Kubernetes {
        let of = |resource| cx.api.store.list(resource).map(AsRef::as_ref);
        left.extend(crate::plain::left(of(&JOBS), of(&NODES), &cx.world.hosts));
    }
    left
}
