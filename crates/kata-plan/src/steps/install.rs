//! The steps that bring Kata onto nodes, and off those that are not selected any more.
//!
//! Nothing here deletes a MachineConfig or a pool.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::kata_config::RuntimeSpec;
use kata_api::{Code, names};

use super::monitor;
use super::waiting::wait_for_nodes;
use super::{
    Steps, container_runtime_config, delete, kata_nodes, machine_config, no_nodes, our_classes,
    taints, take_label, verified_labels,
};
use crate::bodies;
use crate::object::{Kind, ObjectRef};
use crate::payload;
use crate::plan::{Action, OnFailure};
use crate::report::Waiting;
use crate::selection::{self, Mode};
use crate::snapshot::{Need, PodScope, SandboxedPod};
use crate::text;
use crate::view::{NodeView, View};

/// From how many nodes on one read of all pods is cheaper than one per node.
const NODES_FOR_CLUSTER_READ: usize = 20;

pub(super) fn install(view: &View<'_>, out: &mut Steps) {
    finalizer(view, out);
    verified_labels(view, out);
    taints::lift(view, out);
    let begun = names::MACHINE_CONFIGS.into_iter().any(|name| machine_config(view, name).is_some());
    if view.nodes.is_empty() {
        no_nodes(view, out);
        if !begun {
            kata_nodes(view, out);
            monitor::install(view, out);
            return;
        }
    } else if !view.nodes.iter().any(|node| node.wanted) {
        no_nodes(view, out);
    }
    if pool_objects(view, out) {
        pool_labels(view, out);
    }
    runtime_classes(view, out);
    kata_nodes(view, out);
    wait_for_nodes(view, out);
    monitor::install(view, out);
}

/// Our finalizer comes before anything else.
pub(super) fn finalizer(view: &View<'_>, out: &mut Steps) {
    let config = view.config;
    let finalizers = config.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|name| name == names::FINALIZER) {
        out.push(
            Action::AddFinalizer {
                config: selection::config_ref(config),
                resource_version: config.metadata.resource_version.clone().unwrap_or_default(),
                finalizers: finalizers.into_iter().chain([names::FINALIZER.to_owned()]).collect(),
            },
            OnFailure::Stop,
            "before anything else is changed",
        );
    }
}

fn class<'a>(view: &View<'a>, name: &str) -> Option<&'a RuntimeClass> {
    let classes = view.snapshot.runtime_classes.known()?;
    classes.iter().find(|class| class.metadata.name.as_deref() == Some(name))
}

/// ContainerRuntimeConfig, MachineConfig and pool. Says whether nodes may join and leave.
pub(super) fn pool_objects(view: &View<'_>, out: &mut Steps) -> bool {
    let config = view.config;
    let level = config.spec.log_level.as_str();
    let existing = container_runtime_config(view);
    let ours = existing.is_none_or(bodies::is_our_container_runtime_config);
    let object =
        |uid| ObjectRef::new(Kind::ContainerRuntimeConfig, names::CONTAINER_RUNTIME_CONFIG, uid);
    let exists_with = |level: &str| {
        existing.is_some_and(|existing| {
            existing.spec.container_runtime_config.log_level.as_deref() == Some(level)
        })
    };
    if !ours {
        if level != bodies::DEFAULT_LOG_LEVEL {
            foreign(out, object(None));
        }
    } else if level == bodies::DEFAULT_LOG_LEVEL && !view.deleting {
        // One with the default level, as the OpenShift operator leaves it, does no harm, and its
        // removal would reboot the nodes.
        if let Some(existing) = existing
            && !exists_with(level)
            && existing.metadata.deletion_timestamp.is_none()
            && !held_back(view, out, &object(None))
        {
            out.push(
                delete(object(existing.metadata.uid.as_deref())),
                OnFailure::Continue,
                "the log level is the default again",
            );
        }
    } else if bodies::LOG_LEVELS.contains(&level)
        && !view.deleting
        && existing.is_none_or(|existing| existing.metadata.deletion_timestamp.is_none())
        && let Some(body) = bodies::container_runtime_config(config, view.mode, existing)
        && !held_back(view, out, &object(None))
    {
        let object = object(None);
        // Before the pool's first rendering, so that it takes no second reboot.
        out.push(Action::Apply { object, body }, OnFailure::Continue, why(existing.is_some()));
    }
    machine_configs(view, out) && (view.mode == Mode::Compact || pool(view, out))
}

/// Whether a change of an object, which would reboot the control plane, is not made since the rollout is
/// paused: the pool master is not ours to pause. Tells of it.
fn held_back(view: &View<'_>, out: &mut Steps, object: &ObjectRef) -> bool {
    let paused = view.config.spec.rollout.as_ref().is_some_and(|rollout| rollout.paused);
    if view.mode == Mode::Pool || !paused || view.deleting {
        return false;
    }
    let message = format!("spec.rollout.paused holds the change of {object} back");
    out.find(Code::PoolPaused, selection::config_ref(view.config), message);
    if let Some(finding) = out.findings.last_mut() {
        "Set spec.rollout.paused of the KataConfig to false.".clone_into(&mut finding.fix);
    }
    true
}

/// The MachineConfig that brings Kata, in place of the one that brought it otherwise. Says whether there is
/// one.
fn machine_configs(view: &View<'_>, out: &mut Steps) -> bool {
    let Some(payload) = &view.wanted.payload else { return false };
    let name = payload.machine_config();
    let existing = machine_config(view, name);
    let object = ObjectRef::named(Kind::MachineConfig, name);
    if existing.is_some_and(|existing| !bodies::is_our_machine_config(existing)) {
        foreign(out, object);
        return false;
    }
    if existing.is_some_and(|existing| existing.metadata.deletion_timestamp.is_some()) {
        out.wait(Waiting::Deletion, object, format!("the old MachineConfig {name} to be gone"));
        return false;
    }
    let images = payload::images_in_use(view.snapshot, payload);
    let body = bodies::machine_config(view.config, view.mode, payload, &images, existing);
    if body.is_some() && held_back(view, out, &object) {
        return false;
    }
    if let Some(body) = body {
        out.push(Action::Apply { object, body }, OnFailure::Stop, why(existing.is_some()));
    }
    // In the same pass, so that the pool is never rendered with neither of them, and hardly ever with both.
    for (other, config) in payload::machine_configs(view.snapshot) {
        if other != name && config.metadata.deletion_timestamp.is_none() {
            let uid = config.metadata.uid.as_deref();
            out.push(
                delete(ObjectRef::new(Kind::MachineConfig, other, uid)),
                OnFailure::Continue,
                format!("MachineConfig {name} takes its place"),
            );
        }
    }
    true
}

fn pool(view: &View<'_>, out: &mut Steps) -> bool {
    let existing = view.pools.get(names::POOL).copied();
    let object = ObjectRef::named(Kind::MachineConfigPool, names::POOL);
    if existing.is_some_and(|existing| !bodies::is_our_pool(existing)) {
        foreign(out, object);
        return false;
    }
    if existing.is_some_and(|existing| existing.metadata.deletion_timestamp.is_some()) {
        out.wait(Waiting::Deletion, object, "the old pool to be gone");
        return false;
    }
    if let Some(body) = bodies::pool(view.config, existing) {
        out.push(Action::Apply { object, body }, OnFailure::Stop, why(existing.is_some()));
    }
    true
}

pub(super) fn why(exists: bool) -> &'static str {
    if exists { "it differs from what it shall be" } else { "it does not exist" }
}

pub(super) fn foreign(out: &mut Steps, object: ObjectRef) {
    let message = format!("{object} exists, is not ours, and is left as it is");
    out.find(Code::ForeignObject, object, message);
}

/// Lets nodes into the pool, and out of it.
fn pool_labels(view: &View<'_>, out: &mut Steps) {
    let joining: Vec<&NodeView<'_>> =
        view.nodes.iter().filter(|node| node.wanted && !node.labelled).collect();
    let pool = view.pools.get(names::POOL);
    // A node that joins before the pool's configuration has our MachineConfig changes twice. A pool
    // that was never rendered will be rendered with it, as it exists before.
    let rendered = view.targeted || pool.is_none_or(|pool| pool.spec.configuration.name.is_empty());
    if view.mode == Mode::Pool && rendered {
        for node in joining {
            out.push(
                Action::LabelNode {
                    node: node.object(),
                    seen: node.version(),
                    set: BTreeMap::from([(names::KATA_ROLE_LABEL.to_owned(), String::new())]),
                    remove: BTreeSet::new(),
                },
                OnFailure::Continue,
                "it is selected",
            );
        }
    }
    let leaving: Vec<&NodeView<'_>> =
        view.nodes.iter().filter(|node| !node.wanted && node.labelled).collect();
    let ready_to_leave: Vec<&NodeView<'_>> =
        leaving.into_iter().filter(|node| !node.verified).collect();
    let many = ready_to_leave.len() > NODES_FOR_CLUSTER_READ;
    for node in ready_to_leave {
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
                format!(
                    "cannot read the pods on node {name}: {error}; it stays in the pool meanwhile"
                ),
            ),
            Ok(pods) if pods.is_empty() => out.push(
                take_label(node),
                OnFailure::Continue,
                "it is not selected any more, and no sandboxed pod runs on it",
            ),
            Ok(pods) => {
                out.wait(
                    Waiting::Pods,
                    node.object(),
                    format!("{} on {name} to end", text::count(pods.len(), "sandboxed pod")),
                );
            }
        }
    }
}

pub(super) fn runtime_classes(view: &View<'_>, out: &mut Steps) {
    let offered: BTreeSet<&str> = view
        .config
        .status
        .iter()
        .flat_map(|status| &status.runtime_classes)
        .map(String::as_str)
        .collect();
    for runtime in &view.runtimes {
        let existing = class(view, &runtime.name);
        let object = ObjectRef::new(
            Kind::RuntimeClass,
            &runtime.name,
            existing.and_then(|class| class.metadata.uid.as_deref()),
        );
        let Some(existing) = existing else {
            // Once offered it is kept, even if all its nodes are away for a while.
            if (is_served(view, runtime.effective_handler())
                || offered.contains(runtime.name.as_str()))
                && let Some(body) =
                    bodies::runtime_class(view.config, view.own_node_label(), runtime, None)
            {
                out.push(
                    Action::Apply { object, body },
                    OnFailure::Continue,
                    "nodes can run sandboxed pods",
                );
            } else {
                lacking(view, runtime, object, out);
            }
            continue;
        };
        if !bodies::is_our_class(existing) {
            let message =
                format!("RuntimeClass {} exists, is not ours, and is left as it is", runtime.name);
            out.find(Code::ForeignRuntimeClass, object, message);
        } else if existing.metadata.deletion_timestamp.is_some() {
            out.wait(
                Waiting::Deletion,
                object,
                format!("RuntimeClass {} to be gone", runtime.name),
            );
        } else if existing.handler != runtime.effective_handler() {
            let message = format!(
                "RuntimeClass {} has the handler {} and shall have {}",
                runtime.name,
                existing.handler,
                runtime.effective_handler()
            );
            withdraw(view, out, &object, Code::HandlerImmutable, &message);
        } else if let Some(body) =
            bodies::runtime_class(view.config, view.own_node_label(), runtime, Some(existing))
        {
            out.push(
                Action::Apply { object, body },
                OnFailure::Continue,
                "it differs from what it shall be",
            );
        }
    }
    adopted_overheads(view, out);
    for existing in our_classes(view) {
        let name = existing.metadata.name.as_deref().unwrap_or_default();
        if existing.metadata.deletion_timestamp.is_none()
            && !view.runtimes.iter().any(|runtime| runtime.name == name)
        {
            let object = ObjectRef::new(Kind::RuntimeClass, name, existing.metadata.uid.as_deref());
            let message = format!("spec.runtimes does not name RuntimeClass {name} any more");
            withdraw(view, out, &object, Code::RuntimeClassInUse, &message);
        }
    }
}

/// Whether pods with a handler can run where the label of verified nodes lets them: on one node at least,
/// and on each that carries it.
fn is_served(view: &View<'_>, handler: &str) -> bool {
    let mut open = view.nodes.iter().filter(|node| node.verdict == Some(true)).peekable();
    open.peek().is_some()
        && open.all(|node| node.host.as_ref().is_none_or(|host| host.offers(handler)))
}

/// Which nodes with the label do not offer a handler yet, if it is theirs that the RuntimeClass waits for.
fn lacking(view: &View<'_>, runtime: &RuntimeSpec, object: ObjectRef, out: &mut Steps) {
    let handler = runtime.effective_handler();
    let lacks = |node: &&NodeView<'_>| {
        node.verdict == Some(true) && node.host.as_ref().is_some_and(|host| !host.offers(handler))
    };
    let names: Vec<String> =
        view.nodes.iter().filter(lacks).map(|node| node.facts.name.clone()).collect();
    if !names.is_empty() {
        let message = format!(
            "{} to offer the handler {handler}, before which RuntimeClass {} would be for nodes without it",
            text::list(&names, text::NAMES),
            runtime.name
        );
        out.wait(Waiting::Node, object, message);
    }
}

/// Tells of classes that keep the overhead with which they were adopted.
fn adopted_overheads(view: &View<'_>, out: &mut Steps) {
    for runtime in &view.runtimes {
        let Some(existing) = class(view, &runtime.name).filter(|class| bodies::is_our_class(class))
        else {
            continue;
        };
        if let Some((cpu, memory)) = bodies::adopted_overhead(existing, runtime) {
            let name = &runtime.name;
            let message = format!(
                "RuntimeClass {name} keeps the overhead that it had: cpu {}, memory {}",
                cpu.0, memory.0
            );
            let uid = existing.metadata.uid.as_deref();
            out.find(Code::AdoptedOverhead, ObjectRef::new(Kind::RuntimeClass, name, uid), message);
        }
    }
}

/// Deletes a RuntimeClass when no pod uses it.
fn withdraw(view: &View<'_>, out: &mut Steps, object: &ObjectRef, code: Code, message: &str) {
    match view.running(None) {
        Err(None) => {
            out.needs
                .insert(Need::Pods { scope: PodScope::Cluster, classes: view.classes.clone() });
            out.wait(Waiting::Read, object.clone(), "the pods of the cluster are read");
        }
        Err(Some(error)) => out.find(
            Code::ReadFailed,
            object.clone(),
            format!("{message}, but the pods that use it cannot be read: {error}"),
        ),
        Ok(pods) => {
            let users: Vec<&SandboxedPod> =
                pods.into_iter().filter(|pod| pod.runtime_class == object.name).collect();
            if users.is_empty() {
                out.push(delete(object.clone()), OnFailure::Continue, message);
            } else {
                out.find(
                    code,
                    object.clone(),
                    format!("{message}, but {}: {}", text::using(users.len()), text::pods(&users)),
                );
            }
        }
    }
}
