//! The steps that remove everything when the KataConfig is being deleted.
//!
//! Nothing here is done while a sandboxed pod runs, besides taking the label of verified nodes.

use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::{Code, names};

use super::install::pool_objects;
use super::monitor;
use super::waiting::wait_for_nodes;
use super::{
    Steps, container_runtime_config, delete, kata_nodes, our_classes, remove_finalizers,
    take_label, verified_labels,
};
use crate::bodies;
use crate::mco;
use crate::object::{Kind, ObjectRef};
use crate::payload;
use crate::plan::OnFailure;
use crate::report::Waiting;
use crate::selection::{self, Mode};
use crate::snapshot::{Need, PodScope};
use crate::text;
use crate::view::View;

pub(super) fn remove(view: &View<'_>, out: &mut Steps) {
    verified_labels(view, out);
    let labels_off = !view.nodes.iter().any(|node| node.verified);
    let classes: Vec<&RuntimeClass> = our_classes(view);
    let labelled = view.nodes.iter().any(|node| node.labelled);
    // Once no node is ours any more, no pod of ours can run, and all pods need not be listed again.
    let pods_matter = !labels_off
        || !classes.is_empty()
        || labelled
        || (view.mode == Mode::Compact && payload::machine_configs(view.snapshot).next().is_some());
    let clear = !pods_matter || no_pods(view, out);
    keep_pool(view, out);
    let unmonitored = clear && monitor::remove(view, out);
    if clear && labels_off {
        remove_from_nodes(view, out, &classes, unmonitored);
    } else if clear {
        let config = selection::config_ref(view.config);
        out.wait(Waiting::OwnWrites, config, "the label of verified nodes is taken off");
    }
    kata_nodes(view, out);
    wait_for_nodes(view, out);
}

/// Whether no sandboxed pod is left in the cluster; says so if one is.
pub(super) fn no_pods(view: &View<'_>, out: &mut Steps) -> bool {
    let config = selection::config_ref(view.config);
    match view.running(None) {
        Err(None) => {
            out.needs
                .insert(Need::Pods { scope: PodScope::Cluster, classes: view.classes.clone() });
            out.wait(Waiting::Read, config, "the pods of the cluster are read");
            false
        }
        Err(Some(error)) => {
            let message =
                format!("cannot read the cluster's pods: {error}; nothing is removed meanwhile");
            out.find(Code::ReadFailed, config, message);
            false
        }
        Ok(pods) if pods.is_empty() => true,
        Ok(pods) => {
            out.blocked_by = pods.iter().map(|pod| pod.runtime_class.clone()).collect();
            out.find(
                Code::PodsStillRunning,
                config.clone(),
                format!("{}: {}", text::left(pods.len()), text::pods(&pods)),
            );
            out.wait(
                Waiting::Pods,
                config,
                format!("{} to end", text::count(pods.len(), "sandboxed pod")),
            );
            false
        }
    }
}

/// Puts MachineConfig and pool back if nodes are on a configuration of the pool whose objects somebody
/// deleted; without them these nodes could go nowhere.
fn keep_pool(view: &View<'_>, out: &mut Steps) {
    let stranded = view.mode == Mode::Pool
        && view.nodes.iter().any(|node| node.facts.refers_to_pool(names::POOL))
        && !view.pools.contains_key(names::POOL);
    if stranded {
        pool_objects(view, out);
    }
}

/// Deletes the RuntimeClasses. Says whether one is still there.
pub(super) fn remove_classes(classes: &[&RuntimeClass], out: &mut Steps) -> bool {
    for class in classes {
        let name = class.metadata.name.clone().unwrap_or_default();
        let object = ObjectRef::new(Kind::RuntimeClass, &name, class.metadata.uid.as_deref());
        if class.metadata.deletion_timestamp.is_none() {
            out.push(delete(object.clone()), OnFailure::Stop, "no sandboxed pod is left");
        }
        out.wait(Waiting::Deletion, object, format!("RuntimeClass {name} to be gone"));
    }
    !classes.is_empty()
}

fn remove_from_nodes(
    view: &View<'_>,
    out: &mut Steps,
    classes: &[&RuntimeClass],
    unmonitored: bool,
) {
    if remove_classes(classes, out) {
        return;
    }
    for node in view.nodes.iter().filter(|node| node.labelled) {
        out.push(take_label(node), OnFailure::Continue, "no sandboxed pod is left");
    }
    let on_nodes = view.mode == Mode::Pool && !view.nodes.is_empty();
    if !on_nodes {
        remove_objects(view, out, unmonitored);
    }
}

/// Deletes the Machine Config Operator's objects, and the finalizer when they are seen to be gone.
fn remove_objects(view: &View<'_>, out: &mut Steps, unmonitored: bool) {
    // What cannot be understood may be on the pool's configuration.
    let unreadable = view.snapshot.unreadable(Kind::Node);
    for node in &unreadable {
        let message = format!("{} to be readable", node.object);
        out.wait(Waiting::Read, node.object.clone(), message);
    }
    if !unreadable.is_empty() {
        return;
    }
    let pool = view.pools.get(names::POOL).filter(|pool| bodies::is_our_pool(pool));
    let counted =
        pool.and_then(|pool| pool.status.as_ref()).map_or(0, |status| status.machine_count);
    if let Some(pool) = pool.filter(|_| counted > 0) {
        // Its node controller has not seen yet that the nodes left, and may be sending one of them to
        // the pool's configuration: one without our MachineConfig, if that is gone, and one that goes
        // with the pool.
        let object =
            ObjectRef::new(Kind::MachineConfigPool, names::POOL, pool.metadata.uid.as_deref());
        let message =
            format!("the Machine Config Operator to count no node in the pool {}", names::POOL);
        out.wait(Waiting::Deletion, object, message);
        return;
    }
    let mut gone = unmonitored;
    let mut remove = |out: &mut Steps, object: ObjectRef, deleting: bool, why: &str| {
        gone = false;
        if !deleting {
            out.push(delete(object.clone()), OnFailure::Stop, why);
        }
        let message = format!("{object} to be gone");
        out.wait(Waiting::Deletion, object, message);
    };
    let why = "no node is on a configuration with it";
    let log_level = container_runtime_config(view)
        .filter(|config| bodies::is_our_container_runtime_config(config));
    if let Some(config) = log_level {
        remove(
            out,
            ObjectRef::new(
                Kind::ContainerRuntimeConfig,
                names::CONTAINER_RUNTIME_CONFIG,
                config.metadata.uid.as_deref(),
            ),
            config.metadata.deletion_timestamp.is_some(),
            why,
        );
    }
    for (name, config) in payload::machine_configs(view.snapshot) {
        remove(
            out,
            ObjectRef::new(Kind::MachineConfig, name, config.metadata.uid.as_deref()),
            config.metadata.deletion_timestamp.is_some(),
            if view.mode == Mode::Compact { "no sandboxed pod is left" } else { why },
        );
    }
    // The controller of the ContainerRuntimeConfig cleans up per pool, so the pool goes after it.
    if let Some(pool) = pool.filter(|_| log_level.is_none()) {
        remove(
            out,
            ObjectRef::new(Kind::MachineConfigPool, names::POOL, pool.metadata.uid.as_deref()),
            pool.metadata.deletion_timestamp.is_some(),
            "no node belongs to it or is on a configuration of it",
        );
    }
    let kata_nodes_left = view.snapshot.kata_nodes.known().is_none_or(|list| !list.is_empty());
    if !gone || !view.nodes.is_empty() || kata_nodes_left {
        return;
    }
    if master_targeted(view) {
        let pool = ObjectRef::named(Kind::MachineConfigPool, names::MASTER_POOL);
        let message = format!(
            "the Machine Config Operator to render the pool {} without Kata",
            names::MASTER_POOL
        );
        out.wait(Waiting::Render, pool, message);
    } else {
        out.steps.push(remove_finalizers(view.config, "nothing is left"));
    }
}

/// Whether the control plane's pool still has Kata in its configuration.
fn master_targeted(view: &View<'_>) -> bool {
    view.mode == Mode::Compact
        && view.pools.get(names::MASTER_POOL).is_none_or(|pool| {
            mco::merges_ours(pool)
                || mco::content(view.snapshot, &pool.spec.configuration.name) != mco::Content::Lacks
        })
}
