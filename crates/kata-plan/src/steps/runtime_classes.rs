//! Creates, closes and deletes the RuntimeClasses of kata-operator.
//!
//! A class is never deleted while a pod uses it.

use std::collections::BTreeSet;

use k8s_openapi::api::node::v1::RuntimeClass;
use kata_api::Code;
use kata_api::kata_config::RuntimeSpec;
use kata_api::kata_node::Phase;

use crate::assessment::{Assessment, LabelDecision, NodeAssessment};
use crate::classes;
use crate::draft::Draft;
use crate::object::{Kind, ObjectRef};
use crate::plan::{Action, OnFailure};
use crate::pods::NotRead;
use crate::report::{Finding, Waiting};
use crate::selector;
use crate::snapshot::{PodScope, SandboxedPod};
use crate::text;

/// Creates the RuntimeClasses of the KataConfig, each once the first node offers its handler, and deletes
/// those that the KataConfig no longer names.
pub(super) fn offer_classes(cluster: &Assessment, out: &mut Draft) {
    let offered: BTreeSet<&str> = cluster
        .config
        .status
        .iter()
        .flat_map(|status| &status.runtime_classes)
        .map(String::as_str)
        .collect();
    for runtime in &cluster.runtimes {
        let existing = cluster.class(&runtime.name);
        let object = ObjectRef::new(
            Kind::RuntimeClass,
            &runtime.name,
            existing.and_then(|class| class.metadata.uid.as_deref()),
        );
        let exists = existing.is_some() || offered.contains(runtime.name.as_str());
        if let Some(message) = without_nodes(cluster, runtime, exists) {
            out.add_finding(Code::RuntimeWithoutNodes, object.clone(), message);
        }
        let Some(existing) = existing else {
            // A class that existed before is created again even if none of its nodes is available now.
            if (is_served(cluster, runtime) || exists)
                && let Some(body) =
                    classes::runtime_class(&cluster.config, cluster.own_node_label, runtime, None)
            {
                out.push(
                    Action::Apply { object, body },
                    OnFailure::Continue,
                    "nodes can run sandboxed pods",
                );
            } else if is_left_out(cluster, runtime) {
                let message = format!(
                    "RuntimeClass {} is not created: the nodes with Kata got no handler {}, since the payload has no \
                     shim {}",
                    runtime.name,
                    runtime.effective_handler(),
                    runtime.effective_shim()
                );
                out.add_finding(Code::ShimLeftOut, object, message);
            }
            continue;
        };
        if cluster.accepts(runtime) {
            // Its own selector leads to nodes that have the handler without kata-operator.
        } else if cluster.takes_over(existing) {
            take_over(cluster, out, runtime, existing, object);
        } else if !classes::is_our_class(existing) {
            let message = format!(
                "RuntimeClass {} exists, does not belong to kata-operator, and is left unchanged",
                runtime.name
            );
            let mut finding = Finding::new(Code::ForeignRuntimeClass, object, message);
            if cluster.config.spec.provided_nodes.is_some()
                && existing.handler != runtime.effective_handler()
            {
                finding.fix = format!(
                    "If it leads to nodes of spec.providedNodes, set handler: {} of this runtime; otherwise give the \
                     runtime another name.",
                    existing.handler
                );
            }
            out.findings.push(finding);
        } else if existing.metadata.deletion_timestamp.is_some() {
            out.wait_for(
                Waiting::Deletion,
                object,
                format!("RuntimeClass {} to be gone", runtime.name),
            );
        } else if existing.handler != runtime.effective_handler() {
            let message = format!(
                "RuntimeClass {} has the handler {} and should have {}",
                runtime.name,
                existing.handler,
                runtime.effective_handler()
            );
            delete_unused_class(cluster, out, &object, Code::HandlerImmutable, &message);
        } else if let Some(body) =
            classes::runtime_class(&cluster.config, cluster.own_node_label, runtime, Some(existing))
        {
            out.push(
                Action::Apply { object, body },
                OnFailure::Continue,
                "it differs from its desired state",
            );
        }
    }
    adopted_overheads(cluster, out);
    for existing in cluster.our_classes() {
        let name = existing.metadata.name.as_deref().unwrap_or_default();
        if existing.metadata.deletion_timestamp.is_none()
            && !cluster.runtimes.iter().any(|runtime| runtime.name == name)
        {
            let object = ObjectRef::new(Kind::RuntimeClass, name, existing.metadata.uid.as_deref());
            let message = format!("spec.runtimes no longer names RuntimeClass {name}");
            delete_unused_class(cluster, out, &object, Code::RuntimeClassInUse, &message);
        }
    }
}

/// Takes a RuntimeClass of kata-deploy over, once every node of it that should have the runtime is ours: until then its own
/// selector leads to the nodes of both.
fn take_over(
    cluster: &Assessment,
    out: &mut Draft,
    runtime: &RuntimeSpec,
    existing: &RuntimeClass,
    object: ObjectRef,
) {
    if existing.handler != runtime.effective_handler() {
        // Another finding has the reason.
        return;
    }
    let is_left = |node: &&NodeAssessment| {
        node.keeps_runtime_label
            && node.wanted
            && node.classes.contains(&runtime.name)
            && node.label != LabelDecision::Set
    };
    let left: Vec<&str> =
        cluster.nodes.iter().filter(is_left).map(|node| node.facts.name.as_str()).collect();
    if !left.is_empty() {
        let message = format!(
            "RuntimeClass {} to be taken over from kata-deploy, after its nodes {}",
            runtime.name,
            text::list(&left, text::NAMES)
        );
        out.wait_for(Waiting::Node, object, message);
    } else if cluster.left_to_kata_deploy.is_empty()
        && is_served(cluster, runtime)
        && let Some(body) =
            classes::runtime_class(&cluster.config, cluster.own_node_label, runtime, Some(existing))
    {
        out.push(
            Action::Apply { object, body },
            OnFailure::Continue,
            "the nodes of kata-deploy are taken over",
        );
    }
}

/// That no node should have a runtime although nodes should have Kata, and why; `None` if one should, or another finding
/// has the reason. `exists`: the RuntimeClass is there, or was.
fn without_nodes(cluster: &Assessment, runtime: &RuntimeSpec, exists: bool) -> Option<String> {
    let foreign = cluster.class(&runtime.name).filter(|class| !classes::is_our_class(class));
    let is_refused =
        foreign.is_some_and(|class| !cluster.accepts(runtime) && !cluster.takes_over(class));
    let selector = runtime.install_on.as_ref();
    let is_invalid = selector.is_some_and(|selector| selector::check(selector).is_err());
    if !cluster.is_without_nodes(runtime) || is_refused || is_invalid {
        return None;
    }
    let name = &runtime.name;
    let selects = |node: &&NodeAssessment| {
        selector.is_none_or(|it| selector::matches(it, &node.facts.labels).unwrap_or_default())
    };
    let is_provided = |node: &&NodeAssessment| node.wanted && node.provided;
    let provided: Vec<_> = cluster.nodes.iter().filter(is_provided).filter(selects).collect();
    if provided.iter().any(|node| node.classes.is_empty()) {
        return None;
    }
    if !provided.is_empty() {
        let handler = runtime.effective_handler();
        let so = if exists { "its pods wait" } else { "the RuntimeClass is not created" };
        return Some(format!(
            "no node offers the handler {handler} of spec.runtimes[{name}]; {so} until one does"
        ));
    }
    selector?;
    let so = if exists {
        "its pods start only on nodes that still have the runtime"
    } else {
        "the RuntimeClass is not created until a node matches"
    };
    Some(format!("spec.runtimes[{name}].installOn selects none of the nodes that get Kata; {so}"))
}

/// Whether a node has Kata and offers the handler of a runtime that it should have.
fn is_served(cluster: &Assessment, runtime: &RuntimeSpec) -> bool {
    cluster.nodes.iter().any(|node| {
        node.label == LabelDecision::Set
            && node.offers(runtime.effective_handler())
            && node.classes.contains(&runtime.name)
    })
}

/// Whether the nodes of a runtime that were changed as the KataConfig says have no such handler, and no others will
/// be.
fn is_left_out(cluster: &Assessment, runtime: &RuntimeSpec) -> bool {
    let handler = runtime.effective_handler();
    let is_without = |node: &NodeAssessment| {
        !node.behind
            && node.phase == Phase::Ready
            && node.record.as_ref().is_some_and(|record| {
                record.installed.is_some()
                    && !record.handlers.is_empty()
                    && !record.handlers.iter().any(|name| name == handler)
            })
    };
    let wanted = || cluster.nodes.iter().filter(|node| node.classes.contains(&runtime.name));
    wanted().any(is_without) && wanted().all(|node| node.has_failed || is_without(node))
}

/// Reports classes that keep the overhead that they had when they were adopted.
fn adopted_overheads(cluster: &Assessment, out: &mut Draft) {
    for runtime in &cluster.runtimes {
        let Some(existing) =
            cluster.class(&runtime.name).filter(|class| classes::is_our_class(class))
        else {
            continue;
        };
        if let Some((cpu, memory)) = classes::adopted_overhead(existing, runtime) {
            let name = &runtime.name;
            let message = format!(
                "RuntimeClass {name} keeps the overhead that it had when it was adopted: cpu {}, memory {}",
                cpu.0, memory.0
            );
            let uid = existing.metadata.uid.as_deref();
            out.add_finding(
                Code::AdoptedOverhead,
                ObjectRef::new(Kind::RuntimeClass, name, uid),
                message,
            );
        }
    }
}

/// Deletes a RuntimeClass if no pod uses it, and otherwise reports the pods.
fn delete_unused_class(
    cluster: &Assessment,
    out: &mut Draft,
    object: &ObjectRef,
    code: Code,
    message: &str,
) {
    match cluster.pods.in_cluster() {
        Err(NotRead::NotAsked) => {
            out.needs.insert(cluster.pods.need(PodScope::Cluster));
            out.wait_for(Waiting::Read, object.clone(), "the pods of the cluster to be read");
        }
        Err(NotRead::Failed(error)) => out.add_finding(
            Code::ReadFailed,
            object.clone(),
            format!("{message}, but the pods that use it cannot be read: {error}"),
        ),
        Ok(pods) => {
            let users: Vec<&SandboxedPod> =
                pods.into_iter().filter(|pod| pod.runtime_class == object.name).collect();
            if users.is_empty() {
                out.delete(object.clone(), OnFailure::Continue, message);
            } else {
                out.add_finding(
                    code,
                    object.clone(),
                    format!(
                        "{message}, but {}: {}",
                        text::pods_using(users.len()),
                        text::pods(&users)
                    ),
                );
            }
        }
    }
}

/// Closes the RuntimeClasses of a KataConfig that is being deleted, and deletes them once no sandboxed pod
/// is left and no node has the runtime label.
pub(super) fn remove_classes(cluster: &Assessment, out: &mut Draft) {
    let labels_are_gone = !cluster.nodes.iter().any(|node| node.has_runtime_label);
    let may_delete = labels_are_gone && cluster.pods_are_gone();
    for class in cluster.our_classes() {
        let name = class.metadata.name.clone().unwrap_or_default();
        let object = ObjectRef::new(Kind::RuntimeClass, &name, class.metadata.uid.as_deref());
        let is_deleting = class.metadata.deletion_timestamp.is_some();
        if !is_deleting && !classes::is_closed(class) {
            let body = classes::closed_class(&cluster.config, class);
            let action = Action::Apply { object: object.clone(), body };
            out.push(action, OnFailure::Continue, "it takes no new pods from now on");
        } else if !is_deleting && cluster.gives_back(class) {
            // After the nodes: until then it would lead new pods to nodes that are still ours.
            let nodes_are_ours = cluster.nodes.iter().any(|node| !node.provided);
            if !nodes_are_ours && let Some(body) = classes::given_back(class) {
                let action = Action::Apply { object, body };
                out.push(action, OnFailure::Stop, "it is given back to kata-deploy");
            }
            continue;
        } else if may_delete && !is_deleting {
            out.delete(object.clone(), OnFailure::Stop, "no sandboxed pod is left");
        }
        if may_delete {
            out.wait_for(Waiting::Deletion, object, format!("RuntimeClass {name} to be gone"));
        }
    }
}
